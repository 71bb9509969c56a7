"""What the world outside asks of the engine. A handler only sets a flag; the work looks at it between its units."""

import signal
import threading
import time
from collections.abc import Callable
from enum import IntEnum
from types import FrameType
from typing import Literal, Protocol

from ftui.runs.requests import Abort, AnyRequest, Continue, Evaluate, GenerateSamples, Park, Pause, Save, Stop

HELD_SECONDS = 0.05  # how often a held engine looks up
READ_SECONDS = 0.25  # the inbox may stand on a network volume

Why = Literal["preempted", "park", "stop", "abort", "full"]


class Leave(Exception):
    """The run is to be left, and why. Raised only between units of work; `letter` asked for it."""

    def __init__(self, why: Why, request: AnyRequest | None = None) -> None:
        super().__init__(why)
        self.why: Why = why
        self.request = request


class Ready(IntEnum):
    """Which letters can be obeyed at a place: each level those of the levels below it, too."""

    CONTROL = 0  # hold, continue, park, stop, abort
    FILES = 1  # pin, unpin, delete, set
    SAVE = 2  # checkpoint
    ALL = 3  # evaluate, sample


class Desk(Protocol):
    """Where letters come from and answers go (engine/runtime/request_inbox.py)."""

    def read(self) -> list[AnyRequest]: ...

    def applied(self, request: AnyRequest, detail: str = "") -> None: ...

    def refused(self, request: AnyRequest, reason: str) -> None: ...

    def held(self) -> None: ...

    def going_on(self) -> None: ...

    def close(self, reason: str) -> None: ...


class Control:
    """SIGTERM and letters. `poll()` is called between micro-batches, evaluation batches and batches of rows."""

    def __init__(self) -> None:
        self.terminated = False
        self.ending = threading.Lock()
        """Held by whoever records how the attempt ends."""
        self.desk: Desk | None = None
        self._obey: Callable[[AnyRequest], None] | None = None
        self._unread: list[AnyRequest] = []
        self._waiting: list[AnyRequest] = []
        self._is_obeying = False
        self._is_held = False
        self._next_look = 0.0

    def listen(self) -> None:
        """SIGTERM sets the flag; the terminal's SIGHUP and SIGINT are none of the engine's business."""
        signal.signal(signal.SIGTERM, self._terminate)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def _terminate(self, number: int, frame: FrameType | None) -> None:
        self.terminated = True

    def open(self, desk: Desk) -> None:
        """Read letters from now on."""
        self.desk = desk

    def close(self, reason: str) -> None:
        """Read no more letters; refuse those that have come and were not obeyed."""
        desk, self.desk = self.desk, None
        if desk is not None:
            desk.close(reason)
        self._waiting, self._unread = [], []

    def answer(self, request: AnyRequest | None, detail: str = "") -> None:
        """Say that the letter for which the run was left has been obeyed."""
        if self.desk is not None and request is not None:
            self.desk.applied(request, detail)

    @property
    def is_training(self) -> bool:
        """Whether there is something that a letter could change, or a sudden end could lose."""
        return self._obey is not None

    def train(self, obey: Callable[[AnyRequest], None]) -> None:
        """The run trains from now on: letters that need it go to `obey`, which answers them."""
        self._obey = obey

    def poll(self, ready: Ready = Ready.CONTROL) -> None:
        """Look at the flag and, at most four times a second, at the inbox; stand still while the run is held.

        Raises:
            Leave: SIGTERM has arrived, or a letter says to go.
        """
        if self._look(ready) and not self._is_obeying:
            while self._look(ready):
                time.sleep(HELD_SECONDS)
            assert self.desk is not None, "only a letter holds"
            self.desk.going_on()

    def _look(self, ready: Ready) -> bool:
        """Obey what has come; whether the run is held now."""
        if self.terminated:
            raise Leave("preempted")
        now = time.monotonic()
        if self.desk is not None and now >= self._next_look:
            self._next_look = now + READ_SECONDS
            self._unread += self.desk.read()
            self._sort(self.desk)
        while not self._is_obeying and (due := [request for request in self._waiting if _needs(request) <= ready]):
            assert self._obey is not None, "letters wait only for a training run"
            self._waiting.remove(due[0])
            self._is_obeying = True
            self._obey(due[0])
            self._is_obeying = False
        return self._is_held

    def _sort(self, desk: Desk) -> None:
        """Act on what has come. While one letter is being obeyed, only those that end the run are heard."""
        for request in list(self._unread):
            if not self._is_obeying or isinstance(request, Park | Stop | Abort):
                self._unread.remove(request)
                self._receive(desk, request)

    def _receive(self, desk: Desk, request: AnyRequest) -> None:
        match request:
            case Pause() if self._is_held:
                desk.refused(request, "the run is held already")
            case Pause():
                self._is_held = True
                desk.held()
                desk.applied(request)
            case Continue() if not self._is_held:
                desk.refused(request, "the run is not held")
            case Continue():
                self._is_held = False
                desk.applied(request)
            case Park():
                raise Leave("park", request)
            case Stop():
                raise Leave("stop", request)
            case Abort():
                raise Leave("abort", request)
            case _ if self._obey is None:
                desk.refused(request, "the run is not training yet; send it again when it is")
            case _:
                self._waiting.append(request)


def _needs(request: AnyRequest) -> Ready:
    match request:
        case Evaluate() | GenerateSamples():
            return Ready.ALL
        case Save():
            return Ready.SAVE
    return Ready.FILES
