"""Requests and SIGTERM: obeyed within one micro-batch, each once, whenever the engine dies."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from ftui.launch.open_run import create
from ftui.profile.layers import resolve
from ftui.runs.events import ControlApplied, ControlRefused, PhaseChanged, RunStopped, Step
from ftui.runs.journal import Tail, Writer
from ftui.runs.requests import new_id
from ftui.runs.run_folder import Run
from tests.support.bench import bench_at, compare_answers, newest, records
from tests.support.cuts import Gate, Life, answer, check_requests
from tests.support.sameness import measured, same_runs
from tests.support.zygote import Attempt, Zygote

NUM_MICRO = 64
A_STEP = 2  # micro-batches
LONG = ("train.per_device_train_batch_size=1", f"train.gradient_accumulation_steps={NUM_MICRO}", "train.max_steps=4",
        "checkpoint.save_steps=100", "eval.eval_strategy=no")  # fmt: skip


def life_at(source: Path, folder: Path, zygote: Zygote, *overrides: str, rows: int = 1) -> Life:
    """A run on a bench of its own, whose rows come `rows` times."""
    bench = bench_at(source, folder)
    path = bench.folder / "rows.jsonl"
    path.write_text(path.read_text() * rows)
    run = bench.run("steered")
    profile = bench.profile("steered")
    if "train.max_steps=4" in overrides:
        profile.write_text(profile.read_text().replace("num_train_epochs = 3\n", ""))
    assert create(run, resolve(profile, overrides=overrides))
    return Life(bench, run, zygote)


def until_step(life: Life, engine: Attempt, step: int) -> None:
    """Wait until the engine started last has finished this step."""
    metrics, reached = Tail(life.run.metrics), 0
    while reached < step:
        reached = max([reached, *(r.step for r in metrics.read() if isinstance(r, Step) and r.attempt == life.number)])
        assert engine.poll() is None, "it has ended"
        engine.wait_a_little()


def obeyed(life: Life, engine: Attempt, verb: str, gate: Gate | None = None, micro: int = 1, **fields: Any) -> None:
    """Send a request and see it obeyed; an engine that stands at a gate goes on by so many micro-batches for it."""
    identity = life.send(verb, **fields)
    if gate is not None:
        gate.let_through(micro)
    assert isinstance(answer(life, engine, identity), ControlApplied)


def ending(run: Run) -> RunStopped:
    last = records(run)[-1]
    assert isinstance(last, RunStopped)
    return last


def test_long_steps_are_left_within_one_micro_batch(bench_source: Path, memory: Path, zygote: Zygote) -> None:
    """The engine stands in the fifth micro-batch of a step, and never gets through the one after it."""
    life = life_at(bench_source, memory / "one", zygote, *LONG, rows=2)

    def start(step: int) -> tuple[Attempt, Gate]:
        gate = Gate(memory / f"gate-{step}", NUM_MICRO + 5)
        engine = life.start(gate.hooks)
        until_step(life, engine, step)
        return engine, gate

    engine, gate = start(1)
    for _ in range(4):
        obeyed(life, engine, "hold", gate)
        phases = [r.phase for r in records(life.run) if isinstance(r, PhaseChanged)]
        assert phases[-1] == "held"
        obeyed(life, engine, "continue")
    life.send("park")
    gate.let_through()
    assert engine.wait() == 11
    assert (ending(life.run).step, newest(life.run)) == (1, "checkpoints/checkpoint-1")

    engine, gate = start(2)
    os.kill(engine.pid, signal.SIGTERM)  # not by way of the zygote: it is there when the gate opens
    gate.let_through()
    assert engine.wait() == 20
    assert (ending(life.run).step, newest(life.run)) == (2, "checkpoints/checkpoint-2")

    engine, gate = start(3)  # dropout has moved the generators since the step's start
    obeyed(life, engine, "checkpoint", gate)
    obeyed(life, engine, "evaluate", gate)
    engine.kill(9)
    assert engine.wait() == -9
    assert newest(life.run) == "checkpoints/checkpoint-3"

    assert life.start().wait() == 0
    check_requests(life)
    reference = life_at(bench_source, memory / "other", zygote, *LONG, rows=2)
    assert reference.start().wait() == 0
    same_runs(life.run, reference.run)


@pytest.fixture(scope="module")
def untouched(bench_source: Path, tmp_path_factory: pytest.TempPathFactory, zygote: Zygote) -> Run:
    life = life_at(bench_source, tmp_path_factory.mktemp("untouched") / "bench", zygote)
    assert life.start().wait() == 0
    return life.run


def test_what_is_asked_for_moves_nothing(bench_source: Path, memory: Path, zygote: Zygote) -> None:
    """Neither the best nor the patience, which three evaluations without a better loss would end."""
    impatient = ("eval.early_stopping_patience=3", "eval.early_stopping_threshold=1000")
    life = life_at(bench_source, memory / "asked", zygote, *impatient)
    gate = Gate(memory / "gate", 6 * A_STEP + 1)
    engine = life.start(gate.hooks)
    until_step(life, engine, 6)
    for verb in ("evaluate", "sample", "evaluate", "evaluate"):
        obeyed(life, engine, verb, gate, A_STEP)
    gate.open()
    assert engine.wait() == 0
    check_requests(life)
    reference = life_at(bench_source, memory / "other", zygote, *impatient)
    assert reference.start().wait() == 0
    same_runs(life.run, reference.run)


def test_a_request_to_an_earlier_attempt_is_refused(
    bench_source: Path, memory: Path, zygote: Zygote, untouched: Run
) -> None:
    life = life_at(bench_source, memory / "bench", zygote)
    assert life.start({"kill": ["optimizer", 7]}).wait() == -9
    late = [life.send(verb) for verb in ("stop", "abort", "park", "hold", "checkpoint")]
    assert life.start().wait() == 0
    refused = [r for r in records(life.run) if isinstance(r, ControlRefused)]
    assert [r.request for r in refused] == late
    assert {r.reason for r in refused} == {"it was meant for attempt 1, this is 2"}
    check_requests(life)
    same_runs(life.run, untouched)


@pytest.mark.parametrize(
    ("verb", "when"),
    [("stop", "before"), ("stop", "after"), ("park", "after"), ("set", "before"), ("set", "after"),
     ("checkpoint", "before"), ("hold", "before"), ("evaluate", "after")],
)  # fmt: skip
def test_an_engine_that_dies_while_it_answers_obeys_once(
    bench_source: Path, memory: Path, zygote: Zygote, untouched: Run, verb: str, when: str
) -> None:
    life = life_at(bench_source, memory / "bench", zygote)
    gate = Gate(memory / "gate", 3 * A_STEP + 1)
    engine = life.start({**gate.hooks, "die_answering": [verb, when]})
    until_step(life, engine, 3)
    identity = life.send(verb, **({"learning_rate_factor": 0.25} if verb == "set" else {}))
    gate.open()
    assert engine.wait() == -9
    assert [path.name[21:37] for path in life.run.inbox.iterdir()] == [identity], "it died before it threw it away"
    assert life.start().wait() == 0
    answers = [r for r in records(life.run) if isinstance(r, ControlApplied | ControlRefused)]
    assert [r.request for r in answers] == [identity]
    assert isinstance(answers[0], ControlApplied if when == "after" else ControlRefused)
    assert list(life.run.inbox.iterdir()) == []
    if (verb, when) != ("set", "after"):
        return same_runs(life.run, untouched)
    told = life_at(bench_source, memory / "told", zygote)
    journal = Writer(told.run.journal)
    settings = {"learning_rate_factor": 0.25}
    journal.write(ControlApplied(request=new_id(), verb="set", step=answers[0].step, settings=settings))
    journal.close()
    assert told.start().wait() == 0
    same_runs(life.run, told.run)
    changed = [step for step, figures in measured(life.run).items() if figures[2] != measured(untouched)[step][2]]
    assert changed == list(range(answers[0].step + 1, 31))


def test_killed_after_its_end_was_moved_it_falls_to_the_same_end(
    bench_source: Path, memory: Path, zygote: Zygote, untouched: Run
) -> None:
    """The decay is journaled before it counts; killed with the newest checkpoint before it and after it."""
    life = life_at(bench_source, memory / "bench", zygote)
    gate = Gate(memory / "gate", 5 * A_STEP + 1)
    engine = life.start(gate.hooks)
    until_step(life, engine, 5)
    identity = life.send("set", max_steps=20, decay="linear")
    gate.let_through(2 * A_STEP)
    applied = answer(life, engine, identity)
    assert isinstance(applied, ControlApplied) and applied.settings == {"max_steps": 20, "decay_end": 20}
    until_step(life, engine, applied.step + 1)
    engine.kill(9)
    assert engine.wait() == -9
    assert life.start({"kill": ["optimizer", 8]}).wait() == -9
    assert life.start().wait() == 0
    told = life_at(bench_source, memory / "told", zygote)
    journal = Writer(told.run.journal)
    journal.write(ControlApplied(request=new_id(), verb="set", step=applied.step, settings=applied.settings))
    journal.close()
    assert told.start().wait() == 0
    same_runs(life.run, told.run)
    rates = {step: figures[2] for step, figures in measured(life.run).items()}
    first = applied.step + 1
    assert max(rates) == 20 and rates[first] == measured(untouched)[first][2]
    assert rates[20] == pytest.approx(rates[first] / (21 - first))


@pytest.mark.parametrize("stage", ["dpo", "kto"])
def test_requests_while_answers_are_compared(stage: str, bench_source: Path, memory: Path, zygote: Zygote) -> None:
    """While the reference is measured it pauses and parks, and keeps what it has; as it trains it obeys all."""

    def comparing(name: str) -> Life:
        bench = bench_at(bench_source, memory / name)
        run = bench.run("compared")
        assert create(run, resolve(bench.profile("compared"), overrides=compare_answers(bench, stage)))
        return Life(bench, run, zygote)

    life = comparing("steered")
    engine = life.start({"linger": ["measuring", 0.2]})
    while not any(isinstance(r, PhaseChanged) and "the reference" in r.detail for r in records(life.run)):
        assert engine.poll() is None, "it has ended"
        engine.wait_a_little()
    obeyed(life, engine, "hold")
    obeyed(life, engine, "continue")
    life.send("park")
    assert engine.wait() == 11
    assert ending(life.run).reason == "parked before training began"
    assert (life.run.folder / "reference.0.safetensors").exists() and not life.run.reference.exists()

    gate = Gate(memory / "gate", 3 * A_STEP + 1)
    engine = life.start(gate.hooks)
    until_step(life, engine, 3)
    obeyed(life, engine, "hold", gate)
    obeyed(life, engine, "continue")
    for verb in ("checkpoint", "evaluate"):
        obeyed(life, engine, verb, gate, A_STEP)
    obeyed(life, engine, "set", gate, A_STEP, learning_rate_factor=0.5)
    obeyed(life, engine, "set", gate, A_STEP, max_steps=20)
    life.send("park")
    gate.let_through(A_STEP)
    assert engine.wait() == 11
    assert life.start({"kill": ["optimizer", 2]}).wait() == -9  # the first one made the optimizer's state
    assert life.start().wait() == 0
    check_requests(life)

    told = comparing("told")
    journal = Writer(told.run.journal)
    for record in records(life.run):
        if isinstance(record, ControlApplied) and record.settings:
            journal.write(ControlApplied(request=new_id(), verb="set", step=record.step, settings=record.settings))
    journal.close()
    assert told.start().wait() == 0
    same_runs(life.run, told.run)
    assert max(measured(life.run)) == 20
