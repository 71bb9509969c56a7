"""`ftui merge` as people use it, on what a real run has trained."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ftui.runs.checkpoint_folders import fault
from tests.support.bench import Workbench

SECONDS = 100


@pytest.mark.slow
def test_a_merge_is_published_whole_or_not_at_all(workbench: Workbench) -> None:
    profile, keys = workbench.profile("mine"), ("--set", "train.max_steps=4", "--set", "checkpoint.save_steps=2")
    done = workbench.ftui("run", str(profile), "--set", "train.num_train_epochs=none", *keys)
    assert done.returncode == 0, done.stderr
    run = workbench.run("mine")
    merged = workbench.ftui("merge", "mine", "--dtype", "bf16")
    assert merged.returncode == 0, merged.stderr
    folder = run.exports / "final-bf16"
    assert fault(folder) is None and str(folder) in merged.stdout and "evaluation rows" in merged.stdout
    assert "KL" in merged.stdout and "disk" in merged.stdout

    command = [sys.executable, "-m", "ftui", "merge", "mine@2", "--out", str(workbench.folder / "elsewhere" / "model")]
    merge = subprocess.Popen(
        command, cwd=workbench.folder, env=workbench.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    parent, deadline = workbench.folder / "elsewhere", time.monotonic() + SECONDS
    while not any(parent.glob("ftui-export-*")):
        assert time.monotonic() < deadline and merge.poll() is None
        time.sleep(0.005)
    os.kill(merge.pid, signal.SIGINT)
    merge.communicate(timeout=SECONDS)
    assert merge.returncode == 130 and names(parent) == []


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())
