"""The rows of the form: tables, keys, what is inside a table or a list, and keys that no profile has. No Textual."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from ftui.profile.origins import Key, Problem
from ftui.profile.schema import Profile

from .form_fields import Field, Heading, field_at, headings
from .snapshot import From, Seen
from .text_values import spelt

_MEANT = re.compile(r"(?:Did you mean|Here it is) \[?([\w.]+)")


@dataclass(frozen=True)
class Row:
    """One line of the form.

    Attributes:
        key: with the numbers of places in lists.
        text: the value, as it can be typed.
        note: where the value comes from, in a word or two.
        is_open: of a group, of sources or of a list of tables: whether the rows inside it follow.
        is_changed: whether the file on the disk says something else.
        meant: of an unknown key: the key that was meant.
        reason: why the tier says so.
    """

    kind: Literal["heading", "key", "unknown"]
    key: Key
    text: str = ""
    field: Field | None = None
    comes_from: From = "default"
    note: str = ""
    depth: int = 0
    is_open: bool | None = None
    is_changed: bool = False
    faults: tuple[Problem, ...] = ()
    meant: Key | None = None
    meaning: str = ""
    reason: str = ""

    @property
    def name(self) -> str:
        return ".".join(self.key)


def rows_of(
    seen: Seen,
    *,
    opened: Collection[Key] = (),
    before: Mapping[Key, Any] | None = None,
    reasons: Mapping[Key, str] | None = None,
) -> list[Row]:
    """Everything in the order of the reference.

    `before`: what the file on the disk says; `reasons`: why the tier says what it says.
    """
    rows: list[Row] = []
    unknown = list(seen.unknown)
    for heading in headings():
        head = _heading(seen, heading)
        inside = [row for field in heading.fields for row in _rows(seen, field, field.key, opened, before or {}, 0)]
        if head.faults and inside[0].key != head.key:  # the cursor passes headings over: the first key tells it
            inside[0] = replace(inside[0], faults=(*inside[0].faults, *head.faults))
        rows += [head, *inside]
        here = [key for key in unknown if key[0] == heading.name]
        rows += [_unknown(seen, key) for key in here]
        unknown = [key for key in unknown if key not in here]
    told = reasons or {}
    rows = [replace(row, reason=told.get(row.key, "")) if row.comes_from == "tier" else row for row in rows]
    return [*(_unknown(seen, key) for key in unknown), *rows]


def _heading(seen: Seen, heading: Heading) -> Row:
    key = (heading.name,)
    return Row("heading", key, meaning=heading.meaning, faults=seen.faults(key))


def _rows(
    seen: Seen, field: Field, key: Key, opened: Collection[Key], before: Mapping[Key, Any], depth: int
) -> Iterator[Row]:
    if not field.inside:
        yield _row(seen, field, key, before, depth)
        return
    is_open = key in opened
    if field.kind == "group":
        number = sum(seen.is_given(inner.key) for inner in field.inside)
        yield _row(seen, field, key, before, depth, is_open=is_open, text=_group_text(seen, field, number))
        if is_open:
            for inner in field.inside:
                yield from _rows(seen, inner, inner.key, opened, before, depth + 1)
        return
    sources = seen.value(field, key)
    text = "" if field.is_required and sources is None else _sources_text(sources)
    if field.kind == "tables":
        text = _number_of(sources)
    yield _row(seen, field, key, before, depth, is_open=is_open, text=text)
    if is_open:
        for number in range(len(sources) if isinstance(sources, list) and sources else 1):
            for inner in _of_a_source(field, sources):
                yield _source_row(seen, inner, (*key, str(number), inner.key[-1]), sources, before, depth + 1)


def _row(
    seen: Seen,
    field: Field,
    key: Key,
    before: Mapping[Key, Any],
    depth: int,
    *,
    is_open: bool | None = None,
    text: str | None = None,
) -> Row:
    given = Seen.inside(seen.given, key) if seen.is_given(key) else None
    was = Seen.inside(before, key)
    changed = seen.is_given(key) != (Seen.is_in(before, key)) or (seen.is_given(key) and given != was)
    if field.kind == "group":
        changed = _under(seen.given, key) != _under(before, key)
    faults = seen.faults(key)
    if is_open is False:
        faults = (*faults, *(p for p in seen.told if p.key[: len(key)] == key and p.key != key))
    shown = spelt(seen.value(field, key)) if text is None else text
    missing = field.is_required and text is None and not Seen.is_in(seen.values, key)
    return Row(
        "key", key, "" if missing else shown, field, seen.comes_from(key), _note(seen, key), depth, is_open, changed,
        faults, meaning=field.meaning,
    )  # fmt: skip


def _source_row(seen: Seen, field: Field, key: Key, sources: Any, before: Mapping[Key, Any], depth: int) -> Row:
    """A key of one source: of a table, or of a text, which is the path and nothing else."""
    number = int(key[-2])
    one = sources[number] if isinstance(sources, list) and number < len(sources) else sources
    if isinstance(one, list):
        one = None
    table = one if isinstance(one, dict) else {"path": one} if isinstance(one, str) else {}
    value = table.get(field.key[-1], field.default)
    whole = key[:-2]
    comes_from = seen.comes_from(whole) if field.key[-1] in table else "default"
    old = Seen.inside(before, key)
    note = _note(seen, whole) if field.key[-1] in table else "default"
    text = "" if field.is_required and field.key[-1] not in table else spelt(value)
    changed = Seen.is_in(before, whole) and isinstance(one, dict) and Seen.is_in(before, key) and old != value
    return Row(
        "key",
        key,
        text,
        field,
        comes_from,
        note,
        depth,
        is_changed=changed,
        faults=seen.faults(key),
        meaning=field.meaning,
    )


def _of_a_source(field: Field, sources: Any) -> Sequence[Field]:
    """The keys of a source; of one that is not there yet only its path: nothing can be said of no rows."""
    return [one for one in field.inside if one.is_required] if field.kind == "sources" and not sources else field.inside


def _under(values: Mapping[Key, Any], key: Key) -> dict[Key, Any]:
    return {known: value for known, value in values.items() if known[: len(key)] == key}


def _group_text(seen: Seen, field: Field, number: int) -> str:
    if number:
        return f"{number} of {len(field.inside)} keys given"
    return "none" if seen.value(field, field.key) is None else "given, all at default"


def _sources_text(sources: Any) -> str:
    if isinstance(sources, list):
        paths = [one.get("path", "?") if isinstance(one, dict) else one for one in sources]
        return f"{len(sources)} sources: {', '.join(map(str, paths))}" if len(sources) != 1 else spelt(paths[0])
    return spelt(sources)


def _number_of(tables: Any) -> str:
    """`3 of them`; whatever stands there that is no list as it is."""
    if isinstance(tables, list | tuple):
        return f"{len(tables)} of them" if tables else "none"
    return spelt(tables)


def _note(seen: Seen, key: Key) -> str:
    origin = seen.origin(key)
    match seen.comes_from(key):
        case "file":
            return f"line {origin.line}" if origin.line else "file"
        case "tier":
            return seen.tier.removeprefix("tier ")
        case other:
            return other


def _unknown(seen: Seen, key: Key) -> Row:
    faults = seen.faults(key)
    inside = ", ".join(known[-1] for known in _under(seen.given, key))
    text = spelt(Seen.inside(seen.given, key)) if seen.is_given(key) else f"a table with {inside}"
    meant = next((found for fault in faults if (found := meant_by(key, fault.fix))), None)
    origin = next((fault.origin for fault in faults if fault.origin is not None), None)
    note = f"line {origin.line}" if origin is not None and origin.line else "file"
    return Row("unknown", key, text, None, "file", note, faults=faults, meant=meant)


def meant_by(key: Key, fix: str) -> Key | None:
    """The key that the complaint about an unknown one names."""
    match = _MEANT.search(fix)
    if match is None:
        return None
    named = tuple(match[1].rstrip(".").split("."))
    if len(key) == 1:
        return named if len(named) == 1 and named[0] in Profile.model_fields else None
    place = tuple(part for part in key if not part.isdigit())
    if named[:-1] == place[:-1]:
        named = (*key[:-1], named[-1])
    return named if field_at(named) is not None else None
