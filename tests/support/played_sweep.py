"""A sweep made by hand, and what it comes to by its decisions alone: no process, no training."""

from collections.abc import Callable
from pathlib import Path

import msgspec

from ftui.profile.layers import resolve
from ftui.profile.presets import find_profile
from ftui.profile.serialize import to_toml
from ftui.runs.run_folder import RunFacts
from ftui.sweep.controller import Controller
from ftui.sweep.sweep_files import (
    SWEEPS,
    SweepBegan,
    SweepEnded,
    SweepFiles,
    SweepState,
    Trial,
    TrialAsked,
    TrialPromoted,
    TrialReached,
)
from tests.support.stand_in_sweep import loss_at, note_rung

PLAN = """
profile = "quickstart"
[search]
"train.learning_rate" = { low = 1e-5, high = 1e-3, log = true }
"adapter.r" = [8, 16, 32]
[search.derived]
"adapter.lora_alpha" = "2 * adapter.r"
[method]
sampler = "random"
scheduler = "asha"
rungs = [10, 30, 90]
eta = 2
[budget]
trials = 8
"""


def make_sweep(root: Path, plan: str = PLAN, name: str = "found") -> SweepFiles:
    """The folder of a sweep as its start makes it."""
    files = SweepFiles(root / SWEEPS / name)
    files.folder.mkdir(parents=True)
    profile = resolve(find_profile("quickstart"), overrides=["hardware.device=cpu"]).profile
    files.profile.write_text(to_toml(profile))
    files.plan_file.write_text(plan)
    with files.changing() as pen:
        pen.write(SweepBegan())
    return files


def formula_loss(trial: Trial, step: int) -> float:
    """What a trial comes to at a step; a trial again with another seed a little more or less."""
    luck: float = 1e-3 * (trial.values.get("train.seed", 0) % 3) * (trial.repeat_of is not None)
    return loss_at(trial.values["train.learning_rate"], trial.values["adapter.r"], step) + luck


def play(
    files: SweepFiles,
    until: Callable[[SweepState], bool] = lambda state: False,
    *,
    runs: bool = False,
    loss_of: Callable[[Trial, int], float | None] = formula_loss,
) -> SweepState:
    """Let each trial be at its rung as soon as it is sent there, until the sweep has ended, or this is so.

    `runs`: each trial has a run's folder with its evaluations.
    """
    controller = Controller(files)
    while not (state := files.read()).ended and not until(state):
        record = controller.decide(state)
        assert record is not None, "one trial at a time: there is always something to do"
        with files.changing() as pen:
            pen.write(record)
            if not isinstance(record, TrialAsked | TrialPromoted):
                assert isinstance(record, SweepEnded)
                continue
            trial = pen.state.trials[record.trial]
            assert trial.target is not None
            step = controller.plan.rungs[trial.target]
            if runs:
                _write_run(files, trial, step, is_end=trial.target == controller.ladder.top)
            pen.write(
                TrialReached(trial=trial.number, rung=trial.target, step=step, value=loss_of(trial, step), seconds=1.0)
            )
    return state


def _write_run(files: SweepFiles, trial: Trial, step: int, *, is_end: bool) -> None:
    run = files.run_of(trial.number)
    run.folder.mkdir(exist_ok=True)
    facts = RunFacts(f"id-{trial.number}", run.name, 0.0, "quickstart", sweep=files.name, trial=trial.number)
    run.facts.write_bytes(msgspec.json.encode(facts))
    note_rung(run.folder, step, formula_loss(trial, step), is_end=is_end)
