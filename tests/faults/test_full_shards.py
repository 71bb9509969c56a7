"""Full fine-tuning of weights that two ranks share: the run is that of two ranks that each have all of them."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from ftui.launch.open_run import create, resume
from ftui.profile.layers import resolve
from ftui.runs.events import RunStarted
from ftui.runs.run_folder import Run
from ftui.supervisor.engine_process import LOST_RANK
from tests.faults.test_ranks import GENERATE, TWO, start_two
from tests.faults.test_shards import measured
from tests.support.bench import Workbench, bench_at, newest, records, resumed_from
from tests.support.driving import steps
from tests.support.sameness import same_runs
from tests.support.zygote import Zygote, tail_of

FULL = ("train.learning_rate=2e-3", "train.max_steps=20", "train.num_train_epochs=none", *TWO)
UNEVEN = ("train.per_device_train_batch_size=1", "train.effective_batch=3", "train.activation_checkpointing=true")
pytestmark = pytest.mark.slow


def opened_full(bench: Workbench, name: str, *overrides: str) -> Run:
    run = bench.run(name)
    assert create(run, resolve(bench.profile(name, method="full"), overrides=(*FULL, *overrides)))
    return run


def train(zygote: Zygote, bench: Workbench, run: Run, attempt: int = 1, size: int = 2) -> None:
    engines = start_two(zygote, bench, run, attempt, size=size)
    assert [engine.wait() for engine in engines] == [0] * size, tail_of(run)


def same_losses(run: Run, expected: Run, *, within: float = 1e-5) -> None:
    one, two = ({step.step: step for step in steps(each)} for each in (expected, run))
    assert one.keys() == two.keys() and len(one) == 20
    for number, step in one.items():
        assert two[number].loss == pytest.approx(step.loss, rel=within), number
        assert two[number].grad_norm == pytest.approx(step.grad_norm, rel=10 * within), number


@pytest.mark.parametrize(
    ("shard", "more"), [("all", UNEVEN), ("state", ("eval.load_best_model_at_end=true", "train.max_grad_norm=0.5"))]
)
def test_divided_weights_train_as_whole_ones(
    shard: str, more: tuple[str, ...], bench_source: Path, memory: Path, zygote: Zygote
) -> None:
    """Also with a rank that has a row less than the other in each step. The result is one for transformers."""
    bench = bench_at(bench_source, memory / "bench")
    whole = opened_full(bench, "whole", *GENERATE, *more)
    parts = opened_full(bench, "parts", *GENERATE, *more, f"hardware.shard={shard}")
    for run in (whole, parts):
        train(zygote, bench, run)
    same_losses(parts, whole)
    assert len(measured(parts)) == len(measured(whole)) > 3
    for folder in (whole.final, whole.checkpoints / "checkpoint-20"):
        other = parts.folder / folder.relative_to(whole.folder)
        names = sorted(path.relative_to(folder) for path in folder.rglob("*.safetensors"))
        assert names == sorted(path.relative_to(other) for path in other.rglob("*.safetensors"))
        one, two = (load_file(place / "model.safetensors") for place in (folder, other))
        assert one.keys() == two.keys()
        for name, tensor in one.items():
            np.testing.assert_allclose(two[name], tensor, atol=2e-4, err_msg=name)
        assert (other / "config.json").read_bytes() == (folder / "config.json").read_bytes()


def test_divided_weights_resume_exactly_and_at_other_sizes(bench_source: Path, memory: Path, zygote: Zygote) -> None:
    """Killed on one rank, then on the other; and whole on one rank for a while, then divided in the other way."""
    bench = bench_at(bench_source, memory / "bench")
    divided = "hardware.shard=all"
    straight, cut = opened_full(bench, "straight", divided), opened_full(bench, "cut", divided)
    train(zygote, bench, straight)
    for attempt, (victim, place) in enumerate([(1, ["backward", 7]), (0, ["optimizer", 5])], start=1):
        engines = start_two(zygote, bench, cut, attempt, hooks={"kill": place}, victim=victim)
        assert [engine.wait() for engine in engines] == [-9 if r == victim else LOST_RANK for r in (0, 1)], tail_of(cut)
    expected = newest(cut)
    train(zygote, bench, cut, 3)
    assert resumed_from(cut) == expected is not None
    assert next(r for r in reversed(records(cut)) if isinstance(r, RunStarted)).reproducibility == "EXACT"
    same_runs(cut, straight)

    moved = opened_full(bench, "moved", divided)
    sizes = [(2, "all", ["backward", 7]), (1, "none", ["backward", 14]), (2, "state", None)]
    for attempt, (size, mode, end) in enumerate(sizes, start=1):
        keys = (f"hardware.num_processes={size}", f"hardware.shard={mode}")
        resume(moved, resolve(moved.profile, overrides=keys).profile)
        hooks = None if end is None else {"kill": end}
        engines = start_two(zygote, bench, moved, attempt, hooks=hooks, victim=0, size=size)
        codes = [engine.wait() for engine in engines]
        assert codes == ([0, 0] if end is None else [-9, LOST_RANK][:size]), tail_of(moved)
    same_losses(moved, straight)
    started = [r for r in records(moved) if isinstance(r, RunStarted)]
    assert [start.reproducibility for start in started] == [None, "SAME STATE", "SAME STATE"]
    assert "shard: all -> none" in started[1].reproducibility_reasons
