"""Reading a checkpoint back for a screen: it looks, and starts nothing."""

from pathlib import Path

import pytest

from ftui.engine.services.verify import verify
from ftui.errors import UsageError
from ftui.runs.checkpoint_folders import checkpoints_in
from ftui.runs.status import read_status
from ftui.supervisor import spawn
from tests.support.replayed import replay, write_summaries


def test_a_running_run_without_a_supervisor_gets_none_from_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A supervisor that the helper started would be left with a TMPDIR that is gone: it goes with the helper."""
    run = replay("wiki-style-lora", tmp_path, living=True)
    write_summaries(run, time=0.0, supervisor=None)
    assert read_status(run).unwatched
    monkeypatch.setattr(spawn, "launch", lambda run, lock: pytest.fail("a supervisor was started"))
    (checkpoint, *_) = checkpoints_in(run.checkpoints)
    path = f"checkpoints/{checkpoint.path.name}"
    entry = verify(lambda detail: None, str(run.folder), path)
    assert entry.path == path and (entry.verified or entry.problem)
    with pytest.raises(UsageError, match="has no checkpoints/checkpoint-9999"):
        verify(lambda detail: None, str(run.folder), "checkpoints/checkpoint-9999")
