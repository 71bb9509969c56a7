"""Runs with checkpoints, made by hand in a moment: folders with real manifests, and the journal that goes with them."""

import json
import time
from pathlib import Path

import msgspec

from ftui.runs.checkpoint_folders import Checkpoint, Manifest, publish
from ftui.runs.events import CheckpointVerified, RunFinished
from ftui.runs.journal import encode
from ftui.runs.records.record import Record
from ftui.runs.records.supervisor_records import EngineStarted
from ftui.runs.run_folder import Run, RunFacts
from ftui.system.process_id import this_process
from tests.support.events import make_checkpoint_saved, make_evaluation, make_run_started

RUN_ID = "0011223344556677"
TOKENS = {1: "a" * 16, 2: "b" * 16}
CONTENT = b"weights " * 128


def opened(folder: Path, *, parent: str | None = None, run_id: str = RUN_ID) -> Run:
    """A run's folder as its opener leaves it."""
    run = Run(folder)
    run.folder.mkdir(parents=True)
    facts = RunFacts(run_id=run_id, name=run.name, created=time.time(), profile_name="mine", parent_run=parent)
    run.facts.write_bytes(msgspec.json.encode(facts))
    return run


def tell(path: Path, *records: Record, attempt: int = 1) -> None:
    """Append records as the attempt's process would."""
    with path.open("ab") as file:
        for record in records:
            stamps = {"attempt": attempt, "token": TOKENS[attempt], "time": time.time()}
            file.write(encode(msgspec.structs.replace(record, **stamps)))


def folder_of(
    run: Run, step: int, *, attempt: int = 1, finite: bool = True, run_id: str = RUN_ID, target: Path | None = None,
    **remembered: float | int | None,
) -> Checkpoint:  # fmt: skip
    """A checkpoint that is whole, without a word in the journal; `remembered` stands in its state.json."""
    path = target or run.checkpoints / f"checkpoint-{step}"

    def fill(folder: Path) -> None:
        (folder / "weights.bin").write_bytes(CONTENT + bytes([step % 256]))
        (folder / "resume").mkdir()
        (folder / "resume" / "state.json").write_text(json.dumps({"step": step, **remembered}))

    manifest = Manifest(
        run_id=run_id, attempt=attempt, token=TOKENS[attempt], step=step, versions={},
        fingerprints={"base_model": "ab" * 32}, dtypes={}, finite=finite, created=0.0,
    )  # fmt: skip
    publish(path, manifest, fill)
    return Checkpoint(path, step)


def saved(run: Run, step: int, *tags: str, attempt: int = 1, verified: bool = True) -> Checkpoint:
    """A checkpoint and its records."""
    made = folder_of(run, step, attempt=attempt)
    path = f"checkpoints/{made.path.name}"
    tell(run.journal, make_checkpoint_saved(step, *tags, path=path), attempt=attempt)
    if verified:
        tell(run.journal, CheckpointVerified(step=step), attempt=attempt)
    return made


def trained(folder: Path) -> Run:
    """A run with checkpoints at 4, 8 (its best) and 12, that goes on or is lost, as the test wants it."""
    run = opened(folder)
    tell(run.journal, make_run_started(max_steps=40, num_eval_rows=2))
    saved(run, 4, "periodic")
    tell(run.journal, make_evaluation(8, 2.25, best=True))
    saved(run, 8, "best", "periodic")
    tell(run.journal, make_evaluation(12, 2.5))
    saved(run, 12, "periodic", verified=False)
    return run


def finished(folder: Path) -> Run:
    """The same, at its end, with final/ made of step 8."""
    run = trained(folder)
    folder_of(run, 12, target=run.final)
    reason = "all 12 steps are done"
    tell(run.journal, RunFinished(step=12, reason=reason, final="final", loss_final=2.25, step_final=8))
    return run


def living(folder: Path) -> Run:
    """The same in training: the process of the test stands for its engine."""
    run = trained(folder)
    tell(run.supervisor_log, EngineStarted(identity=this_process()))
    return run
