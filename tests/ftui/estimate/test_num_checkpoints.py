"""How often a run will evaluate and save: what a recorded run really did, and cases counted by hand."""

from pathlib import Path

import pytest

from ftui.estimate.timing import num_checkpoints, num_evaluations
from ftui.profile.layers import resolve
from ftui.profile.sections.evaluation import CheckpointSection, EvalSection
from ftui.runs.events import CheckpointSaved, EvaluationDone, RunStarted
from ftui.runs.journal import Tail
from ftui.runs.run_folder import Run

RECORDED = Run(Path(__file__).parents[2] / "fixtures" / "runs" / "wiki-style-finished")


def test_a_recorded_run() -> None:
    """Besides, it evaluated once when it was asked to, and saved where an evaluation was the best or it was told to."""
    records = list(Tail(RECORDED.journal).read())
    started = next(record for record in records if isinstance(record, RunStarted))
    profile = resolve(RECORDED.profile).profile
    evaluated = {one.step for one in records if isinstance(one, EvaluationDone) and not one.requested}
    saved = {one.step for one in records if isinstance(one, CheckpointSaved)}
    steps = started.max_steps, started.steps_per_epoch
    assert num_evaluations(profile.eval, *steps) == len(evaluated)
    every = int(profile.checkpoint.save_steps or 0)
    assert num_checkpoints(profile.checkpoint, *steps) == len({n for n in saved if n % every == 0 or n == steps[0]})


@pytest.mark.parametrize(
    ("keys", "number"),
    [
        ({"eval_strategy": "no"}, 2), ({"eval_strategy": "no", "eval_on_start": False}, 1),
        ({"eval_strategy": "steps", "eval_steps": 30}, 5),  # 0, 30, 60, 90, 100
        ({"eval_strategy": "steps", "eval_steps": 0.25}, 5),
        ({"eval_strategy": "steps", "eval_steps": 30, "eval_delay": 50.0}, 4),
        ({"eval_strategy": "epoch"}, 4),  # 0, 40, 80, 100
        ({"eval_strategy": "epoch", "eval_delay": 1.5}, 3),
    ],
)  # fmt: skip
def test_evaluations(keys: dict[str, object], number: int) -> None:
    assert num_evaluations(EvalSection.model_validate(keys), 100, 40) == number


@pytest.mark.parametrize(
    ("keys", "number"),
    [
        ({"save_strategy": "no"}, 1), ({"save_strategy": "best"}, 1), ({"save_steps": None}, 1),
        ({"save_steps": 30}, 4), ({"save_steps": 50}, 2), ({"save_steps": 0.1}, 10),
        ({"save_strategy": "epoch"}, 3), ({"save_steps": 200}, 1),
    ],
)  # fmt: skip
def test_checkpoints(keys: dict[str, object], number: int) -> None:
    assert num_checkpoints(CheckpointSection.model_validate(keys), 100, 40) == number
