"""Parquet files: how much of one is read for a row, and how many rows at once."""

import io
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ftui.engine.data.files.blocks import reread_row
from ftui.engine.data.files.parquet import BATCH, SHARED_BYTES, table_rows
from ftui.engine.data.files.raw_rows import RawRow
from tests.support.data_rows import read_rows


class Counted(io.FileIO):
    num_bytes = 0

    def readinto(self, buffer: Any, /) -> int:
        number = super().readinto(buffer) or 0
        Counted.num_bytes += number
        return number


class CountedPath(type(Path())):  # type: ignore[misc]
    def open(self, *_: Any, **__: Any) -> Any:
        return io.BufferedReader(Counted(str(self)))


def texts(number: int, length: int) -> list[str]:
    random = Random(7)
    return [random.randbytes(length // 2).hex() for _ in range(number)]


def test_for_one_row_little_but_its_group_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, rows = CountedPath(tmp_path / "rows.parquet"), texts(4000, 500)
    pq.write_table(pa.table({"text": rows}), path, row_group_size=400, use_dictionary=False, data_page_size=1 << 14)
    monkeypatch.setattr(Counted, "num_bytes", 0)
    row, _ = reread_row(path, 3990, -1)
    assert row.value == {"text": rows[3989]}
    assert Counted.num_bytes < path.stat().st_size / 3


def batches(path: Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Rows of each batch that is read of a file."""
    found: list[int] = []
    read = pq.ParquetFile.iter_batches

    def noted(self: Any, **options: Any) -> Any:
        for batch in read(self, **options):
            found.append(batch.num_rows)
            yield batch

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", noted)
    with path.open("rb") as stream:
        assert all(isinstance(row, RawRow) for row in table_rows(path, stream))
    return [number for number in found if number > 1]


def test_a_large_dictionary_of_short_texts_is_read_in_large_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, values = tmp_path / "rows.parquet", texts(6000, 400)
    rows = [None, *values[1:]]  # the first row has none of them
    pq.write_table(pa.table({"text": rows}), path, dictionary_pagesize_limit=8 << 20)
    assert pq.read_metadata(path).row_group(0).column(0).total_uncompressed_size > 2 << 20
    assert max(batches(path, monkeypatch)) == BATCH
    assert [row.value.get("text") for row in read_rows(path)] == rows


@pytest.mark.parametrize("has_lists", [False, True])
def test_one_long_value_among_short_ones_bounds_the_batch(
    has_lists: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, long = tmp_path / "rows.parquet", "a" * (1 << 20)
    words = ["b", long, *["c"] * 398]
    table = pa.table({"text": [[], *[[word, word] for word in words]] if has_lists else words})
    pq.write_table(table, path, dictionary_pagesize_limit=8 << 20)
    assert max(batches(path, monkeypatch)) <= SHARED_BYTES >> 20
