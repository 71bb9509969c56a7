"""Rows out of files: every way a JSON file goes wrong."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftui.errors import DataError
from tests.support.data_rows import read_rows


def lines_of(path: Path, data: bytes) -> list[tuple[int, dict[str, Any]]]:
    path.write_bytes(data)
    return [(found.place, found.value) for found in read_rows(path)]


A, B = {"text": "a"}, {"text": "b"}


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b'{"text": "a"}\n{"text": "b"}\n', [(1, A), (2, B)]),
        (b'{"text": "a"}\n{"text": "b"}', [(1, A), (2, B)]),
        (b'\xef\xbb\xbf{"text": "a"}\n{"text": "b"}\n', [(1, A), (2, B)]),
        (b'{"text": "a"}\r\n{"text": "b"}\r\n', [(1, A), (2, B)]),
        (b'\n{"text": "a"}\n\n  \n{"text": "b"}\n\n', [(2, A), (5, B)]),
        ('{"text": "a\u2028b\u0085c"}\n{"text": "b"}\n'.encode(), [(1, {"text": "a\u2028b\u0085c"}), (2, B)]),
        (b'{"text": "a\\ud83d\\ude00"}\n', [(1, {"text": "a\U0001f600"})]),
        (b'{"text": "a\\\\ud83d"}\n', [(1, {"text": "a\\ud83d"})]),
        (b'{"text": "a\\u0000"}\n', [(1, {"text": "a\x00"})]),
    ],
    ids=["plain", "no-last-newline", "bom", "crlf", "blank", "u2028", "pair", "escaped-backslash", "nul"],
)
def test_json_lines(data: bytes, expected: list[tuple[int, dict[str, Any]]], tmp_path: Path) -> None:
    assert lines_of(tmp_path / "rows.jsonl", data) == expected


DEEP = b'{"text": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b'{"text": "a"}\n{"text": "b', "2:10: the JSON ends in the middle (near "),
        (b'{"text": "a"}\n\n{"text" "b"}\n', "3:9: not JSON (Expecting ':' delimiter) (near "),
        (b'{"text": "a"}\n{"text": "\xff\xfe"}\n', "2: not UTF-8 (byte 24: 0xff)"),
        ('{"text": "a"}\n'.encode("utf-16"), "1: not UTF-8 (byte 0: 0xff) but UTF-16."),
        (b'{"text": "a"}\n' + DEEP + b"\n", "2: nested too deeply"),
        (b'{"text": "a"}\n["b"]\n', "2: a JSON list, not an object."),
        (b'"a"\n', "1: a JSON string, not an object"),
        (b"null\n", "1: a JSON null, not an object"),
        (b"3\n", "1: a JSON number, not an object"),
        (b"true\n", "1: a JSON boolean, not an object"),
        (b'{"text": "a"}\n{"text": "b \\ud83d c"}\n', "2:13: \\ud83d is half a character"),
        (b'{"text": ' + b"1" * 5000 + b"}\n", "1:10: a number of more than 4300 digits"),
    ],
    ids=[
        "torn",
        "broken",
        "bytes",
        "utf-16",
        "deep",
        "list",
        "string",
        "null",
        "number",
        "bool",
        "half-pair",
        "digits",
    ],
)
def test_a_bad_line_is_named(data: bytes, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    with pytest.raises(DataError) as caught:
        lines_of(path, data)
    assert caught.value.message.startswith(f"{path}:{reason}")
    assert caught.value.hint


def test_a_text_file_is_one_row(tmp_path: Path) -> None:
    assert lines_of(tmp_path / "book.txt", b"\xef\xbb\xbfa\r\nb\n") == [(1, {"text": "a\r\nb\n"})]
    with pytest.raises(DataError, match=r"book\.txt:3: not UTF-8 \(byte 4: 0xe9\)"):
        lines_of(tmp_path / "book.txt", b"a\nb\n\xe9t\xe9\n")


def test_files_that_are_not_there_empty_or_unknown(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"gone\.jsonl cannot be read: No such file"):
        list(read_rows(tmp_path / "gone.jsonl"))
    with pytest.raises(DataError, match=r"There are no rows in .*empty\.jsonl"):
        lines_of(tmp_path / "empty.jsonl", b"\xef\xbb\xbf\r\n \n")
    with pytest.raises(DataError, match=r"rows\.xlsx: unknown kind of file") as caught:
        lines_of(tmp_path / "rows.xlsx", b"PK")
    assert caught.value.hint.startswith("Rows are read from .jsonl, .json, .csv, .tsv, .parquet, .arrow, .txt files")


@given(st.lists(st.dictionaries(st.text(), st.text() | st.integers() | st.none() | st.lists(st.text())), min_size=1))
def test_whatever_json_writes_is_read_back(tmp_path_factory: pytest.TempPathFactory, values: list[Any]) -> None:
    data = b"".join(json.dumps(value, ensure_ascii=False).encode() + b"\n" for value in values)
    found = lines_of(tmp_path_factory.getbasetemp() / "any.jsonl", data)
    assert found == list(enumerate(values, start=1))
