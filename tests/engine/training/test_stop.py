"""`ftui stop`: whenever it comes, the run ends as stopped; final/ has its weights, unless their evaluation is NaN."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from ftui.engine.__main__ import end_untrained
from ftui.engine.runtime import control_flags
from ftui.engine.runtime.control_flags import Shutdown, Why
from ftui.engine.runtime.event_writer import EventWriter
from ftui.engine.training import evaluate
from ftui.engine.training.step import StepRunner
from ftui.errors import STOPPED
from ftui.profile.schema import Profile
from ftui.runs.checkpoint_folders import checkpoints_in
from ftui.runs.events import ControlApplied, EvaluationDone, RunFailed, RunStopped, Warned
from ftui.runs.manifest import read_manifest
from ftui.runs.reduce import fold
from ftui.runs.requests import Stop, new_id, write_request
from ftui.runs.run_folder import Run
from ftui.runs.state import RunState
from tests.support.attempts import attempt, killed_attempt, records
from tests.support.tiny import chats, make_profile, write_rows


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path / "run")


@pytest.fixture(autouse=True)
def requests_read_at_each_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_flags, "READ_SECONDS", 0.0)


def profile_of(run: Run, model: Path, loads_best: bool = True) -> Profile:
    return make_profile(
        model, write_rows(run.folder.parent / "rows.jsonl", chats(40)),
        adapter={"method": "lora"}, data={"eval_num_rows": 4, "max_length": 128},
        train={"precision": "fp32", "seed": 5, "max_steps": 8, "learning_rate": 1e-2},
        eval={"eval_strategy": "steps", "eval_steps": 2, "load_best_model_at_end": loads_best},
        checkpoint={"save_steps": 2, "save_minutes": None},
    )  # fmt: skip


def send_stop(run: Run, number: int = 1) -> None:
    write_request(run, Stop(id=new_id(), attempt=number, token="test"))


def stop_after(patch: pytest.MonkeyPatch, run: Run, step: int, number: int = 1) -> None:
    """Send a stop as soon as this step is finished."""
    run_step = StepRunner.run

    def stopping(self: StepRunner, *boundary: Any) -> Any:
        run_step(self, *boundary)
        if self.state.step == step:
            send_stop(run, number)

    patch.setattr(StepRunner, "run", stopping)


def ending(run: Run) -> RunStopped:
    assert not records(run, RunFailed)
    (record,) = records(run, RunStopped)
    assert isinstance(record, RunStopped)
    return record


@pytest.mark.parametrize(
    ("step", "loads_best"),
    [(3, True), (4, False)]
    + [
        pytest.param(step, best, marks=pytest.mark.slow)
        for step, best in ((3, False), (4, True), (6, True), (6, False))
    ],
)
def test_stopped_while_it_loads_a_resumed_run_gets_its_final(
    step: int, loads_best: bool, run: Run, model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The weights are those of the newest checkpoint, or of the best one before it."""
    profile = profile_of(run, model_folder, loads_best)
    killed_attempt(run, profile, step, monkeypatch)
    send_stop(run, 2)
    assert attempt(run, profile, 2) == STOPPED
    record, newest = ending(run), checkpoints_in(run.checkpoints)[0]
    assert (record.step, record.final) == (newest.step, "final") == (step - step % 2, "final")
    (answer,) = records(run, ControlApplied)
    assert answer.detail == "once the newest checkpoint is loaded: final/ is made from it"
    assert answer.step == newest.step, "it stands there already, though nothing is loaded"
    losses = {e.step: e.loss for e in records(run, EvaluationDone) if e.step}
    source = min(losses, key=lambda at: losses[at]) if loads_best else newest.step
    final, expected = (load_file(folder / "adapter_model.safetensors")
                       for folder in (run.final, run.checkpoints / f"checkpoint-{source}"))  # fmt: skip
    assert final.keys() == expected.keys() and all(torch.equal(final[name], expected[name]) for name in final)


@pytest.mark.parametrize(
    ("step", "evaluated", "value"), [(3, 2, math.nan), (4, 2, math.nan), (5, 4, math.nan), (4, 2, math.inf)]
)
def test_stopped_after_an_evaluation_of_nan_is_stopped_without_final(
    step: int, evaluated: int, value: float, run: Run, model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stop comes before the evaluation of its own step."""
    real, number = evaluate.batch_loss, iter(range(10**6))
    monkeypatch.setattr(
        evaluate, "batch_loss", lambda *arguments: ({"targets": value}, {}) if next(number) else real(*arguments)
    )  # fmt: skip
    stop_after(monkeypatch, run, step)
    assert attempt(run, profile_of(run, model_folder)) == STOPPED
    record = ending(run)
    assert record.reason.startswith(
        f"on request; final/ is not written: the evaluation loss at step {evaluated} is NaN or infinite"
    )
    assert (record.step, record.final, record.checkpoint) == (step, None, f"checkpoints/checkpoint-{step}")
    assert not run.final.exists()
    assert "Lower the learning rate" in records(run, Warned)[-1].message
    assert fold(RunState(), record).phase == "stopped"


def test_final_of_an_earlier_stop_that_stays_is_told(
    run: Run, model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    profile = profile_of(run, model_folder, loads_best=False)
    with monkeypatch.context() as first:
        stop_after(first, run, 1)
        assert attempt(run, profile) == STOPPED and ending(run).final == "final"
    real, number = evaluate.batch_loss, iter(range(10**6))
    monkeypatch.setattr(
        evaluate, "batch_loss", lambda *arguments: ({"targets": math.nan}, {}) if next(number) else real(*arguments)
    )  # fmt: skip
    stop_after(monkeypatch, run, 3, number=2)
    assert attempt(run, profile, 2) == STOPPED
    record = records(run, RunStopped)[-1]
    assert isinstance(record, RunStopped) and record.final is None
    assert "final/ stays that of step 1: the evaluation loss at step 2 is NaN" in record.reason
    assert read_manifest(run.final).step == 1


def test_stopped_after_nan_it_still_has_the_best_before(
    run: Run, model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, number = evaluate.batch_loss, iter(range(10**6))
    monkeypatch.setattr(
        evaluate, "batch_loss", lambda *arguments: ({"targets": math.nan}, {}) if next(number) > 1 else real(*arguments)
    )  # fmt: skip
    stop_after(monkeypatch, run, 5)
    assert attempt(run, profile_of(run, model_folder)) == STOPPED
    assert ending(run).final == "final" and run.final.exists()


@pytest.mark.parametrize(
    ("why", "word", "code"),
    [
        ("stop", "stopped", 10),
        ("park", "parked", 11),
        ("abort", "aborted", 10),
        ("preempted", "pre-empted (SIGTERM)", 21),
    ],
)
@pytest.mark.parametrize("steps", [(), (350,), (9, 100)])
def test_an_end_before_training_says_where_the_run_stands(
    steps: tuple[int, ...], why: Why, word: str, code: int, run: Run
) -> None:
    for step in steps:
        (run.checkpoints / f"checkpoint-{step}").mkdir(parents=True)
    run.folder.mkdir(exist_ok=True)
    assert end_untrained(run, EventWriter(run, attempt=2, token="test"), Shutdown(why)) == code
    record, newest = ending(run), max(steps, default=0)
    assert record.reason == f"{word} before training {'resumed' if steps else 'began'}"
    assert (record.step, record.checkpoint) == (newest, f"checkpoints/checkpoint-{newest}" if steps else None)
