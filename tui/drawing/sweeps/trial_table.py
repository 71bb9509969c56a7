"""The trials of a sweep, the best first, and all of the one under the cursor."""

from collections.abc import Sequence

from ftui import units
from ftui.sweep.results.sweep_results import ResultRow, SweepView, value_text
from ftui.text import toml_value

from ...render.spans import Frame, Line, around, clipped, left, middle, on_cursor, paragraph, right, spread, thin_line
from ..columns import GAP, Column, share_width, widest

VIEWS = ("trials", "rungs", "curves", "coordinates", "importance")
LEAST_KEY = 5  # columns of a value
STYLES = {"finished": "good", "parked": "muted", "queued": "muted", "removed": "bad"}


def sweep_title(frame: Frame, name: str, view: SweepView | None, shown: int) -> list[Line]:
    """The sweep and how it stands; below it what can be looked at."""
    if view is None:
        return [[(f" {name}", "title")], []][: frame.height]
    facts = [f"{len(view.state.searched)}/{view.plan.trials} trials", f"{view.num_finished} finished"]
    facts.append(f"{units.duration(view.state.seconds)} of training")
    style = "good" if view.state.is_at_work else "warn" if view.state.is_paused else "muted"
    head: Line = [(f" {view.files.name}  ", "title"), (view.standing, style)]
    tabs: Line = []
    for number, word in enumerate(VIEWS):
        chosen = number == shown
        tabs += [(f" {number + 1}", "key" if chosen else "faint"), (f" {word} ", "number" if chosen else "muted")]
    return [spread(frame.width, head, [("  ".join(facts) + " ", "muted")]), clipped(tabs, frame.width)][: frame.height]


def trial_table(frame: Frame, view: SweepView, cursor: int) -> list[Line]:
    """As many trials as there is room for, with the searched keys. Where it is narrow, the last of these go.

    What follows from others is not here: the details below have all.
    """
    keys = [dimension.key for dimension in view.plan.space]
    heads = ("", "run", "step", view.metric, "standing", *(key.rpartition(".")[2] for key in keys))
    cells = [_texts(view, row, keys) for row in view.rows]
    if not cells:
        return [[], *paragraph("No trial has been asked yet.", frame.width, "muted", indent=2)][: frame.height]
    wishes = [widest([name, *(texts[at] for texts in cells)]) for at, name in enumerate(heads)]
    least = [min(wish, 8) if at in (1, 4) else wish for at, wish in enumerate(wishes)]
    least[5:] = [max(LEAST_KEY, widest(texts[at] for texts in cells)) for at in range(5, len(heads))]
    room = frame.width - 2 - GAP * (len(heads) - 1)
    number = len(keys)
    while number and sum(least[: 5 + number]) > room + GAP * (len(keys) - number):
        number -= 1
    room += GAP * (len(keys) - number)
    widths = share_width([Column(least[at], wishes[at]) for at in range(5 + number)], room)
    order = (0, 1, *range(5, 5 + number), 2, 3, 4)
    lines: list[Line] = [[("  " + _joined(heads, order, widths), "faint")]]
    for (row, texts), on in around(list(zip(view.rows, cells, strict=True)), cursor, frame.height - 1):
        style = "number" if on else _style(row)
        line: Line = [(f"{frame.glyphs.cursor if on else ' '} ", "loss"), (_joined(texts, order, widths), style)]
        lines.append(on_cursor(line, on))
    return [clipped(line, frame.width) for line in lines]


def _style(row: ResultRow) -> str:
    if row.trial.ended:
        return "bad"
    return STYLES.get(row.standing.partition(",")[0], "text")


def _texts(view: SweepView, row: ResultRow, keys: Sequence[str]) -> tuple[str, ...]:
    rank = "=" if row.trial.repeat_of is not None else str(row.rank or "")
    step = "" if row.step is None else str(row.step)
    value = "" if row.value is None else f"{row.value:.5g}"
    standing = f"{row.standing}, {row.verdict}" if row.verdict else row.standing
    return rank, row.run, step, value, standing, *(value_text(row.trial.values.get(key)) for key in keys)


def _joined(texts: Sequence[str], order: Sequence[int], widths: Sequence[int]) -> str:
    parts = []
    for at in order:
        align = middle if at == 1 else left if at == 4 else right
        parts.append(align(texts[at], widths[at]))
    return (" " * GAP).join(parts).rstrip()


def trial_details(frame: Frame, view: SweepView | None, row: ResultRow | None) -> list[Line]:
    """Every value of a trial, and what it came to at each rung."""
    if view is None or row is None:
        return []
    trial = row.trial
    about = f"trial {trial.number}" if trial.repeat_of is None else f"trial {trial.repeat_of} with another seed"
    how = "no difference from the best" if row.verdict == "no difference" else row.verdict
    standing = row.standing + (f"; with other seeds: {how}" if row.verdict else "")
    head: Line = [(f" {row.run}  ", "title"), (f"{about}, {units.duration(trial.seconds)}: {standing}", "muted")]
    came = [
        f"{'no value' if value is None else f'{value:.5g}'} @ {trial.steps[rung]}"
        for rung, value in sorted(trial.results.items())
    ]
    values = ", ".join(f"{key} = {toml_value(value)}" for key, value in trial.values.items())
    lines = [thin_line(frame), head, [(f" {view.metric} ", "muted"), ("  ".join(came) or "not yet", "text")]]
    lines += paragraph(values, frame.width, "text")
    return [clipped(line, frame.width) for line in lines[: frame.height]]
