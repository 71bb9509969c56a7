"""The list of what can be started, section by section, and below it all about the line under the cursor."""

from collections.abc import Sequence

from ..render.spans import Frame, Line, heading, left, middle, on_cursor, paragraph, spread, thin_line, wrapped
from ..state.start_choices import HERE, RUNS, SHIPPED, StartChoice
from .columns import GAP, Column, share_width, widest
from .wording import place

NAME, WORDS = 20, 24  # columns: the least of a name and of what is said of it

NOTHING = {
    HERE: "none: a profile is a .toml file with [run], [model] and [data]; o opens one elsewhere",
    SHIPPED: "none",
    RUNS: "none: no run is parked, stopped, failed or lost",
}


def title(frame: Frame, filter_text: str, shown: int, total: int) -> list[Line]:
    """What this is, and what it was narrowed to."""
    narrowed: Line = [(f"{shown} of {total} with {filter_text!r} ", "warn")] if filter_text else []
    return [spread(frame.width, [(" start a run, or resume one", "title")], narrowed), []][: frame.height]


def start_list(frame: Frame, find_choices: Sequence[StartChoice], cursor: int, filter_text: str) -> list[Line]:
    """As many lines as there is room for, the one under the cursor among them."""
    if filter_text and not find_choices:
        return [[(f"  Nothing here has {filter_text!r} in it; / narrows the list to something else.", "muted")]]
    names = Column(NAME, max(NAME, widest(choice.name for choice in find_choices)))
    words = Column(WORDS, widest(choice.words for choice in find_choices))
    widths = share_width([names, words], frame.width - 3 - GAP)
    lines: list[Line] = []
    at = 0
    for section in (HERE, RUNS, SHIPPED):
        here = [(number, choice) for number, choice in enumerate(find_choices) if choice.section == section]
        if filter_text and not here:
            continue
        lines += [*([[]] if lines else []), heading(frame, section, "muted")]
        if not here:
            lines += [[("   " + line, "faint")] for line in wrapped(NOTHING[section], frame.width - 4)]
        for number, choice in here:
            if number == cursor:
                at = len(lines)
            lines.append(_line(frame, choice, widths, chosen=number == cursor))
    top = 0 if at < frame.height - 1 else min(at - frame.height // 2, len(lines) - frame.height)
    return lines[top : top + frame.height]


def _line(frame: Frame, choice: StartChoice, widths: Sequence[int], *, chosen: bool) -> Line:
    line: Line = [
        (f" {frame.glyphs.cursor if chosen else ' '} ", "loss"),
        (middle(choice.name, widths[0]), "number" if chosen else "text"),
        (" " * GAP + left(choice.words, widths[1]), choice.tone),
    ]
    return on_cursor(spread(frame.width, line), chosen)


def about(frame: Frame, choice: StartChoice | None) -> list[Line]:
    """All that the list cut away, and where it is."""
    if choice is None:
        return []
    where = choice.profile if choice.run is None else choice.run.folder
    words = paragraph(choice.whole or choice.words, frame.width, choice.tone)
    return [
        thin_line(frame),
        [(f" {choice.name}", "title")],
        *words[: frame.height - 3],
        [(f" {place(where) if where else ''}", "faint")],
    ]
