"""What others ask of the engine: SIGTERM and control requests. The work looks at them between two of its units."""

import signal
import threading
import time
from collections.abc import Callable
from enum import IntEnum
from types import FrameType
from typing import Literal

from ftui.runs.requests import (
    Abort,
    AnswerChat,
    AnyRequest,
    Continue,
    EndAnswer,
    Evaluate,
    GenerateSamples,
    Park,
    Pause,
    Save,
    Stop,
)

from .budget_watch import BudgetWatch
from .request_inbox import READ_SECONDS, RequestInbox

PAUSE_SECONDS = 0.05  # how often a paused engine looks for requests

Why = Literal["preempted", "park", "stop", "abort", "full"]


class Shutdown(Exception):
    """The attempt is to end, and why. Raised only between units of work; `request` asked for it, if one did. `reason`:
    what else did, in words.
    """

    def __init__(self, why: Why, request: AnyRequest | None = None, reason: str = "") -> None:
        super().__init__(why)
        self.why: Why = why
        self.request = request
        self.reason = reason


class RequestLevel(IntEnum):
    """Which requests can be obeyed at a place: each level includes those below it."""

    CONTROL = 0  # pause, continue, park, stop, abort
    FILES = 1  # pin, unpin, delete, set
    SAVE = 2  # checkpoint
    ALL = 3  # evaluate, sample, answer


class Control:
    """SIGTERM and control requests. `poll()` is called between batches of training, evaluation and reading."""

    def __init__(self) -> None:
        self.terminated = False
        self.end_lock = threading.Lock()
        """Acquired before the end of the attempt is recorded, so that it is recorded once."""
        self.inbox: RequestInbox | None = None
        self.budget: BudgetWatch | None = None
        self.has_checkpoint = False
        """Whether the run resumes: a stop then waits until the weights are loaded, which final/ is made from."""
        self.ended_answers: set[str] = set()
        """Ids of the requests whose answers are to end early."""
        self.away_seconds = 0.0
        """Seconds that the work has stood still in `poll()`: in pauses, and while requests were obeyed."""
        self._stop: Stop | None = None
        self._handle: Callable[[AnyRequest], None] | None = None
        self._while_paused: Callable[[], None] | None = None
        self._before_work: Callable[[], None] | None = None
        self._unread: list[AnyRequest] = []
        self._waiting: list[AnyRequest] = []
        self._is_handling = False
        self._has_handled = False
        self._is_paused = False
        self._is_waiting = False
        self._is_to_park = False
        self._next_read = 0.0

    def listen(self) -> None:
        """Let SIGTERM set the flag. The terminal's SIGHUP and SIGINT are ignored: a run outlives its terminal."""
        signal.signal(signal.SIGTERM, self._terminate)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def _terminate(self, number: int, frame: FrameType | None) -> None:
        self.terminated = True

    def open(self, inbox: RequestInbox) -> None:
        """Read requests from now on."""
        self.inbox = inbox

    def close(self, reason: str) -> None:
        """Read no more requests; refuse those that have come and were not obeyed."""
        inbox, self.inbox = self.inbox, None
        if inbox is not None:
            inbox.close(reason)
        self._waiting, self._unread = [], []

    def answer(self, request: AnyRequest | None, detail: str = "") -> None:
        """Say that the request for which the run was left has been obeyed."""
        if self.inbox is not None and request is not None:
            self.inbox.answer(request, detail)

    @property
    def is_training(self) -> bool:
        """Whether there is something that a request could change, or a sudden end could lose."""
        return self._handle is not None

    def start_training(
        self,
        handle: Callable[[AnyRequest], None],
        while_paused: Callable[[], None] | None = None,
        before_work: Callable[[], None] | None = None,
    ) -> None:
        """The run trains from now on: requests that need it go to `handle`, which answers them.

        `while_paused` is called again and again while the run is paused, `before_work` when the work goes on after a
        pause or a request.
        """
        self._handle, self._while_paused, self._before_work = handle, while_paused, before_work

    def poll(self, level: RequestLevel = RequestLevel.CONTROL) -> None:
        """Look at the flag and, at most four times a second, for requests; wait here while the run is paused.

        Raises:
            Shutdown: SIGTERM has arrived, or a request says to end.
        """
        if self._is_handling:
            self._look(level)
            return
        begun, self._has_handled = time.perf_counter(), False
        is_paused = self._look(level)
        if is_paused:
            self._wait(level)
        if is_paused or self._has_handled:
            if self._before_work is not None:
                self._before_work()
            self.away_seconds += time.perf_counter() - begun

    def act_on_red(self, action: Literal["warn", "pause", "park"]) -> None:
        """Do what health.on_red says about a red alarm, at the next look."""
        if action == "park":
            self._is_to_park = True
        elif action == "pause" and not self._is_paused and self.inbox is not None:
            self._is_paused = True
            self.inbox.enter_pause()

    def pause(self, reason: str) -> None:
        """Pause the run as a request would, with the reason; returns when somebody has it continue.

        Raises:
            Shutdown: the run is to end.
        """
        assert self.inbox is not None, "a run that trains reads requests"
        begun, self._is_paused = time.perf_counter(), True
        self.inbox.enter_pause(reason)
        self._wait(RequestLevel.SAVE)
        if not self._is_handling:  # else `poll()` counts the request with all that was in it
            self.away_seconds += time.perf_counter() - begun

    def _wait(self, level: RequestLevel) -> None:
        """Stand still while the run is paused."""
        self._is_waiting = True
        try:
            while self._look(level):
                if self._while_paused is not None:
                    self._while_paused()
                time.sleep(PAUSE_SECONDS)
        finally:
            self._is_waiting = False
        assert self.inbox is not None, "a paused run reads requests"
        self.inbox.leave_pause()

    def poll_at_once(self) -> None:
        """`poll()`, and look for requests now, however short ago that was: one may end what is under way."""
        self._next_read = 0.0
        self.poll()

    def _look(self, level: RequestLevel) -> bool:
        """Obey what has come; whether the run is paused now."""
        if self.terminated:
            raise Shutdown("preempted")
        if self.budget is not None and (reason := self.budget.look()):
            raise Shutdown("park", reason=reason)
        if self._is_to_park and not self._is_handling:
            self._is_to_park = False  # once: who leaves the run looks here again
            raise Shutdown("park", reason='a red alarm, and health.on_red = "park"')
        if self._stop is not None and self.is_training:
            stop, self._stop = self._stop, None  # once: who leaves the run looks here again
            raise Shutdown("stop", stop)
        now = time.monotonic()
        if self.inbox is not None and now >= self._next_read:
            self._next_read = now + READ_SECONDS
            self._unread += self.inbox.read()
            self._sort(self.inbox)
        while not self._is_handling and (ready := [r for r in self._waiting if _level_of(r) <= level]):
            assert self._handle is not None, "requests wait only for a training run"
            self._waiting.remove(ready[0])
            self._is_handling = self._has_handled = True
            self._handle(ready[0])
            self._is_handling = False
        return self._is_paused

    def _sort(self, inbox: RequestInbox) -> None:
        """Act on what has come. While one request is handled, only those that end the run or it are looked at, and
        where it stands still, those that have it go on.
        """
        urgent: tuple[type, ...] = (Park, Stop, Abort, EndAnswer)
        if self._is_waiting:
            urgent += (Pause, Continue)
        for request in list(self._unread):
            if not self._is_handling or isinstance(request, urgent):
                self._unread.remove(request)
                self._receive(inbox, request)

    def _receive(self, inbox: RequestInbox, request: AnyRequest) -> None:
        match request:
            case Pause() if self._is_paused:
                inbox.refuse(request, "the run is paused already")
            case Pause():
                self._is_paused = True
                inbox.enter_pause()
                inbox.answer(request)
            case Continue() if not self._is_paused:
                inbox.refuse(request, "the run is not paused")
            case Continue():
                self._is_paused = False
                inbox.answer(request)
            case Park():
                raise Shutdown("park", request)
            case Stop() if self.has_checkpoint and not self.is_training:
                self._stop, self._is_paused = request, False
                inbox.answer(request, "once the newest checkpoint is loaded: final/ is made from it")
            case Stop():
                raise Shutdown("stop", request)
            case Abort():
                raise Shutdown("abort", request)
            case EndAnswer():
                self.ended_answers.add(request.of)
                inbox.answer(request)
            case _ if self._handle is None:
                inbox.refuse(request, "the run is not training yet; send it again when it is")
            case _:
                self._waiting.append(request)


def _level_of(request: AnyRequest) -> RequestLevel:
    match request:
        case Evaluate() | GenerateSamples() | AnswerChat():
            return RequestLevel.ALL
        case Save():
            return RequestLevel.SAVE
    return RequestLevel.FILES
