"""A save that is written while steps go on holds the step it was begun at, and whatever ends the run waits for it."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ftui.engine.checkpoints import pending_save
from ftui.engine.runtime import control_flags
from ftui.engine.training.step import StepRunner
from ftui.errors import PARKED, STOPPED, DiskError
from ftui.profile.schema import Profile
from ftui.runs import checkpoint_folders
from ftui.runs.checkpoint_folders import checkpoints_in
from ftui.runs.events import CheckpointSaved, CheckpointTagged, RunStopped
from ftui.runs.requests import Abort, Park, Save, new_id, write_request
from ftui.runs.run_folder import Run
from tests.support.attempts import attempt, records
from tests.support.tiny import chats, make_profile, write_rows

FIRST, STEPS = 2, 6
publish = checkpoint_folders.publish
run_step = StepRunner.run


@pytest.fixture
def profile(model_folder: Path, tmp_path: Path) -> Callable[..., Profile]:
    def make(method: str = "full", **train: Any) -> Profile:
        return make_profile(
            model_folder, write_rows(tmp_path / "rows.jsonl", chats(24)), adapter={"method": method},
            train={"max_steps": STEPS, "per_device_train_batch_size": 4, "learning_rate": 1e-2, **train},
            checkpoint={"save_steps": FIRST, "save_minutes": None, "save_total_limit": 9},
        )  # fmt: skip

    return make


class Gate:
    """Lets the thread write `checkpoint-2` only when a step has been taken, or when the run waits for the write."""

    def __init__(self, patch: pytest.MonkeyPatch, open_after: int = FIRST + 1) -> None:
        self._patch, self._open_after = patch, open_after
        self.opened = threading.Event()
        self.threads: list[str] = []
        self.after_step: dict[int, Callable[[], None]] = {}
        patch.setattr(checkpoint_folders, "publish", self._publish)
        patch.setattr(StepRunner, "run", lambda runner, boundary: self._run(runner, boundary))
        call = pending_save.PendingSave.__call__

        def waiting(save: pending_save.PendingSave) -> None:
            self.opened.set()
            call(save)

        patch.setattr(pending_save.PendingSave, "__call__", waiting)

    def _publish(self, target: Path, *arguments: Any) -> Any:
        self.threads.append(threading.current_thread().name)
        if target.name == f"checkpoint-{FIRST}":
            assert self.opened.wait(60)
        return publish(target, *arguments)

    def _run(self, runner: StepRunner, boundary: Any) -> None:
        run_step(runner, boundary)
        step = runner.state.step
        if act := self.after_step.get(step):
            act()
        if step == self._open_after:
            self.opened.set()


def contents(run: Run) -> dict[str, bytes]:
    folders = [c.path for c in checkpoints_in(run.checkpoints)]
    files = [
        path for folder in folders for path in folder.rglob("*") if path.is_file() and path.name != "MANIFEST.json"
    ]
    return {str(path.relative_to(run.checkpoints)): path.read_bytes() for path in files}


@pytest.mark.parametrize(
    ("method", "train"),
    [
        ("full", {}),
        ("lora", {}),
        pytest.param("full", {"optim": "adafactor"}, marks=pytest.mark.slow),
        pytest.param("lora", {"precision": "bf16"}, marks=pytest.mark.slow),
    ],
)
def test_it_holds_the_step_it_was_begun_at(
    profile: Callable[..., Profile], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str],
    method: str, train: dict[str, Any],
) -> None:  # fmt: skip
    """Byte for byte the files of a run whose steps wait for its saves, for want of host memory; and that is logged."""
    beside, waited = Run(tmp_path / "beside"), Run(tmp_path / "waited")
    with monkeypatch.context() as patch:
        gate = Gate(patch)
        assert attempt(beside, profile(method, **train)) == 0
    assert [name.startswith("save") for name in gate.threads] == [True, True, False, False]  # the last step, final/
    assert "steps wait" not in capfd.readouterr().out
    with monkeypatch.context() as patch:
        patch.setattr(pending_save, "spare_host_bytes", lambda: 0)
        assert attempt(waited, profile(method, **train)) == 0
    assert capfd.readouterr().out.count("steps wait for saves: too little host memory is free") == 1
    assert contents(beside) == contents(waited)
    assert [c.step for c in checkpoints_in(beside.checkpoints)] == [6, 4, 2]
    assert [r.step for r in records(beside, CheckpointSaved)] == [2, 4, 6]


def test_a_second_save_waits_for_the_first(
    profile: Callable[..., Profile], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(tmp_path / "run")
    Gate(monkeypatch, open_after=STEPS + 1)  # only who waits for it opens it
    assert attempt(run, profile()) == 0
    assert [r.step for r in records(run, CheckpointSaved)] == [2, 4, 6]


@pytest.mark.parametrize(
    ("request_type", "code", "saved"), [(Park, PARKED, [2, 3]), (Abort, STOPPED, [2]), (Save, 0, [2, 3, 4, 6])]
)
def test_requests_find_it_written(
    profile: Callable[..., Profile], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    request_type: Any, code: int, saved: list[int],
) -> None:  # fmt: skip
    """Park and a request to save wait for it and save the newest step, an abort waits for it and saves no other."""
    monkeypatch.setattr(control_flags, "READ_SECONDS", 0.0)
    run = Run(tmp_path / "run")
    gate = Gate(monkeypatch, open_after=STEPS + 1)
    gate.after_step[3] = lambda: write_request(run, request_type(id=new_id(), attempt=1, token="test"))
    assert attempt(run, profile()) == code
    assert [r.step for r in records(run, CheckpointSaved)] == saved
    assert sorted(c.step for c in checkpoints_in(run.checkpoints)) == saved
    if code == PARKED:
        assert records(run, RunStopped)[-1].checkpoint == "checkpoints/checkpoint-3"


def test_the_step_that_is_being_saved_gains_a_tag(
    profile: Callable[..., Profile], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request to save the very step waits for the save under way, and nothing is written twice."""
    monkeypatch.setattr(control_flags, "READ_SECONDS", 0.0)
    run = Run(tmp_path / "run")
    gate = Gate(monkeypatch, open_after=STEPS + 1)
    save, begun = pending_save.PendingSave.write_beside, list[bool]()

    def noting(pending: Any, *arguments: Any) -> bool:
        begun.append(save(pending, *arguments))
        if len(begun) == 1:
            write_request(run, Save(id=new_id(), attempt=1, token="test"))
        return begun[-1]

    monkeypatch.setattr(pending_save.PendingSave, "write_beside", noting)
    assert attempt(run, profile()) == 0
    assert [(r.step, r.tag) for r in records(run, CheckpointTagged)] == [(2, "manual")]
    assert [r.step for r in records(run, CheckpointSaved)] == [2, 4, 6]
    assert len(gate.threads) == 4


def test_a_fault_of_the_thread_ends_the_run_at_the_next_step(
    profile: Callable[..., Profile], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, has_failed, steps = Run(tmp_path / "run"), threading.Event(), list[int]()

    def failing(target: Path, *arguments: Any) -> Any:
        has_failed.set()
        raise OSError(5, "Input/output error")

    def counted(runner: StepRunner, boundary: Any) -> None:
        run_step(runner, boundary)
        steps.append(runner.state.step)

    monkeypatch.setattr(checkpoint_folders, "publish", failing)
    monkeypatch.setattr(StepRunner, "run", counted)
    monkeypatch.setattr(pending_save.PendingSave, "has_ended", property(lambda save: has_failed.wait(60)))
    with pytest.raises(DiskError, match="checkpoint-2 could not be saved"):
        attempt(run, profile())
    assert steps[-1] == FIRST + 1
    assert not records(run, CheckpointSaved)
