"""Files of a run for ranks that do not see rank 0's folder of it: they are sent over the process group, and compared
with their hashes. Where all see one folder nothing is sent, and nothing here waits for anybody.

Every rank calls each function, at the same place. A rank whose disk refuses takes part to the end; then all raise.
"""

import contextlib
import os
import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import IO

import msgspec
import torch
from torch import Tensor

from ftui.errors import DiskError
from ftui.runs.manifest import MANIFEST, Manifest, fault, is_inside
from ftui.runs.run_folder import Run
from ftui.system.files import make_private_folder, open_plain, open_private, read_plain
from ftui.system.volume import check_room, disk_error

from .process_group import ProcessGroup

PIECE_BYTES = 16 << 20
FAILED = -1  # in place of a length: the sender cannot read on


def bring_checkpoint(ranks: ProcessGroup, run: Run, step: int) -> Path:
    """The folder of that checkpoint of rank 0, on each rank; where it is not seen the node's first rank gets a copy.

    A copy that is there already and whole is not sent again; one of another step makes room for it.

    Raises:
        DiskError: a node has no room for it, or its disk fails.
    """
    path = run.checkpoints / f"checkpoint-{step}"
    if not any(ranks.own_folders):
        return path
    document = ranks.gather(read_plain(path / MANIFEST) if ranks.is_leader else b"")[0]
    manifest = msgspec.json.decode(document, type=Manifest)
    lacks = receives(ranks) and not _has_copy(path, document)
    if not ranks.any(lacks):
        return path
    staged = run.checkpoints / f".partial-{step}-copy"
    ranks.act_together(lambda: _make_room(run, staged, manifest) if lacks else None)
    names = [name for name in sorted(manifest.files) if is_inside(name)]
    problems = [_send(ranks, 0, path / name, staged / name if lacks else None) for name in (*names, MANIFEST)]
    ranks.act_together(lambda: _publish(staged, path, problems) if lacks or any(problems) else None)
    return path


def send_to_nodes(ranks: ProcessGroup, path: Path) -> None:
    """Give the other nodes the file that rank 0 has at `path`, under the same name; none where it has none.

    Raises:
        DiskError: a disk refuses.
    """
    if not any(ranks.own_folders) or not ranks.any(ranks.is_leader and path.exists()):
        return
    copy = path.with_name(f".{path.stem}.copy.tmp") if receives(ranks) else None
    problem = _send(ranks, 0, path, copy)
    ranks.act_together(partial(_replace, copy, path, problem))


def collect_parts(ranks: ProcessGroup, part_of: Callable[[int], Path]) -> None:
    """Put into rank 0's folder the file `part_of(rank)` that each rank of another folder has; there it is deleted.

    Raises:
        DiskError: a disk refuses.
    """
    if not any(ranks.own_folders):
        return
    own = part_of(ranks.rank)
    has = ranks.gather(b"1" if ranks.own_folders[ranks.rank] and own.exists() else b"")
    for rank in (rank for rank, flag in enumerate(has) if flag):
        path = part_of(rank)
        copy = path.with_name(f".{path.stem}.copy.tmp") if ranks.is_leader else None
        problem = _send(ranks, rank, path, copy)
        ranks.act_together(partial(_replace, copy, path, problem))
    if has[ranks.rank]:
        own.unlink()


def receives(ranks: ProcessGroup) -> bool:
    """Whether this rank writes what its node is sent."""
    return ranks.own_folders[ranks.rank] and ranks.is_first_of_node


def _has_copy(path: Path, document: bytes) -> bool:
    """Whether a copy is there and whole."""
    return fault(path) is None and read_plain(path / MANIFEST) == document


def _make_room(run: Run, staged: Path, manifest: Manifest) -> None:
    try:
        make_private_folder(run.checkpoints)
        for older in run.checkpoints.iterdir():  # copies, too
            shutil.rmtree(older)
        for name in (MANIFEST, *manifest.files):
            make_private_folder((staged / name).parent)
    except OSError as error:
        raise disk_error(error, "The checkpoint of node 0 could not be copied", run.folder) from error
    check_room(run.folder, sum(entry.size for entry in manifest.files.values()))


def _publish(staged: Path, path: Path, problems: Sequence[OSError | None]) -> None:
    """Name the copy, once each file in it is what the manifest says.

    Raises:
        DiskError: one is not.
    """
    if error := next((problem for problem in problems if problem is not None), None):
        raise disk_error(error, "The checkpoint of node 0 could not be copied", staged) from error
    if problem := fault(staged):
        raise DiskError(f"The copy of {path.name} is damaged on this node ({problem}).", hint="Is its disk sound?")
    os.rename(staged, path)


def _replace(copy: Path | None, path: Path, problem: OSError | None) -> None:
    if problem is not None:
        raise disk_error(problem, f"{path.name} could not be sent between the nodes", path.parent) from problem
    if copy is not None:
        os.replace(copy, path)


def _send(ranks: ProcessGroup, source: int, path: Path, target: Path | None) -> OSError | None:
    """Send the file at `path` of rank `source` to the ranks that have a `target` for it; what stopped this rank."""
    problem: OSError | None = None
    with contextlib.ExitStack() as stack:
        reader: IO[bytes] | None = None
        writer: IO[bytes] | None = None
        try:
            if ranks.rank == source:
                reader = stack.enter_context(open(open_plain(path), "rb"))
            if target is not None:
                target.unlink(missing_ok=True)  # of a copy that was cut off
                writer = stack.enter_context(os.fdopen(open_private(target, os.O_WRONLY), "wb"))
        except OSError as error:
            problem = error
        while True:
            piece = torch.empty(0, dtype=torch.uint8)
            if reader is not None and problem is None:
                piece, problem = _read(reader)
            length = torch.tensor([FAILED if ranks.rank == source and problem is not None else len(piece)])
            ranks.send(length, source)
            if length.item() <= 0:
                break
            piece = piece if ranks.rank == source else torch.empty(int(length), dtype=torch.uint8)
            ranks.send(piece, source)
            if writer is not None and problem is None:
                problem = _write(writer, piece)
    if length.item() == FAILED and problem is None:
        return OSError(f"rank {source} could not read it")
    return problem


def _read(reader: IO[bytes]) -> tuple[Tensor, OSError | None]:
    """The next piece of a file, empty at its end."""
    try:
        data = bytearray(reader.read(PIECE_BYTES))
    except OSError as error:
        return torch.empty(0, dtype=torch.uint8), error
    return torch.frombuffer(data, dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8), None


def _write(writer: IO[bytes], piece: Tensor) -> OSError | None:
    try:
        writer.write(piece.numpy().tobytes())
        writer.flush()
    except OSError as error:
        return error
    return None
