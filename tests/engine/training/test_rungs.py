"""`checkpoint.park_at_step`: a run is evaluated, saved and parked at its rung, and goes on as if it never had been."""

from pathlib import Path

import pytest
from safetensors.torch import load_file

from ftui.errors import FINISHED, PARKED
from ftui.profile.schema import Profile
from ftui.runs.events import EvaluationDone, RunStopped
from ftui.runs.run_folder import Run
from tests.support.attempts import attempt, records
from tests.support.tiny import chats, make_profile, write_rows

RUNGS = (3, 4)


def profile_of(folder: Path, model: Path, park_at: int | None) -> Profile:
    return make_profile(
        model, write_rows(folder / "rows.jsonl", chats(40)),
        adapter={"method": "lora", "lora_dropout": 0.1}, data={"eval_num_rows": 4, "max_length": 128},
        train={"precision": "fp32", "seed": 5, "max_steps": 8, "learning_rate": 1e-2},
        eval={"eval_strategy": "steps", "eval_steps": 2},
        checkpoint={"save_steps": 5, "save_minutes": None, "park_at_step": park_at},
    )  # fmt: skip


@pytest.mark.slow
def test_a_promoted_run_is_the_uninterrupted_one_bit_for_bit(model_folder: Path, tmp_path: Path) -> None:
    """At step 3 it is evaluated for the rung alone, at step 4 because that is due."""
    whole, promoted = Run(tmp_path / "whole"), Run(tmp_path / "promoted")
    assert attempt(whole, profile_of(tmp_path, model_folder, None)) == FINISHED
    for number, rung in enumerate(RUNGS, 1):
        assert attempt(promoted, profile_of(tmp_path, model_folder, rung), number) == PARKED
        stop = records(promoted, RunStopped)[-1]
        assert stop.step == rung and f"park_at_step = {rung}" in stop.reason
    assert attempt(promoted, profile_of(tmp_path, model_folder, RUNGS[-1]), 3) == PARKED, "no step further"
    assert attempt(promoted, profile_of(tmp_path, model_folder, None), 4) == FINISHED
    weights = [load_file(run.final / "adapter_model.safetensors") for run in (whole, promoted)]
    assert weights[0].keys() == weights[1].keys()
    assert all(weights[0][name].equal(weights[1][name]) for name in weights[0])
    evaluations = [
        {one.step: (one.loss, one.best) for one in records(run, EvaluationDone) if not one.requested}
        for run in (whole, promoted)
    ]
    assert evaluations[0] == evaluations[1], "and so are its evaluations"
    assert [one.step for one in records(promoted, EvaluationDone) if one.requested] == [3]
