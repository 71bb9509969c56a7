"""The files of a ledger: what is written is read, a rewound one is that of a run which was never cut."""

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftui.engine.ledger import ledger_file
from ftui.engine.ledger.ledger_file import ROW, LedgerWriter, ledger_paths, read_ledger, rewind
from ftui.errors import DiskFullError
from ftui.system.files import UnsafePathError

PRINT = "0123456789abcdef" * 4


def rows_of(step: int, number: int = 3) -> np.ndarray:
    rows = np.zeros(number, ROW)
    rows["number"] = np.arange(number) + step
    rows["count"], rows["loss"] = step % 7 + 1, step / 3
    return rows


def write(folder: Path, first: int, last: int, *, after: int = 0, number: int = 3) -> None:
    writer = LedgerWriter(folder, PRINT, after)
    for step in range(first, last + 1):
        writer.write(step, rows_of(step, number))


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in ledger_paths(folder)}


def test_what_is_written_is_read(tmp_path: Path) -> None:
    write(tmp_path, 1, 9)
    ledger = read_ledger(tmp_path)
    assert ledger.fingerprint == PRINT[:24] and ledger.num_damaged == 0
    assert ledger.at(4).tobytes() == rows_of(4).tobytes() and ledger.steps.tolist() == sorted([*range(1, 10)] * 3)
    assert not len(ledger.at(10)) and not len(read_ledger(tmp_path / "none").rows)
    assert os.stat(ledger_paths(tmp_path)[0]).st_size == 36 + 9 * (12 + 3 * 12), "12 bytes a row"


@given(cut=st.integers(0, 12), torn=st.integers(0, 40), per_file=st.integers(140, 400))
def test_a_run_that_was_cut_has_the_files_of_one_that_was_not(
    tmp_path_factory: pytest.TempPathFactory, cut: int, torn: int, per_file: int
) -> None:
    folder, other = tmp_path_factory.mktemp("cut"), tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ledger_file, "LONGEST", per_file)
        write(folder, 1, 13)
        newest = ledger_paths(folder)[-1]
        os.truncate(newest, newest.stat().st_size - torn)  # less than a block
        write(folder, cut + 1, 14, after=cut)
        write(other, 1, 14)
        assert content(folder) == content(other)


def test_the_oldest_files_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_file, "LONGEST", 140)
    write(tmp_path, 1, 30)
    assert len(content(tmp_path)) == ledger_file.MOST_FILES
    assert all(len(data) <= 140 for data in content(tmp_path).values())
    assert read_ledger(tmp_path).steps[-1] == 30 and read_ledger(tmp_path).steps[0] == 15
    write(tmp_path, 10, 12, after=9)
    assert set(read_ledger(tmp_path).steps.tolist()) == {10, 11, 12}, "all that was left was later"


@given(st.binary(max_size=400))
def test_any_bytes_are_read_or_refused(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    folder = tmp_path_factory.mktemp("any")
    for start in (b"", ledger_file.MAGIC + PRINT[:24].encode()):
        (folder / "0000000001.bin").write_bytes(start + data)
        ledger = read_ledger(folder)
        assert (np.diff(ledger.steps) >= 0).all() and len(ledger.steps) == len(ledger.rows)
        rewind(folder, 5)
        assert (read_ledger(folder).steps <= 5).all()


def test_a_block_that_is_damaged_is_counted_and_the_others_are_read(tmp_path: Path) -> None:
    write(tmp_path, 1, 5)
    path = ledger_paths(tmp_path)[0]
    data = bytearray(path.read_bytes())
    data[36 + 48 + 8] = 77  # the number of rows of step 2
    path.write_bytes(data)
    ledger = read_ledger(tmp_path)
    assert set(ledger.steps.tolist()) == {1, 3, 4, 5} and ledger.num_damaged == 1


def test_a_full_disk_leaves_no_half_of_a_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = LedgerWriter(tmp_path, PRINT, 0)
    writer.write(1, rows_of(1))
    before, real = content(tmp_path), os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: real(descriptor, data[:7]))
    with pytest.raises(DiskFullError):
        writer.write(2, rows_of(2))
    monkeypatch.undo()
    assert content(tmp_path) == before
    writer.write(2, rows_of(2))
    assert set(read_ledger(tmp_path).steps.tolist()) == {1, 2}


def test_a_link_in_its_place_is_refused_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "outside").write_bytes(b"mine")
    (tmp_path / "ledger").mkdir()
    (tmp_path / "ledger" / "0000000001.bin").symlink_to(tmp_path / "outside")
    with pytest.raises(UnsafePathError):
        LedgerWriter(tmp_path / "ledger", PRINT, 5)
    with pytest.raises(UnsafePathError):
        read_ledger(tmp_path / "ledger")
    assert (tmp_path / "outside").read_bytes() == b"mine"
