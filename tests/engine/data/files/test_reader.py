"""Rows cut out of files: what is a row's fault and what the file's, and where it is told to be."""

import datetime
import gzip
import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftui.engine.data.files import encodings, json_array, json_row, jsonl, plain_text, reread
from ftui.engine.data.files.blocks import parse_block, read_blocks, reread_row
from ftui.engine.data.files.raw_rows import Row
from ftui.errors import DataError
from tests.support.data_rows import read_rows

A, B = {"text": "a"}, {"text": "b"}


def told(path: Path, data: bytes, encoding: str | None = None) -> list[Any]:
    """Of each row its value, or what is told of it behind the file's name."""
    path.write_bytes(data)
    rows = [row for block in read_blocks([path], encoding=encoding) for row in parse_block(block)]
    return [row.value if isinstance(row, Row) else row.error().message.removeprefix(str(path)) for row in rows]


def refusal(path: Path, data: bytes, encoding: str | None = None) -> tuple[str, str]:
    """What is told of the file behind its name, and the advice."""
    with pytest.raises(DataError) as caught:
        told(path, data, encoding)
    return caught.value.message.removeprefix(str(path)), caught.value.hint


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b'[{"text": "a"},\n {"text": "b"}]', [A, B]),
        (b'\xef\xbb\xbf\n[{"text": "a"},{"text": "b"}]\n ', [A, B]),
        (b'{"text": "a"}\n{"text": "b"}\n', [A, B]),
        (b'{\n "text": "a"\n}\n{\n "text": "b"\n}', [A, B]),
        (b'{"text": "a"}', [A]),
        (b'{"version": 1, "data": [{"text": "a"}, {"text": "b"}], "tags": ["x", {"y": []}]}', [A, B]),
        (b'{"messages": [{"role": "user", "content": "a"}]}', [{"messages": [{"role": "user", "content": "a"}]}]),
        (b'[{"text": "[{\\"}"}, {"text": "\\\\"}]', [{"text": '[{"}'}, {"text": "\\"}]),
        ('[{"text": "\u00e9"}, {"text": x}]'.encode(),
         [{"text": "\u00e9"}, ":1:26, row 2: not JSON (Expecting value) (near '{\"text\": x}')."]),
        (b'[{"text": "a"}, "b", 3, null, {"text" 5}, {"text": "b"}]',
         [A, ":1, row 2: a JSON string, not an object.", ":1, row 3: a JSON number, not an object.",
          ":1, row 4: a JSON null, not an object.",
          ":1:39, row 5: not JSON (Expecting ':' delimiter) (near '{\"text\" 5}').", B]),
        (b'[\n{"text": "a"},\n{"text":\n "b", "text": "c"}]',
         [A, ":4:7, row 2: the key 'text' stands twice in an object (near '{\"text\":\\n \"b\", \"text\": \"c\"}')."]),
        (b'[{"text": "\xff"}, {"text": "b"}]', [":1, row 1: not UTF-8 (byte 11: 0xff).", B]),
    ],
    ids=["list", "bom", "lines", "objects", "object", "one key", "one row", "brackets in text", "column", "no objects",
         "twice", "bytes"],
)  # fmt: skip
def test_json_files(data: bytes, expected: list[Any], tmp_path: Path) -> None:
    assert told(tmp_path / "rows.json", data) == expected


@pytest.mark.parametrize(
    ("data", "reason", "hint"),
    [
        (b'[{"text": "a"} {"text": "b"}]', ":1:16: not JSON (',' or ']' expected after row 1)", "list of rows"),
        (b'[{"text": "a"},\n]', ":2:1: not JSON (a value expected)", "list of rows"),
        (b'[{"text": "a"},\n\n', ":3:1: not JSON (the list does not end)", "list of rows"),
        (b'[{"text": "a"},\n{"text": "b', ":2:10: the JSON ends in the middle", "copy it again"),
        (b'[{"text": "a"}] x', ":1:17: not JSON (more after the end of the list)", "list of rows"),
        (b'{"text": "a"},\n{"text": "b"}', ":1:14: not JSON (rows with commas between them need [ before", "list of"),
        (b'"text"', ":1:1: no list of rows", "list of rows"),
        (b'{"train": [{"text": "a"}], "x": [{"text": "b"}]}', " holds several lists of rows: 'train', 'x'", "own"),
        (b'{"mine": {"file_name": "a.json"}}', " is a list of data sets (LLaMA-Factory's", "subset"),
        (b"", "There are no rows in ", ""),
        (b"[]", "There are no rows in ", ""),
    ],
)  # fmt: skip
def test_json_files_that_are_no_rows(data: bytes, reason: str, hint: str, tmp_path: Path) -> None:
    message, advice = refusal(tmp_path / "rows.json", data)
    assert message.startswith(reason) and hint in advice


@pytest.mark.slow
@given(st.lists(st.dictionaries(st.text(max_size=9), st.text() | st.integers() | st.lists(st.text())), min_size=1),
       st.sampled_from([None, 0, 2]), st.booleans(), st.integers(1, 40))  # fmt: skip
def test_lists_are_cut_where_json_cuts_them(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Any], indent: int | None, is_ascii: bool, chunk: int
) -> None:
    """At any boundary between two reads, with right bytes and lines for each row."""
    data = json.dumps(rows, indent=indent, ensure_ascii=is_ascii).encode()
    window = json_array.JsonWindow(iter([data[i : i + chunk] for i in range(0, len(data), chunk)]), 0)
    window.sign()
    window.pos += 1
    found = []
    while window.sign() != b"]":
        place, line = window.offset + window.pos, window.line
        text = window.value()
        assert text == data[place : place + len(text or b"")] and line == 1 + data.count(b"\n", 0, place)
        found.append(json.loads(text))
        if window.sign() == b",":
            window.pos += 1
    assert found == rows


def test_rows_too_long_are_passed_over_wherever_they_stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for room in (jsonl, json_array):
        monkeypatch.setattr(room, "LONGEST", 100)
    long = b'{"text": "' + b"[" * 3_000_000 + b'"}'
    too_long = "longer than 10 MB."
    rows = [b'{"text": "a"}', long, b'{"text": "b"}', long[:200] + b'"}', b'{"text": "b"}']
    assert told(tmp_path / "rows.jsonl", b"\n".join(rows)) == [A, f":2: {too_long}", B, f":4: {too_long}", B]
    expected = [A, f":1, row 2: {too_long}", B, f":1, row 4: {too_long}", B]
    assert told(tmp_path / "rows.json", b"[" + b",".join(rows) + b"]") == expected
    assert told(tmp_path / "rows.json", b'{"n": 1, "data": [' + b",".join(rows) + b"]}") == expected
    assert told(tmp_path / "rows.json.gz", gzip.compress(b"[" + b",".join(rows) + b"]")) == expected


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ('{"text": "a", "text": "b"}', ":1:15: the key 'text' stands twice in an object"),
        ('{"text": {"n": 1, "m": 2, "n": 1}}', ":1:27: the key 'n' stands twice in an object"),
        ('{"text" :"x", "text": "b"}', ":1:15: the key 'text' stands twice in an object"),
        ('{"text": "a"', ":1:13: the JSON ends in the middle"),
        ('{"text": "a\0\0', ":1:12: NUL bytes, as a crash or a full disk leaves them"),
        ("{'text': 'a'}", ":1:2: not JSON (Expecting property name enclosed in double quotes)"),
        ('{"text": "\\udc00"}', ":1:11: \\udc00 is half a character"),
        ('{"text": ' + "[" * 101 + "]" * 101 + "}", ":1: nested too deeply (more than 100 levels)"),
        ('{"text": ' + "[" * 9000 + "]" * 9000 + "}", ":1: nested too deeply (more than 100 levels)"),
    ],
)
def test_what_is_wrong_with_a_line(row: str, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    first, second = told(path, row.encode() + b'\n{"text": "b"}')
    assert first.startswith(reason) and second == B
    with pytest.raises(DataError, match=r"rows\.jsonl:1"):
        list(read_rows(path))


JSON = st.recursive(
    st.text() | st.integers() | st.floats() | st.none() | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.dictionaries(st.text(max_size=3), JSON, max_size=4), st.sampled_from([(", ", ": "), (",", ":"), (", ", " : ")])
)
def test_the_quick_way_reads_the_same(value: dict[str, Any], separators: tuple[str, str]) -> None:
    text = json.dumps(value, separators=separators).encode()
    quick = json_row._parse_fast(text)
    assert quick is None or repr(quick) == repr(json_row._parse(text.decode()))
    assert json_row._parse_fast(b'{"a": 1, "a": 2}') is None


def test_hints_of_the_right_shape(tmp_path: Path) -> None:
    for data, hint in (
        (b"[\n", "named .json"), (b'["a"]\n', "named .json"), (b"{'a': 1}\n", "json.dumps"), (b'"a"\n', '{"messages"'),
    ):  # fmt: skip
        (tmp_path / "rows.jsonl").write_bytes(data)
        with pytest.raises(DataError) as caught:
            list(read_rows(tmp_path / "rows.jsonl"))
        assert hint in caught.value.hint


GERMAN = '{"text": "Grüße"}\n{"text": "Vögel"}\n'


@pytest.mark.parametrize(
    ("written", "reason", "advice"),
    [
        ("utf-16", ":1: not UTF-8 (byte 0: 0xff) but UTF-16.", 'data.encoding = "utf-16"'),
        ("utf-16-le", ":1: not UTF-8 (byte 1: 0x00) but UTF-16-LE.", 'data.encoding = "utf-16-le"'),
        ("utf-16-be", ":1: not UTF-8 (byte 0: 0x00) but UTF-16-BE.", 'data.encoding = "utf-16-be"'),
        ("utf-32", ":1: not UTF-8 (byte 0: 0xff) but UTF-32.", 'data.encoding = "utf-32"'),
        ("cp1252", ":1: not UTF-8 (byte 12: 0xfc): it may be cp1252", 'data.encoding = "cp1252"'),
    ],
)
def test_other_encodings_are_named_and_can_be_told(written: str, reason: str, advice: str, tmp_path: Path) -> None:
    data = GERMAN.encode(written)
    message, hint = refusal(tmp_path / "rows.jsonl", data)
    assert message.startswith(reason) and advice in hint and "iconv" in hint
    for name, expected in (("rows.jsonl", ["Grüße", "Vögel"]), ("rows.txt", [GERMAN])):
        assert [row["text"] for row in told(tmp_path / name, data, written)] == expected
    table, rows = "text\nGrüße\nVögel\n".encode(written), [{"text": "Grüße"}, {"text": "Vögel"}]
    assert told(tmp_path / "rows.csv", table, written) == told(tmp_path / "rows.tsv", table, written) == rows
    assert told(tmp_path / "rows.json", json.dumps(rows, ensure_ascii=False).encode(written), written) == rows


@pytest.mark.slow
def test_a_guess_says_that_it_is_one_and_looks_at_little(tmp_path: Path) -> None:
    russian = bytes.fromhex("c2f1e520ebfee4e820f0eee6e4e0fef2f1ff20f1e2eee1eee4edfbece820e820f0e0e2edfbece82e0a")
    message, hint = refusal(tmp_path / "rows.txt", b"a\n" * 50_000 + russian * 100_000)
    assert message.startswith(":50001: not UTF-8 (byte 100000: 0xc2): it may be cp1251 (")
    assert message.endswith(", which is a guess.")
    assert hint.startswith('Name its encoding: data.encoding = "cp1251"') and ", or convert" in hint


def test_a_wrong_encoding_is_told_by_its_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encodings, "CHUNK", 10)  # the fault stands in another read than the first
    data = b'{"text": "a"}\n{"text": "\x81"}\n'
    for encoding, reason in (
        ("cp1252", ":2: not cp1252 (byte 24: 0x81)."), ("shift_jis", ":2: not shift_jis (byte 24: 0x81)."),
        ("utf-16", " cannot be read as utf-16 ("), ("base64", ": there is no encoding 'base64'."),
        ("x", ": there is no encoding"),
    ):  # fmt: skip
        message, hint = refusal(tmp_path / "rows.jsonl", data, encoding)
        assert message.startswith(reason) and "data.encoding" in hint, message


def test_one_row_in_another_encoding_is_that_rows_fault(tmp_path: Path) -> None:
    data = GERMAN.encode() + '{"text": "é"}\n'.encode("cp1252") + b'{"text": "b"}\n'
    found = told(tmp_path / "rows.jsonl", data)
    assert found == [{"text": "Grüße"}, {"text": "Vögel"}, ":3: not UTF-8 (byte 49: 0xe9).", B]
    data = GERMAN.encode() + '{"text": "é"}\n{"text": "ü"}\n'.encode("cp1252")
    assert [isinstance(row, str) for row in told(tmp_path / "rows.jsonl", data)] == [False, False, True, True]
    table = "text\nVögel\n".encode() + "é\n".encode("cp1252") + b"b\n"
    assert told(tmp_path / "rows.csv", table) == [{"text": "Vögel"}, ":3: not UTF-8 (byte 12: 0xe9).", B]


def test_tables_go_on_behind_a_row_that_is_wrong(tmp_path: Path) -> None:
    rows = b'q|a\n1|2\n3\n"4\n\n5"|"6|7"\n"8"9|1\n2"|3\n'
    assert told(tmp_path / "rows.csv", rows) == [
        {"q": "1", "a": "2"}, ":3: 1 cells, but the header names 2 columns (near '3').", {"q": "4\n\n5", "a": "6|7"},
        ":7: not CSV ('|' expected after '\"').", {"q": '2"', "a": "3"},
    ]  # fmt: skip
    open_quote = b'q,a\n1,2\n"3,4\n5,6\n7,8\n'
    assert told(tmp_path / "rows.csv", open_quote) == [
        {"q": "1", "a": "2"}, ":3: not CSV (a quote that is never closed).", {"q": "5", "a": "6"}, {"q": "7", "a": "8"},
    ]  # fmt: skip


def test_columns_of_another_kind_are_told_with_both_places(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"text": null}\n{"text": "a"}\n' * 300 + b'{"text": ["a"], "b": 1}\n')
    *_, last = read_rows(path)
    assert last.unlike("text") == " (a list here, a string in line 2)" and last.unlike("b") == last.unlike("c") == ""


def parquet(path: Path, table: pa.Table, **options: Any) -> list[Any]:
    pq.write_table(table, path, **options)
    return told(path, path.read_bytes())


def test_parquet_columns_that_json_has_no_word_for(tmp_path: Path) -> None:
    day, old = datetime.date(2024, 2, 29), b"text of an old writer"
    table = pa.table({
        "text": pa.array([old], pa.binary()), "raw": pa.array([b"\xff\x00"], pa.binary()), "day": pa.array([day]),
        "far": pa.array([10**18], pa.timestamp("ns", "UTC")), "when": [[datetime.datetime(2024, 1, 2)]],
        "price": pa.array([1], pa.decimal128(5, 2)), "beyond": pa.array([10**17], pa.timestamp("ms")),
    })  # fmt: skip
    (row,) = parquet(tmp_path / "rows.parquet", table)
    assert row["text"] == old.decode() and row["raw"] == {"num_bytes": 2} and row["day"] == "2024-02-29"
    assert row["far"].startswith("2001-09-09 01:46:40") and row["when"] == ["2024-01-02 00:00:00"]
    assert row["price"] == "1.00" and "100000000000000000" in row["beyond"]


def test_parquet_with_text_that_is_none_or_pictures(tmp_path: Path) -> None:
    offsets = pa.array([0, 1, 3], pa.int32()).buffers()[1]
    broken = pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b"a\xff\xfe")])
    first, second = parquet(tmp_path / "rows.parquet", pa.table({"text": broken}))
    assert first == A and second.startswith(", row 2: column 'text' cannot be read ('utf-8' codec")


def test_texts_bigger_than_a_piece_are_cut_at_blank_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_text, "PIECE", 20)
    cases: list[tuple[str, list[str]]] = [
        ("one\n\ntwo two\n\nthree three\n\nfour", ["one\n\ntwo two\n\n", "three three\n\nfour"]),
        ("one\r\n\r\ntwo two two two two", ["one\r\n\r\n", "two two two two two"]),
        ("one one one\ntwo two two two", ["one one one\n", "two two two two"]),
        ("é" * 21, ["é" * 10, "é" * 10, "é"]),
        ("x" + "é" * 10, ["x" + "é" * 9, "é"]),
    ]
    for text, pieces in cases:
        assert [row["text"] for row in told(tmp_path / "book.txt", text.encode())] == pieces
    (tmp_path / "book.txt").write_bytes(cases[0][0].encode())
    assert [row.place for row in read_rows(tmp_path / "book.txt")] == [1, 5]


ROWS = [{"text": f"row {i} é\n"} for i in range(700)]


def written(name: str) -> bytes:
    kind = Path(name).suffix if not name.endswith("gz") else Path(name[:-3]).suffix
    if kind == ".parquet":
        file = io.BytesIO()
        pq.write_table(pa.Table.from_pylist(ROWS), file, row_group_size=100)
        return file.getvalue()
    if kind in (".csv", ".tsv"):
        return b'"text"\n' + b"".join(f'"{row["text"]}"\n'.encode() for row in ROWS)
    if kind == ".json":
        return json.dumps(ROWS, indent=1, ensure_ascii=False).encode()
    return b"\n".join(json.dumps(row, ensure_ascii=False).encode() for row in ROWS)


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.json", "a.csv", "a.tsv.gz", "a.parquet", "a.parquet.gz"])
@pytest.mark.parametrize("encoding", [None, "utf-16"])
def test_a_row_again(name: str, encoding: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for room in (reread, encodings):
        monkeypatch.setattr(room, "CHUNK", 1000)
    path, data = tmp_path / name, written(name)
    data = data.decode().encode(encoding) if encoding and "parquet" not in name else data
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    for block in read_blocks([path], encoding=encoding):
        for number, place, offset in list(zip(block.places, block.places, block.offsets, strict=True))[::150]:
            row, text = reread_row(path, number, offset, encoding=encoding)
            assert row.place == place and json.loads(text) == row.value == ROWS[int(row.value["text"].split()[1])]
            assert row.value in [json.loads(one) for one in block.texts]
    path.write_bytes(b"")
    with pytest.raises(DataError):
        reread_row(path, 650, 9000, encoding=encoding)
