"""SIGKILL in every kind of work: the run goes on from its newest valid checkpoint and ends bit for bit the same."""

import json
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from ftui.events import RunFinished, RunStarted, Step
from ftui.journal import Tail
from ftui.run import Run
from tests.support.bench import bench_at, newest, opened, records, resumed_from

# (place, pass): micro-steps are two a step, ten steps an epoch, and evaluations pass the head too. All but the first
# strike in the second epoch or later, the save in the middle of the files of a checkpoint.
KILLS = [("loading", 1), ("forward", 28), ("evaluation", 1), ("backward", 12), ("optimizer", 6), ("save", 12)]
SAVE_STEPS = 4
TOTAL = 30


def same_weights(one: Path, other: Path) -> None:
    """Every tensor of two folders, bit for bit."""
    names = sorted(p.relative_to(one) for p in one.rglob("*.safetensors"))
    assert names == sorted(p.relative_to(other) for p in other.rglob("*.safetensors"))
    assert names
    for name in names:
        left, right = load_file(one / name), load_file(other / name)
        assert left.keys() == right.keys()
        for key in left:
            assert left[key].tobytes() == right[key].tobytes(), f"{name}: {key}"


def measured(run: Run) -> dict[int, tuple[float | None, float | None, float]]:
    """What the last attempt to reach each step measured."""
    steps = [r for r in Tail(run.metrics).read() if isinstance(r, Step)]
    return {r.step: (r.loss, r.grad_norm, r.learning_rate) for r in steps}


def executed(run: Run) -> int:
    return sum(isinstance(r, Step) for r in Tail(run.metrics).read())


@pytest.mark.torture
@pytest.mark.parametrize(("method", "packing"), [("lora", False), ("full", True)])
def test_killed_everywhere_and_the_same_in_the_end(
    bench_source: Path, tmp_path: Path, method: str, packing: bool
) -> None:
    bench = bench_at(bench_source, tmp_path / "first")
    other = bench_at(bench_source, tmp_path / "another" / "mount")
    profile = bench.profile("killed", method=method, packing=packing)
    run = opened(bench, profile)
    kills = KILLS if method == "lora" else KILLS[3:]
    for place, number in kills:
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
    assert executed(run) <= total + len(kills) * SAVE_STEPS

    untouched = other.profile("killed", method=method, packing=packing)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    result = other.ftui("--run", str(untouched), cwd=elsewhere, PYTHONHASHSEED="4711")
    assert result.returncode == 0, result.stdout + result.stderr
    reference = other.run("killed")
    same_weights(reference.final, run.final)
    last = f"checkpoint-{total}"
    same_weights(reference.checkpoints / last, run.checkpoints / last)
    assert measured(run) == measured(reference)
    ends = [next(r for r in records(r_) if isinstance(r, RunFinished)) for r_ in (run, reference)]
    assert (ends[0].loss_before, ends[0].loss_final) == (ends[1].loss_before, ends[1].loss_final)
    state = [json.loads((r.checkpoints / last / "resume" / "state.json").read_bytes()) for r in (run, reference)]
    assert state[0] == state[1]
