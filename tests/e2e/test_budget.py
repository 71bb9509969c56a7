"""A run with a budget in dollars, at a dollar a second: whatever dies, it is parked in time, and goes on with more."""

import os
import signal

from ftui.runs.events import CheckpointSaved, RunStarted, RunStopped
from ftui.runs.journal import Tail
from ftui.runs.records.spending import BudgetUsed
from ftui.runs.records.supervisor_records import EngineStarted
from ftui.runs.run_folder import Run
from ftui.runs.status import read_status, spent_so_far
from tests.support.bench import Workbench, newest
from tests.support.driving import last, started, status, steps, wait_for_end, wait_until

A_DOLLAR_A_SECOND = ("--set", "hardware.price_per_hour=3600")


def spent(run: Run) -> float:
    dollars = spent_so_far(read_status(run)).dollars
    assert dollars is not None
    return dollars


def begin_seconds(run: Run) -> float:
    """How long the newest attempt took to its first step."""
    engine = next(r for r in reversed(Tail(run.supervisor_log).read()) if isinstance(r, EngineStarted))
    return float(last(run, RunStarted).time - engine.time)


def test_a_budget_parks_a_paused_run_in_time_and_more_of_it_goes_on(workbench: Workbench) -> None:
    run = started(workbench, "paid", *A_DOLLAR_A_SECOND, "--set", "budget.max_money=100000")
    supervisor = read_status(run).supervisor
    assert supervisor is not None
    os.kill(supervisor.pid, signal.SIGKILL)
    assert "of $100,000.00 at $3,600.00 an hour (hardware.price_per_hour)" in workbench.ftui("status", "paid").stdout
    assert workbench.ftui("park", "paid").returncode == 0
    wait_for_end(workbench, run)

    budget = spent(run) + 1.5 * begin_seconds(run) + 6  # it begins, and has some seconds left
    less = ("--set", f"budget.max_money={budget:.2f}")
    assert workbench.ftui("resume", "paid", *less, "--detach").returncode == 0
    wait_until(lambda: last(run, RunStarted).attempt == 2)
    workbench.ftui("pause", "paid")
    done = len(steps(run))
    ended = wait_for_end(workbench, run)
    assert (ended["state"]["phase"], ended["state"]["exit_code"]) == ("parked", 11)
    used = [record for record in Tail(run.journal).read() if isinstance(record, BudgetUsed)]
    assert [record.parks for record in used] == [False, True] and used[0].spent >= 0.8 * budget
    assert last(run, RunStopped).reason == used[1].message and len(steps(run)) == done
    assert used[1].spent < spent(run) <= budget + last(run, CheckpointSaved).seconds

    attempts = status(workbench, "paid")["state"]["attempt"]
    for words in (("resume", "paid"), ("--run", "paid")):
        refused = workbench.ftui(*words)
        assert refused.returncode == 30 and "budget.max_money: paid has cost" in refused.stderr
    assert status(workbench, "paid")["state"]["attempt"] == attempts, "nothing was started"

    expected = newest(run)
    more = refused.stderr.split("`ftui ")[1].split("`")[0].split()
    assert workbench.ftui(*more, "--detach").returncode == 0
    wait_until(lambda: len(steps(run)) > done + 4)
    resumed = last(run, RunStarted)
    assert (resumed.resumed_from, resumed.reproducibility) == (expected, "EXACT")
    numbers = [record.step for record in steps(run)]
    assert numbers == list(range(1, len(numbers) + 1)), "no step is lost or taken twice"
    assert workbench.ftui("park", "paid").returncode == 0
    wait_for_end(workbench, run)
