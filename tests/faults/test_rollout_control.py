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
from tests.faults.test_ranks import TWO
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
SHORT = "train.num_train_epochs=1"
COMMON = ("eval.sample_prompts=[]", "train.warmup_steps=0", "checkpoint.save_steps=100")
PLACES = {
    "grpo": ("generating", FUNCTION, "values", "updating"),
    "ppo": ("generating", "scoring", "values", "updating"),
}
SECOND_ROLLOUT = {"generating": 9, FUNCTION: 2, "scoring": 3, "values": 5, "updating": 8}
"""The n-th pass of an attempt that is in its second rollout or one soon after, so that there are steps to be saved:
answers have 6 tokens, and are four, or two prompts to two answers each, in micro-batches of two."""


def life_at(
    source: Path, folder: Path, zygote: Zygote, stage: str, monkeypatch: pytest.MonkeyPatch, size: int = 1, *,
    code: str = CODE,
) -> Life:  # fmt: skip
    """A run whose rewards are a function of `code`, or those of a model."""
    bench = bench_at(source, folder)
    run = bench.run("steered")
    (bench.folder / "rewards.py").write_text(code.format(path=str(bench.folder / "gate")))
    (bench.folder / "gate").write_text("1000000")
    overrides = [*prepare_prompts(bench, stage, "lora"), *OVERRIDES[stage], *COMMON, *(TWO if size > 1 else ())]
    overrides += [] if code is CODE else [SHORT]
    resolved = resolve(bench.profile("steered"), overrides=[one.replace(BENCH, str(bench.folder)) for one in overrides])
    assert create(run, resolved)
    monkeypatch.setenv("XDG_STATE_HOME", bench.env["XDG_STATE_HOME"])
    keep_consents(resolved.profile, run.read_facts().run_id)
    return Life(bench, run, zygote, size)


def stand(life: Life, place: str, number: int) -> tuple[Attempt, Gate]:
    """Start an engine that stands before its n-th pass at a place: of several ranks, rank 0."""
    gate = Gate(life.bench.folder / "gate", number, place)
    engine = life.start({} if place == FUNCTION else gate.hooks, victim=0)
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
@pytest.mark.parametrize(("stage", "size"), [("grpo", 1), ("ppo", 1), ("grpo", 2)])
def test_obeyed_within_a_batch_of_tokens_wherever_it_is(
    stage: str, size: int, bench_source: Path, memory: Path, zygote: Zygote, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was interrupted is made again whole, what was generated is taken up, and no step is taken twice.

    Two ranks stand still together but in a step, at whose end they look for requests.
    """
    life = life_at(bench_source, memory / "steered", zygote, stage, monkeypatch, size)
    for place in PLACES[stage] if size == 1 else ("generating", FUNCTION, "values"):
        steer(life, place)
    watch_to_end(life)
    check_requests(life)
    reference = life_at(bench_source, memory / "untouched", zygote, stage, monkeypatch, size)
    watch_to_end(reference)
    same_runs(life.run, reference.run)
    assert executed(life.run) == max(measured(life.run))
    generated = Counter(r.number for r in records(life.run) if isinstance(r, AnswersGenerated))
    assert set(generated.values()) == {1}


@pytest.mark.slow
def test_stopped_while_a_function_is_at_work_and_aborted_between_two_tokens(
    bench_source: Path, memory: Path, zygote: Zygote, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stop keeps what is learned so far, an abort saves nothing; neither waits for the answers."""
    life = life_at(bench_source, memory / "stopped", zygote, "grpo", monkeypatch)
    engine, _ = stand(life, FUNCTION, 3)
    life.send("stop")
    assert engine.wait() == 10
    step = ending(life.run).step
    assert step == last_step(life) and newest(life.run) == f"checkpoints/checkpoint-{step}"
    weights = "adapter_model.safetensors"
    saved = life.run.checkpoints / f"checkpoint-{step}" / weights
    assert (life.run.final / weights).read_bytes() == saved.read_bytes()

    life = life_at(bench_source, memory / "aborted", zygote, "ppo", monkeypatch)
    engine, gate = stand(life, "generating", SECOND_ROLLOUT["generating"])
    life.send("abort")
    gate.let_through()
    assert engine.wait() == 10
    assert newest(life.run) is None and not life.run.final.exists()


BROKEN = "def slow(completions, **_):\n    return [1.0]\n"
MENDED = "def slow(completions, **_):\n    return [float(len(one) % 3) for one in completions]\n"


@pytest.mark.slow
def test_a_broken_function_is_mended_as_the_pause_says(
    bench_source: Path, memory: Path, zygote: Zygote, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run waits, is parked, refuses the other file until somebody consents to it, and scores the same answers."""
    life = life_at(bench_source, memory / "bench", zygote, "grpo", monkeypatch, code=BROKEN)
    engine = life.start()
    while not (paused := [r for r in records(life.run) if isinstance(r, PhaseChanged) and r.phase == "held"]):
        assert engine.poll() is None, "it has ended"
        engine.wait_a_little()
    assert paused[0].detail.startswith("Reward slow gives 1 rewards for 4 answers.")
    assert "`ftui park RUN`, then `ftui resume RUN --allow reward-code`" in paused[0].detail
    life.send("park")
    assert engine.wait() == 11
    (life.bench.folder / "rewards.py").write_text(MENDED)
    refused = life.bench.ftui("resume", "steered")
    assert refused.returncode != 0 and "--allow reward-code" in refused.stderr
    resumed = life.bench.ftui("resume", "steered", "--allow", "reward-code")
    assert resumed.returncode == 0, resumed.stderr
    generated = Counter(r.number for r in records(life.run) if isinstance(r, AnswersGenerated))
    assert set(generated.values()) == {1}
