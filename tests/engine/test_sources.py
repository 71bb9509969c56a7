"""Tables, packed files, folders: the right rows, each with its true place, read in bounded memory; damage is named."""

import csv
import gzip
import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from ftui.engine.data.formats import Chat, detect, to_example
from ftui.engine.data.rows import Row
from ftui.engine.data.sources import files_at, read_rows
from ftui.errors import DataError

A, B = {"text": "a"}, {"text": "b\nc"}
USER, ASSISTANT = {"role": "user", "content": "why?"}, {"role": "assistant", "content": "so"}
PACKERS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".zst": zstandard.ZstdCompressor(write_checksum=True).compress,  # as the zstd program does
}


def rows_of(path: Path, data: bytes) -> list[tuple[int, dict[str, Any]]]:
    path.write_bytes(data)
    return [(found.place, found.value) for found in read_rows(path)]


def refusal(path: Path, data: bytes) -> str:
    with pytest.raises(DataError) as caught:
        rows_of(path, data)
    return caught.value.message.removeprefix(str(path))


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"q,a\n1,2\n3,4\n", [(2, {"q": "1", "a": "2"}), (3, {"q": "3", "a": "4"})]),
        (b"\xef\xbb\xbfq;a\r\n1;2,5\r\n", [(2, {"q": "1", "a": "2,5"})]),
        (b"q\ta\n1\t2", [(2, {"q": "1", "a": "2"})]),
        (b'q,a\n"1\n\n1","2 ""x"""\n3,\n', [(2, {"q": "1\n\n1", "a": '2 "x"'}), (5, {"q": "3", "a": ""})]),
        (b"\n\nq,a\n\n1,2\n", [(5, {"q": "1", "a": "2"})]),
        (b",q\n0,1\n", [(2, {"q": "1"})]),
        (b"q\n1\n", [(2, {"q": "1"})]),
        (b"q,a\n1," + b"x" * 200_000 + b"\n", [(2, {"q": "1", "a": "x" * 200_000})]),
        (b"\xef\xbb\xbf\rq;a\r1;2\r\r3;4", [(3, {"q": "1", "a": "2"}), (5, {"q": "3", "a": "4"})]),
        (b'q,a\r"1\r\n1","2\n"\r3,4\r', [(2, {"q": "1\r\n1", "a": "2\n"}), (5, {"q": "3", "a": "4"})]),
        (b"q,a\r\r\n1,2\r\r\n", [(2, {"q": "1", "a": "2"})]),
        (b"q,a\n1\0,2\n", [(2, {"q": "1\0", "a": "2"})]),
    ],
    ids=[
        "commas",
        "semicolons",
        "tabs",
        "quoted newlines",
        "blank lines",
        "pandas index",
        "one column",
        "long cell",
        "old mac",
        "old mac, quoted",
        "mangled line ends",
        "nul",
    ],
)
def test_csv(data: bytes, expected: list[tuple[int, dict[str, Any]]], tmp_path: Path) -> None:
    assert rows_of(tmp_path / "rows.csv", data) == expected


CELLS = st.text(st.characters(exclude_categories=["Cs"]))


@given(st.lists(st.tuples(CELLS, CELLS), min_size=1), st.sampled_from(",;\t"), st.sampled_from(["\r\n", "\n", "\r"]))
def test_whatever_csv_writes_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, cells: list[tuple[str, str]], delimiter: str, end: str
) -> None:
    written = io.StringIO(newline="")
    quoting: Any = csv.QUOTE_MINIMAL if end == "\r\n" else csv.QUOTE_ALL  # else CR or LF within a cell stays bare
    csv.writer(written, delimiter=delimiter, lineterminator=end, quoting=quoting).writerows([("q", "a"), *cells])
    found = rows_of(tmp_path_factory.getbasetemp() / "any.csv", written.getvalue().encode())
    assert [tuple(value.values()) for _, value in found] == cells
    data = written.getvalue().encode()
    lines = data.splitlines() if end == "\r" else data.split(b"\n")
    assert all(0 < place <= len(lines) for place, _ in found)
    assert [place for place, _ in found] == sorted({place for place, _ in found})


def test_tsv_is_cut_at_tabs_only(tmp_path: Path) -> None:
    assert rows_of(tmp_path / "rows.tsv", b"q,r\ta\n1,2\t3\n") == [(2, {"q,r": "1,2", "a": "3"})]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b'q,a\n"1\n2",3\n4\n', ", line 4: 1 cells, but the header names 2 columns."),
        (b"q,a\n1,2,3\n", ", line 2: 3 cells, but the header names 2 columns."),
        (b'q,a\n1,2\n"3\n,4\n', ", line 3: not CSV (unexpected end of data)."),
        (b"q,q\n1,2\n", ", line 1: two columns of the header have one name."),
        (b"q,a\n1,\xe9\n", ", line 2: not UTF-8 (byte 2: 0xe9)."),
        (b"q,a\r1,\xe9\r", ", line 2: not UTF-8 (byte 2: 0xe9)."),
        (b'q,a\r1,2\r"3,4\r5,6\r', ", line 3: not CSV (unexpected end of data)."),
        (b'q,"a\n1,2\n', ", line 1: not CSV (unexpected end of data)."),
        (b'q,a\n"1"2,3\n', ", line 2: not CSV (',' expected after '\"')."),
        (b"q\n1\n2\r3\n", ", line 3: not CSV (new-line character seen in unquoted field)."),
        (b"q,a\n1," + b"x" * 300_000 + b"\n", ", line 2: not CSV (field larger than field limit (250000))."),
        (b"q," + b"x" * 300_000 + b"\n1,2\n", ", line 1: not CSV (field larger than field limit (250000))."),
    ],
)
def test_bad_csv_is_named_by_the_line_on_which_its_row_begins(data: bytes, reason: str, tmp_path: Path) -> None:
    limit = csv.field_size_limit(250_000)  # ours is 2 GiB
    try:
        assert refusal(tmp_path / "rows.csv", data) == reason
    finally:
        csv.field_size_limit(limit)


def test_empty_tables(tmp_path: Path) -> None:
    for data in (b"", b"\n", b"q,a\n"):
        with pytest.raises(DataError, match="There are no rows in"):
            rows_of(tmp_path / "rows.csv", data)


def test_cells_may_hold_lists_as_json(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "why, so?"}, {"role": "assistant", "content": 'x "y"'}]
    cell = json.dumps(messages).replace('"', '""')
    path = tmp_path / "rows.csv"
    path.write_text(f'id,messages\n1,"{cell}"\n')
    (row,) = read_rows(path)
    assert to_example(row, detect(row)) == Chat(messages)


def parquet(path: Path, rows: list[dict[str, Any]], **options: Any) -> Path:
    pq.write_table(pa.Table.from_pylist(rows), path, **options)
    return path


def test_parquet_rows_have_only_the_keys_they_were_given(tmp_path: Path) -> None:
    """A table makes every struct of a column alike: what a message lacks must not be there as null."""
    call = {"type": "function", "function": {"name": "f", "arguments": {"a": 1}}}
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "why?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "3", "name": "f"},
    ]
    path = parquet(tmp_path / "rows.parquet", [{"messages": messages}, {"messages": messages[:1]}])
    first, second = read_rows(path)
    assert to_example(first, detect(first)) == Chat(messages)
    assert second.value == {"messages": messages[:1]}
    assert second.error("bad").message == f"{path}, row 2: bad."


def test_damaged_parquet_is_named(tmp_path: Path) -> None:
    path = parquet(tmp_path / "rows.parquet", [{"text": f"{i}" * 100} for i in range(999)], write_page_checksum=True)
    whole = path.read_bytes()
    for data in (b"", b"PAR1", whole[:-9], whole[:2000] + b"\0" * 9 + whole[2009:]):
        assert "is damaged or no Parquet file" in refusal(path, data)


@pytest.mark.parametrize("ending", PACKERS)
def test_packed_files_hold_the_rows_of_their_kind(ending: str, tmp_path: Path) -> None:
    packed = PACKERS[ending]
    lines = b"".join(json.dumps(value).encode() + b"\n" for value in (A, B))
    assert rows_of(tmp_path / f"rows.jsonl{ending}", packed(lines)) == [(1, A), (2, B)]
    assert rows_of(tmp_path / f"rows.jsonl{ending}", packed(lines[:20]) + packed(lines[20:])) == [(1, A), (2, B)]
    assert rows_of(tmp_path / f"rows.json{ending}", packed(json.dumps([A, B]).encode())) == [(1, A), (2, B)]
    assert rows_of(tmp_path / f"rows.csv{ending}", packed(b'text\na\n"b\nc"\n')) == [(2, A), (3, B)]
    assert rows_of(tmp_path / f"book.txt{ending}", packed(b"b\nc")) == [(1, B)]
    table = parquet(tmp_path / "rows.parquet", [A, B]).read_bytes()
    assert rows_of(tmp_path / f"rows.parquet{ending}", packed(table)) == [(1, A), (2, B)]


@pytest.mark.parametrize("ending", PACKERS)
def test_damaged_packed_files_are_named(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"rows.jsonl{ending}"
    whole = PACKERS[ending](b"".join(json.dumps({"text": str(i)}).encode() + b"\n" for i in range(50_000)))
    for data in (whole[: len(whole) // 2], whole[:-1], whole[:2000] + b"\xff" * 60 + whole[2060:], b'{"text": "a"}\n'):
        assert refusal(path, data).startswith(": the compressed file is damaged (")
    with pytest.raises(DataError, match="cannot be read: No such file"):
        list(read_rows(tmp_path / f"gone.jsonl{ending}"))


def test_a_folder_is_its_files_in_the_order_of_their_names(tmp_path: Path) -> None:
    for name in ("b/one.jsonl", "a.csv.gz", "c.TXT", "README.md", ".hidden/x.jsonl", "b/.x.jsonl", "b/two.parquet"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    found = [path.relative_to(tmp_path).as_posix() for path in files_at(tmp_path)]
    assert found == ["a.csv.gz", "b/one.jsonl", "b/two.parquet", "c.TXT"]
    assert files_at(tmp_path / "a.csv.gz") == (tmp_path / "a.csv.gz",)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="There is no file of rows in"):
        files_at(tmp_path / "empty")


MEMORY = """
import resource, sys
from pathlib import Path
from ftui.engine.data.sources import read_rows
next(iter(read_rows(Path(sys.argv[2]))))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
num_rows = sum(1 for _ in read_rows(Path(sys.argv[1])))
print(num_rows, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.jsonl.gz", "rows.jsonl.zst", "rows.csv", "rows.parquet"])
def test_big_files_are_read_in_little_memory(name: str, tmp_path: Path) -> None:
    """80 MB of rows; what reading adds to the peak stays below a quarter of that."""
    path, small = tmp_path / name, tmp_path / f"small-{name}"
    for place, number in ((path, 8000), (small, 10)):
        texts = [{"text": f"{i} " + "x" * 10_000} for i in range(number)]
        lines = b"".join(json.dumps(text).encode() + b"\n" for text in texts)
        if name.endswith("parquet"):
            parquet(place, texts, row_group_size=500, use_dictionary=False, compression="none")
        elif name.endswith("csv"):
            place.write_bytes(b"text\n" + b"".join(text["text"].encode() + b"\n" for text in texts))
        else:
            place.write_bytes(PACKERS.get(place.suffix, bytes)(lines))
    command = [sys.executable, "-c", MEMORY, str(path), str(small)]
    num_rows, mebibytes = subprocess.run(command, capture_output=True, check=True, text=True).stdout.split()
    assert int(num_rows) == 8000
    assert int(mebibytes) < 20


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"prompt": "why?", "chosen": "so", "rejected": "no"}, "a preference pair (chosen, rejected)"),
        ({"chosen": [USER, ASSISTANT], "rejected": [USER, ASSISTANT]}, "a preference pair (chosen, rejected)"),
        ({"prompt": "why?", "completion": "so", "label": True}, "an answer with a verdict ('label', as KTO has them)"),
        ({"messages": [USER, ASSISTANT], "kto_tag": False}, "an answer with a verdict ('kto_tag', as KTO has them)"),
    ],
)
def test_rows_for_another_kind_of_training_are_refused_by_name(value: dict[str, Any], reason: str) -> None:
    with pytest.raises(DataError) as caught:
        detect(Row(Path("rows.jsonl"), 7, value))
    assert caught.value.message.startswith(f"rows.jsonl, line 7: {reason}")
    assert caught.value.hint


def test_a_list_of_data_sets_is_no_rows(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"is a list of data sets \(LLaMA-Factory's dataset_info\.json\), not rows"):
        rows_of(tmp_path / "dataset_info.json", b'{"mine": {"file_name": "mine.json"}}')
