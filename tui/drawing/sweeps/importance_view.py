"""Which of the searched keys matter."""

from ftui.sweep.results.importance import Importance, importance_notes
from ftui.sweep.results.sweep_results import SweepView

from ...render.spans import Frame, Line, left, paragraph, right
from ..columns import widest

MOST_BAR = 60


def importance_view(frame: Frame, view: SweepView, found: Importance | None, problem: str) -> list[Line]:
    """A bar for each key; `found`: `None` while it is computed, `problem`: why it cannot be."""
    if problem:
        return [[], *paragraph(problem, frame.width, "warn", indent=2)][: frame.height]
    if found is None:
        return [[], [("  Computing ...", "muted")]][: frame.height]
    head, *notes = importance_notes(found, view.metric)
    lines: list[Line] = [*paragraph(head, frame.width, "text", indent=2), []]
    size = min(widest(one.key for one in found.keys), max(12, frame.width // 2))
    room = max(4, min(MOST_BAR, frame.width - size - 12 - len("chance")))
    for one in found.keys:
        bar = frame.glyphs.full * max(1, round(one.share * room))
        style = "faint" if one.is_chance else "loss"
        line: Line = [(f"  {left(one.key, size)} ", "muted" if one.is_chance else "text"), (left(bar, room), style)]
        lines.append([*line, (right(f"{one.share:.0%}", 5), "number"), (" chance" if one.is_chance else "", "faint")])
    for note in notes:
        lines += [[], *paragraph(note, frame.width, "muted", indent=2)]
    return lines[: frame.height]
