"""The rungs of a sweep: how many came, who went on, and where each trial stood among the others there."""

from collections.abc import Sequence

from ftui.sweep.results.rung_table import RungRow, rung_table
from ftui.sweep.results.sweep_results import SweepView

from ...render.spans import Frame, Line, clipped, joined, labelled, right
from ..columns import GAP

HEADINGS = ("step", "came", "failed", "went on", "on the way", "best", "last to go on")
LEFT, RIGHT = 18, 12  # columns beside a strip: step and best value, worst value
LEAST_STRIP = 10
BEYOND = 0.9  # share of the values that a strip is made for: the worst ones stand at its end


def rungs_view(frame: Frame, view: SweepView, chosen: int | None) -> list[Line]:
    """A table, a strip for each rung, and the numbers of those that went on. `chosen`: the trial under the cursor."""
    rows = rung_table(view.ladder, [trial.stand for trial in view.state.searched])
    widths = [max(len(name), 8) for name in HEADINGS]
    lines: list[Line] = [[("  " + _joined(HEADINGS, widths), "faint")]]
    lines += [[("  " + _joined(_texts(view, row), widths), "text")] for row in rows]
    lines += [[], *_strips(frame, view, rows, chosen), []]
    for row in rows[:-1]:
        names = ", ".join(str(number) for number in row.went_on) or "none yet"
        head: Line = [(f"  went on from {row.step}: ", "muted")]
        lines += labelled(head, names, frame.width, "good" if row.went_on else "faint")
    return [clipped(line, frame.width) for line in lines[: frame.height]]


def _texts(view: SweepView, row: RungRow) -> tuple[str, ...]:
    is_last = row.rung == view.ladder.top
    worst = "" if row.last_to_go_on is None else f"{row.last_to_go_on:.5g}"
    return (
        str(row.step) if view.plan.rungs else "end", str(len(row.came)), str(len(row.failed) or ""),
        "" if is_last else str(len(row.went_on)), str(len(row.on_the_way) or ""),
        "" if row.best is None else f"{row.best:.5g}", worst,
    )  # fmt: skip


def _joined(texts: Sequence[str], widths: Sequence[int]) -> str:
    return (" " * GAP).join(right(text, width) for text, width in zip(texts, widths, strict=True)).rstrip()


def _strips(frame: Frame, view: SweepView, rows: Sequence[RungRow], chosen: int | None) -> list[Line]:
    """The values at each rung from the best at the left on, each rung on a scale of its own."""
    width = frame.width - LEFT - RIGHT
    if width < LEAST_STRIP or not any(row.came for row in rows):
        return [[("  no trial has come to a rung yet", "muted")]]
    lines = [_strip(frame, view, row, chosen, width) for row in rows if row.came]
    glyphs = frame.glyphs
    went = f"{glyphs.alive} went on or finished  {glyphs.idle} did not  {glyphs.cursor} under the cursor"
    return [*lines, [(" " * LEFT + went, "faint")]]


def _strip(frame: Frame, view: SweepView, row: RungRow, chosen: int | None, width: int) -> Line:
    values = {
        number: value for number in row.came if (value := view.state.trials[number].results[row.rung]) is not None
    }
    order = list(values.values())
    best, worst = order[0], order[min(len(order) - 1, int(BEYOND * len(order)))]
    glyphs = frame.glyphs
    signs, styles = [" "] * width, ["text"] * width
    for number in [*reversed(row.came), *(one for one in [chosen] if one in values)]:
        place = 0.0 if worst == best else (values[number] - best) / (worst - best)
        at = min(width - 1, max(0, round(place * (width - 1))))
        went = number in row.went_on or row.rung == view.ladder.top
        signs[at] = glyphs.cursor if number == chosen else glyphs.alive if went else glyphs.idle
        styles[at] = "eval" if number == chosen else "good" if went else "muted"
    step = str(row.step) if view.plan.rungs else "end"
    more = "" if worst == order[-1] else " >" if not view.ladder.greater_is_better else " <"
    head: Line = [
        (right(step, 6) + " ", "muted"),
        (right(f"{best:.4g}", LEFT - 9) + " ", "text"),
        (glyphs.wall, "rule"),
    ]
    return [*head, *joined(zip(signs, styles, strict=True)), (glyphs.wall, "rule"), (f" {worst:.4g}{more}", "text")]
