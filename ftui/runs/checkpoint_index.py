"""What checkpoints a run has and how each stands: from folders, manifests and the journal. Nothing is hashed."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec
from msgspec.structs import replace

from ftui.errors import UsageError
from ftui.measures import leading_measure
from ftui.runs.checkpoint_folders import NOT_FINITE, checkpoints_in
from ftui.runs.events import (
    AnyRecord,
    CheckpointRejected,
    CheckpointSaved,
    CheckpointTagged,
    CheckpointVerified,
    EvaluationDone,
    RunStarted,
)
from ftui.runs.journal import PIECE, Tail
from ftui.runs.manifest import MANIFEST, Manifest, fault, read_manifest
from ftui.runs.pins import read_pins
from ftui.runs.run_folder import Run
from ftui.runs.state import RunState
from ftui.system.files import DAMAGED, read_json
from ftui.system.volume import disk_error

UNUSABLE = (NOT_FINITE, "belongs to another run", "written by a newer ftui")  # whole, but nobody continues from it
ORDER = ("final", "best", "manual", "parked", "preempted", "last", "periodic", "inherited")
_ASIDE = re.compile(r"checkpoint-(\d+)(-[0-9a-f]{8})?")

Family = tuple[str, ...]
Place = Literal["final", "checkpoints", "superseded", "quarantine"]
SaveKey = tuple[str, int]
"""The token of the process that wrote a checkpoint, and its step: a step may be saved by two attempts."""


class CheckpointEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint, or final/. `name` is its path below checkpoints/, `path` the one below the run's folder.

    `kinds` say why it is kept: its tags as they count now (`best` only for the one that is the best). `eval_loss` is
    that of the plan's evaluation at this step, `eval_measures` its other measures; `eval_finite` is false where the
    loss was NaN or infinite. `problem`: why the run cannot continue from it. `verified`: every byte was read back.
    `newest`: an ordinary resume continues from it.
    """

    step: int | None
    name: str
    path: str
    place: Place
    kinds: list[str] = []
    tags: list[str] = []
    eval_loss: float | None = None
    eval_finite: bool = True
    eval_measures: dict[str, float | None] = {}
    size: int | None = None
    created: float | None = None
    attempt: int | None = None
    problem: str | None = None
    verified: bool = False
    pinned: bool = False
    newest: bool = False


class CheckpointList(msgspec.Struct, frozen=True):
    """The output of `ftui checkpoints --json`. `hashed`: every byte of the entries was read back now."""

    run: str
    folder: str
    hashed: bool
    checkpoints: list[CheckpointEntry]


class StoredEvaluation(msgspec.Struct, frozen=True):
    """The evaluations and the epoch that a checkpoint itself stores (part of resume/state.json)."""

    epoch: float | None = None
    evaluated_step: int = -1
    last_loss: float | None = None
    last_is_finite: bool = True
    best_step: int | None = None


class CheckpointHistory:
    """The journal's records of checkpoints and of the evaluations at their steps."""

    def __init__(self) -> None:
        self.tags: dict[SaveKey, list[str]] = {}
        self.verified: set[SaveKey] = set()
        self.losses: dict[int, EvaluationDone] = {}
        """Of the line of history that counts."""
        self.abandoned: dict[SaveKey, EvaluationDone] = {}
        """Of lines that a later attempt left."""
        self.reasons: dict[str, str] = {}
        """Of quarantine, by path."""
        self._writers: dict[int, str] = {}

    def take(self, record: AnyRecord) -> None:
        """Take in the next record of the journal. Records must come in the order of the file."""
        match record:
            case CheckpointSaved():
                self._writers[record.step] = record.token
                self.tags[record.token, record.step] = list(record.tags)
            case CheckpointTagged():
                tags = self.tags.setdefault(self._key_of(record.step), [])
                if record.tag not in tags:
                    tags.append(record.tag)
            case CheckpointVerified():
                self.verified.add(self._key_of(record.step))
            case CheckpointRejected():
                self.reasons[record.moved_to] = record.reason
            case EvaluationDone() if not record.requested or record.step not in self.losses:
                self.losses[record.step] = record
            case RunStarted():
                undone = [step for step in self.losses if step > record.start_step]
                for step in undone:
                    evaluation = self.losses.pop(step)
                    self.abandoned[evaluation.token, step] = evaluation

    def _key_of(self, step: int) -> SaveKey:
        return self._writers.get(step, ""), step


class CheckpointIndex:
    """Call `look` whenever it should be looked again: of the journal only what is new is read."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._journal = Tail(run.journal)
        self._history = CheckpointHistory()

    def look(self, state: RunState) -> list[CheckpointEntry]:
        """final/ first, then the checkpoints, the newest first, then those that lie aside.

        Raises:
            DiskError: the volume does not answer.
        """
        before = -1
        while self._journal.offset != before:
            before = self._journal.offset
            for record in self._journal.read(PIECE):
                self._history.take(record)
        run, ids = self._run, family(self._run)
        try:
            entries = [self._entry(path, place, step, ids) for path, place, step in checkpoint_places(run, state)]
            best = best_step(run, state)
        except OSError as error:
            raise disk_error(error, "The checkpoints could not be read", run.folder) from error
        present, pins = [entry for entry in entries if entry is not None], read_pins(run)
        newest = next((entry for entry in present if entry.place == "checkpoints" and entry.problem is None), None)
        last = max((e.step for e in present if e.place == "checkpoints" and e.step is not None), default=None)
        return [
            replace(
                _final(entry, state),
                kinds=_kinds(entry, best, last),
                newest=entry is newest,
                pinned=entry.place == "checkpoints" and entry.step in pins,
            )
            for entry in present
        ]

    def _entry(self, path: Path, place: Place, step: int | None, ids: Family | None) -> CheckpointEntry | None:
        """One folder as it stands; `None` where it has gone while it was looked at."""
        problem = find_problem(path, ids, quick=True)
        manifest = _manifest(path)
        if manifest is None and not path.exists():
            return None
        relative = path.relative_to(self._run.folder).as_posix()
        entry = CheckpointEntry(
            step=step, name=relative.removeprefix("checkpoints/"), path=relative, place=place,
            problem=self._history.reasons.get(relative, problem) if place == "quarantine" else problem,
        )  # fmt: skip
        if manifest is None:
            return entry
        entry = replace(
            entry, size=sum(file.size for file in manifest.files.values()), created=manifest.created,
            attempt=manifest.attempt,
        )  # fmt: skip
        return entry if step is None else self._with_history(entry, step, manifest, path, ids)

    def _with_history(
        self, entry: CheckpointEntry, step: int, manifest: Manifest, path: Path, ids: Family | None
    ) -> CheckpointEntry:
        """What the journal says of the checkpoint since it was saved; one of another run brings its own loss along."""
        if entry.place != "final" and ids is not None and manifest.run_id != ids[0]:
            own = read_stored_evaluation(path)
            is_own = own.evaluated_step == step
            return replace(
                entry, tags=["inherited"], eval_loss=own.last_loss if is_own else None,
                eval_finite=not is_own or own.last_is_finite,
            )  # fmt: skip
        key = manifest.token, step
        evaluation = self._history.losses.get(step)
        if entry.place in ("superseded", "quarantine"):
            evaluation = self._history.abandoned.get(key, evaluation)
        if entry.place != "final":
            tags, verified = self._history.tags.get(key, []), key in self._history.verified
            entry = replace(entry, tags=list(tags), verified=verified and entry.problem is None)
        return (
            entry
            if evaluation is None
            else replace(
                entry,
                eval_loss=evaluation.loss,
                eval_finite=leading_measure(evaluation) != ("loss", None),
                eval_measures=evaluation.extras,
            )
        )


def read_checkpoints(run: Run, state: RunState) -> list[CheckpointEntry]:
    """The checkpoints of a run, see `CheckpointIndex.look`."""
    return CheckpointIndex(run).look(state)


def checkpoint_places(run: Run, state: RunState) -> Iterator[tuple[Path, Place, int | None]]:
    """Every folder that is shown: where it stands, and the step in its name (for final/ that of its weights)."""
    if run.final.is_dir():
        yield run.final, "final", state.step_final
    for checkpoint in checkpoints_in(run.checkpoints):
        yield checkpoint.path, "checkpoints", checkpoint.step
    places: tuple[tuple[Place, Path], ...] = (
        ("superseded", run.superseded),
        ("quarantine", run.quarantine),
    )
    for place, root in places:
        aside = [(path, int(match[1])) for path in _children(root) if (match := _ASIDE.fullmatch(path.name))]
        for path, step in sorted(aside, key=lambda item: (-item[1], item[0].name)):
            yield path, place, step


def _children(root: Path) -> list[Path]:
    return list(root.iterdir()) if root.is_dir() else []


def family(run: Run) -> Family | None:
    """The ids in `RunFacts.family`; `None` where run.json is damaged."""
    try:
        return run.read_facts().family
    except UsageError:
        return None


def find_problem(path: Path, ids: Family | None, *, quick: bool) -> str | None:
    """Why a run would not continue from a checkpoint; `quick` looks at sizes and headers only."""
    if problem := fault(path, run_id=ids, quick=quick):
        return problem
    manifest = _manifest(path)
    return NOT_FINITE if manifest is not None and not manifest.finite else None


def verify_entry(run: Run, entry: CheckpointEntry) -> CheckpointEntry | None:
    """The entry after every byte of it was read and hashed; `None` where it has been removed meanwhile."""
    path = run.folder / entry.path
    problem = find_problem(path, family(run), quick=False)
    if problem and entry.created is not None and not os.path.lexists(path / MANIFEST):  # which is what goes first
        return None
    return replace(entry, problem=problem, verified=problem is None)


def best_step(run: Run, state: RunState) -> int | None:
    """The step with the best evaluation so far; a child run that has none of its own goes by its parent's."""
    if state.best_evaluation is not None:
        return state.best_evaluation.step
    newest = next(iter(checkpoints_in(run.checkpoints)), None)
    return None if newest is None else read_stored_evaluation(newest.path).best_step


def read_stored_evaluation(path: Path) -> StoredEvaluation:
    """The evaluations that a checkpoint stores; the defaults where its state.json is missing or damaged."""
    try:
        return read_json(path / "resume" / "state.json", StoredEvaluation)
    except (OSError, *DAMAGED):
        return StoredEvaluation()


def describe_entry(entry: CheckpointEntry) -> str:
    """The state of a checkpoint in words, of which the first is enough where there is little space."""
    if entry.place == "quarantine":
        return f"quarantined: {entry.problem}" if entry.problem else "quarantined"
    if entry.problem is not None:
        return f"{'unusable' if entry.problem.startswith(UNUSABLE) else 'damaged'}: {entry.problem}"
    words = "verified" if entry.verified else "valid"
    return f"superseded, {words}" if entry.place == "superseded" else words


def _manifest(path: Path) -> Manifest | None:
    try:
        return read_manifest(path)
    except (OSError, *DAMAGED):
        return None


def _final(entry: CheckpointEntry, state: RunState) -> CheckpointEntry:
    """final/ has the loss it was chosen by."""
    if entry.place != "final" or state.loss_final is None:
        return entry
    return replace(entry, eval_loss=state.loss_final, eval_finite=True)


def _kinds(entry: CheckpointEntry, best: int | None, last: int | None) -> list[str]:
    """The tags as they count now, what matters most first. One at most is the best, and one the last."""
    if entry.place == "final":
        return ["final"]
    kinds = set(entry.tags)
    is_present = entry.place == "checkpoints" and entry.step is not None
    if "best" in kinds and not (is_present and entry.step == best):
        kinds = kinds - {"best"} | {"was best"}
    elif is_present and entry.step == best:
        kinds.add("best")
    if "last" in kinds and not (is_present and entry.step == last):  # an attempt ended here, a later one went on
        kinds = kinds - {"last"} | {"was last"}
    return sorted(kinds, key=lambda kind: (ORDER.index(kind) if kind in ORDER else len(ORDER), kind))
