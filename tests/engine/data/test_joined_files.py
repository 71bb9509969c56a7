"""What joining and exporting leave in files: marks and headers in the middle, two columns of one name, `sep=;`."""

import csv
import gzip
import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ftui.engine.data.files.blocks import parse_block, read_blocks, reread_row
from ftui.engine.data.files.plain_text import PIECE
from ftui.engine.data.files.raw_rows import BadRow
from ftui.errors import DataError
from tests.support.data_rows import read_rows

BOM = b"\xef\xbb\xbf"


def values(path: Path, data: bytes, encoding: str | None = None) -> list[dict[str, Any]]:
    """The rows, each also read again by its place."""
    path.write_bytes(data)
    found = []
    for block in read_blocks([path], encoding=encoding):
        for row, place, offset in zip(parse_block(block), block.places, block.offsets, strict=True):
            assert not isinstance(row, BadRow)
            assert reread_row(path, place, offset, encoding=encoding)[0].value == row.value
            found.append(row.value)
    return found


def bad_rows(path: Path, data: bytes) -> tuple[list[Any], list[tuple[int, str]]]:
    path.write_bytes(data)
    read = [row for block in read_blocks([path]) for row in parse_block(block)]
    good = [row.value for row in read if not isinstance(row, BadRow)]
    return good, [(row.where.number, row.reason) for row in read if isinstance(row, BadRow)]


# -- marks in the middle


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
def test_a_mark_before_a_record_is_no_part_of_it(end: str, quoting: Any, tmp_path: Path) -> None:
    """Also where the record begins with a quote, which is one only at the beginning of a cell."""
    pieces = []
    for rows in ([("q", "a"), ("1", "2")], [("3", "four, 4"), ("5", "6")], [('"7"', "8")]):
        written = io.StringIO(newline="")
        csv.writer(written, lineterminator=end, quoting=quoting).writerows(rows)
        pieces.append(BOM + written.getvalue().encode())
    found = values(tmp_path / "rows.csv", b"".join(pieces))
    assert [tuple(one.values()) for one in found] == [("1", "2"), ("3", "four, 4"), ("5", "6"), ('"7"', "8")]
    as_tabs = values(tmp_path / "rows.tsv", BOM + b"q\ta\n" + BOM + b"1\t2\n")
    assert as_tabs == [{"q": "1", "a": "2"}]


def test_a_mark_within_a_cell_stays(tmp_path: Path) -> None:
    found = values(tmp_path / "rows.csv", b'q,a\n1,"x\n' + BOM + b'y"\n2,' + BOM + b"z\n")
    assert [one["a"] for one in found] == ["x\n\ufeffy", "\ufeffz"]


def test_marks_between_lines_of_json(tmp_path: Path) -> None:
    line = b'{"text": "a"}\n'
    assert values(tmp_path / "rows.jsonl", (BOM + line + line) * 3 + BOM) == [{"text": "a"}] * 6
    assert values(tmp_path / "twice.jsonl", BOM + BOM + line) == [{"text": "a"}]
    whole = f"\ufeff{line.decode()}" * 2
    assert values(tmp_path / "wide.jsonl", whole.encode("utf-16-le"), "utf-16-le") == [{"text": "a"}] * 2
    good, bad = bad_rows(tmp_path / "bad.jsonl", line + BOM + b'{"text": }\n' + line)
    assert good == [{"text": "a"}] * 2 and [place for place, _ in bad] == [2]


def test_marks_in_text(tmp_path: Path) -> None:
    joined = BOM + b"one\n" + BOM + b"two" + BOM + b"three\n" + BOM
    assert values(tmp_path / "a.txt", joined) == [{"text": "one\ntwothree\n"}]
    assert values(tmp_path / "b.txt", joined.decode().encode("utf-16-le"), "utf-16-le") == [{"text": "one\ntwothree\n"}]
    large = values(tmp_path / "c.txt", (b"x" * 1000 + b"\n" + BOM) * (PIECE // 1000 + 9))
    assert len(large) == 2 and not any("\ufeff" in one["text"] for one in large)


# -- the header again


@pytest.mark.parametrize(
    ("name", "header", "row"),
    [
        ("a.csv", b"prompt,completion", b"x,y"), ("b.csv", b"prompt;completion", b"x;y"), ("c.csv", b"text", b"x"),
        ("d.tsv", b"prompt\tcompletion", b"x\ty"), ("e.csv", b",prompt,completion", b"0,x,y"),
        ("f.csv", b'"prompt","the, completion"', b"x,y"), ("g.csv", b'"pro\nmpt",completion', b"x,y"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("mark", [b"", BOM])
def test_a_second_header_is_a_fault_of_its_row(
    name: str, header: bytes, row: bytes, mark: bytes, tmp_path: Path
) -> None:
    one = mark + header + b"\n" + row + b"\n"
    good, bad = bad_rows(tmp_path / name, one * 3)
    lines = one.count(b"\n")
    assert len(good) == 3 and good[0] == good[1] == good[2]
    assert bad == [(1 + lines, "the header again"), (1 + 2 * lines, "the header again")]
    with pytest.raises(DataError, match="the header again") as caught:
        list(read_rows(tmp_path / name))
    assert "data.on_bad_row" in caught.value.hint


def test_what_is_like_a_header_is_a_row(tmp_path: Path) -> None:
    assert values(tmp_path / "rows.csv", b"a,b\nb,a\na,c\nA,B\n") == [
        {"a": "b", "b": "a"}, {"a": "a", "b": "c"}, {"a": "A", "b": "B"},
    ]  # fmt: skip


# -- Excel's first line


@pytest.mark.parametrize("sign", list(";,|\t:^~#"))
@pytest.mark.parametrize("form", ["sep={}\n", "SEP={}\r\n", '"sep={}"\n', "\ufeffsep={}\n", "\nsep={}\n\n"])
def test_a_first_line_names_the_delimiter(sign: str, form: str, tmp_path: Path) -> None:
    """Though others cut the header into more columns."""
    others = "".join(other for other in ",;" if other != sign)
    data = form.format(sign) + sign.join(("q", f"a{others}{others}", "c")) + "\n" + sign.join(("1", "2", "3")) + "\n"
    for name in ("rows.csv", "rows.tsv"):
        assert values(tmp_path / name, data.encode()) == [{"q": "1", f"a{others}{others}": "2", "c": "3"}]


def test_a_header_that_only_begins_so_is_a_header(tmp_path: Path) -> None:
    for header, row in ((b"sep=", b"1"), (b"sep=a", b"1"), (b"sep=;x", b"1;2"), (b"sep", b"1"), (b"x,sep=;", b"1,2")):
        (found,) = values(tmp_path / "rows.csv", header + b"\n" + row + b"\n")
        assert "".join(found).startswith(("sep", "x")) and "".join(found.values()) in ("1", "12")


# -- columns of one name


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    """Which is meant, nobody can tell. Anywhere in the table; of names within a column each row is a fault."""
    for names in (["text", "text"], ["a", "text", "b", "text"], ["", ""]):
        path = tmp_path / "rows.parquet"
        pq.write_table(pa.Table.from_arrays([pa.array([str(n)]) for n, _ in enumerate(names)], names=names), path)
        for packed in (False, True):
            if packed:
                path = tmp_path / "rows.parquet.gz"
                path.write_bytes(gzip.compress((tmp_path / "rows.parquet").read_bytes()))
            with pytest.raises(DataError, match=f"two columns have the name {names[-1]!r}") as caught:
                list(read_rows(path))
            assert "renamed" in caught.value.hint
    inner = pa.StructArray.from_arrays([pa.array(["1"]), pa.array(["2"])], names=["x", "x"])
    pq.write_table(pa.table({"m": inner}), tmp_path / "inner.parquet")
    with pytest.raises(DataError, match="column 'm' cannot be read"):
        list(read_rows(tmp_path / "inner.parquet"))
    pq.write_table(pa.table({"text": ["1"], "Text": ["2"]}), tmp_path / "two.parquet")
    assert [row.value for row in read_rows(tmp_path / "two.parquet")] == [{"text": "1", "Text": "2"}]
    for name, data in (("r.csv", b"q,q\n1,2\n"), ("r.jsonl", json.dumps({"q": 1})[:-1].encode() + b', "q": 2}\n')):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(DataError, match=r"have the name 'q'|the key 'q' stands twice"):
            list(read_rows(tmp_path / name))


def test_rows_of_an_old_mac_table_are_found_again(tmp_path: Path) -> None:
    """Its lines end with CR, and LF within its cells ends none: from the middle of the file nobody could tell."""
    data = b'q,a\r"1\n1",2\r3,"4\n\n"\r"5\n",6\r'
    expected = [{"q": "1\n1", "a": "2"}, {"q": "3", "a": "4\n\n"}, {"q": "5\n", "a": "6"}]
    assert values(tmp_path / "rows.csv", data) == expected
