"""Files between nodes: ranks as threads, each with a folder of its own."""

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from ftui.engine.distributed import node_files
from ftui.engine.distributed.node_files import bring_checkpoint, collect_parts, send_to_nodes
from ftui.engine.distributed.process_group import ProcessGroup
from ftui.engine.training.measured_values import part_path
from ftui.errors import DiskError, DiskFullError
from ftui.runs.checkpoint_folders import Manifest, fault, publish
from ftui.runs.run_folder import Run

SIZE = 4  # two nodes of two ranks


class ThreadRanks(ProcessGroup):
    """A rank that talks to the others through memory."""

    def __init__(self, rank: int, meeting: threading.Barrier, board: dict[int, Any]) -> None:
        own = [False, False, True, True]
        super().__init__(rank, SIZE, local_rank=rank % 2, local_size=2, own_folders=own)
        self._meeting, self._board = meeting, board

    def gather(self, data: bytes) -> list[bytes]:
        self._board[self.rank] = data
        self._meeting.wait(10)
        everything = [self._board[rank] for rank in range(SIZE)]
        self._meeting.wait(10)
        return everything

    def any(self, value: bool) -> bool:
        return b"1" in self.gather(b"1" if value else b"")

    def send(self, data: Tensor, source: int) -> None:
        self._board[self.rank] = data
        self._meeting.wait(10)
        data.copy_(self._board[source])
        self._meeting.wait(10)


def together(act: Callable[[ProcessGroup], Any]) -> list[Any]:
    """What each rank returns or raises."""
    meeting, board, results = threading.Barrier(SIZE), {}, [None] * SIZE  # type: ignore[var-annotated]

    def run(rank: int) -> None:
        try:
            results[rank] = act(ThreadRanks(rank, meeting, board))
        except Exception as error:
            results[rank] = error  # type: ignore[call-overload]

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(SIZE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Run]:
    """The run as each rank sees it. A piece is small: files have several."""
    monkeypatch.setattr(node_files, "PIECE_BYTES", 1000)
    made = [Run(tmp_path / name) for name in ("shared", "shared", "far", "far")]
    for run in made:
        run.checkpoints.mkdir(parents=True, exist_ok=True)
    return made


def save(run: Run, step: int) -> Path:
    def fill(folder: Path) -> None:
        (folder / "resume").mkdir()
        (folder / "resume" / "state.json").write_text("{}" * step)
        (folder / "weights.bin").write_bytes(bytes(range(256)) * 10)
        (folder / "empty").touch()

    manifest = Manifest(run_id="1", attempt=1, token="", step=step, versions={}, fingerprints={}, dtypes={},
                        finite=True, created=0.0)  # fmt: skip
    target = run.checkpoints / f"checkpoint-{step}"
    publish(target, manifest, fill)
    return target


def test_a_node_gets_a_checkpoint_once_and_keeps_one(runs: list[Run]) -> None:
    save(runs[0], 4)
    bring = partial(lambda step, ranks: bring_checkpoint(ranks, runs[ranks.rank], step), 4)
    found = together(bring)
    assert found == [run.checkpoints / "checkpoint-4" for run in runs]
    assert fault(found[2]) is None
    marked = found[2].stat().st_ino
    assert together(bring) == found and found[2].stat().st_ino == marked, "it is not sent again"
    (found[2] / "weights.bin").write_bytes(b"\0" * 2560)
    together(bring)
    assert fault(found[2]) is None, "a damaged copy is"
    save(runs[0], 8)
    together(partial(lambda step, ranks: bring_checkpoint(ranks, runs[ranks.rank], step), 8))
    assert [path.name for path in runs[2].checkpoints.iterdir()] == ["checkpoint-8"]
    assert len(list(runs[0].checkpoints.iterdir())) == 2, "those of node 0 stay"


def test_a_disk_that_refuses_is_an_error_on_all_ranks_and_leaves_no_copy(
    runs: list[Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    save(runs[0], 4)
    write, calls = node_files._write, []

    def refuse(writer: Any, piece: Tensor) -> OSError | None:
        calls.append(len(piece))
        return OSError(28, "No space left on device") if len(calls) == 2 else write(writer, piece)

    monkeypatch.setattr(node_files, "_write", refuse)
    errors = together(lambda ranks: bring_checkpoint(ranks, runs[ranks.rank], 4))
    assert all(isinstance(error, DiskFullError if rank == 2 else DiskError) for rank, error in enumerate(errors))
    assert "could not be copied" in str(errors[0])
    assert not (runs[2].checkpoints / "checkpoint-4").exists()
    monkeypatch.undo()
    assert fault(together(lambda ranks: bring_checkpoint(ranks, runs[ranks.rank], 4))[2]) is None


def test_a_sender_that_cannot_read_is_an_error_on_all_ranks(runs: list[Run]) -> None:
    (save(runs[0], 4) / "weights.bin").unlink()
    errors = together(lambda ranks: bring_checkpoint(ranks, runs[ranks.rank], 4))
    assert all(isinstance(error, DiskError) for error in errors)
    assert not (runs[2].checkpoints / "checkpoint-4").exists()


def test_parts_go_to_node_0_and_what_it_makes_of_them_to_the_others(runs: list[Run]) -> None:
    for rank in (1, 3):
        part_path(runs[rank].losses, rank).write_bytes(bytes([rank]) * 2500)
    together(lambda ranks: collect_parts(ranks, partial(part_path, runs[ranks.rank].losses)))
    there = {path.name: path.read_bytes() for path in runs[0].folder.glob("losses*")}
    assert there == {"losses.1.safetensors": b"\1" * 2500, "losses.3.safetensors": b"\3" * 2500}
    assert not list(runs[3].folder.glob("losses*"))
    together(lambda ranks: send_to_nodes(ranks, runs[ranks.rank].losses))
    assert not runs[2].losses.exists(), "there is none yet"
    runs[0].losses.write_bytes(b"all" * 1000)
    together(lambda ranks: send_to_nodes(ranks, runs[ranks.rank].losses))
    assert runs[2].losses.read_bytes() == b"all" * 1000
    assert not list(runs[2].folder.glob(".*"))
