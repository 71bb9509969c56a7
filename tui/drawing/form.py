"""The form: a table's name with what it is about, and below it a key a line with its value and where it comes from."""

from collections.abc import Sequence
from dataclasses import dataclass

from ftui.profile.origins import Problem
from ftui.tui.form import KINDS, Field
from ftui.tui.form_entry import spelt
from ftui.tui.form_rows import Row
from ftui.tui.spans import Frame, Line, Span, harmless, left, right, spread, width_of, wrapped

KEY, FOUND_KEY = 33, 48  # columns: the longest key with a sign behind it; with its table before it
NOTE = 11
CHANGED, FAULT = "*", "!"
VALUE_STYLES = {"default": "muted", "tier": "violet", "file": "bright", "--set": "eval"}
NOTE_STYLES = {"default": "faint", "tier": "violet", "file": "faint", "--set": "eval"}


@dataclass(frozen=True)
class FormPage:
    """What the form shows. `typed`: the value under the cursor while it is being typed; `query`: what is searched."""

    rows: Sequence[Row]
    cursor: int
    top: int = 0
    typed: str | None = None
    query: str | None = None


@dataclass(frozen=True)
class Head:
    """The first line: which file, how it stands, over which tier."""

    name: str
    where: str
    is_new: bool
    is_changed: bool
    num_faults: int
    tier: str
    doing: str = ""


def head_line(frame: Frame, head: Head) -> Line:
    state: list[Span] = []
    if head.is_new:
        state.append(("  new", "eval"))
    elif head.is_changed:
        state.append((f"  {CHANGED} changed", "warn"))
    told: list[Span] = [(f"{head.doing}  ", "loss")] if head.doing else []
    if head.num_faults:
        told.append((f"{head.num_faults} fault" + ("s" if head.num_faults > 1 else ""), "bad"))
    else:
        told.append(("no fault", "good"))
    told.append((f"  {frame.glyphs.separator}  tier ", "faint"))
    told.append((f"{head.tier or 'none'} ", "violet" if head.tier else "muted"))
    return spread(frame.width, [(f" {head.name}", "title"), *state, (f"  {head.where}", "faint")], told)


def top_for(cursor: int, top: int, height: int, count: int) -> int:
    """The first row to show, so that the one under the cursor is seen with one more on either side, moving little."""
    margin = 1 if height > 4 else 0
    if cursor - margin < top:
        top = cursor - margin
    if cursor + margin >= top + height:
        top = cursor + margin - height + 1
    return max(0, min(top, count - height))


def form_lines(frame: Frame, page: FormPage) -> list[Line]:
    if page.query is not None and not page.rows:
        return [[], [(f"   No key has {page.query!r} in its name or its help.", "muted")]]
    shown = list(enumerate(page.rows))[page.top : page.top + frame.height]
    return [_line(frame, row, page, chosen=number == page.cursor) for number, row in shown]


def key_width(width: int, *, is_search: bool) -> int:
    """Columns of the keys: those that were found are shown with their tables, where that leaves room for values."""
    return max(KEY, min(FOUND_KEY, width - 40)) if is_search else KEY


def value_column(width: int, *, is_search: bool = False) -> int:
    """The column in which values begin."""
    return 3 + key_width(width, is_search=is_search) + 1


def value_width(width: int, *, is_search: bool = False) -> int:
    return max(8, width - value_column(width, is_search=is_search) - NOTE - 1)


def _line(frame: Frame, row: Row, page: FormPage, *, chosen: bool) -> Line:
    if row.kind == "heading":
        return _heading(frame, row)
    behind = "@cursor" if chosen else ""
    sign, style = (FAULT, "bad") if row.faults else (CHANGED, "warn") if row.is_changed else (" ", "muted")
    mark = frame.glyphs.cursor if chosen else " "
    is_search = page.query is not None
    name = row.name if is_search else row.key[-1]
    name = "  " * (0 if is_search else row.depth) + _place(row, is_search=is_search) + name
    if row.is_open is not None:
        name += " -" if row.is_open else " +"
    text, tone = _value(row, page, chosen=chosen)
    key, value = key_width(frame.width, is_search=is_search), value_width(frame.width, is_search=is_search)
    note = "" if row.comes_from == "default" and row.text == "" else row.note
    line: Line = [
        (mark, "loss" + behind),
        (f"{sign} ", style + behind),
        (left(name, key), ("bad" if row.kind == "unknown" else "text" if chosen else "muted") + behind),
        (" " + left(text, value), tone + behind),
        (right(note, NOTE) + " ", NOTE_STYLES[row.comes_from] + behind),
    ]
    return line


def _place(row: Row, *, is_search: bool) -> str:
    """Of a key of the second source and the ones after it: which."""
    if is_search or len(row.key) < 3 or not row.key[-2].isdigit():
        return ""
    return f"{int(row.key[-2]) + 1} "


def _value(row: Row, page: FormPage, *, chosen: bool) -> Span:
    if chosen and page.typed is not None:
        return page.typed, "bright"
    if row.text == "" and row.field is not None and row.field.is_required and "0" not in row.key[2:3]:
        return "needed", "bad"
    if row.kind == "unknown":
        return (f"is it {row.meant[-1]}?  " if row.meant else "") + row.text, "bad"
    if row.faults and any(not fault.others for fault in row.faults):
        return row.text, "bad"
    return row.text, VALUE_STYLES[row.comes_from]


def _heading(frame: Frame, row: Row) -> Line:
    text = [(f" [{row.key[0]}]", "title"), (f"  {row.meaning}", "faint")]
    fault: Line = [(f"{FAULT} {row.faults[0].message} ", "bad")] if row.faults else []
    return spread(frame.width, text, fault)


def details(frame: Frame, row: Row | None, problem: str = "") -> list[Line]:
    """The key under the cursor: what may stand there, what it means, what is wrong. `problem`: with what is typed."""
    rule: Line = [(" " + frame.glyphs.rule * (frame.width - 2), "rule")]
    if row is None:
        return [rule]
    width = frame.width - 2
    lines: list[Line] = [
        rule,
        spread(frame.width, [(f" {row.name}", "title"), *_allowed(row.field)], _default(row.field)),
    ]
    told = [(problem, "")] if problem else [(fault_text(fault, row), fault.fix) for fault in row.faults]
    room = frame.height - len(lines)
    wrong: list[Line] = []
    for message, fix in told:
        mended = [(line, "good") for line in wrapped(fix, width)] if fix else []
        broken = [(line, "bad") for line in wrapped(message, width)]
        if not wrong:  # of the first one the way out is seen, whatever room there is
            broken = broken[: max(1, room - len(mended))]
        wrong += [[(" " + text, style)] for text, style in [*broken, *mended]]
    meaning: list[Line] = [[(" " + line, "text")] for line in wrapped(row.meaning, width) if row.meaning]
    if wrong:  # what is wrong first: it may fill the room
        kept = max(1, room - len(wrong)) if meaning and room > 2 else 0
        return [*lines, *meaning[:kept], *wrong][: frame.height]
    whole = _whole(row, frame)
    why = [f"{row.note}: {line}" if n == 0 else line for n, line in enumerate(wrapped(row.reason, width - 12))]
    reason: list[Line] = [[(" " + line, "violet")] for line in why if row.reason]
    return [*lines, *whole, *meaning[: max(1, room - len(reason))], *reason][: frame.height]


def fault_text(fault: Problem, row: Row) -> str:
    """The fault, with the other keys that have a part in it."""
    names = [".".join(key) for key in (fault.key, *fault.others) if key != row.key]
    return (
        fault.message
        if not names or all(name in fault.message for name in names)
        else f"{fault.message} ({', '.join(names)})"
    )


def _whole(row: Row, frame: Frame) -> list[Line]:
    """The value where the form has no room for it."""
    text = harmless(row.text)
    if width_of([(text, "")]) <= value_width(frame.width):
        return []
    return [[(" " + line, "bright")] for line in wrapped(text, frame.width - 2)][:2]


def _allowed(field: Field | None) -> list[Span]:
    if field is None:
        return []
    words = KINDS[field.kind]
    if field.kind == "choice":
        words = " | ".join(field.choices)
    elif field.choices and field.kind == "list":
        words = "list of " + " | ".join(field.choices)
    elif field.kind == "list" and field.items is str:
        words = "list; quotes around a text with a comma"
    elif field.kind in ("text", "whole", "number", "list", "texts") and field.is_optional:
        words += ' or "none"'
    return [(f"  {', '.join([words, *field.limits])}", "loss")]


def _default(field: Field | None) -> list[Span]:
    if field is None:
        return []
    told = "needed" if field.is_required else f"default {spelt(field.default)}"
    return [(f"{told} ", "faint")]
