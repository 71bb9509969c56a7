"""A search on a real Ray cluster of two nodes: its process is killed, a node is lost, and the results are the same."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ftui.runs.checkpoint_folders import checkpoints_in
from ftui.runs.events import RunStarted
from ftui.runs.journal import Tail
from ftui.runs.run_folder import Run
from ftui.runs.status import read_status
from ftui.sweep.sweep_files import SweepFiles
from tests.e2e.test_sweep import kill_its_process
from tests.support.bench import Workbench
from tests.support.driving import wait_until
from tests.support.sabotage import write_site
from tests.support.sameness import same_weights
from tests.support.zygote import ROOT

NODES = Path(__file__).parents[1] / "support" / "ray_nodes.py"
STEPS = 12
PLAN = """
profile = "mine.toml"
[search]
"train.learning_rate" = [1e-3, 1e-2]
[method]
sampler = "grid"
parallel = 2
[run]
executor = "ray"
address = "{address}"
cpus = 2
"""


@pytest.fixture
def cluster(watched_bench: Workbench) -> Iterator["subprocess.Popen[str]"]:
    """Two nodes with two CPUs each; a line on its stdin kills the second and all that runs there.

    The first attempt of each run waits at its sixth step until the file `gate` is opened."""
    pytest.importorskip("ray", reason="the extra `cluster` is not installed")
    (watched_bench.folder / "gate").write_text("0")
    write_site(
        watched_bench.folder, "gate", ["updating", str(watched_bench.folder / "gate"), 11]
    )  # five steps are done
    command = [sys.executable, str(NODES), str(watched_bench.folder / "address")]
    path = f"{watched_bench.folder}:{ROOT}:{watched_bench.env.get('PYTHONPATH', '')}"
    env = watched_bench.env | {"PYTHONPATH": path}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env) as nodes:
        wait_until(lambda: (watched_bench.folder / "address").exists())
        yield nodes
        assert nodes.stdin is not None
        nodes.stdin.close()
        nodes.wait(timeout=60)


@pytest.mark.slow
def test_what_ran_on_a_lost_node_goes_on_elsewhere_from_its_checkpoint(
    cluster: "subprocess.Popen[str]", watched_bench: Workbench
) -> None:
    mine = watched_bench.profile("mine")
    text = mine.read_text().replace("[hardware]", '[hardware]\ndevice = "cpu"')
    text = text.replace("num_train_epochs = 3", f"max_steps = {STEPS}")
    text = text.replace("eval_steps = 5", f"eval_steps = {STEPS}")
    mine.write_text(text)
    address = (watched_bench.folder / "address").read_text()
    (watched_bench.folder / "lr.toml").write_text(PLAN.format(address=address))
    begun = watched_bench.ftui("sweep", "lr.toml", "--detach")
    assert begun.returncode == 0, begun.stderr
    files = SweepFiles(Path(watched_bench.env["FTUI_RUNS"]) / "_sweeps" / "lr")
    runs = [files.run_of(number) for number in range(2)]
    wait_until(lambda: all(run.folder.exists() and checkpoints_in(run.checkpoints) for run in runs))
    kill_its_process(files)
    killed = kill_second_node(cluster)
    (watched_bench.folder / "gate").write_text("100")
    (lost,) = [run for run in runs if f"ftui.engine {run.folder}" in killed]
    wait_until(lambda: watched_bench.ftui("sweep", "list").returncode == 0 and bool(files.read().ended), seconds=240)
    assert files.read().ended == "all 2 trials are done"
    assert [list(trial.steps.values()) for trial in files.read().trials] == [[STEPS], [STEPS]]
    (kept,) = [run for run in runs if run.name != lost.name]
    assert read_status(kept).state.attempt == 1, "a run outlives the sweep's process"
    state = read_status(lost).state
    assert state.attempt == 2 and state.reproducibility == "EXACT" and start_step(lost) > 0
    rate = files.read().trials[runs.index(lost)].values["train.learning_rate"]
    whole = watched_bench.ftui("run", "mine.toml", "--name", "whole", f"--set=train.learning_rate={rate}")
    assert whole.returncode == 0, whole.stderr
    same_weights(lost.final, watched_bench.run("whole").final)


def kill_second_node(cluster: "subprocess.Popen[str]") -> str:
    """Kill it; the commands of all that was killed with it."""
    assert cluster.stdin is not None and cluster.stdout is not None
    cluster.stdin.write("kill\n")
    cluster.stdin.flush()
    return cluster.stdout.readline()


def start_step(run: Run) -> int:
    """The step from which its newest attempt went on."""
    return [record for record in Tail(run.journal).read() if isinstance(record, RunStarted)][-1].start_step
