"""What the files of a run say, gathered once: all that reports and comparisons of runs are made from."""

import tomllib
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from ftui.errors import FtuiError, UsageError
from ftui.hardware.devices import card_for, price_of
from ftui.runs.checkpoint_index import CheckpointEntry, CheckpointHistory, read_checkpoints
from ftui.runs.events import AnyRecord, EvaluationDone, Noted, RunOpened, RunStarted, Warned
from ftui.runs.journal import PIECE, Tail
from ftui.runs.manifest import Manifest, read_manifest
from ftui.runs.run_folder import Run
from ftui.runs.state import RunState
from ftui.runs.status import Status, read_status
from ftui.system.files import DAMAGED, read_plain

Key = tuple[str, ...]


class AttemptFacts(msgspec.Struct):
    """An attempt of a run: the times of its first and its last record (Unix seconds), the step it began after, what it
    ran on and what an hour of that costs (`None`: it came not so far, or nobody has said)."""

    number: int
    begin: float
    end: float
    start_step: int | None = None
    opened: RunOpened | None = None
    dollars_per_hour: float | None = None

    @property
    def seconds(self) -> float:
        return max(0.0, self.end - self.begin)

    @property
    def dollars(self) -> float | None:
        return None if self.dollars_per_hour is None else self.seconds * self.dollars_per_hour / 3600


class RunMessage(msgspec.Struct, frozen=True):
    """A warning or a note, its time (Unix seconds), and how often it was given."""

    time: float
    text: str
    is_warning: bool
    count: int = 1


class RunRecord(msgspec.Struct, frozen=True, kw_only=True):
    """All of one run. `profile` has every key of its profile that has a value, `profile_problem` why there is none."""

    run: Run
    status: Status
    created: float | None
    attempts: list[AttemptFacts]
    opened: RunOpened | None
    plan: RunStarted | None
    evaluations: list[EvaluationDone]
    """Of the line of history that counts, by step."""
    messages: list[RunMessage]
    checkpoints: list[CheckpointEntry]
    manifest: Manifest | None
    """Of final/, else of the newest checkpoint."""
    profile: dict[Key, Any]
    profile_problem: str = ""

    @property
    def state(self) -> RunState:
        return self.status.state

    @property
    def seconds(self) -> float:
        """How long its attempts took, pauses and steps that were taken back included; not the time between them."""
        return sum(attempt.seconds for attempt in self.attempts)

    @property
    def dollars(self) -> float | None:
        """What that costs; `None` where the price of one of the attempts is not known."""
        prices = [attempt.dollars for attempt in self.attempts]
        known = [price for price in prices if price is not None]
        return sum(known) if known and len(known) == len(prices) else None


def read_record(run: Run) -> RunRecord:
    """What the run's files say now. Nothing is locked, and nothing is hashed.

    Raises:
        FtuiError: it is no run, or its volume does not answer.
    """
    facts, status = run.read_facts(), read_status(run)
    journal = _Gathered()
    for path in (run.supervisor_log, run.journal):
        for record in _records(Tail(path)):
            journal.take(record)
    profile, problem = _read_profile(run)
    price = _dollars_per_hour(profile.get(("hardware", "price_per_hour")))
    for attempt in journal.attempts.values():
        attempt.dollars_per_hour = price(attempt.opened)
    checkpoints = read_checkpoints(run, status.state)
    if status.state.step_time is not None and status.state.attempt in journal.attempts:
        newest = journal.attempts[status.state.attempt]
        newest.end = max(newest.end, status.state.step_time)
    return RunRecord(
        run=run,
        status=status,
        created=facts.created,
        attempts=[journal.attempts[number] for number in sorted(journal.attempts)],
        opened=journal.opened,
        plan=journal.plan,
        evaluations=[journal.history.losses[step] for step in sorted(journal.history.losses)],
        messages=list(journal.messages.values()),
        checkpoints=checkpoints,
        manifest=next(_manifests(run, checkpoints), None),
        profile=profile,
        profile_problem=problem,
    )


class _Gathered:
    """The records of journal and supervisor, as they come."""

    def __init__(self) -> None:
        self.attempts: dict[int, AttemptFacts] = {}
        self.opened: RunOpened | None = None
        self.plan: RunStarted | None = None
        self.history = CheckpointHistory()
        self.messages: dict[str, RunMessage] = {}

    def take(self, record: AnyRecord) -> None:
        self.history.take(record)
        if not record.attempt:  # of no engine
            return
        attempt = self.attempts.setdefault(record.attempt, AttemptFacts(record.attempt, record.time, record.time))
        attempt.begin, attempt.end = min(attempt.begin, record.time), max(attempt.end, record.time)
        match record:
            case RunOpened():
                self.opened = attempt.opened = record
            case RunStarted():
                self.plan, attempt.start_step = record, record.start_step
            case Warned() | Noted():
                count = self.messages[record.message].count if record.message in self.messages else 0
                message = RunMessage(record.time, record.message, isinstance(record, Warned), count + 1)
                self.messages[record.message] = message


def _records(tail: Tail) -> Iterator[AnyRecord]:
    before = -1
    while tail.offset != before:
        before = tail.offset
        yield from tail.read(PIECE)


def _manifests(run: Run, checkpoints: list[CheckpointEntry]) -> Iterator[Manifest]:
    for entry in checkpoints:
        if entry.place in ("final", "checkpoints"):
            try:
                yield read_manifest(run.folder / entry.path)
            except (OSError, *DAMAGED):
                continue


def _read_profile(run: Run) -> tuple[dict[Key, Any], str]:
    """Every key with its value, also those that are newer than the run: they have their defaults.

    Where ftui does not take the profile any more, the keys that it has.
    """
    from ftui.profile.layers import resolve  # with pydantic (0.1 s)
    from ftui.profile.serialize import flat_values

    try:
        return flat_values(resolve(run.profile).profile), ""
    except FtuiError as error:
        problem = error.message
    try:
        return dict(_flat(tomllib.loads(read_plain(run.profile).decode()))), problem
    except (OSError, ValueError, RecursionError):
        return {}, problem


def _flat(table: dict[str, Any], above: Key = ()) -> Iterator[tuple[Key, Any]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, (*above, name))
        else:
            yield (*above, name), None if value == "none" else value


def _dollars_per_hour(from_profile: Any) -> Callable[[RunOpened | None], float | None]:
    """What an hour of an attempt costs, all its cards together: the profile's price, else that of the card."""
    own = float(from_profile) if isinstance(from_profile, int | float) else None

    def price(opened: RunOpened | None) -> float | None:
        if opened is None:
            return None
        kind, _, title = opened.device.partition(": ")
        each = price_of(card_for(title, None, 0), own) if kind == "cuda" else own
        return None if each is None else each * opened.world_size

    return price


def read_records(runs: list[Run]) -> list[RunRecord]:
    """Those of several runs.

    Raises:
        UsageError: one is named twice.
    """
    twice = next((run for number, run in enumerate(runs) if run in runs[:number]), None)
    if twice is not None:
        raise UsageError(f"{twice.name} is named twice.", hint="Name each run once.")
    return [read_record(run) for run in runs]
