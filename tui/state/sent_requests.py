"""What this screen asked of a run and what became of it: sent, then applied at a step or refused, by the journal."""

import time
from typing import Literal

import msgspec
from msgspec.structs import replace

from ftui.runs.events import AnyRecord, ControlApplied, ControlRefused
from ftui.runs.records import record_lines
from ftui.runs.requests import AnyRequest, ControlRequest, Set, write_request
from ftui.runs.run_folder import Run
from ftui.runs.send_request import address_request
from ftui.runs.status import Status
from ftui.runs.verbs import verb_name

KEPT = 50

Outcome = Literal["sent", "applied", "refused", "unread"]
OUTCOME_STYLES: dict[Outcome, str] = {"sent": "muted", "applied": "good", "refused": "warn", "unread": "warn"}


class SentRequest(msgspec.Struct, frozen=True):
    """`words`: what was asked or what came of it."""

    request: str
    summary: str
    time: float
    outcome: Outcome = "sent"
    words: str = ""


class SentRequests(msgspec.Struct):
    """The requests of this screen, oldest first."""

    run: Run
    all: list[SentRequest] = []

    def send(self, status: Status, kind: type[ControlRequest], fields: dict[str, object]) -> SentRequest:
        """Send a request to the attempt that is running.

        Raises:
            UsageError: none is, or a field is out of its bounds.
            DiskError: the request cannot be written.
        """
        request = address_request(self.run, status, kind, fields)
        write_request(self.run, request)
        sent = SentRequest(request.id, summarize(request), time.time(), words=f"{summarize(request)}: sent")
        self.all = [*self.all, sent][-KEPT:]
        return sent

    def take(self, record: AnyRecord) -> None:
        """An answer, perhaps to one of them."""
        match record:
            case ControlApplied():
                self._settle(record.request, "applied", "".join(record_lines.event_lines(record)[:1]))
            case ControlRefused():
                self._settle(record.request, "refused", "".join(record_lines.event_lines(record)[:1]))

    def give_up(self) -> None:
        """The run has ended: it answers no more."""
        for request in self.all:
            if request.outcome == "sent":
                self._settle(request.request, "unread", f"{request.summary}: the run ended before it answered")

    def _settle(self, request: str, outcome: Outcome, words: str) -> None:
        self.all = [
            replace(sent, outcome=outcome, words=words) if sent.request == request else sent for sent in self.all
        ]

    @property
    def newest(self) -> SentRequest | None:
        return self.all[-1] if self.all else None


def summarize(request: AnyRequest) -> str:
    """A request in a few words."""
    if isinstance(request, Set):
        numbers = [f"{name} = {value:g}" for name, value in request.settings.items()]
        return "set " + ", ".join([*numbers, *([f"decay = {request.decay}"] if request.decay else [])])
    step = getattr(request, "step", None)
    return verb_name(request.verb) + (f" at step {step}" if step is not None else "")
