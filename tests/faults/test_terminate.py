"""SIGTERM in every kind of work: what is finished is saved where there is time, and the code says what became of it."""

import signal
import time
from pathlib import Path

import msgspec
import pytest

from ftui.launch.open_run import create
from ftui.profile.layers import resolve
from ftui.runs.events import RunStopped
from ftui.runs.records.signs_of_life import Beat
from ftui.runs.run_folder import Run
from tests.faults.conftest import Account
from tests.support.bench import bench_at, newest, records
from tests.support.cuts import Life
from tests.support.sameness import same_runs
from tests.support.zygote import Zygote


def phase(run: Run) -> tuple[str, int]:
    """Phase and step of the last beat."""
    try:
        beat = msgspec.json.decode(run.beat.read_bytes(), type=Beat)
    except FileNotFoundError:
        return "", 0
    return beat.phase, beat.step


@pytest.mark.parametrize(
    ("place", "seconds", "after_step", "code"),
    [("preparing", 50.0, 0, 21), ("loading", 50.0, 0, 21), ("evaluating", 0.3, 5, 20), ("saving", 1.0, 4, 20)],
)
def test_sigterm_in_every_phase(
    place: str, seconds: float, after_step: int, code: int,
    bench_source: Path, memory: Path, zygote: Zygote, account: Account,
) -> None:  # fmt: skip
    bench = bench_at(bench_source, memory / "bench")
    overrides = ["eval.per_device_eval_batch_size=1", "checkpoint.grace_seconds=60", "train.warmup_steps=0"]
    profile = resolve(bench.profile("told"), overrides=overrides)
    life = Life(bench, bench.run("told"), zygote)
    assert create(life.run, profile)
    engine = life.start({"linger": [place, seconds]})
    deadline = time.monotonic() + 60
    while phase(life.run)[0] != place or phase(life.run)[1] < after_step:
        assert time.monotonic() < deadline and engine.poll() is None, phase(life.run)
        engine.wait_a_little()
    engine.kill(signal.SIGTERM)
    engine.kill(signal.SIGTERM)
    begun = time.monotonic()
    assert engine.wait() == code
    account.words.append(f"{time.monotonic() - begun:.2f} s")
    stopped = next(r for r in records(life.run) if isinstance(r, RunStopped))
    assert stopped.exit_code == code and "SIGTERM" in stopped.reason
    if code == 20:
        assert stopped.step >= after_step
        assert newest(life.run) == stopped.checkpoint == f"checkpoints/checkpoint-{stopped.step}"
    else:
        assert newest(life.run) is None
        assert time.monotonic() - begun < 25, "there was nothing to save: nothing to wait for"
    assert life.start().wait() == 0
    reference = Life(bench, bench.run("untouched"), zygote)
    assert create(reference.run, profile)
    assert reference.start().wait() == 0
    same_runs(life.run, reference.run)
