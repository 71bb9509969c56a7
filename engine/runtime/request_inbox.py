"""The engine's desk: letters come in, each is answered exactly once, in the journal.

An answer is written before its letter is thrown away, and the answered ones are known from the journal: whatever moment
the process dies at, nothing is obeyed twice. A letter for an earlier attempt is refused, never obeyed.
"""

from collections.abc import Iterable

from ftui.runs.events import ControlApplied, ControlRefused, MicroBatchChanged
from ftui.runs.journal import Tail
from ftui.runs.requests import AnyRequest, ReceivedRequest, Set, read_requests, remove_request
from ftui.runs.run_folder import Run

from .event_writer import Logbook

Answers = ControlApplied | ControlRefused | MicroBatchChanged


class LetterDesk:
    """Reads the letters to one attempt (see control.Desk)."""

    def __init__(self, run: Run, logbook: Logbook, earlier: Iterable[Answers] = ()) -> None:
        self._run = run
        self._logbook = logbook
        self._answered = {record.request for record in earlier if not isinstance(record, MicroBatchChanged)}
        self._taken: dict[str, ReceivedRequest] = {}

    def read(self) -> list[AnyRequest]:
        """The new letters to this attempt, each given once; all others are refused and thrown away."""
        letters = []
        for found in read_requests(self._run):
            if found.id in self._taken:
                continue
            if found.id in self._answered:
                remove_request(found)
                continue
            self._taken[found.id] = found
            request = found.request
            if request is None:
                self._answer(
                    ControlRefused(request=found.id, verb="", step=self._logbook.num_steps, reason=found.problem)
                )
            elif (request.attempt, request.token) != (self._logbook.attempt, self._logbook.token):
                self.refused(request, f"it was meant for attempt {request.attempt}, this is {self._logbook.attempt}")
            else:
                letters.append(request)
        return letters

    def applied(self, request: AnyRequest, detail: str = "") -> None:
        """Say that a letter was obeyed; for a `set` this comes first, and replaying the journal is what obeys it."""
        settings = request.settings if isinstance(request, Set) else {}
        self._answer(
            ControlApplied(
                request=request.id, verb=request.verb, step=self._logbook.num_steps, detail=detail, settings=settings
            )
        )

    def refused(self, request: AnyRequest, reason: str) -> None:
        self._answer(ControlRefused(request=request.id, verb=request.verb, step=self._logbook.num_steps, reason=reason))

    def held(self) -> None:
        self._logbook.enter("held")

    def going_on(self) -> None:
        self._logbook.back()

    def close(self, reason: str) -> None:
        """Refuse every letter that was not answered yet."""
        self.read()
        for found in list(self._taken.values()):
            verb = found.request.verb if found.request else ""
            self._answer(ControlRefused(request=found.id, verb=verb, step=self._logbook.num_steps, reason=reason))

    def _answer(self, record: ControlApplied | ControlRefused) -> None:
        if record.request in self._answered:
            return
        self._logbook.event(record, durable=True)
        self._answered.add(record.request)
        if found := self._taken.pop(record.request, None):
            remove_request(found)


def answers_in(run: Run) -> list[Answers]:
    """What the journal says was answered, and what it says to replay, oldest first."""
    kinds = (ControlApplied, ControlRefused, MicroBatchChanged)
    return [record for record in Tail(run.journal).read() if isinstance(record, kinds)]
