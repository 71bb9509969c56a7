"""JSON out of bytes, with the line and column of whatever is wrong with it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from ftui.engine.data.rows import Row, row_of
from ftui.errors import DataError

BOM = b"\xef\xbb\xbf"


def lines(path: Path, stream: BinaryIO) -> Iterator[Row]:
    """JSON lines. No more of them is held in memory than the longest one."""
    for number, line in enumerate(stream, start=1):  # a binary file ends its lines at \n only: rows hold U+2028
        line = (line.removeprefix(BOM) if number == 1 else line).removesuffix(b"\n")
        if line.strip():
            yield row_of(path, number, parsed(path, number, line))


def array(path: Path, stream: BinaryIO) -> Iterator[Row]:
    """One JSON list of rows, which is held in memory as a whole."""
    data = stream.read().removeprefix(BOM)
    if not data.strip():
        return
    values = parsed(path, None, data)
    if isinstance(values, dict):
        raise _an_object(path, values)
    if not isinstance(values, list):
        raise DataError(f"{path} holds one JSON value, not a list of rows.", hint="Name JSON lines .jsonl.")
    for number, value in enumerate(values, start=1):
        yield row_of(path, number, value, unit="row")


def _an_object(path: Path, value: dict[str, Any]) -> DataError:
    origins = {"file_name", "hf_hub_url", "ms_hub_url", "script_url"}
    if any(isinstance(entry, dict) and origins & entry.keys() for entry in value.values()):
        return DataError(
            f"{path} is a list of data sets (LLaMA-Factory's dataset_info.json), not rows.",
            hint="Name the files themselves in data.train.",
        )
    return DataError(f"{path} holds one JSON object, not a list of rows.", hint="Name JSON lines .jsonl.")


def text_of(path: Path, first_line: int, data: bytes) -> str:
    """Raises `DataError` naming the line and the byte (counted in `data`) that is not UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = first_line + data[: error.start].count(b"\n")
        raise DataError(
            f"{path}, line {line}: not UTF-8 (byte {error.start}: 0x{data[error.start]:02x}).",
            hint="Convert the file to UTF-8, for example with iconv.",
        ) from error


def parsed(path: Path, line: int | None, data: bytes) -> Any:
    """The value of a line of JSON, or without `line` of a whole file.

    Raises:
        DataError: it is not JSON, or not text that can be written again.
    """
    text = text_of(path, line or 1, data)
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
