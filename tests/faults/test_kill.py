"""SIGKILL, each attempt in an interpreter of its own (test_cuts.py forks them, and kills in every kind of work)."""

from pathlib import Path

from ftui.runs.events import RunStarted
from tests.support.bench import bench_at, newest, opened, records, resumed_from
from tests.support.sameness import executed, measured, same_runs

# (place, pass): micro-steps are two a step, ten steps an epoch. The save dies in the middle of a checkpoint's files.
KILLS = [("backward", 12), ("save", 12)]
SAVE_STEPS = 4
MOST_AGAIN = 2 * SAVE_STEPS  # steps after a kill: a save that was under way is lost, too, and the next waits for it


def test_killed_and_the_same_in_the_end_elsewhere(bench_source: Path, memory: Path, tmp_path: Path) -> None:
    bench = bench_at(bench_source, memory / "first")
    other = bench_at(bench_source, tmp_path / "another" / "mount")
    profile = bench.profile("killed")
    run = opened(bench, profile)
    for place, number in KILLS:
        expected = newest(run)
        started = len(records(run)) if run.journal.exists() else 0
        assert bench.murder(run, place, number) == -9, (run.folder / "engine.log").read_text()[-2000:]
        if any(isinstance(r, RunStarted) for r in records(run)[started:]):
            assert resumed_from(run) == expected
    expected = newest(run)
    assert expected is not None
    result = bench.ftui("--run", str(profile))
    assert result.returncode == 0, result.stdout + result.stderr
    assert resumed_from(run) == expected
    total = max(measured(run))
    assert executed(run) <= total + len(KILLS) * MOST_AGAIN

    untouched = other.profile("killed")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    result = other.ftui("--run", str(untouched), cwd=elsewhere, PYTHONHASHSEED="4711")
    assert result.returncode == 0, result.stdout + result.stderr
    reference = other.run("killed")
    same_runs(run, reference)
