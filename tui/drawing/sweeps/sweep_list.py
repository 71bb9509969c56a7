"""All sweeps, a line each."""

from collections.abc import Sequence

from ftui.sweep.results.sweep_results import ListedSweep

from ...render.spans import Frame, Line, around, left, middle, on_cursor, paragraph, right, spread, thin_line
from ..columns import GAP, Column, share_width, widest
from ..wording import place

HEADINGS = ("sweep", "trials", "finished", "best", "standing")


def list_title(frame: Frame, sweeps: Sequence[ListedSweep] | None) -> list[Line]:
    """How many there are, and how many are searching."""
    rows = sweeps or ()
    at_work = sum(one.view is not None and one.view.state.is_at_work for one in rows)
    facts: Line = [(f"{at_work}", "good" if at_work else "muted"), (" searching  ", "muted"), (f"{len(rows)}", "text")]
    return [spread(frame.width, [(" sweeps", "title")], [*facts, (" in all ", "muted")]), []][: frame.height]


def sweep_list(frame: Frame, sweeps: Sequence[ListedSweep] | None, cursor: int) -> list[Line]:
    """As many as there is room for; `None` before the first look."""
    if not sweeps:
        text = "Looking ..." if sweeps is None else "No sweep yet. Press n to start one: docs/sweep.md has an example."
        return [[], *paragraph(text, frame.width, "muted", indent=2)][: frame.height]
    cells = [_texts(one) for one in sweeps]
    wishes = [widest([name, *(texts[at] for texts in cells)]) for at, name in enumerate(HEADINGS)]
    columns = [Column(min(wish, 12) if at in (0, 4) else wish, wish) for at, wish in enumerate(wishes)]
    widths = share_width(columns, frame.width - 2 - GAP * (len(columns) - 1))
    lines: list[Line] = [[("  " + _joined(HEADINGS, widths), "faint")]]
    for (one, texts), chosen in around(list(zip(sweeps, cells, strict=True)), cursor, frame.height - 1):
        style = "number" if chosen else "bad" if one.view is None else "text" if one.view.state.is_at_work else "muted"
        line: Line = [(f"{frame.glyphs.cursor if chosen else ' '} ", "loss"), (_joined(texts, widths), style)]
        lines.append(on_cursor(line, chosen))
    return lines


def _texts(one: ListedSweep) -> tuple[str, ...]:
    if one.view is None:
        return one.files.name, "", "", "", "cannot be read"
    view = one.view
    best = "" if view.best is None or view.best.value is None else f"{view.best.value:.5g}"
    return (
        view.files.name, f"{len(view.state.searched)}/{view.plan.trials}", str(view.num_finished), best, view.standing
    )  # fmt: skip


def _joined(texts: Sequence[str], widths: Sequence[int]) -> str:
    parts = []
    for name, text, width in zip(HEADINGS, texts, widths, strict=True):
        parts.append((middle if name == "sweep" else left if name == "standing" else right)(text, width))
    return (" " * GAP).join(parts)


def list_details(frame: Frame, one: ListedSweep | None) -> list[Line]:
    """What the list has no room for."""
    if one is None:
        return []
    lines = [thin_line(frame), [(f" {one.files.name}  ", "title"), (f"in {place(one.files.root)}", "muted")]]
    if one.view is None:
        return [*lines, *paragraph(one.problem, frame.width, "bad")][: frame.height]
    plan = one.view.plan
    keys = ", ".join(dimension.key for dimension in plan.space)
    how = f"{plan.sampler}, {plan.scheduler}" + (f" at {', '.join(map(str, plan.rungs))}" if plan.rungs else "")
    lines += paragraph(f"{keys}; by {how}", frame.width, "text")
    return [*lines, *paragraph(f"eval {one.view.metric}; {one.view.standing}.", frame.width, "muted")][: frame.height]
