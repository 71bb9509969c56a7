"""Rows out of files, each with the place it came from, so that a bad one can be named: file, line, reason."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ftui.errors import DataError

SUFFIXES = (".jsonl", ".json", ".txt")


@dataclass(frozen=True)
class Row:
    """One JSON object (or, from a text file, `{"text": ...}`) and its place: a line, in `.json` a 1-based index."""

    path: Path
    place: int
    value: dict[str, Any]

    def error(self, reason: str, hint: str = "") -> DataError:
        unit = "row" if self.path.suffix == ".json" else "line"
        return DataError(f"{self.path}, {unit} {self.place}: {reason}.", hint=hint)


def read_rows(path: Path) -> Iterator[Row]:
    """All rows of a file.

    Raises:
        DataError: the file is missing, empty, of an unknown kind, not UTF-8, or a row is not a JSON object.
    """
    if path.suffix not in SUFFIXES:
        raise DataError(f"{path}: unknown kind of file.", hint=f"Rows are read from {', '.join(SUFFIXES)} files.")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}.", hint="Check data.train and data.eval.") from error
    data = data.removeprefix(b"\xef\xbb\xbf")
    if not data.strip():
        raise DataError(f"There are no rows in {path}.")
    readers = {".jsonl": _lines, ".json": _array, ".txt": _document}
    yield from readers[path.suffix](path, data)


def _lines(path: Path, data: bytes) -> Iterator[Row]:
    for number, line in enumerate(data.split(b"\n"), start=1):  # not splitlines(): rows hold U+2028 and U+0085
        if line.strip():
            yield _row(path, number, _parse(path, number, line))


def _array(path: Path, data: bytes) -> Iterator[Row]:
    values = _parse(path, None, data)
    if not isinstance(values, list):
        raise DataError(f"{path} holds one JSON {_kind(values)}, not a list of rows.", hint="Name JSON lines .jsonl.")
    for number, value in enumerate(values, start=1):
        yield _row(path, number, value)


def _document(path: Path, data: bytes) -> Iterator[Row]:
    yield Row(path, 1, {"text": _text(path, 1, data)})


def _row(path: Path, place: int, value: Any) -> Row:
    if not isinstance(value, dict):
        raise Row(path, place, {}).error(f"a JSON {_kind(value)}, not an object")
    return Row(path, place, value)


def _kind(value: Any) -> str:
    return {dict: "object", list: "list", str: "string", bool: "boolean", type(None): "null"}.get(type(value), "number")


def _text(path: Path, first_line: int, data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = first_line + data[: error.start].count(b"\n")
        raise DataError(
            f"{path}, line {line}: not UTF-8 (byte {error.start}: 0x{data[error.start]:02x}).",
            hint="Convert the file to UTF-8, for example with iconv.",
        ) from error


def _parse(path: Path, line: int | None, data: bytes) -> Any:
    text = _text(path, line or 1, data)
    try:
        value = json.loads(text)
        if "\\ud" in text.lower():  # an escape such as \ud83d without its other half is JSON, but no text
            json.dumps(value, ensure_ascii=False).encode()
        return value
    except json.JSONDecodeError as error:
        where = (line or 0) + error.lineno - (1 if line else 0)
        near = text[max(0, error.pos - 20) : error.pos + 20].strip()
        raise DataError(
            f"{path}, line {where}, column {error.colno}: not JSON ({error.msg}, near {near!r}).",
            hint="Mend or delete that line.",
        ) from error
    except UnicodeEncodeError as error:
        half = f"\\u{ord(error.object[error.start]):04x}"
        raise DataError(f"{path}, line {line or 1}: {half} is half a character.", hint="Delete it.") from error
    except ValueError as error:  # a number of more than 4300 digits
        raise DataError(f"{path}, line {line or 1}: {error}.", hint="Delete that row.") from error
    except RecursionError as error:
        raise DataError(f"{path}, line {line or 1}: nested too deeply.", hint="Delete that row.") from error
