"""Tables, packed files, folders: the right rows, each with its true place, read in bounded memory; damage is named."""

import csv
import gzip
import io
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from ftui.engine.data.files.blocks import read_blocks, reread_row
from ftui.engine.data.files.csv_rows import describe_preamble
from ftui.engine.data.files.encodings import utf8_chunks
from ftui.engine.data.files.folders import list_files
from ftui.engine.data.files.streams import open_stream
from ftui.engine.data.forms.detect_form import detect
from ftui.engine.data.forms.formats import Chat, to_example
from ftui.errors import DataError
from tests.support.data_rows import read_rows

A, B = {"text": "a"}, {"text": "b\nc"}
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


ROW = [{"instruction": "a b", "output": "c, d"}]


@pytest.mark.parametrize(
    ("data", "place", "value"),
    [
        ("# exported 2024-01-01\n\ninstruction;output\na b;c, d\n", 4, ROW),
        ('# exported, by me\ninstruction,output\na b,"c, d"\n', 3, ROW),
        ("My rows\r\n\r\nInstruction\tOutput\r\na b\tc, d\r\n", 4, [{"Instruction": "a b", "Output": "c, d"}]),
        ("Report;2024;x\n\n\ninstruction;output\na b;c, d", 5, ROW),
        (
            "\ufeff// one\n// two\nfrage;antwort\n1;2\n3;4\n",
            4,
            [{"frage": "1", "antwort": "2"}, {"frage": "3", "antwort": "4"}],
        ),
        ("Export\n\nfrage;antwort\n1;2\n3;4\n", 4, [{"frage": "1", "antwort": "2"}, {"frage": "3", "antwort": "4"}]),
        # a first line that is the header
        ("#id,q,a\n1,2,3\n", 2, [{"#id": "1", "q": "2", "a": "3"}]),
        ("text\ninstruction\n", 2, [{"text": "instruction"}]),
        ("a,b\ninstruction,output\n", 2, [{"a": "instruction", "b": "output"}]),
        ('prompt,completion\n"instruction\noutput",x\n', 2, [{"prompt": "instruction\noutput", "completion": "x"}]),
        ("# c1\n# c2\nask,say\nhello you,well hi\n", 4, [{"ask": "hello you", "say": "well hi"}]),
        ('"# of June, at noon",\ninstruction,output\na b,c d\n', 3, [{"instruction": "a b", "output": "c d"}]),
        (
            '"#",ask,say\n1,a b,c d\n2,e f,g h\n',
            2,
            [{"#": n, "ask": q, "say": a} for n, q, a in [("1", "a b", "c d"), ("2", "e f", "g h")]],
        ),
        ("Report,\n,\nask,say\na b,c d\n", 4, [{"ask": "a b", "say": "c d"}]),
        ("Report;;\nof June;;\n;;\nask;say;n\na b;c d;1\n", 5, [{"ask": "a b", "say": "c d", "n": "1"}]),
        (",body\n0,hello\n1,world\n", 2, [{"body": "hello"}, {"body": "world"}]),
        ("body\nhello\nworld\n", 2, [{"body": "hello"}, {"body": "world"}]),
    ],
)
def test_the_header_is_found_below_a_preamble(
    data: str, place: int, value: list[dict[str, Any]], tmp_path: Path
) -> None:
    path = tmp_path / "rows.csv"
    rows = rows_of(path, data.encode())
    assert [row for _, row in rows] == value and rows[0][0] == place
    (block,) = read_blocks([path])
    for number, offset, row in zip(block.places, block.offsets, value, strict=True):
        assert reread_row(path, number, offset)[0].value == row
    with open_stream(path) as stream:
        note = describe_preamble("rows.csv", utf8_chunks("rows.csv", stream, None)[1])
    header = data.replace("\r", "").split("\n")[place - 2]
    names = ", ".join(re.split("[,;\t]", header))
    above = "line 1 is" if place == 3 else f"lines 1 to {place - 2} are"
    assert note == (f"{above} passed over; the header was found in line {place - 1}: {names}" if place > 2 else "")


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


def test_zst_files_that_look_far_back_are_read(tmp_path: Path) -> None:
    """`zstd --long=31`, as large dumps are packed: none of them is damaged."""
    data = b"".join(json.dumps({"text": f"row {number}"}).encode() + b"\n" for number in range(30))
    far = zstandard.ZstdCompressionParameters.from_level(1, window_log=31)
    packer = zstandard.ZstdCompressor(compression_params=far).compressobj()
    found = rows_of(tmp_path / "rows.jsonl.zst", packer.compress(data) + packer.flush())
    assert [value["text"] for _, value in found] == [f"row {number}" for number in range(30)]


def test_tsv_is_cut_at_tabs_only(tmp_path: Path) -> None:
    assert rows_of(tmp_path / "rows.tsv", b"q,r\ta\n1,2\t3\n") == [(2, {"q,r": "1,2", "a": "3"})]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b'q,a\n"1\n2",3\n4\n', ":4: 1 cells, but the header names 2 columns (near '4')."),
        (b"q,a\n1,2,3\n", ":2: 3 cells, but the header names 2 columns (near '1')."),
        (b'q,a\n1,2\n"3\n,4\n', ":3: not CSV (a quote that is never closed)."),
        (b"q,q\n1,2\n", ":1: two columns of the header have the name 'q'."),
        (b"q,a\n1,\xe9\n", ":2: not UTF-8 (byte 6: 0xe9)."),
        (b"q,a\r1,\xe9\r", ":2: not UTF-8 (byte 6: 0xe9)."),
        (b'q,a\r1,2\r"3,4\r5,6\r', ":3: not CSV (a quote that is never closed)."),
        (b'q,"a\n1,2\n', ":1: not CSV (a quote that is never closed)."),
        (b'q,a\n"1"2,3\n', ":2: not CSV (',' expected after '\"')."),
        (b"q\n1\n2\r3\n", ":3: not CSV (new-line character seen in unquoted field)."),
        (b"q,a\n1," + b"x" * 300_000 + b"\n", ":2: not CSV (a cell longer than 10 MB, or an open quote)."),
        (b"q," + b"x" * 300_000 + b"\n1,2\n", ":1: not CSV (a cell longer than 10 MB, or an open quote)."),
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
    for data in (b"PAR1", whole[:-9], whole[:2000] + b"\0" * 9 + whole[2009:]):
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
    found = [path.relative_to(tmp_path).as_posix() for path in list_files(tmp_path).files]
    assert found == ["a.csv.gz", "b/one.jsonl", "b/two.parquet", "c.TXT"]
    assert list_files(tmp_path / "a.csv.gz").files == (tmp_path / "a.csv.gz",)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="There is no file of rows in"):
        list_files(tmp_path / "empty")


MEMORY = """
import sys
from pathlib import Path
from ftui.engine.data.files.blocks import parse_block, read_blocks
def count(path):
    return sum(len(parse_block(block)) for block in read_blocks([Path(path)]))
count(sys.argv[2])
def peak():  # ru_maxrss would begin with that of the process this one was forked from
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
before = peak()
num_rows = count(sys.argv[1])
print(num_rows, (peak() - before) // 1024)
"""


def _rows_like(number: int) -> Iterator[str]:
    return (f"{i} " + "x" * 10_000 for i in range(number))


def _big(path: Path, number: int) -> None:
    """A file of rows of 10 kB."""
    kind = ".one" if path.name.startswith("one.") else ".object" if path.name.startswith("object.") else path.suffix
    if kind == ".parquet":
        texts = [{"text": text} for text in _rows_like(number)]
        parquet(path, texts, row_group_size=500, use_dictionary=False, compression="none")
        return
    lines = [json.dumps({"text": text}) for text in _rows_like(number)]
    match kind:
        case ".csv" | ".tsv" | ".txt":
            data = "text\n" + "\n\n".join(_rows_like(number))
        case ".json":
            data = f"[{','.join(lines)}]"
        case ".object":
            data = f'{{"data": [{", ".join(lines)}]}}'
        case ".one":  # one line, longer than any row may be
            data = json.dumps({"text": "".join(lines)}) + "\n" + lines[0]
        case _:
            data = "\n".join(lines)
    path.write_bytes(PACKERS.get(path.suffix, bytes)(data.encode()))


BIG = {  # MiB; rows of text are 8 MiB, and are held a few times
    "rows.jsonl.zst": 30, "rows.csv": 30, "rows.json": 30, "rows.parquet": 90, "object.json": 30,
    "rows.jsonl": 30, "rows.jsonl.gz": 30, "one.jsonl": 30, "rows.txt": 100,
}  # fmt: skip


@pytest.mark.parametrize("name", BIG)
def test_big_files_are_read_in_little_memory(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """70 MB of rows, with --trials 200 MB and more kinds: what reading adds to the peak."""
    all_of_it = request.config.getoption("--trials") > 0
    if not all_of_it and name not in list(BIG)[:5]:
        pytest.skip("one like it was tried; --trials 1 tries all")
    path, small, number = tmp_path / name, tmp_path / f"small-{name}", 20_000 if all_of_it else 7000
    _big(path, number)
    _big(small, 10)
    command = [sys.executable, "-c", MEMORY, str(path), str(small)]
    num_rows, mebibytes = subprocess.run(command, capture_output=True, check=True, text=True).stdout.split()
    print(f"{name}: {num_rows} rows, {mebibytes} MiB")
    assert int(num_rows) == {"one.jsonl": 2, "rows.txt": int(num_rows)}.get(name, number)
    assert int(mebibytes) < BIG[name]


def test_a_list_of_data_sets_is_no_rows(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"is a list of data sets \(LLaMA-Factory's dataset_info\.json\), not rows"):
        rows_of(tmp_path / "dataset_info.json", b'{"mine": {"file_name": "mine.json"}}')
