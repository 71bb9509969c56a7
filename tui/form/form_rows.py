"""The rows of the form: tables, keys, what is inside a table or a list, and keys that no profile has. No Textual."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from ftui.profile.origins import Key, ProfileFault

from .form_fields import Field, headings
from .snapshot import Snapshot, Source, has_value, value_at, values_under
from .text_values import format_value


@dataclass(frozen=True)
class FormRow:
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
    source: Source = "default"
    note: str = ""
    depth: int = 0
    is_open: bool | None = None
    is_changed: bool = False
    faults: tuple[ProfileFault, ...] = ()
    warnings: tuple[ProfileFault, ...] = ()
    meant: Key | None = None
    meaning: str = ""
    reason: str = ""

    @property
    def name(self) -> str:
        """The key as `--set` spells it."""
        return ".".join(self.key)


def make_rows(
    snapshot: Snapshot,
    *,
    open_keys: Collection[Key] = (),
    saved_values: Mapping[Key, Any] | None = None,
    reasons: Mapping[Key, str] | None = None,
) -> list[FormRow]:
    """All rows in the order of the reference, unknown tables first.

    `saved_values`: what the file on the disk says; `reasons`: why the tier says what it says.
    """
    rows: list[FormRow] = []
    maker = _RowMaker(snapshot, open_keys, saved_values or {}, reasons or {})
    unknown = list(snapshot.unknown)
    for heading in headings():
        faults = snapshot.faults_of((heading.name,))
        head = FormRow("heading", (heading.name,), meaning=heading.meaning, faults=faults)
        inside = [row for field in heading.fields for row in maker.rows(field, field.key, 0)]
        if faults and inside[0].key != head.key:  # the cursor skips headings: the first key shows the fault
            inside[0] = replace(inside[0], faults=(*inside[0].faults, *faults))
        here = [key for key in unknown if key[0] == heading.name]
        unknown = [key for key in unknown if key not in here]
        rows += [head, *inside, *(_unknown(snapshot, key) for key in here)]
    return [*(_unknown(snapshot, key) for key in unknown), *rows]


@dataclass(frozen=True)
class _RowMaker:
    """Makes the rows of one field after the other."""

    snapshot: Snapshot
    open_keys: Collection[Key]
    saved_values: Mapping[Key, Any]
    reasons: Mapping[Key, str]

    def rows(self, field: Field, key: Key, depth: int) -> Iterator[FormRow]:
        if not field.inside:
            yield self._row(field, key, depth)
            return
        is_open = key in self.open_keys
        value = self.snapshot.value(field, key)
        yield self._row(field, key, depth, is_open=is_open, text=self._short_text(field, value))
        if not is_open:
            return
        if field.kind == "group":
            for inner in field.inside:
                yield from self.rows(inner, inner.key, depth + 1)
            return
        for number in range(len(value) if isinstance(value, list) and value else 1):
            for inner in _fields_of_source(field, value):
                yield self._source_row(inner, (*key, str(number), inner.key[-1]), value, depth + 1)

    def _row(
        self, field: Field, key: Key, depth: int, *, is_open: bool | None = None, text: str | None = None
    ) -> FormRow:
        snapshot, saved = self.snapshot, self.saved_values
        if field.kind == "group":
            is_changed = values_under(snapshot.file_values, key) != values_under(saved, key)
        else:
            is_changed = snapshot.is_in_file(key) != has_value(saved, key) or (
                snapshot.is_in_file(key) and value_at(snapshot.file_values, key) != value_at(saved, key)
            )
        faults = snapshot.faults_of(key)
        if is_open is False:
            faults = (*faults, *(p for p in snapshot.faults if p.key[: len(key)] == key and p.key != key))
        if text is None:
            is_missing = field.is_required and not has_value(snapshot.values, key)
            text = "" if is_missing else format_value(snapshot.value(field, key))
        source = snapshot.source(key)
        return FormRow(
            "key", key, text, field, source, _note(snapshot, key), depth, is_open, is_changed, faults,
            snapshot.warnings_of(key),
            meaning=field.meaning, reason=self.reasons.get(key, "") if source == "tier" else "",
        )  # fmt: skip

    def _source_row(self, field: Field, key: Key, sources: Any, depth: int) -> FormRow:
        """A key of one source: of a table, or of a text, which is the path and nothing else."""
        whole, number, name = key[:-2], int(key[-2]), key[-1]
        source = sources[number] if isinstance(sources, list) and number < len(sources) else sources
        table = source if isinstance(source, dict) else {"path": source} if isinstance(source, str) else {}
        value, saved = table.get(name, field.default), self.saved_values
        return FormRow(
            "key",
            key,
            "" if field.is_required and name not in table else format_value(value),
            field,
            self.snapshot.source(whole) if name in table else "default",
            _note(self.snapshot, whole) if name in table else "default",
            depth,
            is_changed=isinstance(source, dict) and has_value(saved, key) and value_at(saved, key) != value,
            faults=self.snapshot.faults_of(key),
            warnings=self.snapshot.warnings_of(key),
            meaning=field.meaning,
        )

    def _short_text(self, field: Field, value: Any) -> str:
        """What is inside a group, sources or a list of tables, in short."""
        if field.kind == "group":
            number = sum(self.snapshot.is_in_file(inner.key) for inner in field.inside)
            if number:
                return f"{number} of {len(field.inside)} keys given"
            return "none" if value is None else "given, all at default"
        if field.kind == "tables" and isinstance(value, list | tuple):
            return f"{len(value)} of them" if value else "none"
        if field.kind == "sources" and isinstance(value, list):
            paths = [source.get("path", "?") if isinstance(source, dict) else source for source in value]
            return f"{len(paths)} sources: {', '.join(map(str, paths))}" if len(paths) != 1 else format_value(paths[0])
        return "" if field.kind == "sources" and field.is_required and value is None else format_value(value)


def _fields_of_source(field: Field, sources: Any) -> Sequence[Field]:
    """The keys of a source; of one that is not there yet only its path: nothing can be said of no rows."""
    if field.kind == "sources" and not sources:
        return [inner for inner in field.inside if inner.is_required]
    return field.inside


def _note(snapshot: Snapshot, key: Key) -> str:
    source = snapshot.source(key)
    if source == "file":
        return _line_note(snapshot.origin(key).line)
    return snapshot.tier.removeprefix("tier ") if source == "tier" else source


def _line_note(line: int | None) -> str:
    return f"line {line}" if line else "file"


def _unknown(snapshot: Snapshot, key: Key) -> FormRow:
    faults = snapshot.faults_of(key)
    if snapshot.is_in_file(key):
        text = format_value(value_at(snapshot.file_values, key))
    else:
        text = f"a table with {', '.join(inner[-1] for inner in values_under(snapshot.file_values, key))}"
    meant = next((fault.meant for fault in faults if fault.meant is not None), None)
    origin = next((fault.origin for fault in faults if fault.origin is not None), None)
    note = _line_note(origin.line if origin is not None else None)
    return FormRow("unknown", key, text, None, "file", note, faults=faults, meant=meant)
