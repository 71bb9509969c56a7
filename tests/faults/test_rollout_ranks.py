"""Stages grpo and ppo on several ranks: each generates and trains its part, and what is learned is what one process
learns; whichever rank dies, and wherever, the run goes on exactly."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from ftui.launch.open_run import create, resume
from ftui.profile.layers import resolve
from ftui.runs.events import RunStarted, Warned
from ftui.runs.records.rollout_records import AnswersGenerated
from ftui.runs.run_folder import Run
from ftui.supervisor.engine_process import LOST_RANK
from tests.faults.test_ranks import TWO, opened, start_two
from tests.support.bench import Workbench, bench_at, newest, records, resumed_from
from tests.support.drawn_runs import prepare_prompts
from tests.support.driving import steps
from tests.support.sameness import same_runs
from tests.support.tiny import column
from tests.support.zygote import Zygote, tail_of

REUSED = {
    "grpo": ("grpo.steps_per_generation=3", "grpo.num_iterations=2", "grpo.beta=0.1"),
    "ppo": ("ppo.num_mini_batches=3", "ppo.num_ppo_epochs=2", "ppo.target=0.1", "ppo.use_score_norm=true"),
}
HELD = ("grpo.beta", "ppo.target")
"""What holds a model to one that full fine-tuning does not keep."""
SHORT = ("train.num_train_epochs=none", "train.max_steps=8", "checkpoint.save_steps=2")


def keys_of(bench: Workbench, stage: str, method: str = "lora") -> tuple[str, ...]:
    """Two rollouts, the first for six steps."""
    return *prepare_prompts(bench, stage, method), *REUSED[stage], *SHORT


def train(zygote: Zygote, bench: Workbench, run: Run, size: int = 2, attempt: int = 1) -> None:
    assert [one.wait() for one in start_two(zygote, bench, run, attempt, size=size)] == [0] * size, tail_of(run)


def learn_the_same(one: Run, other: Run) -> None:
    """The first rollout has the same texts and rewards, byte for byte, and tokens; its numbers are the same but for the
    last bits, and so is each step on it. What comes after was sampled by weights that differ by such bits."""
    texts, tensors = zip(*map(first_rollout, (one, other)), strict=True)
    assert texts[0] == texts[1]
    for name, values in tensors[0].items():
        np.testing.assert_allclose(tensors[1][name], values, rtol=1e-5, atol=2e-6, err_msg=name)
    ours, theirs = ([*{step.step: step for step in steps(run)}.values()][:6] for run in (one, other))
    np.testing.assert_allclose(column(ours, "loss"), column(theirs, "loss"), rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(column(ours, "grad_norm"), column(theirs, "grad_norm"), rtol=1e-4)
    names = sorted(theirs[0].extras)
    assert names == sorted(ours[0].extras)
    found, expected = (np.array([some[0].extras[name] for name in names], dtype=float) for some in (ours, theirs))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert [s.num_target_tokens for s in ours] == [s.num_target_tokens for s in theirs]


def first_rollout(run: Run) -> tuple[bytes, dict[str, np.ndarray]]:
    """Its texts with their rewards, and its tensors."""
    path = run.rollouts / "000000.safetensors"
    return path.with_suffix(".jsonl").read_bytes(), load_file(path)


@pytest.mark.parametrize("stage", REUSED)
def test_whichever_rank_dies_the_same_is_learned(stage: str, bench_source: Path, memory: Path, zygote: Zygote) -> None:
    """Killed as it generates, as it measures and in a step."""
    bench = bench_at(bench_source, memory / "bench")
    keys = keys_of(bench, stage)
    alone = opened(bench, "alone", *keys)
    whole, cut = (opened(bench, name, *keys, *TWO) for name in ("whole", "cut"))
    train(zygote, bench, alone, size=1)
    train(zygote, bench, whole)
    learn_the_same(whole, alone)
    lives = [(1, ["generating", 3]), (0, ["values", 2]), (1, ["backward", 5])]
    for attempt, (victim, place) in enumerate(lives, start=1):
        engines = start_two(zygote, bench, cut, attempt, hooks={"kill": place}, victim=victim)
        assert (engines[victim].wait(), engines[1 - victim].wait()) == (-9, LOST_RANK), tail_of(cut)
    train(zygote, bench, cut, attempt=4)
    assert resumed_from(cut) == "checkpoints/checkpoint-4"
    assert [r.number for r in records(cut) if isinstance(r, AnswersGenerated)] == [0, 1], "none is generated again"
    same_runs(cut, whole)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stage", "method", "shard"),
    [("grpo", "lora", "all"), ("ppo", "lora", "all"), ("grpo", "full", "all"), ("grpo", "full", "state")],
)  # fmt: skip
def test_a_divided_model_learns_the_same(
    stage: str, method: str, shard: str, bench_source: Path, memory: Path, zygote: Zygote
) -> None:
    """All ranks gather its layers in every pass; those without a pass of their own, too."""
    bench = bench_at(bench_source, memory / "bench")
    base = bench.profile("x", method=method)
    keys = [
        key for key in keys_of(bench, stage, method) if method == "lora" or ("beta" not in key and "target" not in key)
    ]
    runs = [bench.run(name) for name in ("alone", "whole", "cut")]
    for run in runs:
        ranks = () if run.name == "alone" else (*TWO, f"hardware.shard={shard}")
        assert create(run, resolve(base, overrides=[*keys, *ranks]))
    alone, whole, cut = runs
    train(zygote, bench, alone, size=1)
    train(zygote, bench, whole)
    learn_the_same(whole, alone)
    engines = start_two(zygote, bench, cut, hooks={"kill": ["generating", 4]})
    assert [one.wait() for one in engines] == [LOST_RANK, -9], tail_of(cut)
    train(zygote, bench, cut, attempt=2)
    same_runs(cut, whole)


@pytest.mark.slow
def test_a_rank_with_little_memory_answers_fewer_at_once(bench_source: Path, memory: Path, zygote: Zygote) -> None:
    """The others wait in that pass for what it still has to gather of the divided model, which it does."""
    bench = bench_at(bench_source, memory / "bench")
    keys = (*keys_of(bench, "grpo"), *TWO, "hardware.shard=all")
    whole, short = opened(bench, "whole", *keys), opened(bench, "short", *keys)
    train(zygote, bench, whole)
    engines = start_two(zygote, bench, short, hooks={"no_room_in_shared_pass": [1, False]})
    assert [one.wait() for one in engines] == [0, 0], tail_of(short)
    assert tail_of(short).count("no room after") >= 2
    learn_the_same(short, whole)
    warnings = [r.message for r in records(short) if isinstance(r, Warned)]
    assert "rank 1: answers are generated 1 at a time: more did not fit into memory" in warnings


@pytest.mark.slow
@pytest.mark.parametrize("stage", REUSED)
def test_it_goes_on_with_another_number_of_ranks(stage: str, bench_source: Path, memory: Path, zygote: Zygote) -> None:
    """Killed at 2 among the steps of a rollout, goes on at 1, then at 3: the steps on it are those of 2."""
    bench = bench_at(bench_source, memory / "bench")
    keys = (*keys_of(bench, stage), *TWO, "checkpoint.save_steps=1")
    whole, moved = opened(bench, "whole", *keys), opened(bench, "moved", *keys)
    train(zygote, bench, whole)
    for attempt, (size, place) in enumerate([(2, 3), (1, 5), (3, 0)], start=1):
        resume(moved, resolve(moved.profile, overrides=[f"hardware.num_processes={size}"]).profile)
        hooks = {"kill": ["backward", place]} if place else None
        engines = start_two(zygote, bench, moved, attempt, hooks=hooks, victim=0, size=size)
        assert [one.wait() for one in engines] == ([-9] + [LOST_RANK] * (size - 1) if place else [0] * size)
        assert not place or newest(moved) is not None
    learn_the_same(moved, whole)
    started = [r for r in records(moved) if isinstance(r, RunStarted)]
    assert [start.reproducibility for start in started] == [None, "SAME STATE", "SAME STATE"]
    for start, change in zip(started[1:], ("2 -> 1", "1 -> 3"), strict=True):
        assert any(reason.startswith(f"processes: {change} (") for reason in start.reproducibility_reasons)
