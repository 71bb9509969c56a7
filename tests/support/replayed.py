"""Recorded runs (tests/fixtures/runs) put back into a runs root: screens are tested on them, and nothing is trained."""

import shutil
from pathlib import Path

import msgspec
import pytest

from ftui.runs.checkpoint_folders import MANIFEST, Manifest, publish, read_manifest
from ftui.runs.curves import CurveReader, Curves
from ftui.runs.events import EvaluationDone, RankSeconds, RunOpened, Step
from ftui.runs.journal import Tail, encode
from ftui.runs.records.signs_of_life import Gpu, Telemetry
from ftui.runs.records.supervisor_records import Adopted, EngineStarted
from ftui.runs.run_folder import Run
from ftui.runs.status import Status, Watch
from ftui.system.process_id import Identity, this_process

ROOT = Path(__file__).parents[2]
RUNS = ROOT / "tests" / "fixtures" / "runs"
HEADER = ".header"  # what a recording has of a file of weights


def list_recordings() -> list[str]:
    """The names of all recorded runs."""
    return sorted(path.parent.name for path in RUNS.glob("*/run.json"))


def replay(name: str, folder: Path, *, living: bool = False, process: Identity | None = None) -> Run:
    """A copy of a recorded run in the runs root `folder`.

    `living`: this process (or `process`) takes the place of its engine and its supervisor, so that the run
    counts as running.
    Without it, a run that was recorded in training is lost, as its processes are gone.
    """
    run = Run(folder / name)
    shutil.copytree(RUNS / name, run.folder, copy_function=shutil.copyfile)
    for manifest in [*run.checkpoints.rglob(MANIFEST), *run.final.glob(MANIFEST)]:
        _fill(manifest.parent)
    if living or process is not None:
        _revive(run, process or this_process())
    return run


def run_with_checkpoint(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A recorded run with one whole checkpoint, checkpoint-150, in the runs root `folder / "runs"`, made the user's."""
    monkeypatch.setenv("FTUI_RUNS", str(folder / "runs"))
    run = replay("full-parked", folder / "runs")
    shutil.rmtree(run.checkpoints)
    manifest = Manifest(
        run_id=run.read_facts().run_id, attempt=1, token="", step=150, versions={}, fingerprints={}, dtypes={},
        finite=True, created=0.0,
    )  # fmt: skip
    publish(run.checkpoints / "checkpoint-150", manifest, lambda folder: {"weights": lambda: (b"x",)})
    return run


def time_of_last_record(run: Run) -> float:
    """Time of the last record of a run (Unix seconds): when to freeze the clock."""
    files = (run.journal, run.metrics, run.supervisor_log, run.telemetry)
    return max(record.time for path in files for record in Tail(path).read())


def write_summaries(run: Run, *, time: float, supervisor: Identity | None) -> None:
    """Write status.json and curves.json as a supervisor that has read every record would, at that `time`."""
    run.status.unlink(missing_ok=True)
    run.curves.unlink(missing_ok=True)
    watch = Watch(run)
    watch.catch_up()
    state = watch.state
    status = Status(time=time, state=state, supervisor=supervisor, engine=state.engine, offsets=watch.offsets)
    run.status.write_bytes(msgspec.json.encode(status))
    curves = read_curves(run, attempt=state.attempt, start_step=state.start_step)
    run.curves.write_bytes(msgspec.json.encode(curves))


def read_curves(run: Run, *, attempt: int = 0, start_step: int | None = None) -> Curves:
    """The curves of a run as it stands. `attempt`, `start_step`: its newest attempt, which may not have stepped yet."""
    reader = CurveReader(run)
    if start_step is not None:
        reader.begin(attempt, start_step)
    while reader.advance():
        continue
    return reader.curves


def _fill(folder: Path) -> None:
    """Files of the recorded sizes where the recording has none: their heads are right, the rest is zeros."""
    for name, entry in read_manifest(folder).files.items():
        path, head = folder / name, folder / f"{name}{HEADER}"
        if path.exists():
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            file.write(head.read_bytes() if head.exists() else b"")
            file.truncate(entry.size)
        head.unlink(missing_ok=True)


def _revive(run: Run, process: Identity) -> None:
    stored = msgspec.json.decode(run.status.read_bytes(), type=Status)
    for path in (run.journal, run.supervisor_log):
        lines = []
        for record in Tail(path).read():
            is_newest = record.attempt == stored.state.attempt
            if is_newest and isinstance(record, RunOpened | EngineStarted | Adopted):
                record = msgspec.structs.replace(record, identity=process)
            lines.append(encode(record))
        path.write_bytes(b"".join(lines))
    write_summaries(run, time=stored.time, supervisor=process)


def with_rewards(run: Run) -> Run:
    """The recorded run as if it had compared answers: its losses stay, its rewards are made up."""
    stored = msgspec.json.decode(run.status.read_bytes(), type=Status)
    for path in (run.metrics, run.journal):
        lines = []
        for record in Tail(path).read():
            if isinstance(record, Step | EvaluationDone):
                record = msgspec.structs.replace(record, extras=_rewards(record.step, record.loss or 0.0))
            lines.append(encode(record))
        path.write_bytes(b"".join(lines))
    write_summaries(run, time=stored.time, supervisor=stored.supervisor)
    return run


def with_ranks(run: Run, size: int, *, cards: bool = False) -> Run:
    """The recorded run as if `size` ranks had trained it, the last but one slower; the figures are made up.

    `cards`: each on a card of its own, and the machine has one more.
    """
    stored = msgspec.json.decode(run.status.read_bytes(), type=Status)
    gpus = [
        Gpu(
            name="NVIDIA H100", rank=rank if rank < size else None, utilization=0.97 if rank < size else 0.0,
            memory_used=64 << 30, memory_total=80 << 30, temperature=60.0 + rank, power_watts=400.0,
        )
        for rank in range(size + 1)
    ]  # fmt: skip
    for path in (run.metrics, run.telemetry):
        lines = []
        for record in Tail(path).read():
            if isinstance(record, Step):
                record = msgspec.structs.replace(record, ranks=_rank_seconds(record.step, size))
            elif isinstance(record, Telemetry) and cards:
                record = msgspec.structs.replace(record, gpus=gpus)
            lines.append(encode(record))
        path.write_bytes(b"".join(lines))
    write_summaries(run, time=stored.time, supervisor=stored.supervisor)
    return run


def _rank_seconds(step: int, size: int) -> RankSeconds:
    passes = [0.9 + 0.01 * ((step + 3 * rank) % 5) + 0.4 * (rank == size - 2) for rank in range(size)]
    data = [0.05 * (rank == 0) for rank in range(size)]
    whole = max(a + b for a, b in zip(passes, data, strict=True)) + 0.08
    return RankSeconds(passes, data, [whole - a - b for a, b in zip(passes, data, strict=True)])


def _rewards(step: int, noise: float) -> dict[str, float | None]:
    """Both fall, the rejected ones further; a loss moves them up and down."""
    chosen, rejected = -0.002 * step + 0.1 * (noise % 1), -0.006 * step - 0.1 * (noise % 1)
    accuracy = min(1.0, step / 200) * (0.8 + 0.2 * (noise % 1))
    return {
        "rewards/chosen": chosen, "rewards/rejected": rejected, "rewards/accuracies": accuracy,
        "rewards/margins": chosen - rejected, "logps/chosen": -80 + 10 * chosen, "logps/rejected": -90 + 10 * rejected,
    }  # fmt: skip
