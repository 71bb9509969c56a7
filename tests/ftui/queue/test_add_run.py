"""What is refused when a run is added, before the training libraries are asked anything."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ftui.errors import FtuiError, UsageError
from ftui.helper.client import Helper
from ftui.profile.layers import resolve
from ftui.queue.add_run import add, find_candidate
from ftui.queue.queue_files import QueueFiles
from ftui.runs.records.supervisor_records import EngineStarted
from ftui.runs.run_folder import Run, runs_root
from ftui.system.files import try_lock
from tests.support.stand_in_queue import driver


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["hardware.num_processes=3"], "hardware.num_processes = 3: this machine has 2 GPUs"),
        (["hardware.num_processes=2", "hardware.nodes=2"], "hardware.nodes = 2: a queue has the cards of one machine"),
        (["data.train=gone.jsonl"], "gone.jsonl"),
        (["push.to='command:true {folder}'"], "push.to would run a command"),
    ],
)
def test_what_could_never_start_is_refused_and_leaves_nothing(
    overrides: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", driver())
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    path = tmp_path / "p.toml"
    path.write_text('[run]\nstage = "sft"\n[model]\nname_or_path = "hub/model"\n[data]\ntrain = "rows.jsonl"\n')
    path.with_name("rows.jsonl").touch()
    with pytest.raises(FtuiError) as caught:
        find_candidate(Helper(), runs_root() / "mine", resolve(path, overrides=overrides))
    assert words in caught.value.message and not (runs_root() / "mine").exists()


def test_a_run_that_was_started_while_its_rows_were_counted_keeps_its_profile(
    make_run: Any, append: Any, dead: Any
) -> None:
    run: Run = make_run("mine")
    run.profile.write_text("as it is")
    candidate: Any = SimpleNamespace(run=run, decision="resume", resolved=None, estimate=SimpleNamespace(memory=None))
    candidate.attempts = 0
    append(run.supervisor_log, EngineStarted(identity=dead), attempt=1)
    with pytest.raises(UsageError, match="was started by another process"):
        add(candidate)
    candidate.attempts, lock = 1, try_lock(run.supervisor_lock)
    assert lock is not None
    with pytest.raises(UsageError, match="was started by another process"):
        add(candidate)
    lock.close()
    assert run.profile.read_text() == "as it is" and not QueueFiles(run.folder.parent).journal.exists()
