"""Folders that `save_to_disk` wrote, and Arrow files of any other origin."""

import gzip
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pytest
from pyarrow import ipc

from ftui.engine.data.files.blocks import parse_block, read_blocks, reread_row
from ftui.engine.data.files.folders import list_files
from ftui.engine.data.files.raw_rows import Row
from ftui.errors import DataError
from tests.support.data_rows import read_rows
from tests.support.tiny import chats

ROWS = chats(1300)


def texts(path: Path, **options: Any) -> list[Any]:
    return [row.value for file in list_files(path, **options).files for row in read_rows(file)]


def test_a_saved_data_set_is_read_whole_and_without_what_is_cached(tmp_path: Path) -> None:
    datasets.Dataset.from_list(ROWS).save_to_disk(tmp_path / "rows", num_shards=3)
    for name in ("cache-0123.arrow", "data-00009-of-00010.arrow"):  # a step that was cached, a shard of an older one
        (tmp_path / "rows" / name).write_bytes(b"nothing")
    assert texts(tmp_path / "rows") == ROWS
    (tmp_path / "rows" / "data-00001-of-00003.arrow").unlink()
    with pytest.raises(DataError, match=r"names data-00001-of-00003\.arrow, which is not there"):
        list_files(tmp_path / "rows")


@pytest.mark.parametrize("names", [("train", "test"), ("train_sft", "train_gen"), ("a",)])
def test_splits_that_were_saved_together(names: tuple[str, ...], tmp_path: Path) -> None:
    parts = {name: ROWS[number : number + 2] for number, name in enumerate(names)}
    datasets.DatasetDict({name: datasets.Dataset.from_list(rows) for name, rows in parts.items()}).save_to_disk(
        tmp_path
    )
    for name, rows in parts.items():
        assert texts(tmp_path, split=name) == rows
    if names == ("train_sft", "train_gen"):
        with pytest.raises(DataError, match="several splits: there are train_sft, train_gen"):
            list_files(tmp_path)
        return
    assert texts(tmp_path) == parts[names[0]]
    assert len(list_files(tmp_path).notes) == len(names) - 1


def arrow(path: Path, rows: list[dict[str, Any]], *, as_file: bool = False) -> Path:
    table = pa.Table.from_pylist(rows)
    with (ipc.new_file if as_file else ipc.new_stream)(str(path), table.schema) as writer:
        writer.write_table(table, max_chunksize=600)
    return path


@pytest.mark.parametrize("as_file", [True, False])
def test_arrow_files(as_file: bool, tmp_path: Path) -> None:
    path = arrow(tmp_path / "rows.arrow", ROWS, as_file=as_file)
    assert [row.value for row in read_rows(path)] == ROWS
    row, _ = reread_row(path, 1234, -1)
    assert (row.value, str(row.where)) == (ROWS[1233], f"{path}, row 1234")
    (tmp_path / "rows.arrow.gz").write_bytes(gzip.compress(path.read_bytes()))
    blocks = read_blocks([tmp_path / "rows.arrow.gz"])
    assert [row.value for block in blocks for row in parse_block(block) if isinstance(row, Row)] == ROWS


@pytest.mark.parametrize("size", [-8, -9, 700, 10])
def test_an_arrow_file_that_was_cut_is_damaged(size: int, tmp_path: Path) -> None:
    path = arrow(tmp_path / "rows.arrow", ROWS)
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(DataError, match="is damaged or no Arrow file"):
        list(read_rows(path))


def test_empty_arrow_files(tmp_path: Path) -> None:
    (tmp_path / "rows.arrow").write_bytes(b"")
    with pytest.raises(DataError, match="There are no rows in"):
        list(read_rows(tmp_path / "rows.arrow"))
