"""Requests and SIGTERM to a run that samples its answers: obeyed within one batch of tokens while it generates, while
functions and a reward model score, while it measures and while it updates; and nothing is lost."""

import os
import signal
from collections import Counter
from pathlib import Path

import pytest

from ftui.launch.open_run import create
from ftui.profile.consent import keep_consents
from ftui.profile.layers import resolve
from ftui.runs.events import PhaseChanged, Step
from ftui.runs.journal import Tail
from ftui.runs.records.rollout_records import AnswersGenerated
from tests.faults.test_control import ending, obeyed
from tests.support.bench import bench_at, newest, records
from tests.support.cuts import Gate, Life, check_requests, watch_to_end
from tests.support.drawn_runs import BENCH, BY_MODEL, prepare_prompts
from tests.support.sameness import executed, measured, same_runs
from tests.support.zygote import Attempt, Zygote

CODE = """
import pathlib, time
calls, file = 0, pathlib.Path({path!r})
def slow(completions, **_):
    global calls
    calls += 1
    while int(file.read_text() or 0) < calls:
        file.with_name(file.name + ".at").write_text(str(calls))
        time.sleep(0.005)
    return [float(len(one) % 3) for one in completions]
"""
"""A function that stands at a gate of its own, beside the engine."""
FUNCTION = "function"
OVERRIDES = {
    "grpo": ("grpo.num_iterations=2", "grpo.beta=0.1", f'rewards.reward_funcs=["{BENCH}/rewards.py:slow"]',
             "rewards.pattern=none"),
    "ppo": (*BY_MODEL, "ppo.target=0.05", "ppo.horizon=40"),
}  # fmt: skip
COMMON = ("eval.sample_prompts=[]", "train.warmup_steps=0", "checkpoint.save_steps=100")
PLACES = {
    "grpo": ("generating", FUNCTION, "values", "updating"),
    "ppo": ("generating", "scoring", "values", "updating"),
}
SECOND_ROLLOUT = {"generating": 9, FUNCTION: 2, "scoring": 3, "values": 5, "updating": 8}
"""The n-th pass of an attempt that is in its second rollout or one soon after, so that there are steps to be saved:
answers have 6 tokens, and are four, or two prompts to two answers each, in micro-batches of two."""


def life_at(source: Path, folder: Path, zygote: Zygote, stage: str, monkeypatch: pytest.MonkeyPatch) -> Life:
    bench = bench_at(source, folder)
    run = bench.run("steered")
    (bench.folder / "rewards.py").write_text(CODE.format(path=str(bench.folder / "gate")))
    (bench.folder / "gate").write_text("1000000")
    overrides = [*prepare_prompts(bench, stage, "lora"), *OVERRIDES[stage], *COMMON]
    resolved = resolve(bench.profile("steered"), overrides=[one.replace(BENCH, str(bench.folder)) for one in overrides])
    assert create(run, resolved)
    monkeypatch.setenv("XDG_STATE_HOME", bench.env["XDG_STATE_HOME"])
    keep_consents(resolved.profile, run.read_facts().run_id)
    return Life(bench, run, zygote)


def stand(life: Life, place: str, number: int) -> tuple[Attempt, Gate]:
    """Start an engine that stands before its n-th pass at a place."""
    gate = Gate(life.bench.folder / "gate", number, place)
    engine = life.start({} if place == FUNCTION else gate.hooks)
    gate.wait(engine)
    return engine, gate


def last_step(life: Life) -> int:
    return max((r.step for r in Tail(life.run.metrics).read() if isinstance(r, Step)), default=0)


def steer(life: Life, place: str) -> None:
    """One attempt is paused, goes on, saves and is parked; the next is told to end again and again until it has."""

    def obey(engine: Attempt, verb: str, gate: Gate) -> None:
        obeyed(life, engine, verb, None if place == FUNCTION else gate)

    engine, gate = stand(life, place, 1 if life.number else SECOND_ROLLOUT[place])
    obey(engine, "hold", gate)
    assert [r.phase for r in records(life.run) if isinstance(r, PhaseChanged)][-1] == "held"
    obeyed(life, engine, "continue")
    obey(engine, "checkpoint", gate)
    assert newest(life.run) == f"checkpoints/checkpoint-{last_step(life)}"
    life.send("park")
    if place != FUNCTION:
        gate.let_through()
    assert engine.wait() == 11 and ending(life.run).step == last_step(life)

    engine, gate = stand(life, place, SECOND_ROLLOUT[place])
    os.kill(engine.pid, signal.SIGTERM)  # not by way of the zygote: it is there when the gate opens
    if place != FUNCTION:
        gate.let_through()
    while engine.poll() is None:
        engine.kill(signal.SIGTERM)
        engine.wait_a_little()
    assert engine.wait() == 20
    assert (ending(life.run).step, newest(life.run)) == (last_step(life), f"checkpoints/checkpoint-{last_step(life)}")
    gate.open()


@pytest.mark.slow
@pytest.mark.parametrize("stage", OVERRIDES)
def test_obeyed_within_a_batch_of_tokens_wherever_it_is(
    stage: str, bench_source: Path, memory: Path, zygote: Zygote, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was interrupted is made again whole, what was generated is taken up, and no step is taken twice."""
    life = life_at(bench_source, memory / "steered", zygote, stage, monkeypatch)
    for place in PLACES[stage]:
        steer(life, place)
    watch_to_end(life)
    check_requests(life)
    reference = life_at(bench_source, memory / "untouched", zygote, stage, monkeypatch)
    watch_to_end(reference)
    same_runs(life.run, reference.run)
    assert executed(life.run) == max(measured(life.run))
    generated = Counter(r.number for r in records(life.run) if isinstance(r, AnswersGenerated))
    assert set(generated.values()) == {1}
