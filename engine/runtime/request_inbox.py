"""Control requests come in, and each is answered exactly once, in the journal.

An answer is written before its request is thrown away, and the answered ones are known from the journal: whenever the
process dies, nothing is obeyed twice. A request for an earlier attempt is refused, never obeyed.
"""

from collections.abc import Iterable
from time import monotonic

from ftui.runs.events import ControlApplied, ControlRefused, MicroBatchChanged
from ftui.runs.journal import Tail
from ftui.runs.requests import AnyRequest, ReceivedRequest, read_requests, remove_request
from ftui.runs.run_folder import Run

from .event_writer import EventWriter

READ_SECONDS = 0.25  # between two looks at the folder of requests, which may be on a network volume
SHARE = 0.2  # of the time between two looks that one may take, however many requests there are
MOST_REFUSALS = 20  # at one look, of what is not for this attempt: 10,000 records would be read by every screen

Answers = ControlApplied | ControlRefused | MicroBatchChanged


class RequestInbox:
    """Reads the requests to one attempt and answers them. `earlier`: the answers that the journal has already."""

    def __init__(self, run: Run, events: EventWriter, earlier: Iterable[Answers] = ()) -> None:
        self._run = run
        self._events = events
        self._answered = {record.request for record in earlier if not isinstance(record, MicroBatchChanged)}
        self._pending: dict[str, ReceivedRequest] = {}
        self._names: set[str] = set()
        """Files that were read: one that cannot be removed is not read again."""
        self._last_look = monotonic()

    def read(self) -> list[AnyRequest]:
        """The new requests to this attempt, each returned once; all others are refused and thrown away.

        Of a flood only so many are read at a look that training goes on; of those that are not for this attempt, only
        the first ones get an answer.
        """
        requests, num_foreign = list[AnyRequest](), 0
        now = monotonic()
        end, self._last_look = now + SHARE * max(READ_SECONDS, now - self._last_look), now
        for file in read_requests(self._run, self._names):
            self._names.add(file.path.name)
            if file.id in self._pending or file.id in self._answered:
                remove_request(file)
            elif reason := self._reason_against(file):
                num_foreign += 1
                if num_foreign <= MOST_REFUSALS:
                    self._refuse(file.id, file.request.verb if file.request else "", reason)
                remove_request(file)
            elif file.request is not None:
                self._pending[file.id] = file
                requests.append(file.request)
            if monotonic() > end:
                break
        if num_foreign > MOST_REFUSALS:
            self._events.warn(f"{num_foreign - MOST_REFUSALS} control requests that are not for this attempt: removed.")
        return requests

    def _reason_against(self, file: ReceivedRequest) -> str:
        """Why it is no request to this attempt; empty where it is one."""
        request = file.request
        if request is None:
            return file.problem
        if (request.attempt, request.token) != (self._events.attempt, self._events.token):
            return f"it was meant for attempt {request.attempt}, this is {self._events.attempt}"
        return ""

    def answer(self, request: AnyRequest, detail: str = "", settings: dict[str, float] | None = None) -> None:
        """Say that a request was obeyed; for a `set` this comes first, and replaying its settings is what obeys it."""
        step, verb = self._events.num_steps, request.verb
        self._write(ControlApplied(request=request.id, verb=verb, step=step, detail=detail, settings=settings or {}))

    def refuse(self, request: AnyRequest, reason: str) -> None:
        """Say why a request is not obeyed."""
        self._refuse(request.id, request.verb, reason)

    def enter_pause(self, reason: str = "") -> None:
        """Record that the run is paused from now on, and why where no request says it."""
        self._events.enter("held", reason)

    def leave_pause(self) -> None:
        """Record that the run continues where it was paused."""
        self._events.leave()

    def close(self, reason: str) -> None:
        """Refuse every request that was not answered yet."""
        self.read()
        for file in list(self._pending.values()):
            self._refuse(file.id, file.request.verb if file.request else "", reason)

    def _refuse(self, identity: str, verb: str, reason: str) -> None:
        self._write(ControlRefused(request=identity, verb=verb, step=self._events.num_steps, reason=reason))

    def _write(self, record: ControlApplied | ControlRefused) -> None:
        if record.request in self._answered:
            return
        self._events.write(record, durable=isinstance(record, ControlApplied))  # a refusal changes nothing
        self._answered.add(record.request)
        if file := self._pending.pop(record.request, None):
            remove_request(file)


def answers_in(run: Run) -> list[Answers]:
    """The records of the journal that answer requests or are to be replayed, oldest first."""
    kinds = (ControlApplied, ControlRefused, MicroBatchChanged)
    return [record for record in Tail(run.journal).records() if isinstance(record, kinds)]
