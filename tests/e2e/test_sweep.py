"""A whole search with real engines: killed on the way, and its winner is the run that was never parked."""

from pathlib import Path

import psutil
import pytest

from ftui.runs.status import read_status
from ftui.sweep.sweep_files import SweepFiles
from tests.support.bench import Workbench
from tests.support.driving import wait_until
from tests.support.sameness import same_weights

PLAN = """
profile = "mine.toml"
[search]
"train.learning_rate" = { low = 1e-3, high = 5e-2, log = true }
"adapter.r" = [2, 4]
[search.derived]
"adapter.lora_alpha" = "2 * adapter.r"
[method]
sampler = "qmc"
scheduler = "asha"
rungs = [3, 8]
eta = 2
finish = 1
[budget]
trials = 2
"""


@pytest.mark.slow
def test_the_winner_of_a_killed_sweep_is_the_uninterrupted_run_bit_for_bit(watched_bench: Workbench) -> None:
    watched_bench.profile("mine")
    (watched_bench.folder / "lr.toml").write_text(PLAN)
    begun = watched_bench.ftui("sweep", "lr.toml", "--detach")
    assert begun.returncode == 0, begun.stderr
    assert "steps: about 11 (69% of 2 whole ones), in 3 starts" in begun.stdout
    files = SweepFiles(Path(watched_bench.env["FTUI_RUNS"]) / "_sweeps" / "lr")
    wait_until(lambda: len(files.read().trials) == 2)
    kill_its_process(files)
    assert watched_bench.ftui("sweep", "list").returncode == 0, "any command starts the next one"
    wait_until(lambda: bool(files.read().ended), seconds=240)
    state = files.read()
    assert state.ended == "all 2 trials are done"
    assert [sorted(trial.results) for trial in state.trials].count([0, 1]) == 1
    (winner,) = [trial for trial in state.trials if 1 in trial.results]
    assert winner.results[0] == min(trial.results[0] or 9.0 for trial in state.trials)
    values = [f"--set={key}={value}" for key, value in winner.values.items()]
    ends = ("--set=train.max_steps=8", "--set=train.num_train_epochs=none")
    whole = watched_bench.ftui("run", "mine.toml", "--name", "whole", *values, *ends)
    assert whole.returncode == 0, whole.stderr
    promoted = files.run_of(winner.number)
    same_weights(promoted.final, watched_bench.run("whole").final)
    assert read_status(promoted).state.reproducibility == "EXACT"
    results = watched_bench.ftui("sweep", "results", "lr", "--csv").stdout.splitlines()
    assert results[0].startswith("trial,run,rank,train.learning_rate,adapter.r,adapter.lora_alpha,step,loss@3,loss@8")
    assert len(results) == 3 and "finished" in results[1 + winner.number]


def kill_its_process(files: SweepFiles) -> None:
    """The one that decides what is tried next, and no other."""
    (process,) = [
        one for one in psutil.process_iter(["cmdline"])
        if "ftui.sweep" in (one.info["cmdline"] or []) and str(files.folder) in one.info["cmdline"]
    ]  # fmt: skip
    process.kill()
    process.wait()
