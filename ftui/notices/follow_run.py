"""Follows a run and sends what people want to be told of. What waits to be sent survives this process."""

import time
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from ftui.notices.notice_text import Notice, notice_of
from ftui.notices.sender import Sender
from ftui.runs.run_folder import Run
from ftui.runs.status import Status, Watch
from ftui.system.files import DAMAGED, read_json, replace_file
from ftui.system.lifeline import Lifeline

LOOK_SECONDS = 1.0
PAUSES = (2.0, 10.0, 60.0, 300.0, 900.0, 1800.0)
"""Seconds between the tries to send one message, after which it is given up."""
LEFT_SECONDS = 300.0  # how long this process may go on after the run's end
OLD_SECONDS = 600.0  # nobody wants to hear what was earlier, where notices are new to a run


class Waiting(msgspec.Struct):
    """A notice that a service has yet to take; `address` is the environment variable that names it."""

    notice: Notice
    address: str
    num_tries: int = 0
    last_try: float = 0.0
    """Unix seconds."""

    def is_due(self, now: float, *, hurry: bool) -> bool:
        """Whether it is tried now; in a `hurry` the first pause is the longest."""
        pause = 0.0 if not self.num_tries else PAUSES[0 if hurry else self.num_tries - 1]
        return now >= self.last_try + pause


class Outbox(msgspec.Struct):
    """The state file: how far the run is read, what waits, and a word for the run's supervisor."""

    status: Status = Status()
    waiting: list[Waiting] = []
    note: str = ""


@dataclass(frozen=True)
class NoticeSettings:
    """What is told (words of notify.events), and to whom."""

    events: frozenset[str]
    addresses: Mapping[str, str]
    """By the names of the environment variables that hold them."""
    unset: tuple[str, ...] = ()
    """Variables that are not set here."""


class Notices:
    """The notices of one run. The caller holds notices/lock."""

    def __init__(self, run: Run, settings: NoticeSettings, sender: Sender) -> None:
        self._run, self._settings, self._sender = run, settings, sender
        self._path = run.notices / "process.json"
        try:
            self._outbox = read_json(self._path, Outbox)
            self._since = 0.0
        except (OSError, *DAMAGED):
            self._outbox, self._since = Outbox(), time.time() - OLD_SECONDS
        self._outbox.note = f"not set here: {', '.join(settings.unset)}" if settings.unset else ""
        self._watch = Watch(run, self._outbox.status)

    def read(self) -> None:
        """Take in what is new of the run."""
        news = self._watch.read()
        for record, state in news:
            notice = notice_of(self._run.name, record, state) if record.time >= self._since else None
            if notice is not None and notice.event in self._settings.events:
                self._outbox.waiting += [Waiting(notice, address) for address in self._settings.addresses]
        if news:
            self._outbox.status = Status(state=self._watch.state, offsets=self._watch.offsets)
            self._save()

    def send(self, *, hurry: bool = False) -> bool:
        """Try what is due; says whether nothing is left. `hurry`: the run has ended, and this process soon ends, too:
        each is tried again and again until then."""
        for waiting in [*self._outbox.waiting]:
            if waiting.address not in self._settings.addresses:  # the profile names it no longer
                self._outbox.waiting.remove(waiting)
            elif waiting.is_due(time.time(), hurry=hurry):
                self._try(waiting, hurry=hurry)
        return not self._outbox.waiting

    def _try(self, waiting: Waiting, *, hurry: bool) -> None:
        waiting.last_try = time.time()
        if self._sender.send(waiting.address, waiting.notice):
            self._outbox.waiting.remove(waiting)
        elif waiting.num_tries == len(PAUSES) and not hurry:
            self._outbox.waiting.remove(waiting)
            self._outbox.note = f"env:{waiting.address} has not taken {waiting.notice.title!r}: given up"
        else:
            waiting.num_tries = min(waiting.num_tries + 1, len(PAUSES))
            if waiting.num_tries == 2:
                self._outbox.note = f"env:{waiting.address} does not take messages; it is tried again"
        self._save()

    def _save(self) -> None:
        try:
            replace_file(self._path, msgspec.json.encode(self._outbox))
        except OSError as error:  # a full disk: people are told all the same, after a crash a second time
            print(f"{self._path} could not be written: {error}.", flush=True)


def follow_run(run: Run, settings: NoticeSettings, lifeline: Lifeline) -> None:
    """Until the run has ended for good and everything is sent, or nobody has taken it for `LEFT_SECONDS`."""
    notices = Notices(run, settings, Sender(settings.addresses))
    end = None
    while end is None or time.monotonic() < end:
        has_ended = lifeline.has_ended(LOOK_SECONDS if end is None else 0.0)
        notices.read()
        is_empty = notices.send(hurry=end is not None)
        if end is not None:
            if is_empty:
                return
            time.sleep(LOOK_SECONDS)
        elif has_ended:
            end = time.monotonic() + LEFT_SECONDS
