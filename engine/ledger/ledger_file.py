"""The files of a run's ledger: for each step its rows, each with what its loss is divided by and its loss.

    ledger/STEP.bin     the steps from STEP on: a head, then one block a step

A block is a mark with the step and the number of its rows, then these: 12 bytes each. It is appended in one write. A
file has at most 32 MiB, and of more than eight the oldest goes. A resumed run cuts off what is behind its checkpoint:
the files are those of a run that was never cut, to the byte.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ftui.errors import DiskError, DiskFullError
from ftui.system.files import UnsafePathError, make_private_folder, open_private, read_plain
from ftui.system.volume import disk_error

ROW = np.dtype([("number", "<u4"), ("count", "<u4"), ("loss", "<f4")])
"""`number`: its first sequence among those of all data. `count`: target tokens, or 1 in a stage whose loss is a mean
over examples. `loss`: the sum over them, in nats."""

NO_ROWS = np.zeros(0, ROW)
MARK = 0xFFFFFFFF  # in the place of a row's number
MAGIC = b"ftui rows 1\n"
HEAD = 3 * ROW.itemsize  # the magic, and 24 digits of the fingerprint of the rows
LONGEST = 32 << 20  # bytes of a file
MOST_FILES = 8


@dataclass(frozen=True)
class Ledger:
    """What was read of a ledger: `rows` (`ROW`) and the step of each (int64), steps ascending.

    `fingerprint`: the first 24 digits of that of the data. `num_damaged` blocks could not be read.
    """

    rows: np.ndarray
    steps: np.ndarray
    fingerprint: str
    num_damaged: int = 0

    def at(self, step: int) -> np.ndarray:
        """The rows of a step."""
        first, last = np.searchsorted(self.steps, [step, step + 1])
        return self.rows[first:last]


class LedgerWriter:
    """Appends the rows of steps. `after`: the last step that stays of what is there."""

    def __init__(self, folder: Path, fingerprint: str, after: int) -> None:
        make_private_folder(folder, inside=folder.parent)
        self._folder, self._head = folder, MAGIC + fingerprint.encode()[: HEAD - len(MAGIC)]
        rewind(folder, after)
        paths = ledger_paths(folder)
        self._descriptor = open_private(paths[-1], os.O_WRONLY | os.O_APPEND) if paths else None

    def write(self, step: int, rows: np.ndarray) -> None:
        """Append a block.

        Raises:
            DiskFullError: there was no room; nothing of it is left in the file.
            DiskError: the disk refused it.
        """
        if not len(rows):
            return
        block = np.array([(MARK, step, len(rows))], dtype="<u4,<u4,<u4").tobytes() + rows.tobytes()
        try:
            if self._descriptor is None or os.fstat(self._descriptor).st_size + len(block) > LONGEST:
                self._begin_file(step)
            assert self._descriptor is not None, "a file was begun"
            _append(self._descriptor, block)
        except OSError as error:
            if isinstance(error, DiskError):
                raise
            raise disk_error(error, "The ledger could not be written", self._folder, len(block)) from error

    def _begin_file(self, step: int) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
        path = self._folder / f"{step:010}.bin"
        path.unlink(missing_ok=True)  # one whose head the disk did not take
        descriptor = open_private(path, os.O_WRONLY | os.O_APPEND)
        try:
            _append(descriptor, self._head)
        except OSError:
            os.close(descriptor)
            raise
        self._descriptor = descriptor
        for oldest in ledger_paths(self._folder)[:-MOST_FILES]:
            oldest.unlink()


def _append(descriptor: int, data: bytes) -> None:
    before = os.fstat(descriptor).st_size
    if os.write(descriptor, data) != len(data):
        os.ftruncate(descriptor, before)
        raise DiskFullError("The disk is full: the ledger could not be written.", hint="Free some space.")


def ledger_paths(folder: Path) -> list[Path]:
    """The files, in the order of their steps."""
    return sorted(path for path in folder.glob("*.bin") if path.stem.isdecimal())


def rewind(folder: Path, after: int) -> None:
    """Cut off what was written of steps above `after`, and what a crash left of a block.

    Raises:
        UnsafePathError: one is no plain file.
    """
    for path in reversed(ledger_paths(folder)):
        data, end = read_plain(path, LONGEST), 0
        if int(path.stem) <= after and data.startswith(MAGIC):
            blocks = _find_blocks(data)
            stays = blocks.steps <= after
            end = HEAD + int(blocks.ends[stays].max(initial=0)) * ROW.itemsize
        if end <= HEAD:
            path.unlink()
            continue
        if end < len(data):
            descriptor = open_private(path, os.O_WRONLY)
            try:
                os.ftruncate(descriptor, end)
            finally:
                os.close(descriptor)
        return


def read_ledger(folder: Path) -> Ledger:
    """All there is of a ledger; of a folder that is missing, nothing.

    A block that a crash or a stranger left torn is left out and counted, but for the last: it may be being written.

    Raises:
        UnsafePathError: a file is no plain one, too long, or of other rows than the others.
    """
    rows, steps = [NO_ROWS], [np.zeros(0, np.int64)]
    num_damaged, fingerprint, last_step = 0, "", 0
    for path in ledger_paths(folder):
        data = read_plain(path, LONGEST)
        if not data.startswith(MAGIC):
            num_damaged += 1
            continue
        own = data[len(MAGIC) : HEAD].decode(errors="replace")
        if fingerprint and own != fingerprint:
            raise UnsafePathError(f"{path} is of other rows than the files before it.", hint="Remove it.")
        blocks, fingerprint = _find_blocks(data, last_step), own
        words = np.frombuffer(data, ROW, blocks.num_words, min(HEAD, len(data)))
        rows.append(words[blocks.is_row])
        steps.append(np.repeat(blocks.steps, blocks.ends - blocks.begins))
        num_damaged += blocks.num_damaged
        last_step = int(blocks.steps.max(initial=last_step))
    return Ledger(np.concatenate(rows), np.concatenate(steps), fingerprint, num_damaged)


@dataclass(frozen=True)
class _Blocks:
    """The whole blocks of a file of `num_words` marks and rows: steps, and where the rows of each begin and end (int64,
    counted from the first mark). `is_row`: which words are rows of them. The last block is not counted as damaged."""

    steps: np.ndarray
    begins: np.ndarray
    ends: np.ndarray
    num_words: int
    is_row: np.ndarray
    num_damaged: int


def _find_blocks(data: bytes, after: int = 0) -> _Blocks:
    """Those above step `after`; blocks ascend."""
    num_words = max(0, (len(data) - HEAD) // ROW.itemsize)
    words = np.frombuffer(data, "<u4", 3 * num_words, min(HEAD, len(data))).reshape(-1, 3)
    marks = np.flatnonzero(words[:, 0] == MARK)
    steps, begins, ends = words[marks, 1].astype(np.int64), marks + 1, np.append(marks, num_words)[1:]
    is_whole = (begins + words[marks, 2] == ends) & (begins < ends)
    highest = np.maximum.accumulate(np.where(is_whole, steps, after))
    is_whole &= steps > np.append(after, highest)[:-1]
    is_row = np.zeros(num_words, bool)
    first = int(marks[0]) if len(marks) else num_words
    is_row[first:] = np.repeat(is_whole, ends - marks)
    is_row[marks] = False
    num_damaged = int(np.count_nonzero(~is_whole[:-1])) + (first > 0)
    return _Blocks(steps[is_whole], begins[is_whole], ends[is_whole], num_words, is_row, num_damaged)


def sort_rows(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Rows by their number: the same whatever micro-batches and ranks they come from."""
    rows = np.concatenate(parts)
    return rows[np.argsort(rows["number"], kind="stable")]
