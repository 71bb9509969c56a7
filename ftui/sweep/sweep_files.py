"""A sweep's folder RUNS/_sweeps/NAME and its journal: records, the value they come to, how they are appended.

A decision is a record before anything is done about it. How a trial's run stands is told by the run's own files; the
journal says what was decided, and what was read of them.
"""

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias, get_args

import msgspec

from ftui.errors import DiskError
from ftui.runs.journal import Envelope, append_line
from ftui.runs.run_folder import NAME, Run, runs_root
from ftui.sweep.promotion import TrialStand
from ftui.sweep.sweep_plan import SweepPlan, not_found, read_plan
from ftui.system.files import DAMAGED, read_plain, wait_lock
from ftui.system.user_folders import known_roots
from ftui.system.volume import disk_error

FORM = 1
SWEEPS = "_sweeps"
"""Beside the runs; no run has a name like it."""


class _SweepRecord(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", omit_defaults=True):
    v: int = FORM
    time: float = 0.0


class SweepBegan(_SweepRecord, frozen=True, kw_only=True, tag="began"):
    """Somebody started it; `visible`: CUDA_VISIBLE_DEVICES there, by which its trials have their cards.

    `executor`: where they run, if another than its file says.
    """

    visible: str | None = None
    executor: str = ""


class TrialAsked(_SweepRecord, frozen=True, kw_only=True, tag="asked"):
    """A trial goes to the rung `bracket` with these values: `point` as it was drawn, `derived` what follows from it.

    `repeat_of`: the trial that it is again, with another seed.
    """

    trial: int
    point: dict[str, Any]
    derived: dict[str, Any] = {}
    bracket: int = 0
    repeat_of: int | None = None


class TrialPromoted(_SweepRecord, frozen=True, kw_only=True, tag="promoted"):
    """A parked trial goes on to that rung. `attempts`: how many its run had by then."""

    trial: int
    rung: int
    attempts: int = 0


class TrialSent(_SweepRecord, frozen=True, kw_only=True, tag="sent"):
    """A cluster's scheduler was asked to start a trial's run, which had come to `step`, and calls that `job`."""

    trial: int
    job: str = ""
    step: int = 0


class TrialReached(_SweepRecord, frozen=True, kw_only=True, tag="reached"):
    """A trial has come to the rung it was on its way to, at `step` with this value.

    `seconds`: what it has taken in all. `ended`: why it never goes on, in a word or two, if so; then it may have come
    less far.
    """

    trial: int
    rung: int
    step: int
    value: float | None
    seconds: float
    ended: str = ""


class SweepPaused(_SweepRecord, frozen=True, kw_only=True, tag="paused"):
    """No trial is asked or promoted from now on."""


class SweepContinued(_SweepRecord, frozen=True, kw_only=True, tag="continued"):
    """Trials are asked and promoted again, also in a sweep that had ended.

    `attempts`: how many those on their way have had by now; what ended these is no reason to end the trial.
    """

    attempts: dict[int, int] = {}


class SweepEnded(_SweepRecord, frozen=True, kw_only=True, tag="ended"):
    """There is nothing left to do, and why."""

    reason: str


AnySweepRecord: TypeAlias = (
    SweepBegan | TrialAsked | TrialPromoted | TrialSent | TrialReached | SweepPaused | SweepContinued | SweepEnded
)
KINDS = frozenset(str(record.__struct_config__.tag) for record in get_args(AnySweepRecord))
_decode_envelope = msgspec.json.Decoder(Envelope)
_decode_record = msgspec.json.Decoder(AnySweepRecord)


class Trial(msgspec.Struct, frozen=True):
    """A trial as the journal tells it: its values, and what it came to at each rung (steps and values).

    `attempts`: how many its run had when it was last sent on its way. `sent`: the last time a scheduler was asked for
    it on that way, `num_sent`: how often in a row it was and came no further.
    """

    number: int
    point: dict[str, Any]
    derived: dict[str, Any]
    bracket: int
    target: int | None
    attempts: int = 0
    results: dict[int, float | None] = {}
    steps: dict[int, int] = {}
    seconds: float = 0.0
    ended: str = ""
    repeat_of: int | None = None
    sent: TrialSent | None = None
    num_sent: int = 0

    @property
    def values(self) -> dict[str, Any]:
        """Every value that it has and others may not."""
        return self.point | self.derived

    @property
    def stand(self) -> TrialStand:
        """The same for a scheduler."""
        return TrialStand(self.number, self.bracket, self.results, self.target, bool(self.ended))


class SweepState(msgspec.Struct, frozen=True):
    """All trials in the order in which they were asked. `ended`: why the sweep has nothing left to do."""

    trials: tuple[Trial, ...] = ()
    is_paused: bool = False
    ended: str = ""
    visible: str | None = None
    executor: str = ""

    @property
    def seconds(self) -> float:
        """What all trials have taken, each on its own cards."""
        return sum(trial.seconds for trial in self.trials)

    @property
    def searched(self) -> list[Trial]:
        """Without those that repeat others."""
        return [trial for trial in self.trials if trial.repeat_of is None]

    @property
    def on_their_way(self) -> list[Trial]:
        """Trials that are to come to a rung: their runs wait, are running, or are to be made."""
        return [trial for trial in self.trials if trial.target is not None]

    @property
    def is_at_work(self) -> bool:
        """Whether there is something to do for the sweep's process."""
        return not self.ended and bool(self.on_their_way or not self.is_paused)


def fold(state: SweepState, record: AnySweepRecord) -> SweepState:
    """The state after one more record. One that does not fit changes nothing."""
    match record:
        case SweepBegan():
            return msgspec.structs.replace(state, visible=record.visible, executor=record.executor)
        case SweepPaused():
            return msgspec.structs.replace(state, is_paused=True)
        case SweepContinued():
            again = tuple(_again(trial, record.attempts.get(trial.number, 0)) for trial in state.trials)
            return msgspec.structs.replace(state, is_paused=False, ended="", trials=again)
        case SweepEnded():
            return msgspec.structs.replace(state, ended=record.reason)
        case TrialAsked() if record.trial == len(state.trials):
            new = Trial(record.trial, record.point, record.derived, record.bracket, record.bracket)
            new = msgspec.structs.replace(new, repeat_of=record.repeat_of)
            return msgspec.structs.replace(state, trials=(*state.trials, new))
        case TrialPromoted() | TrialSent() | TrialReached() if record.trial < len(state.trials):
            trials = list(state.trials)
            trials[record.trial] = _fold_trial(trials[record.trial], record)
            return msgspec.structs.replace(state, trials=tuple(trials))
    return state


def _again(trial: Trial, attempts: int) -> Trial:
    return trial if trial.target is None else msgspec.structs.replace(trial, attempts=attempts, sent=None, num_sent=0)


def _fold_trial(trial: Trial, record: TrialPromoted | TrialSent | TrialReached) -> Trial:
    if isinstance(record, TrialPromoted):
        return msgspec.structs.replace(trial, target=record.rung, attempts=record.attempts, sent=None, num_sent=0)
    if isinstance(record, TrialSent):
        came_further = trial.sent is None or record.step > trial.sent.step
        return msgspec.structs.replace(trial, sent=record, num_sent=1 if came_further else trial.num_sent + 1)
    return msgspec.structs.replace(
        trial, target=None, results=trial.results | {record.rung: record.value}, seconds=record.seconds,
        steps=trial.steps | {record.rung: record.step}, ended=record.ended,
    )  # fmt: skip


class SweepFiles(msgspec.Struct, frozen=True):
    """The folder of one sweep."""

    folder: Path

    @property
    def name(self) -> str:
        """The sweep's name, which is that of its folder."""
        return self.folder.name

    @property
    def root(self) -> Path:
        """The folder of runs that its trials are in."""
        return self.folder.parent.parent

    @property
    def plan_file(self) -> Path:
        """The sweep.toml that it goes by: a copy. Written last, so that a folder with it is whole."""
        return self.folder / "sweep.toml"

    @property
    def profile(self) -> Path:
        """What every trial has beside its values: a copy of the profile, every key written out."""
        return self.folder / "profile.toml"

    @property
    def journal(self) -> Path:
        """The truth: a record a line, appended under `journal_lock`."""
        return self.folder / "journal.jsonl"

    @property
    def journal_lock(self) -> Path:
        """Held by whoever appends."""
        return self.folder / ".journal.lock"

    @property
    def lock(self) -> Path:
        """The lock whose holder alone decides what is tried next."""
        return self.folder / ".sweep.lock"

    @property
    def log(self) -> Path:
        """What the sweep's process prints."""
        return self.folder / "sweep.log"

    def read_plan(self) -> SweepPlan:
        """The plan in the folder; raises as `ftui.sweep.sweep_plan.read_plan`."""
        return replace(read_plan(self.plan_file), name=self.name)

    def read(self) -> SweepState:
        """The sweep as it stands. A last line that a crash tore, and lines of a later version, are left out.

        Raises:
            UnsafePathError: the journal is something else than a plain file, or longer than any.
        """
        try:
            data = read_plain(self.journal)
        except FileNotFoundError:
            return SweepState()
        state = SweepState()
        for line in data[: data.rfind(b"\n") + 1].split(b"\n")[:-1]:
            if (record := _decode(line)) is not None:
                state = fold(state, record)
        return state

    def run_of(self, trial: int) -> Run:
        """The run that a trial is."""
        ending = f"-{trial:03d}"
        return Run(self.root / (self.name[: 64 - len(ending)] + ending))

    @contextlib.contextmanager
    def changing(self) -> Iterator["SweepPen"]:
        """Hold the journal inside the block: what is read there is what one adds to.

        Raises:
            DiskError: the volume refuses it.
        """
        try:
            with wait_lock(self.journal_lock):
                yield SweepPen(self)
        except OSError as error:
            if isinstance(error, DiskError):
                raise
            raise disk_error(error, f"{self.journal} cannot be written", self.folder) from error


class SweepPen:
    """The right to append to a sweep's journal; `state` is what it says so far."""

    def __init__(self, files: SweepFiles) -> None:
        self._files = files
        self.state = files.read()

    def write(self, record: AnySweepRecord) -> None:
        """Append one record, on the disk before this returns. What a crash left of the last line is cut away first."""
        record = msgspec.structs.replace(record, time=time.time())
        append_line(self._files.journal, msgspec.json.encode(record))
        self.state = fold(self.state, record)


def _decode(line: bytes) -> AnySweepRecord | None:
    try:
        envelope = _decode_envelope.decode(line)
        return _decode_record.decode(line) if envelope.kind in KINDS and envelope.v <= FORM else None
    except DAMAGED:
        return None


def all_sweeps(roots: Sequence[Path] = ()) -> list[SweepFiles]:
    """The sweeps beside the runs of this root and the known ones, by name."""
    roots = roots or list(dict.fromkeys([runs_root(), *known_roots()]))
    files = [path for root in roots for path in sorted((root / SWEEPS).glob("*/sweep.toml"))]
    return [SweepFiles(path.parent) for path in files if NAME.fullmatch(path.parent.name)]


def find_sweep(name: str) -> SweepFiles:
    """The sweep of that name.

    Raises:
        UsageError: there is none.
    """
    known = {files.name: files for files in reversed(all_sweeps())}  # this root's own before others
    if name not in known:
        raise not_found(name, list(known))
    return known[name]
