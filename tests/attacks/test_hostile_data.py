"""Small files that hold very much: they are read or refused, in memory that does not grow with what they hold."""

import gzip
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from ftui.engine.data.files.blocks import BadRow, parse_block, read_blocks
from ftui.engine.data.files.encodings import Utf8
from ftui.errors import DataError

MIB = 1 << 20
MOST_MIB = 200
READ = """
import resource, sys
from pathlib import Path
from ftui.engine.data.files.blocks import parse_block, read_blocks
import pyarrow.parquet
before, rows = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, 0
for block in read_blocks([Path(sys.argv[1])], encoding=None):
    rows += len(parse_block(block))
    if rows > 100:
        break
print(rows, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10)
"""


def pack(path: Path, pieces: Iterable[bytes]) -> Path:
    if path.suffix == ".gz":
        with gzip.open(path, "wb", 1) as file:
            file.writelines(pieces)
        return path
    with path.open("wb") as output, zstandard.ZstdCompressor(1).stream_writer(output) as packed:
        for piece in pieces:
            packed.write(piece)
    return path


def endless_line(times: int) -> list[bytes]:
    return [b'{"text": "', *[b"a" * MIB] * times, b'"}\n', b'{"text": "after it"}\n']


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_an_endless_line_is_one_bad_row_and_the_next_is_read(suffix: str, tmp_path: Path) -> None:
    path = pack(tmp_path / f"rows.jsonl{suffix}", endless_line(64))
    assert path.stat().st_size < MIB
    rows = [row for block in read_blocks([path], encoding=None) for row in parse_block(block)]
    assert isinstance(rows[0], BadRow) and "longer than 10 MB" in rows[0].error().message
    assert not isinstance(rows[1], BadRow) and rows[1].value == {"text": "after it"}


def test_gigabytes_of_line_ends_are_passed_over_by_the_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not line by line, which takes half an hour for what fits into 130 KB."""
    path = pack(tmp_path / "rows.jsonl.zst", [*[b"\n" * MIB] * 64, b'{"text": "last"}\n'])
    looked_at, holds = [], Utf8.holds

    def counted(self: Utf8, data: bytes) -> bool:
        looked_at.append(len(data))
        return holds(self, data)

    monkeypatch.setattr(Utf8, "holds", counted)
    (row,) = (row for block in read_blocks([path], encoding=None) for row in parse_block(block))
    assert not isinstance(row, BadRow) and row.place == 64 * MIB + 1
    assert len(looked_at) == 1


@pytest.mark.parametrize("bracket", [b"[", b'{"a":'])
def test_brackets_without_end_are_not_counted_to_their_end(bracket: bytes, tmp_path: Path) -> None:
    path = pack(tmp_path / "rows.json.zst", [b"[", *[bracket * (MIB // len(bracket))] * 32])
    with pytest.raises(DataError) as caught:
        list(read_blocks([path], encoding=None))
    assert "nested more than 100,000 levels deep" in caught.value.message and str(path) in caught.value.message


def shared_value(path: Path) -> None:
    pointers = pa.array([0] * 4000, pa.int32())
    text = pa.DictionaryArray.from_arrays(pointers, pa.array(["a" * MIB]))
    if path.suffix == ".arrow":
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, pa.schema([("text", text.type)])) as writer:
            writer.write_batch(pa.record_batch({"text": text}))
    else:
        pq.write_table(pa.table({"text": text}), path, row_group_size=4000)


def shared_by_fewer(path: Path) -> None:
    """So few rows that each takes a kilobyte of the file; it does not say that its texts stand in a dictionary."""
    text = pa.DictionaryArray.from_arrays(pa.array([0] * 4000, pa.int32()), pa.array(["a" * (4 * MIB)]))
    pq.write_table(pa.table({"text": text}), path, row_group_size=4000, store_schema=False)


def shared_in_lists(path: Path) -> None:
    text = pa.DictionaryArray.from_arrays(pa.array([0] * 1200, pa.int32()), pa.array(["a" * MIB]))
    turns = pa.StructArray.from_arrays([text, text], ["role", "content"])
    pq.write_table(pa.table({"messages": pa.ListArray.from_arrays(list(range(1201)), turns)}), path)


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("rows.parquet", shared_value), ("rows.arrow", shared_value), ("chats.parquet", shared_in_lists),
        ("long.parquet", shared_by_fewer),
    ],
)  # fmt: skip
def test_a_table_whose_rows_share_one_long_value(name: str, write: Callable[[Path], None], tmp_path: Path) -> None:
    """A file of 50 KB says nowhere that its rows are 4 GB. The reader is a process of its own: memory is its peak."""
    path = tmp_path / name
    write(path)
    assert path.stat().st_size < 2 * MIB
    told = subprocess.run([sys.executable, "-c", READ, str(path)], capture_output=True, text=True, check=True)
    rows, mib = map(int, told.stdout.split())
    assert rows > 100 and mib < MOST_MIB


def test_a_damaged_description_of_a_column_does_not_end_the_process(tmp_path: Path) -> None:
    """pyarrow ends it when it is asked about some (a list of sizes that is too long): they are read first."""
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"text": ["a", "b", "c"]}), path)
    data, refused = path.read_bytes(), 0
    for place in range(len(data) - 8 - int.from_bytes(data[-8:-4], "little"), len(data) - 8):
        path.write_bytes(data[:place] + bytes([(data[place] + 0x10) % 256]) + data[place + 1 :])
        try:
            assert list(read_blocks([path], encoding=None))
        except DataError as error:
            refused += 1
            assert str(path) in error.message
    assert refused > 30


def test_a_table_reads_the_same_with_its_dictionaries(tmp_path: Path) -> None:
    labels = [f"label {n % 3} {'x' * 5000}" for n in range(700)]
    pq.write_table(pa.table({"text": labels, "number": range(700)}), tmp_path / "rows.parquet")
    rows = [row for block in read_blocks([tmp_path / "rows.parquet"], encoding=None) for row in parse_block(block)]
    assert [getattr(row, "value", None) for row in rows] == [{"text": t, "number": n} for n, t in enumerate(labels)]
