"""Questions to a run that trains: answered, ended, cut off by a kill and by requests; and it trains on as if never
asked."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ftui.helper.chat_facts import RunAnswer
from ftui.runs.events import Answered, ControlApplied, ControlRefused
from ftui.runs.requests import SamplingKeys, Turn
from tests.faults.test_control import ending, life_at, until_step
from tests.support.bench import newest, records
from tests.support.cuts import Life, answer, check_requests
from tests.support.sameness import same_runs
from tests.support.zygote import Attempt, Zygote

TALK_SECONDS = 0.01
HOOKS: dict[str, Any] = {"slow": [0.08], "talk_on": [TALK_SECONDS]}
LONGER = ("train.num_train_epochs=4",)  # 40 steps: each request is read a quarter of a second later, at most
ENDLESS = {"sampling": SamplingKeys(temperature=1.5, max_new_tokens=8000, seed=3), "most_seconds": 60.0}


def ask(life: Life, *sides: str, **fields: Any) -> str:
    conversation = (Turn("user", "What is row 3?"),)
    return life.send("answer", sides=sides, conversations=(conversation,) * len(sides), **fields)


def said_so_far(life: Life, engine: Attempt, identity: str) -> RunAnswer:
    """What answer.json holds of this request, as soon as there is a text."""
    while True:
        assert engine.poll() is None, "it has ended"
        if life.run.answer.exists():
            found = msgspec.json.decode(life.run.answer.read_bytes(), type=RunAnswer)
            if found.request == identity and all(found.texts):
                return found
        engine.wait_a_little()


def answered(life: Life, identity: str) -> Answered:
    return next(r for r in records(life.run) if isinstance(r, Answered) and r.request == identity)


@pytest.mark.slow
def test_a_run_that_was_asked_is_the_run_that_was_not(bench_source: Path, memory: Path, zygote: Zygote) -> None:
    life = life_at(bench_source, memory / "asked", zygote, *LONGER)
    engine = life.start(HOOKS)
    until_step(life, engine, 3)
    short = ask(life, "now", "base", sampling=SamplingKeys(max_new_tokens=12))
    assert isinstance(answer(life, engine, short), ControlApplied)
    whole = said_so_far(life, engine, short)
    assert [len(one.tokens) for one in whole.answers] == [12, 12] and whole.texts[0] != whole.texts[1]
    assert answered(life, short).num_tokens == 24 and answered(life, short).seconds > 24 * TALK_SECONDS

    bounded = ask(life, "now", **ENDLESS | {"most_seconds": 0.2})
    assert isinstance(answer(life, engine, bounded), ControlApplied)
    assert answered(life, bounded).seconds < 30

    ended = ask(life, "now", **ENDLESS)
    said_so_far(life, engine, ended)
    end = life.send("end_answer", of=ended)
    assert isinstance(answer(life, engine, end), ControlApplied)
    assert isinstance(answer(life, engine, ended), ControlApplied) and answered(life, ended).num_tokens < 8000
    journal = [r for r in records(life.run) if getattr(r, "request", "") in (end, ended)]
    assert [type(r) for r in journal] == [ControlApplied, Answered, ControlApplied]

    cut = ask(life, "base", **ENDLESS)
    said_so_far(life, engine, cut)
    engine.kill(9)
    assert engine.wait() == -9 and life.run.answer.exists()

    engine = life.start(HOOKS)
    assert isinstance(answer(life, engine, cut), ControlRefused), "it was meant for the attempt that was killed"
    life.requests[cut] = life.number
    until_step(life, engine, 1)  # it is asked once it trains
    parked = ask(life, "now", "base", **ENDLESS)
    said_so_far(life, engine, parked)
    life.send("park")
    assert engine.wait() == 11 and ending(life.run).checkpoint == newest(life.run)
    assert answered(life, parked).seconds < 30 and not life.run.answer.exists()
    assert json.loads((life.run.folder / str(newest(life.run)) / "resume" / "state.json").read_bytes())["step"] > 3

    engine = life.start({"slow": [0.08]})
    until_step(life, engine, 1)
    assert isinstance(answer(life, engine, life.send("hold")), ControlApplied)
    paused = ask(life, "now", sampling=SamplingKeys(max_new_tokens=4))
    assert isinstance(answer(life, engine, paused), ControlApplied), "in a pause, too"
    life.send("continue")
    assert engine.wait() == 0
    check_requests(life)

    untouched = life_at(bench_source, memory / "untouched", zygote, *LONGER)
    assert untouched.start().wait() == 0
    same_runs(life.run, untouched.run)
