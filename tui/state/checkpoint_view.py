"""The checkpoints of a run as a screen follows them: a look goes to the disk and may be slow there. No Textual here."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from ftui.runs.checkpoint_folders import Checkpoint
from ftui.runs.checkpoint_index import CheckpointEntry, CheckpointIndex
from ftui.runs.events import AnyRecord
from ftui.runs.journal import Tail
from ftui.runs.pins import undeletable
from ftui.runs.run_folder import Run
from ftui.runs.state import has_ended
from ftui.runs.status import Status, Watch, is_running, judge
from ftui.supervisor.spawn import ensure_supervised
from ftui.system.volume import disk_error


@dataclass(frozen=True)
class CheckpointLook:
    """What a look found. `answers`: the journal's records since the look before."""

    status: Status
    entries: list[CheckpointEntry]
    answers: list[AnyRecord]

    @property
    def is_running(self) -> bool:
        return is_running(self.status)


class CheckpointView:
    """`look` is for a thread, one call at a time: a network volume may take its time to answer."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._browser = CheckpointIndex(run)
        self._watch: Watch | None = None
        self._answers: Tail | None = None

    def look(self) -> CheckpointLook:
        """Raises DiskError where the volume does not answer."""
        try:
            return self._look()
        except OSError as error:
            raise disk_error(error, "The run could not be read", self._run.folder) from error

    def _look(self) -> CheckpointLook:
        if self._watch is None:
            self._watch = Watch(self._run)
        self._watch.catch_up()
        if self._answers is None:
            self._answers = Tail(self._run.journal, self._watch.offsets.journal)
        status = ensure_supervised(self._run, judge(self._run, self._watch))
        return CheckpointLook(status, self._browser.look(status.state), list(self._answers.read()))


def with_checked(entries: Sequence[CheckpointEntry], checked: Mapping[str, CheckpointEntry]) -> list[CheckpointEntry]:
    """The entries with what reading them back has shown; one that was saved anew since then is another one."""
    return [_merged(entry, checked.get(entry.path)) for entry in entries]


def _merged(entry: CheckpointEntry, checked: CheckpointEntry | None) -> CheckpointEntry:
    if checked is None or checked.created != entry.created:
        return entry
    problem = entry.problem or checked.problem
    return replace(entry, problem=problem, verified=problem is None and checked.verified)


def reason_set_aside(entry: CheckpointEntry) -> str | None:
    """Why an entry is none of the run's checkpoints, which alone can be resumed, pinned and deleted."""
    match entry.place:
        case "final":
            return "final/ is the result: weights to use, nothing to continue from"
        case "superseded":
            return "it is of a line of steps that the run has left"
        case "quarantine":
            return "it is damaged and was moved aside"
        case _:
            return None


def reason_to_keep(run: Run, look: CheckpointLook, entry: CheckpointEntry) -> str | None:
    """Why a checkpoint cannot be deleted, as far as can be said without asking the run."""
    if reason := reason_set_aside(entry):
        return reason
    present = [
        (Checkpoint(run.folder / e.path, e.step), e)
        for e in look.entries
        if e.place == "checkpoints" and e.step is not None
    ]
    chosen = next((checkpoint for checkpoint, e in present if e.path == entry.path), None)
    if chosen is None:
        return "it is gone"
    pins = [checkpoint.step for checkpoint, e in present if e.pinned]
    best = next((checkpoint.step for checkpoint, e in present if "best" in e.kinds), None)
    over = not look.is_running and has_ended(look.status.state)
    return undeletable(chosen, [checkpoint for checkpoint, _ in present], pins, best, has_ended=over)
