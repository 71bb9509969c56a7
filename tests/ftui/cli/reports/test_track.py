"""`ftui track`: a recorded run in TensorBoard's own files, read back by TensorBoard."""

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from ftui.cli.main import main
from ftui.runs.events import Step
from ftui.runs.journal import Tail
from ftui.runs.run_folder import runs_root
from ftui.system.files import try_lock
from tests.support.replayed import replay


@pytest.mark.slow
def test_an_old_run_is_in_tensorboard_once(capsys: pytest.CaptureFixture[str]) -> None:
    run = replay("wiki-style-finished", runs_root())
    for _ in range(2):
        assert main(["track", run.name, "--to", "tensorboard"]) == 0
        assert "tensorboard has all of wiki-style-finished" in capsys.readouterr().out
    events = EventAccumulator(str(run.trackers / "tensorboard"), size_guidance={"scalars": 0})
    events.Reload()
    steps = {r.step: r for r in Tail(run.metrics).read() if isinstance(r, Step)}
    told = {event.step: event.value for event in events.Scalars("train/loss")}
    assert len(events.Scalars("train/loss")) == len(told) and told.keys() == steps.keys()
    assert told[645] == pytest.approx(steps[645].loss, rel=1e-6)


@pytest.mark.slow
def test_a_tracker_that_cannot_be_had_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = replay("exploded", runs_root())
    (run.trackers / "tensorboard.json").parent.mkdir()
    (run.trackers / "tensorboard").write_text("in its place")
    assert main(["track", run.name, "--to", "tensorboard"]) == 2
    assert "tensorboard has failed: " in (error := capsys.readouterr().err) and "tensorboard.log" in error


def test_two_never_report_to_one_tracker(capsys: pytest.CaptureFixture[str]) -> None:
    run = replay("exploded", runs_root())
    run.trackers.mkdir()
    lock = try_lock(run.trackers / "wandb.lock")
    assert lock is not None
    assert main(["track", run.name, "--to", "wandb"]) == 2
    assert "is being reported to wandb right now" in capsys.readouterr().err
    lock.close()
