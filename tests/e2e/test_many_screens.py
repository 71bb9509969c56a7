"""Eight screens steer one living run at once, with no regard for each other: nothing is lost, nothing breaks."""

import contextlib
import os
import random
import time
from collections import Counter
from dataclasses import dataclass

import pytest

from ftui.runs.events import ControlApplied, ControlRefused
from ftui.runs.journal import Tail
from ftui.runs.run_folder import Run
from ftui.runs.status import read_status
from tests.support.bench import Workbench, records
from tests.support.driving import at_screen, steps, wait_for_end, wait_until
from tests.support.pty_screen import Screened
from tests.support.sameness import same_runs, told_beforehand

NUM_SCREENS = 8
RATE = 2e-2
OPTIONS = (
    "train.num_train_epochs=4000", "train.warmup_steps=0", "train.lr_scheduler_type=constant",
    "train.gradient_accumulation_steps=4", "checkpoint.save_steps=25", "eval.eval_steps=25",
)  # fmt: skip
ACTS = ("hold", "hold", "save", "evaluate", "factor", "many")
KINDS = {"hold": "hold", "continue": "hold", "checkpoint": "save", "evaluate": "evaluate", "set": "set"}


@dataclass
class Seat:
    """A screen, and what is being typed into its line of input."""

    screen: Screened
    typing: str = ""

    def enter(self) -> bool:
        """Enter what was typed once it stands there; whether it has been sent in this moment."""
        lines = self.screen.shown()
        if not self.typing or not any(self.typing in line for line in lines):
            return False
        self.screen.press("\r")
        self.typing = ""
        return True

    @property
    def is_free(self) -> bool:
        return not self.typing and not any("esc cancel" in line for line in self.screen.shown())


class Crowd:
    """All of them. `sent` counts what was asked for; `seen` are the ids of letters met in the inbox."""

    def __init__(self, run: Run, seats: list[Seat], seed: int) -> None:
        self.run, self.seats, self.chance = run, seats, random.Random(seed)
        self.sent: Counter[str] = Counter()
        self.seen: set[str] = set()

    def look(self) -> None:
        """Take in what the screens show and which letters are on their way."""
        for seat in self.seats:
            seat.screen.read(0.004)
            self.sent["set"] += seat.enter()
            self.seen |= {name[21:37] for name in os.listdir(self.run.inbox) if name.endswith(".json")}

    def act(self) -> None:
        """One of those who are free presses a key."""
        free = [seat for seat in self.seats if seat.is_free]
        if not free:
            return
        seat, what = (
            self.chance.choice(free),
            self.chance.choice(["hold", "hold", "save", "evaluate", "factor", "many"]),
        )
        if what == "factor":  # behind the 0.5 that stands there
            self.type(seat, "f", f"{self.chance.randint(1, 9999)}")
        elif what == "many":
            text = f"{self.chance.randint(50_000, 99_999)} eval_steps={self.chance.randint(20, 60)}"
            self.type(seat, "m", text)
        else:
            seat.screen.press({"hold": " ", "save": "s", "evaluate": "e"}[what])
            self.sent[what] += 1

    def type(self, seat: Seat, key: str, text: str) -> None:
        seat.screen.press(key + text)
        seat.typing = text

    def until_answered(self) -> None:
        """No line of input is open, and every letter has its answer."""
        deadline = time.monotonic() + 30
        while not all(seat.is_free for seat in self.seats) or len(answers(self.run)) < self.sent.total():
            assert time.monotonic() < deadline, f"{self.sent}\n" + "\n".join(self.seats[0].screen.shown())
            self.look()

    def hold(self, wanted: bool) -> None:
        """By the first screen, which has seen how things stand."""
        for _ in range(40):
            self.look()
        if (read_status(self.run).state.phase == "held") != wanted:
            self.seats[0].screen.press(" ")
            self.sent["hold"] += 1
            self.until_answered()


def answers(run: Run) -> list[ControlApplied | ControlRefused]:
    return [r for r in records(run) if isinstance(r, ControlApplied | ControlRefused)]


def crowded(bench: Workbench) -> Run:
    """A living run."""
    options = [word for option in OPTIONS for word in ("--set", option)]
    result = bench.ftui("--run", str(bench.profile("many")), *options, "--detach")
    assert result.returncode == 0, result.stderr
    run = bench.run("many")
    wait_until(lambda: len(steps(run)) >= 2)
    run.inbox.mkdir(mode=0o700, exist_ok=True)
    return run


@pytest.mark.parametrize("seconds", [4.0, pytest.param(60.0, marks=pytest.mark.faults)])
def test_eight_screens_at_once(watched_bench: Workbench, request: pytest.FixtureRequest, seconds: float) -> None:
    if seconds > 20 and not request.config.getoption("trials"):
        pytest.skip("a minute of it only with --trials")
    run = crowded(watched_bench)
    with contextlib.ExitStack() as stack:
        seats = [Seat(stack.enter_context(at_screen(watched_bench, "attach", "many"))) for _ in range(NUM_SCREENS)]
        for seat in seats:
            seat.screen.wait_for("q detach")
        crowd = Crowd(run, seats, seed=int(seconds))
        fire(crowd, seconds)
        end(crowd)
    wait_for_end(watched_bench, run)
    print(dict(crowd.sent), f"{len(steps(run))} steps")
    check(run, crowd)
    same_runs(run, told_beforehand(run, "told", watched_bench.env))


def fire(crowd: Crowd, seconds: float) -> None:
    """For so long, and until each kind of order was given twice."""
    end = time.monotonic() + seconds
    while time.monotonic() < end or len(crowd.sent) < len(set(KINDS.values())) or min(crowd.sent.values()) < 2:
        assert time.monotonic() < end + 60, crowd.sent
        crowd.act()
        pause = time.monotonic() + crowd.chance.uniform(0.0, 0.2)
        while time.monotonic() < pause:
            crowd.look()
    crowd.until_answered()


def end(crowd: Crowd) -> None:
    """Every screen has learned what became of its last order, shows how the run ends, and leaves in order."""
    crowd.hold(True)
    crowd.type(crowd.seats[0], "m", str(steps(crowd.run)[-1].step + 5))
    crowd.until_answered()
    crowd.hold(False)
    deadline = time.monotonic() + 30
    while not all("many  finished" in seat.screen.shown()[0] for seat in crowd.seats):
        assert time.monotonic() < deadline, "\n".join(seat.screen.shown()[0] for seat in crowd.seats)
        crowd.look()
    for seat in crowd.seats:
        assert any(" at step " in line for line in seat.screen.shown()), "\n".join(seat.screen.shown())
        seat.screen.press("q")
    for seat in crowd.seats:
        assert seat.screen.ended() == 0
        assert b"many is finished." in seat.screen.wire()


def check(run: Run, crowd: Crowd) -> None:
    """Each letter was answered once; the files are whole; the learning rate is what was asked for last."""
    answered = answers(run)
    letters = [answer.request for answer in answered]
    assert len(set(letters)) == len(letters)
    assert crowd.seen <= set(letters) and len(crowd.seen) > len(letters) // 2
    assert list(run.inbox.iterdir()) == []
    assert Counter(KINDS[answer.verb] for answer in answered) == crowd.sent
    assert min(crowd.sent.values()) > 1
    assert {answer.verb for answer in answered if isinstance(answer, ControlRefused)} <= {"hold", "continue"}
    for path in (run.journal, run.metrics, run.supervisor_log, run.telemetry):
        tail = Tail(path)
        assert tail.read() and (tail.num_unknown, tail.num_damaged) == (0, 0), path
    found = steps(run)
    assert [step.step for step in found] == list(range(1, len(found) + 1))
    changes = [
        (answer.step, answer.settings["learning_rate_factor"])
        for answer in answered
        if isinstance(answer, ControlApplied) and "learning_rate_factor" in answer.settings
    ]
    for step in found:
        factor = next((factor for before, factor in reversed(changes) if step.step > before), 1.0)
        assert step.learning_rate == pytest.approx(RATE * factor, rel=1e-12)
