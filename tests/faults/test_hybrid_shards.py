"""Four ranks in two groups that each divide a model (HSDP): the run is that of one process."""

import shutil
from pathlib import Path

import pytest

from ftui.launch.open_run import create, resume
from ftui.profile.layers import resolve
from ftui.runs.events import RunStarted
from ftui.runs.run_folder import Run
from ftui.supervisor.engine_process import LOST_RANK
from tests.faults.test_ranks import start_two
from tests.support.bench import Workbench, bench_at, newest, records
from tests.support.driving import steps
from tests.support.sameness import same_runs
from tests.support.zygote import Zygote, tail_of

pytestmark = pytest.mark.slow
STILL = ("train.num_train_epochs=none", "train.max_steps=8", "train.gradient_accumulation_steps=1",
         "train.effective_batch=6", "train.per_device_train_batch_size=1", "checkpoint.save_steps=4",
         "eval.eval_steps=4")  # fmt: skip
GROUPS = ("hardware.num_processes=4", "hardware.dp_shard_size=2")


def opened(bench: Workbench, name: str, method: str, *overrides: str) -> Run:
    run = bench.run(name)
    assert create(run, resolve(bench.profile(name, method=method), overrides=overrides))
    return run


def reproducibility(run: Run) -> tuple[str | None, list[str]]:
    started = next(r for r in reversed(records(run)) if isinstance(r, RunStarted))
    return started.reproducibility, started.reproducibility_reasons


def train(zygote: Zygote, bench: Workbench, run: Run, size: int, attempt: int = 1) -> None:
    engines = start_two(zygote, bench, run, attempt, size=size)
    assert [engine.wait() for engine in engines] == [0] * size, tail_of(run)


def same_steps(run: Run, expected: Run, within: float = 1e-5) -> None:
    one, two = ({step.step: step for step in steps(each)} for each in (expected, run))
    assert one.keys() == two.keys() == set(range(1, 9))
    for number, step in one.items():
        assert two[number].loss == pytest.approx(step.loss, rel=within), number
        assert two[number].grad_norm == pytest.approx(step.grad_norm, rel=10 * within), number


@pytest.mark.parametrize(
    ("method", "more"),
    [
        ("lora", ("adapter.lora_dropout=0.0", "hardware.shard=all")),
        ("full", ("hardware.shard=all", "train.learning_rate=2e-3")),
        ("full", ("hardware.shard=state", "train.learning_rate=2e-3", "train.max_grad_norm=0.5")),
    ],
    ids=["lora", "full", "state"],
)
def test_groups_that_divide_a_model_train_as_one_process_does(
    method: str, more: tuple[str, ...], bench_source: Path, memory: Path, zygote: Zygote, request: pytest.FixtureRequest
) -> None:
    """Six rows a step: two ranks have one row less. A rank is killed: two ranks, which are one group, go on to the same
    losses, and the groups to the same bits (LoRA's with --trials only: the adapter is whole on every rank)."""
    bench = bench_at(bench_source, memory / "bench")
    keys = (*STILL, *more)
    alone = opened(bench, "alone", method, *keys, "hardware.shard=none")
    groups, cut = (opened(bench, name, method, *keys, *GROUPS) for name in ("groups", "cut"))
    train(zygote, bench, alone, 1)
    train(zygote, bench, groups, 4)
    same_steps(groups, alone)
    if "hardware.shard=state" in more:  # the rest is as with "all"
        return
    engines = start_two(zygote, bench, cut, hooks={"kill": ["backward", 6]}, victim=3, size=4)
    assert [engine.wait() for engine in engines] == [LOST_RANK, LOST_RANK, LOST_RANK, -9], tail_of(cut)
    assert newest(cut) == "checkpoints/checkpoint-4"
    moved = Run(cut.folder.with_name("moved"))
    shutil.copytree(cut.folder, moved.folder)
    if method == "full" or request.config.getoption("--trials"):
        train(zygote, bench, cut, 4, attempt=2)
        assert reproducibility(cut) == ("EXACT", [])
        same_runs(cut, groups)
    resume(moved, resolve(moved.profile, overrides=["hardware.num_processes=2"]).profile)
    train(zygote, bench, moved, 2, attempt=2)
    same_steps(moved, alone)
    exactness, reasons = reproducibility(moved)
    assert exactness == "SAME STATE" and any(reason.startswith("shard: ") for reason in reasons), reasons
