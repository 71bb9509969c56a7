"""fp16: the loss scale moves as torch's own does, and an overflow costs a step, never the run."""

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ftui.engine.optim.loss_scaler import GROWTH_STEPS, after_step, begin
from ftui.engine.system.train_state import TrainState
from ftui.engine.training import forward_backward
from tests.support.tiny import chats, column, make_profile, train_run, write_rows


@given(st.lists(st.integers(0, 30), max_size=12))
def test_the_scale_is_that_of_torch(runs_of_good_steps: list[int]) -> None:
    """Overflows with stretches of good steps between them, some of them long enough for the scale to grow."""
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=0.0)
    oracle = torch.amp.GradScaler("cpu", init_scale=65536.0, growth_interval=GROWTH_STEPS // 100)
    state = TrainState()
    begin(state, "fp16")
    for good in runs_of_good_steps:
        for finite in [True] * good + [False]:
            weight.grad = oracle.scale(torch.tensor([1.0 if finite else math.inf]))
            oracle.step(optimizer)
            oracle.update()
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("ftui.engine.optim.loss_scaler.GROWTH_STEPS", GROWTH_STEPS // 100)
                overflowed = after_step(state, "fp16", finite=finite)
            assert overflowed is not finite
            assert state.loss_scale == oracle.get_scale()
    assert state.num_overflows == len(runs_of_good_steps)


def test_at_scale_one_an_overflow_is_a_bad_step() -> None:
    state = TrainState(loss_scale=2.0)
    assert after_step(state, "fp16", finite=False)
    assert not after_step(state, "fp16", finite=False)
    assert (state.loss_scale, state.num_overflows) == (1.0, 1)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_other_precisions_have_no_scale(precision: str) -> None:
    state = TrainState()
    begin(state, precision)
    assert not after_step(state, precision, finite=False)
    assert (state.loss_scale, state.num_overflows) == (None, 0)


def test_another_precision_begins_anew() -> None:
    """A run that goes on in fp16 after bf16 has a scale like a new one, and one that leaves fp16 has none."""
    state = TrainState()
    for precision, scale in (("bf16", None), ("fp16", 65536.0), ("fp32", None), ("fp16", 65536.0)):
        begin(state, precision)
        assert state.loss_scale == scale
        after_step(state, precision, finite=False)


def test_an_injected_overflow_drops_one_step(
    model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Step 4 overflows: it is not applied and the scale is halved; all else goes on, and it is no bad step."""
    rows = write_rows(tmp_path / "rows.jsonl", chats(24))
    train = {"precision": "fp16", "max_steps": 8, "learning_rate": 1e-2, "per_device_train_batch_size": 4}
    profile = make_profile(model_folder, rows, train=train, health={"max_bad_steps": 1})
    clip, calls = forward_backward.clip_gradients, itertools.count(1)

    def overflowing(weights: Any, *rest: Any) -> torch.Tensor:
        if next(calls) == 4:
            weights[0].grad[0] = math.inf
        return clip(weights, *rest)

    monkeypatch.setattr(forward_backward, "clip_gradients", overflowing)
    steps = train_run(tmp_path / "run", profile)
    assert [s.applied for s in steps] == [True, True, True, False, True, True, True, True]
    scales = [s.extras["loss_scale"] for s in steps]
    assert scales == [65536.0] * 4 + [32768.0] * 4
    assert [s.extras["num_overflows"] for s in steps] == [0.0] * 3 + [1.0] * 5
    assert np.isfinite(column(steps, "loss")).all()


def test_fp16_trains_as_fp32_does(model_folder: Path, tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", chats(24))
    found = {}
    for precision in ("fp32", "fp16"):
        train = {"precision": precision, "max_steps": 8, "learning_rate": 1e-2, "per_device_train_batch_size": 4}
        found[precision] = train_run(tmp_path / precision, make_profile(model_folder, rows, train=train))
    assert all(step.applied for step in found["fp16"])
    np.testing.assert_allclose(column(found["fp16"], "loss"), column(found["fp32"], "loss"), rtol=0.02)
