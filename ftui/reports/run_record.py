"""What the files of a run say, gathered once: all that reports and comparisons of runs are made from."""

import tomllib
from collections.abc import Iterator
from typing import Any

import msgspec

from ftui.errors import FtuiError, UsageError
from ftui.hardware.run_price import device_price
from ftui.runs.checkpoint_index import CheckpointEntry, CheckpointHistory, read_checkpoints
from ftui.runs.events import AnyRecord, EvaluationDone, Noted, RunOpened, RunStarted, Warned
from ftui.runs.journal import Tail
from ftui.runs.manifest import Manifest, read_manifest
from ftui.runs.records.spending import AttemptSpan, change_span
from ftui.runs.run_folder import Run
from ftui.runs.state import RunState
from ftui.runs.status import Status, read_status, spent_so_far
from ftui.system.files import DAMAGED, read_plain

Key = tuple[str, ...]


class AttemptFacts(msgspec.Struct):
    """An attempt of a run: the step it began after, and what it ran on (`None`: it came not so far)."""

    number: int
    start_step: int | None = None
    opened: RunOpened | None = None


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
    def spans(self) -> list[AttemptSpan]:
        """When its attempts ran, and what an hour of each cost."""
        return self.state.spending.spans

    @property
    def seconds(self) -> float:
        """How long its attempts took, pauses and steps that were taken back included; not the time between them."""
        return spent_so_far(self.status).seconds

    @property
    def dollars(self) -> float | None:
        """What that costs; `None` where no price is known."""
        return spent_so_far(self.status).dollars


def read_record(run: Run) -> RunRecord:
    """What the run's files say now. Nothing is locked, and nothing is hashed.

    Raises:
        FtuiError: it is no run, or its volume does not answer.
    """
    facts, status = run.read_facts(), read_status(run)
    journal = _Gathered()
    for path in (run.supervisor_log, run.journal):
        for record in Tail(path).records():
            journal.take(record)
    profile, problem = _read_profile(run)
    status = _with_prices(status, journal.attempts, profile.get(("hardware", "price_per_hour")))
    checkpoints = read_checkpoints(run, status.state)
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
        attempt = self.attempts.setdefault(record.attempt, AttemptFacts(record.attempt))
        match record:
            case RunOpened():
                self.opened = attempt.opened = record
            case RunStarted():
                self.plan, attempt.start_step = record, record.start_step
            case Warned() | Noted():
                count = self.messages[record.message].count if record.message in self.messages else 0
                message = RunMessage(record.time, record.message, isinstance(record, Warned), count + 1)
                self.messages[record.message] = message


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


def _with_prices(status: Status, attempts: dict[int, AttemptFacts], from_profile: Any) -> Status:
    """The status, with the price of today for the attempts of a run whose engine recorded none.

    `from_profile`: hardware.price_per_hour.
    """
    own = float(from_profile) if isinstance(from_profile, int | float) else None
    spending = status.state.spending
    for span in spending.spans:
        opened = attempts[span.number].opened if span.number in attempts else None
        if span.dollars_per_hour is None and opened is not None:
            price = device_price(opened.device, opened.world_size, own)
            if price is not None:
                spending = change_span(spending, span.number, dollars_per_hour=price.dollars_per_hour)
    return msgspec.structs.replace(status, state=msgspec.structs.replace(status.state, spending=spending))


def read_records(runs: list[Run]) -> list[RunRecord]:
    """Those of several runs.

    Raises:
        UsageError: one is named twice.
    """
    twice = next((run for number, run in enumerate(runs) if run in runs[:number]), None)
    if twice is not None:
        raise UsageError(f"{twice.name} is named twice.", hint="Name each run once.")
    return [read_record(run) for run in runs]
