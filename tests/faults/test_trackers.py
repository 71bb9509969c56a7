"""The whole program with three trackers: one works, one raises, one hangs. No step, no weight, no ending changes."""

from pathlib import Path

import numpy as np
import pytest

from ftui.runs.events import Warned
from ftui.runs.journal import Tail
from ftui.runs.run_folder import Run
from tests.support.bench import Workbench, bench_at, opened
from tests.support.driving import wait_for_end
from tests.support.sabotage import write_site
from tests.support.sameness import evaluated, measured, same_runs
from tests.support.zygote import ROOT, Zygote, tail_of

RAISES = """
class errors:
    class Error(Exception): pass
class Settings:
    def __init__(self, **values): pass
def Html(page, **values): return page
class Run:
    def define_metric(self, *names, **values): pass
    def log(self, values): raise RuntimeError("the service is gone")
def init(**values): return Run()
"""
HANGS = "import time\ndef init(**values): time.sleep(60)\n"


@pytest.fixture(scope="module")
def reference(bench_source: Path, tmp_path_factory: pytest.TempPathFactory, zygote: Zygote) -> Run:
    """The run without trackers."""
    bench = bench_at(bench_source, tmp_path_factory.mktemp("trackers") / "bench")
    run = opened(bench, bench.profile("reference"))
    assert zygote.start(run, bench.env).wait(300) == 0, tail_of(run)
    return run


def test_trackers_change_no_step(workbench: Workbench, reference: Run, tmp_path: Path) -> None:
    """With a SIGKILL in the middle: TensorBoard has each step once, as it was taken last."""
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    (tmp_path / "wandb.py").write_text(RAISES)
    (tmp_path / "trackio.py").write_text(HANGS)
    write_site(tmp_path, "kill", ["optimizer", 14])
    env = {"PYTHONPATH": f"{tmp_path}:{ROOT}:{workbench.env.get('PYTHONPATH', '')}"}
    run, profile = workbench.run("tracked"), workbench.profile("tracked")
    told = ("--set", 'log.report_to=["tensorboard","wandb","trackio"]')
    assert workbench.ftui("--run", str(profile), *told, "--detach", cwd=workbench.folder, **env).returncode == 0
    ended = wait_for_end(workbench, run)
    assert (ended["state"]["phase"], ended["state"]["attempt"]) == ("finished", 2), tail_of(run)
    same_runs(run, reference)

    warned = [r.message for r in Tail(run.supervisor_log).read() if isinstance(r, Warned)]
    assert warned[0] == "wandb has failed: RuntimeError: the service is gone. The run continues without it."
    assert warned[1].startswith("trackio has not taken all of the run yet")
    assert len(warned) == 2, warned
    assert "trackio has not taken all of the run yet" in " ".join(workbench.ftui("status", "tracked").stdout.split())

    found = accumulator.EventAccumulator(str(run.trackers / "tensorboard"), size_guidance={"scalars": 0}).Reload()
    columns = {"train/loss": 0, "train/grad_norm": 1, "train/learning_rate": 2, "train/num_tokens": 3, "train/epoch": 5}
    for tag, column in columns.items():
        expected = {step: float(np.float32(values[column])) for step, values in measured(run).items()}
        assert [(e.step, e.value) for e in found.Scalars(tag)] == sorted(expected.items()), tag
    losses = {step: float(np.float32(values[0])) for step, values in evaluated(run).items()}
    assert [(e.step, e.value) for e in found.Scalars("eval/loss")] == sorted(losses.items())
