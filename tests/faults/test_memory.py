"""Memory that runs out costs time, never rows: a step is taken again in halves, and a resume takes the same halves."""

from pathlib import Path
from typing import Any

import pytest

from ftui.errors import GpuMemoryError, HostMemoryError
from ftui.launch.open_run import create
from ftui.profile.layers import resolve
from ftui.runs.events import AnyRecord, EvaluationDone, MicroBatchChanged, RunFailed, RunFinished, Warned
from ftui.runs.journal import Writer
from ftui.runs.run_folder import Run
from tests.support.bench import Workbench, bench_at, newest, records
from tests.support.cuts import Life
from tests.support.sameness import evaluated, measured, same_runs
from tests.support.zygote import Zygote

BY_FOUR = ("train.per_device_train_batch_size=4",)  # two micro-batches a step, five steps an epoch, saved every fourth


class Stand:
    """Makes runs of one profile; each on a bench of its own."""

    def __init__(self, source: Path, folder: Path, zygote: Zygote) -> None:
        self._source = source
        self._folder = folder
        self._zygote = zygote

    def life(self, name: str, *overrides: str) -> Life:
        bench: Workbench = bench_at(self._source, self._folder / name)
        run = bench.run(name)
        assert create(run, resolve(bench.profile(name), overrides=[*BY_FOUR, *overrides]))
        return Life(bench, run, self._zygote)

    def halved(self, name: str, *halvings: MicroBatchChanged) -> Run:
        """A run nobody touched, whose journal says from the start what is to be halved, and when."""
        life = self.life(name)
        journal = Writer(life.run.journal)
        for record in halvings:
            journal.write(record)
        journal.close()
        assert life.start().wait() == 0
        return life.run


@pytest.fixture
def stand(bench_source: Path, memory: Path, zygote: Zygote) -> Stand:
    return Stand(bench_source, memory, zygote)


def halvings(run: Run) -> list[tuple[int, int, int]]:
    return [(r.step, r.old, r.new) for r in records(run) if isinstance(r, MicroBatchChanged)]


def failure(run: Run) -> RunFailed:
    last: AnyRecord = records(run)[-1]
    assert isinstance(last, RunFailed)
    return last


@pytest.mark.parametrize("dies_in", [None, 8, 12], ids=["lives", "before the next checkpoint", "after it"])
def test_a_step_that_did_not_fit_is_halved_and_so_it_is_after_a_kill(stand: Stand, dies_in: int | None) -> None:
    """It is the second micro-batch of step 6. The first update of all makes the optimizer's state."""
    life = stand.life("short")
    short: dict[str, list[Any]] = {"no_room_in_backward": [12, 2]}
    if dies_in is None:
        assert life.start(short).wait() == 0
    else:
        assert life.start(short | {"kill": ["optimizer", dies_in]}).wait() == -9
        assert newest(life.run) == f"checkpoints/checkpoint-{5 if dies_in == 8 else 10}"
        assert life.start({"no_room_in_backward": [3, 2]}).wait() == 0
    assert halvings(life.run) == [(6, 4, 2)], "the journal had said it to the second attempt"
    same_runs(life.run, stand.halved("told", MicroBatchChanged(step=6, old=4, new=2, place="")))
    whole = measured(stand.halved("whole"))
    assert [step for step, figures in measured(life.run).items() if figures != whole[step]] == list(range(6, 16))


def test_a_replayed_step_before_the_halving_is_taken_whole(stand: Stand) -> None:
    life = stand.life("short", "eval.eval_strategy=no")
    assert life.start({"no_room_in_backward": [13, 2], "kill": ["optimizer", 8]}).wait() == -9
    assert (halvings(life.run), newest(life.run)) == ([(7, 4, 2)], "checkpoints/checkpoint-4")
    assert life.start().wait() == 0
    reference = stand.life("told", "eval.eval_strategy=no")
    journal = Writer(reference.run.journal)
    journal.write(MicroBatchChanged(step=7, old=4, new=2, place=""))
    journal.close()
    assert reference.start().wait() == 0
    same_runs(life.run, reference.run)


def test_memory_that_runs_out_in_the_update_goes_back_to_the_checkpoint(stand: Stand) -> None:
    life = stand.life("short")
    assert life.start({"no_room_in_update": [7]}).wait() == GpuMemoryError.exit_code
    ending = failure(life.run)
    assert (ending.again, ending.exit_code) == (True, 41)
    assert halvings(life.run) == [(7, 4, 2)]
    assert newest(life.run) == "checkpoints/checkpoint-5"
    assert life.start().wait() == 0
    same_runs(life.run, stand.halved("told", MicroBatchChanged(step=7, old=4, new=2, place="")))


def test_one_row_that_does_not_fit_ends_the_run_with_advice(stand: Stand) -> None:
    life = stand.life("short")
    assert life.start({"no_room_in_backward": [12, 0]}).wait() == HostMemoryError.exit_code
    assert halvings(life.run) == [(6, 4, 2), (6, 2, 1)]
    ending = failure(life.run)
    assert (ending.again, ending.exit_code) == (False, 42)
    assert "one row of step 6" in ending.message
    assert "data.max_length" in ending.hint
    assert max(measured(life.run)) == 5, "a step that did not fit is not half taken"
    assert life.start().wait() == 0  # on a larger machine
    changes = [MicroBatchChanged(step=6, old=old, new=new, place="") for old, new in ((4, 2), (2, 1))]
    same_runs(life.run, stand.halved("told", *changes))


def test_an_evaluation_that_does_not_fit_is_taken_in_smaller_batches(stand: Stand) -> None:
    life, whole = stand.life("short"), stand.halved("whole")
    assert life.start({"no_room_in_evaluation": [1]}).wait() == 0
    assert measured(life.run) == measured(whole)
    found, expected = evaluated(life.run), evaluated(whole)
    assert found.keys() == expected.keys()
    for step, (loss, num_targets, best) in found.items():
        assert (num_targets, best) == expected[step][1:]
        assert loss == pytest.approx(expected[step][0], rel=1e-6)
    warnings = [r.message for r in records(life.run) if isinstance(r, Warned)]
    assert "evaluation continues in batches of 1: more did not fit into memory" in warnings


def test_an_evaluation_of_which_no_row_fits_ends_nothing(stand: Stand) -> None:
    patient = "eval.early_stopping_patience=1"
    life, whole = stand.life("short", patient), stand.halved("whole")
    assert life.start({"no_room_in_evaluation": [0]}).wait() == 0
    assert measured(life.run) == measured(whole)
    done = [r for r in records(life.run) if isinstance(r, EvaluationDone)]
    assert [(r.step, r.loss, r.best) for r in done] == [(step, None, False) for step in (0, 5, 10, 15)]
    warnings = [r.message for r in records(life.run) if isinstance(r, Warned)]
    assert warnings.count("the evaluation at step 10 does not fit into memory") == 1
    ending = records(life.run)[-1]
    assert isinstance(ending, RunFinished)
    assert (ending.step, ending.step_final, ending.loss_final) == (15, 15, None)


def test_a_loss_that_was_not_measured_is_not_an_earlier_one(stand: Stand) -> None:
    """Each evaluation is one batch; only the last, that of step 15, does not fit."""
    life = stand.life("short", "eval.load_best_model_at_end=false")
    assert life.start({"no_room_in_evaluation": [0, 4]}).wait() == 0
    assert [loss is not None for loss, *_ in evaluated(life.run).values()] == [True, True, True, False]
    ending = records(life.run)[-1]
    assert isinstance(ending, RunFinished)
    assert (ending.step_final, ending.loss_final) == (15, None)
