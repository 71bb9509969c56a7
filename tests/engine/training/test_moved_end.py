"""`ftui set max_steps=... decay=linear` on a real run: it does what its answer says, also when it is killed."""

from pathlib import Path
from typing import Any

import pytest

from ftui.engine.runtime import control_flags
from ftui.engine.training.step import StepRunner
from ftui.profile.schema import Profile
from ftui.runs.events import ControlApplied, ControlRefused, Step
from ftui.runs.requests import Set, new_id, write_request
from ftui.runs.run_folder import Run
from tests.support.attempts import attempt, killed_attempt, records
from tests.support.tiny import chats, make_profile, write_rows

PEAK = 1e-2


def profile_in(folder: Path, model: Path) -> Profile:
    return make_profile(
        model, write_rows(folder / "rows.jsonl", chats(20)),
        adapter={"method": "lora", "lora_dropout": 0.1}, data={"max_length": 128},
        train={"precision": "fp32", "seed": 5, "max_steps": 14, "learning_rate": PEAK, "warmup_steps": 2},
        eval={"eval_strategy": "no"}, checkpoint={"save_steps": 3, "save_minutes": None},
    )  # fmt: skip


def send_after(patch: pytest.MonkeyPatch, run: Run, step: int, **fields: Any) -> None:
    """Send a `set` as soon as this step is finished."""
    run_step = StepRunner.run

    def sending(self: StepRunner, *boundary: Any) -> Any:
        run_step(self, *boundary)
        if self.state.step == step:
            write_request(run, Set(id=new_id(), attempt=1, token="test", **fields))

    patch.setattr(control_flags, "READ_SECONDS", 0.0)
    patch.setattr(StepRunner, "run", sending)


def measured(run: Run) -> dict[int, tuple[Any, ...]]:
    """Of each step what the last attempt at it measured."""
    return {s.step: (s.loss, s.grad_norm, s.learning_rate) for s in records(run, Step)}


@pytest.mark.parametrize(
    ("fields", "last", "share"),
    [
        ({"max_steps": 10, "decay": "linear"}, 10, 1 / 6),
        pytest.param({"max_steps": 10}, 10, None, marks=pytest.mark.slow),
        pytest.param({"max_steps": 18, "decay": "linear"}, 18, 1 / 14, marks=pytest.mark.slow),
        pytest.param({"decay": "linear"}, 14, 1 / 10, marks=pytest.mark.slow),
    ],
)
def test_killed_after_its_end_was_moved_it_is_the_same_run(
    fields: dict[str, Any], last: int, share: float | None, model_folder: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Killed after steps 5 (the newest checkpoint is older than the request) and 8 (it is newer)."""
    profile, whole, cut = profile_in(tmp_path, model_folder), Run(tmp_path / "whole"), Run(tmp_path / "cut")
    with monkeypatch.context() as patch:
        send_after(patch, whole, 4, **fields)
        assert attempt(whole, profile) == 0
    with monkeypatch.context() as patch:
        send_after(patch, cut, 4, **fields)
        killed_attempt(cut, profile, 5, patch)
    killed_attempt(cut, profile, 8, monkeypatch, number=2)
    assert attempt(cut, profile, 3) == 0
    assert measured(cut) == measured(whole) and max(measured(whole)) == last
    (answer,) = records(whole, ControlApplied)
    rates = {step: figures[2] for step, figures in measured(whole).items()}
    if share is not None:
        assert rates[last] == pytest.approx(rates[5] * share)
    assert f"ends at {rates[last]:.2e}, {100 * rates[last] / PEAK:.0f} % of its peak" in answer.detail
    assert ("decay=linear" in answer.detail) == ("decay" not in fields)


def test_a_set_of_nothing_is_refused(model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(tmp_path / "run")
    send_after(monkeypatch, run, 4)
    assert attempt(run, profile_in(tmp_path, model_folder)) == 0
    assert [refused.reason for refused in records(run, ControlRefused)] == ["it changes nothing"]
