"""A base that two ranks share: the run is that of two ranks that each have all of it, whatever happens to it."""

import re
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from ftui.launch.open_run import resume
from ftui.profile.layers import resolve
from ftui.runs.events import (
    Answered,
    ControlApplied,
    EvaluationDone,
    MicroBatchChanged,
    RunFailed,
    RunStarted,
    RunStopped,
    Sampled,
    Warned,
)
from ftui.runs.requests import (
    AnswerChat,
    Continue,
    Evaluate,
    GenerateSamples,
    Park,
    Pause,
    SamplingKeys,
    Save,
    Turn,
    new_id,
    write_request,
)  # fmt: skip
from ftui.runs.run_folder import Run
from ftui.supervisor.engine_process import LOST_RANK
from tests.faults.test_ranks import GENERATE, TWO, apart, opened, reference_of, start_two
from tests.support.bench import bench_at, compare_answers, records, resumed_from
from tests.support.driving import last, steps, wait_until
from tests.support.sameness import same_runs
from tests.support.tiny import column
from tests.support.zygote import Hooks, Zygote, tail_of

ALL = (*TWO, "hardware.shard=all")
TWENTY = ("train.max_steps=20", "train.num_train_epochs=none", "eval.eval_steps=10")


@pytest.mark.parametrize(
    ("method", "more"),
    [
        ("lora", ("train.precision=bf16", "model.dtype=bfloat16", "data.packing=true")),
        ("qlora", ("train.activation_checkpointing=true",)),
    ],
)
def test_a_sharded_base_trains_as_a_whole_one(
    method: str, more: tuple[str, ...], bench_source: Path, memory: Path, zygote: Zygote
) -> None:
    bench = bench_at(bench_source, memory / "bench")
    bench.profile("whole", method=method), bench.profile("parts", method=method)
    keys = (f"adapter.method={method}", *GENERATE, *TWENTY, *more)
    whole, parts = opened(bench, "whole", *keys, *TWO), opened(bench, "parts", *keys, *ALL)
    for run in (whole, parts):
        assert [engine.wait() for engine in start_two(zygote, bench, run)] == [0, 0], tail_of(run)
    one, two = steps(whole), steps(parts)
    assert len(one) == len(two) == 20
    for name in ("loss", "grad_norm"):
        np.testing.assert_allclose(column(two, name), column(one, name), rtol=0, atol=1e-6, err_msg=name)
    assert measured(parts) == measured(whole)
    weights = [load_file(run.final / "adapter_model.safetensors") for run in (whole, parts)]
    for name, tensor in weights[0].items():
        np.testing.assert_array_equal(weights[1][name], tensor, err_msg=name)
    configs = [(run.final / "adapter_config.json").read_bytes() for run in (whole, parts)]
    assert configs[0] == configs[1], "PEFT loads the one as the other"


def measured(run: Run) -> list[tuple[Any, ...]]:
    """Evaluations and samples, but for their times."""
    seen: list[tuple[Any, ...]] = []
    for record in records(run):
        if isinstance(record, EvaluationDone):
            seen.append((record.step, record.loss, record.extras))
        elif isinstance(record, Sampled):
            seen.append((record.step, record.completion))
    return seen


@pytest.mark.parametrize("stage", ["kto", "rm"])
def test_answers_are_compared_over_a_sharded_base(stage: str, bench_source: Path, memory: Path, zygote: Zygote) -> None:
    """The last step of an epoch has one row and the last round of a measurement one batch: a rank has none of it."""
    bench = bench_at(bench_source, memory / "bench")
    keys = (*compare_answers(bench, stage, 17), "train.num_train_epochs=1")
    whole, parts = opened(bench, "whole", *keys, *TWO), opened(bench, "parts", *keys, *ALL)
    assert [engine.wait() for engine in start_two(zygote, bench, whole)] == [0, 0], tail_of(whole)
    assert [engine.wait() for engine in start_two(zygote, apart(bench, "parts"), parts)] == [0, 0], tail_of(parts)
    for name in ("loss", "grad_norm"):
        np.testing.assert_allclose(
            column(steps(parts), name), column(steps(whole), name), rtol=0, atol=1e-6, err_msg=name
        )
    assert measured(parts) == measured(whole)
    if stage != "rm":
        assert reference_of(parts) == reference_of(whole)


def test_memory_that_runs_out_in_a_pass_restarts_with_half_the_rows(
    bench_source: Path, memory: Path, zygote: Zygote
) -> None:
    """The other rank waits in that pass, so that nothing can be taken again; the next attempt is smaller."""
    bench = bench_at(bench_source, memory / "bench")
    run = opened(bench, "short", *ALL, "train.max_steps=8", "train.num_train_epochs=none", "checkpoint.save_steps=2")
    engines = start_two(zygote, bench, run, hooks={"no_room_in_backward": [7, 1]})
    assert [engine.wait() for engine in engines] == [41, 41], tail_of(run)
    (changed,) = [r for r in records(run) if isinstance(r, MicroBatchChanged)]
    assert (changed.step, changed.old, changed.new) == (7, 2, 1)
    assert last(run, RunFailed).again and "ranks wait" in last(run, RunFailed).message
    assert [engine.wait() for engine in start_two(zygote, bench, run, 2)] == [0, 0], tail_of(run)
    assert resumed_from(run) == "checkpoints/checkpoint-6" and steps(run)[-1].step == 8


@pytest.mark.parametrize("method", ["qlora", "full"])
def test_evaluations_and_samples_that_do_not_fit_are_halved_on_all_ranks(
    method: str, bench_source: Path, memory: Path, zygote: Zygote
) -> None:
    """Wherever in a pass memory runs out: the other rank leaves it, too, and what is measured is the same."""
    bench = bench_at(bench_source, memory / "bench")
    bench.profile("roomy", method=method), bench.profile("tight", method=method)
    keys = (f"adapter.method={method}", *ALL, *GENERATE, *TWENTY, "eval.eval_steps=3")
    roomy, tight = opened(bench, "roomy", *keys), opened(bench, "tight", *keys)
    assert [engine.wait() for engine in start_two(zygote, bench, roomy)] == [0, 0], tail_of(roomy)
    engines = start_two(zygote, bench, tight, hooks={"no_room_in_shared_pass": [1]}, victim=0)
    assert [engine.wait() for engine in engines] == [0, 0], tail_of(tight)
    places = re.findall(r"no room after (\d+) of (\d+)", tight.engine_log.read_text())
    assert len(places) >= 2 * (int(places[0][1]) + 1), "each place once at least, and layers that were sent already"
    np.testing.assert_array_equal(column(steps(tight), "loss"), column(steps(roomy), "loss"))
    halved = [r for r in records(tight) if isinstance(r, Warned) and "continues in batches of" in r.message]
    assert halved and len(measured(tight)) == len(measured(roomy))
    for (step, found, *_), (expected_step, expected, *_) in zip(measured(tight), measured(roomy), strict=True):
        assert (step, found) == (
            expected_step,
            expected if isinstance(expected, str) else pytest.approx(expected, rel=1e-6),
        )


def test_whichever_rank_dies_a_sharded_run_goes_on_exactly(bench_source: Path, memory: Path, zygote: Zygote) -> None:
    bench = bench_at(bench_source, memory / "bench")
    keys = (*ALL, *GENERATE, "train.max_steps=12", "train.num_train_epochs=none")
    whole, cut = opened(bench, "whole", *keys), opened(bench, "cut", *keys)
    assert [engine.wait() for engine in start_two(zygote, bench, whole)] == [0, 0], tail_of(whole)
    places = [(1, ["backward", 7]), (0, ["answer", 8])]
    for attempt, (victim, place) in enumerate(places, start=1):
        engines = start_two(zygote, bench, cut, attempt, hooks={"kill": place}, victim=victim)
        assert engines[victim].wait() == -9
        assert engines[1 - victim].wait() == LOST_RANK, tail_of(cut)
    assert [engine.wait() for engine in start_two(zygote, bench, cut, 9)] == [0, 0], tail_of(cut)
    assert last(cut, RunStarted).reproducibility == "EXACT"
    same_runs(cut, whole)
    assert measured(cut)[-3:] == measured(whole)[-3:]


def test_a_run_moves_between_shards_and_whole_bases(bench_source: Path, memory: Path, zygote: Zygote) -> None:
    """Sharded by 2, killed, whole on 1, killed, sharded by 2 again: the steps are those that nothing interrupted."""
    bench = bench_at(bench_source, memory / "bench")
    keys = (*TWO, "adapter.lora_dropout=0.0", "eval.sample_prompts=[]", *TWENTY)
    whole, moved = opened(bench, "whole", *keys), opened(bench, "moved", *keys, "hardware.shard=all")
    assert [engine.wait() for engine in start_two(zygote, bench, whole)] == [0, 0], tail_of(whole)
    for attempt, (size, shard, place) in enumerate([(2, "all", 10), (1, "none", 9), (2, "all", 0)], start=1):
        values = [f"hardware.num_processes={size}", f"hardware.shard={shard}"]
        resume(moved, resolve(moved.profile, overrides=values).profile)
        hooks: Hooks | None = {"kill": ["optimizer", place]} if place else None
        engines = start_two(zygote, bench, moved, attempt, hooks=hooks, victim=0, size=size)
        assert [engine.wait() for engine in engines] == ([-9] + [LOST_RANK] * (size - 1) if place else [0, 0])
    one, two = ({step.step: step for step in steps(run)} for run in (whole, moved))
    assert {step.attempt for step in two.values()} == {1, 2, 3}
    assert one.keys() == two.keys()
    for number, step in one.items():
        limit = 1e-6 if two[number].attempt == 1 else 1e-5
        assert two[number].loss == pytest.approx(step.loss, rel=limit), number
    starts = [r for r in records(moved) if isinstance(r, RunStarted)]
    assert [start.reproducibility for start in starts] == [None, "SAME STATE", "SAME STATE"]
    assert "shard: all -> none" in starts[1].reproducibility_reasons


def test_a_sharded_run_is_steered_as_any_other(bench_source: Path, memory: Path, zygote: Zygote) -> None:
    """What rank 0 does between steps takes all ranks: evaluations, samples, answers with the adapter and without."""
    bench = bench_at(bench_source, memory / "bench")
    run = opened(bench, "team", *ALL, "train.num_train_epochs=4000", "eval.sample_prompts=[]")
    engines = start_two(zygote, bench, run)
    wait_until(lambda: len(steps(run)) >= 2)
    asks: Any = {"attempt": 1, "token": "t1"}
    talk, keys = (Turn("user", "What is row 3?"),), SamplingKeys(max_new_tokens=6)
    for request in (
        Pause(id=new_id(), **asks), Evaluate(id=new_id(), **asks), Save(id=new_id(), **asks),
        GenerateSamples(id=new_id(), prompts=("What is row 5?",), **asks),
        AnswerChat(id=new_id(), sides=("now", "base"), conversations=(talk, talk), sampling=keys, **asks),
    ):  # fmt: skip
        write_request(run, request)
    wait_until(lambda: len([r for r in records(run) if isinstance(r, ControlApplied)]) == 5)
    assert last(run, Answered).num_tokens > 1 and last(run, Sampled).requested and last(run, EvaluationDone).requested
    paused = len(steps(run))
    write_request(run, Continue(id=new_id(), **asks))
    wait_until(lambda: len(steps(run)) > paused + 2)
    write_request(run, Park(id=new_id(), **asks))
    assert [engine.wait() for engine in engines] == [11, 0], tail_of(run)
    engines = start_two(zygote, bench, run, 2)
    wait_until(lambda: steps(run)[-1].attempt == 2)
    engines[0].kill(signal.SIGTERM)
    assert [engine.wait() for engine in engines] == [20, 0], tail_of(run)
    assert last(run, RunStarted).reproducibility == "EXACT" and last(run, RunStopped).checkpoint
