"""A run that a screen follows: all it shows, kept up with the run's files a little at a time. No Textual here."""

import time
from collections.abc import Callable

from msgspec.structs import replace

from ftui.runs.curves import CurveReader, Curves
from ftui.runs.requests import ControlRequest
from ftui.runs.run_folder import Run
from ftui.runs.state import RunState
from ftui.runs.status import Status, Watch, is_final, is_running, judge
from ftui.supervisor.spawn import ensure_supervised

from .history import History
from .sent_requests import SentRequest, SentRequests
from .tails import LogTail, MachineTail

JUDGE_SECONDS = 1.0  # looking at processes is dearer than looking at files
SLICE_SECONDS = 0.06  # of each look for a long history that is not in curves.json yet

Clock = Callable[[], float]


class RunView:
    """Call `look` now and then; it never waits. `clock` gives Unix seconds."""

    def __init__(self, run: Run, clock: Clock = time.time) -> None:
        self.run = run
        self.clock = clock
        self.history = History(run)
        self.log = LogTail(run)
        self.machine = MachineTail(run)
        self.requests = SentRequests(run)
        self._watch = Watch(run)
        self._watch.catch_up()
        self.status: Status = ensure_supervised(run, judge(run, self._watch))
        self._judged, self._was_running = time.monotonic(), self.is_running
        self._curves = CurveReader(run)
        self.look()

    @property
    def state(self) -> RunState:
        return self.status.state

    @property
    def curves(self) -> Curves:
        return self._curves.curves

    @property
    def is_running(self) -> bool:
        return is_running(self.status)

    @property
    def has_ended(self) -> bool:
        """Whether it has ended for now, in whatever way, and will not continue by itself."""
        return self.state.phase == "lost" or (is_final(self.status) and not self.is_running)

    @property
    def keeps_running(self) -> bool:
        """Whether it trains, or will: an engine that has said its last word lives on for a moment."""
        return self.is_running and not is_final(self.status)

    @property
    def card(self) -> str:
        """The GPU, or the CPU, in a few words."""
        newest = self.machine.newest
        if newest is not None and newest.gpus and not self.state.device.startswith("cpu"):
            card = next((gpu for gpu in newest.gpus if gpu.rank == 0), newest.gpus[0])
            return card.name.removeprefix("NVIDIA ")
        return self.state.device.removeprefix("cpu: ").removeprefix("cuda: ")

    def look(self) -> bool:
        """Take in what is new; False where nothing is."""
        news = bool(self._watch.read())
        if time.monotonic() >= self._judged + JUDGE_SECONDS:
            news = self._judge()
        elif news:
            self.status = replace(self.status, state=self._watch.state)
        if self._watch.problem:  # what the other files say would be no more than a part of the story
            return True
        events = self.history.look()
        for record in events:
            self.requests.take(record)
        pieces = [self.log.look(), self.machine.look(), self._look_at_curves()]
        return news or bool(events) or any(pieces)

    def _judge(self) -> bool:
        """Look at the processes; whether the run stands otherwise than before."""
        before, was_running = replace(self.status, time=0.0), self._was_running
        self._judged = time.monotonic()
        self.status = ensure_supervised(self.run, judge(self.run, self._watch))
        self._was_running = self.is_running
        if self.has_ended:
            self.requests.give_up()
        return was_running != self._was_running or before != replace(self.status, time=0.0)

    def _look_at_curves(self) -> bool:
        if self.state.start_step is not None:
            self._curves.begin(self.state.attempt, self.state.start_step)
        deadline = time.monotonic() + SLICE_SECONDS
        moved = False
        while self._curves.advance():
            moved = True
            if time.monotonic() > deadline:
                break
        return moved

    def send(self, kind: type[ControlRequest], fields: dict[str, object]) -> SentRequest:
        """Send a control request (see `SentRequests.send`)."""
        return self.requests.send(self.status, kind, fields)
