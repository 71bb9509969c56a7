"""A sweep's process: killed whenever it likes, it asks the same trials, and they come to the same."""

import json
import random
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from ftui.errors import PARKED, UsageError
from ftui.estimate.api import estimate
from ftui.estimate.result import Estimate
from ftui.profile.schema import Profile
from ftui.runs.events import RunStopped
from ftui.runs.journal import encode
from ftui.runs.run_folder import Run
from ftui.runs.status import read_status
from ftui.sweep import trial_runs, wake_sweeps
from ftui.sweep.controller import Controller
from ftui.sweep.stop_sweep import continue_sweep, stop_sweep
from ftui.sweep.sweep_files import (
    AnySweepRecord,
    SweepEnded,
    SweepFiles,
    SweepPaused,
    SweepState,
    Trial,
    TrialAsked,
    TrialPromoted,
    TrialReached,
    fold,
)
from ftui.sweep.trial_runs import find_outcome
from ftui.sweep.wake_sweeps import wake
from tests.support.played_sweep import PLAN, formula_loss, play
from tests.support.stand_in_sweep import COMMAND

MakeSweep = Callable[..., SweepFiles]


def final_loss(trial: Trial) -> float:
    """At the last rung; one that never came there has a great one."""
    return trial.results.get(2) or 9.0


def told(state: SweepState) -> list[object]:
    """All of it but times and attempts."""
    return [(trial.values, trial.bracket, trial.results, trial.steps, trial.ended) for trial in state.trials]


@pytest.mark.slow
def test_killed_twenty_times_a_sweep_has_the_same_trials_promotions_and_results(
    make_sweep: MakeSweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wake_sweeps, "COMMAND", [*COMMAND, "sweep"])
    few = PLAN.replace("trials = 8", "trials = 5")
    files = make_sweep(few)
    draw = random.Random(3)
    for _ in range(20):
        if (process := wake(files)) is not None:
            time.sleep(draw.uniform(0.0, 0.5))
            process.kill()
            process.wait()
    if (last := wake(files)) is not None:
        assert last.wait(timeout=240) == 0, "it ends when there is nothing left to do"
    state, expected = files.read(), play(make_sweep(few, name="undisturbed"))
    assert state.ended == expected.ended == "all 5 trials are done"
    assert told(state) == told(expected)
    engines = [tuple(json.loads(line)) for line in (files.root / "engines").read_text().splitlines()]
    sent = [(files.run_of(t.number).name, step) for t in state.trials for step in t.steps.values()]
    assert sorted(engines) == sorted(sent), "each to each of its rungs once"
    best = min(state.trials, key=final_loss)
    assert read_status(files.run_of(best.number)).state.phase == "finished"


def test_decisions_make_a_whole_search(make_sweep: MakeSweep) -> None:
    state = play(make_sweep())
    at = [sum(rung in trial.results for trial in state.trials) for rung in range(3)]
    assert at[0] == 8 and at[1] >= 4 and at[2] >= 2
    best = min(state.trials, key=final_loss)
    assert best.results[0] == min(trial.results[0] or 9.0 for trial in state.trials)
    assert all(trial.values["adapter.lora_alpha"] == 2 * trial.values["adapter.r"] for trial in state.trials)


def test_with_several_at_a_time_the_journal_alone_decides(make_sweep: MakeSweep) -> None:
    """Trials come to their rungs in any order; whoever reads what was written before a decision decides the same."""
    files = make_sweep(PLAN.replace("eta = 2", "eta = 2\nparallel = 3").replace("trials = 8", "trials = 20"))
    controller, state, draw, records = Controller(files), files.read(), random.Random(5), list[AnySweepRecord]()
    while not state.ended:
        record = controller.decide(state)
        if record is None:
            trial = draw.choice(state.on_their_way)
            assert trial.target is not None
            step = controller.plan.rungs[trial.target]
            value = formula_loss(trial, step)
            record = TrialReached(trial=trial.number, rung=trial.target, step=step, value=value, seconds=1.0)
        records.append(record)
        state = fold(state, record)
    again, state = Controller(files), files.read()
    for record in records:
        assert isinstance(record, TrialReached) or again.decide(state) == record
        state = fold(state, record)
    assert sum(isinstance(record, TrialPromoted) for record in records) > 10


def test_the_best_are_trained_again_with_other_seeds(make_sweep: MakeSweep) -> None:
    state = play(make_sweep(more="[repeat]\ntop = 2\nseeds = 3\n"))
    assert len(state.searched) == 8 and len(state.trials) == 12
    best = sorted((trial for trial in state.searched if 2 in trial.results), key=final_loss)[:2]
    again = state.trials[8:]
    assert [trial.repeat_of for trial in again] == [best[0].number] * 2 + [best[1].number] * 2
    assert [trial.values["train.seed"] for trial in again] == [43, 44] * 2
    assert all(trial.point == state.trials[trial.repeat_of or 0].point for trial in again)
    assert all(list(trial.results) == [2] for trial in again), "from the start to the end"


def test_a_stopped_sweep_goes_on_where_it_was(make_sweep: MakeSweep, make_run: Callable[..., Run]) -> None:
    """Its trial was parked by the stop; that is no reason to end it."""
    files = make_sweep()
    with files.changing() as pen:
        pen.write(TrialAsked(trial=0, point={"train.learning_rate": 1e-4, "adapter.r": 8}))
    run = make_run(files.run_of(0).name, root=files.root)
    stopped = RunStopped(step=7, reason="on request", exit_code=PARKED)
    assert stop_sweep(files) == [] and not files.read().is_at_work
    with pytest.raises(UsageError, match="stopped by hand"):
        stop_sweep(files)
    run.journal.write_bytes(encode(msgspec.structs.replace(stopped, attempt=1)))
    trial, controller = files.read().trials[0], Controller(files)
    outcome = find_outcome(controller.plan, controller.profile, trial, run)
    assert outcome is not None and outcome.ended == "parked by hand"
    assert continue_sweep(files) and not continue_sweep(files)
    (trial,) = files.read().trials
    assert trial.attempts == 1 and find_outcome(controller.plan, controller.profile, trial, run) is None


def test_a_paused_sweep_sends_nothing_on_its_way(make_sweep: MakeSweep) -> None:
    files = make_sweep()
    with files.changing() as pen:
        pen.write(SweepPaused())
    assert Controller(files).decide(files.read()) is None and not files.read().is_at_work


@pytest.mark.parametrize(
    ("budget", "reason"), [("trials = 8\nhours = 0.01", "its budget of 0.01 hours is spent"), ("trials = 8", "")]
)
def test_a_budget_that_is_spent_ends_a_sweep(make_sweep: MakeSweep, budget: str, reason: str) -> None:
    files = make_sweep(PLAN_OF.format(budget))
    with files.changing() as pen:
        pen.write(TrialAsked(trial=0, point={"train.learning_rate": 1e-4, "adapter.r": 8}))
        pen.write(TrialReached(trial=0, rung=0, step=10, value=0.5, seconds=40.0))
    record = Controller(files).decide(files.read())
    assert isinstance(record, SweepEnded if reason else TrialAsked)
    assert not reason or (isinstance(record, SweepEnded) and record.reason == reason)


def test_the_last_of_a_budget_is_kept_for_the_best_trial(make_sweep: MakeSweep) -> None:
    """8 more rungs of 10 steps would finish it, at 4 s a rung: nothing new begins with less than that left."""
    files = make_sweep(PLAN_OF.format("trials = 8\nhours = 0.01"))
    with files.changing() as pen:
        pen.write(TrialAsked(trial=0, point={"train.learning_rate": 1e-4, "adapter.r": 8}))
        pen.write(TrialReached(trial=0, rung=0, step=10, value=0.5, seconds=4.0))
    assert isinstance(record := Controller(files).decide(files.read()), TrialPromoted), "36 s, of which 32 are needed"
    assert record.rung == 1


def test_a_search_in_which_all_fails_ends_and_says_why(make_sweep: MakeSweep) -> None:
    files = make_sweep()
    with files.changing() as pen:
        for number in range(3):
            pen.write(TrialAsked(trial=number, point={"train.learning_rate": 1e-4, "adapter.r": 8}))
            pen.write(TrialReached(trial=number, rung=0, step=0, value=None, seconds=1.0, ended="failed: no rows"))
    record = Controller(files).decide(files.read())
    assert isinstance(record, SweepEnded) and "failed: no rows" in record.reason


def test_a_trial_that_cannot_fit_is_named_and_not_started(
    make_sweep: MakeSweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_much(profile: Profile, *arguments: object) -> Estimate:
        found = estimate(profile, *arguments)  # type: ignore[arg-type]
        return replace(found, verdict="no") if profile.adapter.r == 32 else found

    monkeypatch.setattr(trial_runs, "estimate", too_much)
    files = make_sweep()
    with files.changing() as pen:
        pen.write(TrialAsked(trial=0, point={"train.learning_rate": 1e-4, "adapter.r": 32}))
        pen.write(SweepPaused())
    Controller(files).tick()
    (trial,) = files.read().trials
    assert trial.ended.startswith("refused: does not fit ") and "or more" in trial.ended
    assert not files.run_of(0).folder.exists()


PLAN_OF = """
profile = "quickstart"
[search]
"train.learning_rate" = {{ low = 1e-5, high = 1e-3, log = true }}
"adapter.r" = [8, 16, 32]
[method]
sampler = "random"
scheduler = "asha"
rungs = [10, 30, 90]
[budget]
{}
"""
