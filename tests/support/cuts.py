"""A run that is cut again and again: a schedule drawn from a seed, and the hand that carries it out."""

import random
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ftui.runs.events import ControlApplied, ControlRefused, RunStarted, Step
from ftui.runs.journal import Tail
from ftui.runs.requests import (
    Abort,
    AnswerChat,
    Continue,
    ControlRequest,
    EndAnswer,
    Evaluate,
    GenerateSamples,
    Park,
    Pause,
    Save,
    Set,
    Stop,
    new_id,
    write_request,
)
from ftui.runs.run_folder import Run
from tests.support.bench import Workbench, newest, records
from tests.support.zygote import Attempt, Hooks, Zygote, tail_of

REQUESTS: dict[str, type[ControlRequest]] = {
    "hold": Pause, "continue": Continue, "park": Park, "checkpoint": Save, "stop": Stop, "abort": Abort,
    "evaluate": Evaluate, "sample": GenerateSamples, "set": Set,
    "answer": AnswerChat, "end_answer": EndAnswer,
}  # fmt: skip
# The n-th pass at which a kill may strike, drawn from 1 to this.
PLACES = {
    "loading": 1, "forward": 30, "backward": 24, "optimizer": 12, "evaluation": 3, "save": 40, "rotation": 3,
    "final": 1, "record": 60, "torn record": 60,
}  # fmt: skip
OF_ROLLOUTS = {"generating": 60, "scoring": 6, "rollout": 12, "values": 12}
"""Places of a run that samples its answers. `values`: a batch of log-probabilities (and values) before the steps."""
ENDINGS = {  # how an attempt may end after its cut; 0: the run was finished first
    "kill": {-signal.SIGKILL, 0},
    "place": {-signal.SIGKILL, 0},
    "term": {20, 21, -signal.SIGTERM, 0},  # a SIGTERM that comes before there is a handler ends the process
    "park": {11, 0},
    "end": {0},
}
SLOW = 0.01  # seconds more for every micro-batch, so that there is something to hit


@dataclass(frozen=True)
class Act:
    """Something done to a living engine: `seconds` after its `steps`-th step, or after its start where that is 0."""

    what: str
    steps: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Part:
    """One attempt: what happens in it, and what ends it. `place` kills it from within (`cut.what` is `place`).

    `victim`: the one of several ranks that a kill strikes; `None`: all at once.
    """

    acts: tuple[Act, ...]
    cut: Act
    place: tuple[str, int] | None = None
    victim: int | None = None


@dataclass
class Life:
    """A run and all its attempts so far. `requests`: id of each request sent, and the attempt it was sent to."""

    bench: Workbench
    run: Run
    zygote: Zygote
    size: int = 1
    """How many ranks."""
    number: int = 0
    kills: int = 0
    requests: dict[str, int] = field(default_factory=dict)

    @property
    def token(self) -> str:
        return f"{self.number:016x}"

    def start(self, hooks: Hooks | None = None, victim: int | None = None) -> Attempt:
        self.number += 1
        run, env, number, token = self.run, self.bench.env, self.number, self.token
        if self.size == 1:
            return self.zygote.start(run, env, attempt=number, token=token, hooks=hooks)
        return self.zygote.start_ranks(run, env, self.size, attempt=number, token=token, hooks=hooks, victim=victim)

    def send(self, verb: str, **fields: Any) -> str:
        """Send a request to the attempt started last; its id."""
        identity = new_id()
        request: Any = REQUESTS[verb](id=identity, attempt=self.number, token=self.token, **fields)
        write_request(self.run, request)
        self.requests[identity] = self.number
        return identity


class Gate:
    """Holds up an engine before its n-th micro-batch of training, or the n-th pass at another place that the hook
    `gate` knows, so that what comes then does not hang on who is quicker; the n-th is counted from the start of the
    attempt."""

    def __init__(self, path: Path, first: int, place: str = "updating") -> None:
        self._path, self._passed = path, first - 1
        self.hooks: dict[str, list[Any]] = {"gate": [place, str(path), first]}
        path.write_text(str(self._passed))
        self._told.unlink(missing_ok=True)

    @property
    def _told(self) -> Path:
        return self._path.with_name(f"{self._path.name}.at")

    def wait(self, engine: Attempt) -> None:
        """Until the engine stands at it."""
        while not (self._told.exists() and self._told.read_text() == str(self._passed + 1)):
            assert engine.poll() is None, f"it has ended:\n{tail_of(engine.run)}"
            engine.wait_a_little()

    def let_through(self, number: int = 1) -> None:
        """So many micro-batches more."""
        self._passed += number
        self._path.write_text(str(self._passed))

    def open(self) -> None:
        self.let_through(1_000_000)


def schedule(seed: int, most: int, more: Mapping[str, int] | None = None, *, size: int = 1) -> list[Part]:
    """Up to `most` attempts of `size` ranks that are cut, each with requests before it; `more` are places beside
    `PLACES`."""
    chance, places = random.Random(seed), PLACES | dict(more or {})
    victims = random.Random(f"victims {seed}")
    parts = []
    for _ in range(chance.randint(1, most)):
        verbs = chance.choices(["hold", "evaluate", "sample", "checkpoint"], k=chance.choice([0, 0, 1, 2]))
        acts = tuple(Act(verb, *_moment(chance)) for verb in verbs)
        what = chance.choice(["kill", "place", "place", "term", "park"])
        place = chance.choice(list(places))
        if what == "place":
            parts.append(Part(acts, Act(what), (place, chance.randint(1, places[place])), victims.randrange(size)))
        else:
            cut = Act(what, *_moment(chance))
            if chance.random() < 0.15:
                acts, cut = (*acts, Act("held", cut.steps, cut.seconds)), Act(what)
            parts.append(Part(acts, cut, victim=victims.choice([None, *range(size)])))
    return parts


def _moment(chance: random.Random) -> tuple[int, float]:
    """Mostly while it trains; sometimes while it starts."""
    if chance.random() < 0.2:
        return 0, chance.uniform(0, 0.5)
    return chance.randint(1, 9), chance.uniform(0, 0.06)


def carry_out(life: Life, part: Part) -> bool:
    """One attempt, cut as the schedule says; whether the run came to its end.

    Checks where the attempt began and how it ended.
    """
    expected = newest(life.run)
    hooks: dict[str, list[Any]] = {"slow": [SLOW]}
    if part.place:
        hooks["kill"] = list(part.place)
    engine, metrics = life.start(hooks, part.victim), Tail(life.run.metrics)
    metrics.read()
    steps, begun = 0, time.monotonic()
    for act in [*part.acts, part.cut]:
        while engine.poll() is None and act.what not in ("place", "end"):
            steps += sum(isinstance(r, Step) for r in metrics.read())
            if steps >= act.steps if act.steps else time.monotonic() - begun >= act.seconds:
                break
            assert time.monotonic() - begun < 60, f"it stands still:\n{tail_of(life.run)}"
            time.sleep(0.003)
        if engine.poll() is None:
            time.sleep(act.seconds if act.steps else 0)
            _do(life, engine, act.what)
    code = engine.wait()
    life.kills += code == -signal.SIGKILL
    assert code in ENDINGS[part.cut.what], f"ended with {code} after {part.cut}:\n{tail_of(life.run)}"
    check_start(life, expected)
    return code == 0


def _do(life: Life, engine: Attempt, what: str) -> None:
    if what == "kill":
        engine.kill(signal.SIGKILL)
    elif what == "term":
        engine.kill(signal.SIGTERM)
    elif what in ("hold", "held"):
        identity = life.send("hold")
        if answer(life, engine, identity) is not None and what == "hold":
            time.sleep(0.05)
            life.send("continue")
    elif what in REQUESTS:
        life.send(what)


def answer(life: Life, engine: Attempt, identity: str, patience: float = 30) -> ControlApplied | ControlRefused | None:
    """The answer to a request, waited for; `None` when the engine ended without one."""
    deadline = time.monotonic() + patience
    journal, has_ended = Tail(life.run.journal), False
    while True:
        for record in journal.read():
            if isinstance(record, ControlApplied | ControlRefused) and record.request == identity:
                return record
        if has_ended:
            return None
        has_ended = engine.poll() is not None
        assert time.monotonic() < deadline, f"no answer in {patience:g} s:\n{tail_of(life.run)}"
        time.sleep(0.003)


def check_start(life: Life, expected: str | None) -> None:
    """The last attempt, where it came to its first step, went on from the newest valid checkpoint, and is EXACT."""
    for record in records(life.run):
        if isinstance(record, RunStarted) and record.attempt == life.number:
            assert record.resumed_from == expected
            assert (record.reproducibility, record.reproducibility_reasons) == (
                None if expected is None else "EXACT",
                [],
            )


def watch_to_end(life: Life) -> None:
    """Whatever has happened, the next attempt comes to the end."""
    assert carry_out(life, Part((), Act("end")))


def check_requests(life: Life) -> None:
    """Every request was answered once; one to the last attempt may have come when nobody read any more."""
    answered = [r.request for r in records(life.run) if isinstance(r, ControlApplied | ControlRefused)]
    left = [path.name for path in life.run.inbox.iterdir()] if life.run.inbox.exists() else []
    for identity, attempt in life.requests.items():
        is_left = any(identity in name for name in left)
        assert answered.count(identity) + is_left == 1, f"{identity}: {answered.count(identity)} answers, {is_left=}"
        assert not is_left or attempt == life.number
    assert set(answered) <= set(life.requests)
