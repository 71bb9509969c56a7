"""The form: a table's name with what it is about, and below it a key a line with its value and where it comes from."""

from collections.abc import Sequence
from dataclasses import dataclass

from ftui.profile.origins import Problem

from ...form.form_fields import KINDS, Field
from ...form.form_rows import Row
from ...form.text_values import spelt
from ...render.spans import Frame, Line, Span, harmless, left, right, spread, width_of, wrapped

KEY, FOUND_KEY = 33, 48  # columns: the longest key with a sign behind it; with its table before it
NOTE = 11
CHANGED, FAULT = "*", "!"
MORE = " ... i: more"
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
    num_red: int = 0  # findings in the rows that would stop a run, as far as they were looked at


def head_line(frame: Frame, head: Head) -> Line:
    state: list[Span] = []
    if head.is_new:
        state.append(("  new", "eval"))
    elif head.is_changed:
        state.append((f"  {CHANGED} changed", "warn"))
    told: list[Span] = [(f"{head.doing}  ", "loss")] if head.doing else []
    if head.num_faults:
        told.append((f"{head.num_faults} fault" + ("s" if head.num_faults > 1 else ""), "bad"))
    elif head.num_red:
        told.append((f"rows: {head.num_red} red", "bad"))
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


def details(frame: Frame, row: Row | None, problem: str = "", *, more: str = MORE) -> list[Line]:
    """The key under the cursor: what may stand there, what is wrong, what it means. `problem`: with what is typed.

    What is wrong comes first: it may fill the room. What the room cuts off ends with `more`.
    """
    rule: Line = [(" " + frame.glyphs.rule * (frame.width - 2), "rule")]
    if row is None:
        return [rule]
    width = frame.width - 2
    lines: list[Line] = [
        rule,
        spread(frame.width, [(f" {row.name}", "title"), *_allowed(row.field)], _default(row.field)),
    ]
    room = frame.height - len(lines)
    told = [(problem, "")] if problem else [(fault_text(fault, row), fault.fix) for fault in row.faults]
    body = _wrong(told, width, room, more)
    whole = [] if body else [(line, "bright") for line in _whole(row, frame)]
    why = [] if body or not row.reason else wrapped(row.reason, width - 12)
    reason = [(f"{row.note}: {line}" if n == 0 else line, "violet") for n, line in enumerate(why)]
    kept = max(0 if body else 1, room - len(body) - len(whole) - len(reason))  # below a fault only where there is room
    meaning = _cut(wrapped(row.meaning, width) if row.meaning else [], kept, width, more)
    body = [*body, *whole, *((line, "text") for line in meaning), *reason]
    texts = _cut([text for text, _ in body], room, width, more)
    return [*lines, *([(" " + text, style)] for text, (_, style) in zip(texts, body, strict=False))]


def _wrong(told: Sequence[tuple[str, str]], width: int, room: int, more: str) -> list[Span]:
    """The lines of the faults and their fixes; of the first one the fix is seen, whatever room there is."""
    lines: list[Span] = []
    for message, fix in told:
        mended = wrapped(fix, width) if fix else []
        broken = wrapped(message, width)
        if not lines:
            broken = _cut(broken, max(1, room - len(mended)), width, more)
        lines += [*((line, "bad") for line in broken), *((line, "good") for line in mended)]
    return lines


def _cut(lines: Sequence[str], room: int, width: int, more: str) -> list[str]:
    """As many as there is room for; where that is not all, the last one says so."""
    if len(lines) <= room or room <= 0:
        return list(lines[: max(0, room)])
    return [*lines[: room - 1], left(lines[room - 1], width - len(more)).rstrip() + more]


def fault_text(fault: Problem, row: Row) -> str:
    """The fault, with the other keys that have a part in it."""
    names = [".".join(key) for key in (fault.key, *fault.others) if key != row.key]
    return (
        fault.message
        if not names or all(name in fault.message for name in names)
        else f"{fault.message} ({', '.join(names)})"
    )


def _whole(row: Row, frame: Frame) -> list[str]:
    """The value where the form has no room for it."""
    text = harmless(row.text)
    if width_of([(text, "")]) <= value_width(frame.width):
        return []
    return wrapped(text, frame.width - 2)[:2]


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
