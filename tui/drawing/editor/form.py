"""The form: a table's name and what it is for, then one line for each key with its value and where that comes from."""

from collections.abc import Sequence
from dataclasses import dataclass

from ftui.profile.origins import ProfileFault
from ftui.text import cells, cut_middle

from ...form.form_fields import KINDS, Field
from ...form.form_rows import FormRow
from ...form.profile_form import ProfileForm
from ...form.text_values import format_value
from ...render.spans import (
    Frame,
    Line,
    Span,
    harmless,
    left,
    middle,
    on_cursor,
    right,
    spread,
    thin_line,
    width_of,
    wrapped,
)
from ..columns import GAP, Column, share_width, widest
from ..wording import count_words, place

KEY, VALUE = 24, 24  # columns: the least of a key and of its value
NOTE = 8  # and of where it comes from
FOLDER = 8  # and of the folder that the profile is in
MARGIN = 4  # the cursor and the sign of a fault or a warning, and one at the right end
CHANGED, FAULT, WARNING = "*", "!", "?"
MORE = " ... i: more"
VALUE_STYLES = {"default": "muted", "tier": "violet", "file": "bright"}
NOTE_STYLES = {"default": "faint", "tier": "violet", "file": "faint"}


def head_line(frame: Frame, form: ProfileForm, *, activity: str, num_stopping: int) -> Line:
    """The first line: the file, its state, the tier below it.

    `activity`: what is going on in the background; `num_stopping`: findings in the rows that would stop a run.
    """
    change: list[Span] = []
    if form.is_new or form.is_changed:
        change.append(("  new", "eval") if form.is_new else (f"  {CHANGED} changed", "warn"))
    state: list[Span] = [(f"{activity}  ", "loss")] if activity else []
    if num_faults := len(form.snapshot.faults) + bool(form.snapshot.syntax_error):
        state.append((count_words(num_faults, "error"), "bad"))
    else:
        state.append((f"rows: {count_words(num_stopping, 'error')}", "bad") if num_stopping else ("valid", "good"))
        if num_warnings := len(form.snapshot.warnings):
            state.append((f", {count_words(num_warnings, 'warning')}", "warn"))
    state.append((f"  {frame.glyphs.separator}  tier ", "faint"))
    state.append((f"{form.tier_name or 'none'} ", "violet" if form.tier_name else "muted"))
    room = frame.width - width_of([*change, *state]) - 2
    name = cut_middle(harmless(form.path.name), room)
    line: list[Span] = [(f" {name}", "title"), *change]
    if (rest := room - cells(name) - 2) >= FOLDER:
        line.append(("  " + cut_middle(harmless(place(form.path.parent)), rest), "faint"))
    return spread(frame.width, line, state)


def scroll_to(cursor: int | None, top: int, height: int, count: int, *, margin: int = 1) -> int:
    """The first of `count` lines to show in `height`, so that the cursor's is seen with a margin, moving little."""
    margin = min(margin, height // 4)
    if cursor is not None:
        top = max(min(top, cursor - margin), cursor + margin - height + 1)
    return max(0, min(top, count - height))


def form_lines(frame: Frame, form: ProfileForm, top: int = 0) -> list[Line]:
    """As many rows from `top` on as there is room for."""
    if form.query is not None and not form.rows:
        return [[], [(f"   No key has {form.query!r} in its name or its help.", "muted")]]
    widths = form_widths(form, frame.width)
    rows = list(enumerate(form.rows))[top : top + frame.height]
    return [_line(frame, row, form, widths, chosen=number == form.cursor) for number, row in rows]


@dataclass(frozen=True)
class FormWidths:
    """Columns of a line of the form, without those between them."""

    key: int
    value: int
    note: int

    @property
    def value_column(self) -> int:
        """The column in which values begin."""
        return 3 + self.key + GAP


def form_widths(form: ProfileForm, width: int) -> FormWidths:
    """How the keys, their values and the notes share a line of `width` columns."""
    rows = [row for row in form.rows if row.kind != "heading"]
    columns = [
        Column(KEY, widest(_name(row, form) for row in rows)),
        Column(VALUE, widest(_value(row, form, chosen=False)[0] for row in rows), grows=True),
        Column(NOTE, widest(_note(row) for row in rows)),
    ]
    return FormWidths(*share_width(columns, width - MARGIN - 2 * GAP))


def _line(frame: Frame, row: FormRow, form: ProfileForm, widths: FormWidths, *, chosen: bool) -> Line:
    if row.kind == "heading":
        return _heading(frame, row)
    sign, style = _sign(row)
    text, tone = _value(row, form, chosen=chosen)
    gap = " " * GAP
    line: Line = [
        (frame.glyphs.cursor if chosen else " ", "loss"),
        (f"{sign} ", style),
        (middle(_name(row, form), widths.key), "bad" if row.kind == "unknown" else "text" if chosen else "muted"),
        (gap + middle(text, widths.value) + gap, tone),
        (right(_note(row), widths.note) + " ", NOTE_STYLES[row.source]),
    ]
    return on_cursor(line, chosen)


def _sign(row: FormRow) -> Span:
    if row.faults:
        return FAULT, "bad"
    if row.warnings:
        return WARNING, "warn"
    return (CHANGED, "warn") if row.is_changed else (" ", "muted")


def _name(row: FormRow, form: ProfileForm) -> str:
    """The key as it is shown: a match of a search with its table, and whether there is more inside it."""
    name = row.name if form.query is not None else "  " * row.depth + _place(row) + row.key[-1]
    return name if row.is_open is None else f"{name} {'-' if row.is_open else '+'}"


def _note(row: FormRow) -> str:
    return "" if row.source == "default" and row.text == "" else row.note


def _place(row: FormRow) -> str:
    """The number of the source or stage that the key is in, from 1."""
    return f"{int(row.key[-2]) + 1} " if len(row.key) > 2 and row.key[-2].isdigit() else ""


def _value(row: FormRow, form: ProfileForm, *, chosen: bool) -> Span:
    if chosen and form.input_text is not None:
        return form.input_text, "bright"
    if row.text == "" and row.field is not None and row.field.is_required and "0" not in row.key[2:3]:
        return "needed", "bad"
    if row.kind == "unknown":
        return (f"is it {row.meant[-1]}?  " if row.meant else "") + row.text, "bad"
    if row.faults and any(not fault.others for fault in row.faults):
        return row.text, "bad"
    if row.warnings:
        return row.text, "warn"
    return row.text, VALUE_STYLES[row.source]


def _heading(frame: Frame, row: FormRow) -> Line:
    text = [(f" [{row.key[0]}]", "title"), (f"  {row.meaning}", "faint")]
    fault: Line = [(f"{FAULT} {row.faults[0].message} ", "bad")] if row.faults else []
    return spread(frame.width, text, fault)


def details(
    frame: Frame, row: FormRow | None, problem: str = "", *, more: str = MORE, value_width: int = VALUE
) -> list[Line]:
    """The key under the cursor: what may stand there, what is wrong, what it means. `problem`: with what is typed.

    What is wrong comes first: it may fill the room. What the room cuts off ends with `more`.
    """
    rule = thin_line(frame)
    if row is None:
        return [rule]
    width = frame.width - 2
    lines: list[Line] = [
        rule,
        spread(frame.width, [(f" {row.name}", "title"), *_allowed(row.field)], _default(row.field)),
    ]
    room = frame.height - len(lines)
    faults = [(problem, "")] if problem else [(fault_text(fault, row), fault.fix) for fault in row.faults]
    body = _fault_lines(faults, "bad", width, room, more)
    if not body:
        body = _fault_lines([(warning.message, warning.fix) for warning in row.warnings], "warn", width, room, more)
    whole = [] if body else [(line, "bright") for line in _whole(row, frame, value_width)]
    why = [] if body or not row.reason else wrapped(row.reason, width - 12)
    reason = [(f"{row.note}: {line}" if n == 0 else line, "violet") for n, line in enumerate(why)]
    rest = max(0 if body else 1, room - len(body) - len(whole) - len(reason))  # below a fault only where there is room
    meaning = _cut(wrapped(row.meaning, width) if row.meaning else [], rest, width, more)
    body = [*body, *whole, *((line, "text") for line in meaning), *reason]
    texts = _cut([text for text, _ in body], room, width, more)
    return [*lines, *([(" " + text, style)] for text, (_, style) in zip(texts, body, strict=False))]


def _fault_lines(faults: Sequence[tuple[str, str]], style: str, width: int, room: int, more: str) -> list[Span]:
    """The lines of the faults and their fixes; the first fix is seen, whatever room there is."""
    lines: list[Span] = []
    for message, fix in faults:
        fix_lines, message_lines = wrapped(fix, width) if fix else [], wrapped(message, width)
        if not lines:
            message_lines = _cut(message_lines, max(1, room - len(fix_lines)), width, more)
        lines += [*((line, style) for line in message_lines), *((line, "good") for line in fix_lines)]
    return lines


def _cut(lines: Sequence[str], room: int, width: int, more: str) -> list[str]:
    """As many as there is room for; where that is not all, the last one says so."""
    if len(lines) <= room or room <= 0:
        return list(lines[: max(0, room)])
    return [*lines[: room - 1], left(lines[room - 1], width - len(more)).rstrip() + more]


def fault_text(fault: ProfileFault, row: FormRow) -> str:
    """The fault, with the other keys that have a part in it."""
    names = [".".join(key) for key in (fault.key, *fault.others) if key != row.key]
    is_named = all(name in fault.message for name in names)
    return fault.message if is_named else f"{fault.message} ({', '.join(names)})"


def _whole(row: FormRow, frame: Frame, value_width: int) -> list[str]:
    """The value where the form has no room for it: it has `value_width` columns."""
    return wrapped(row.text, frame.width - 2)[:2] if widest([row.text]) > value_width else []


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
    return [("needed " if field.is_required else f"default {format_value(field.default)} ", "faint")]
