"""What stands in a checkpoint, and how a run is put back where it was. Safetensors and JSON only: no pickle, ever.

adapter_model.safetensors | model.safetensors, configs, tokenizer     at the top, for anyone
resume/optimizer.safetensors, optimizer.json                          moments; groups
resume/rng.safetensors, rng.json                                      random generators at the step's boundary
resume/rng-1.safetensors ...                                          those of the other ranks
resume/state.json                                                     TrainState
"""

import json
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType

import msgspec
from safetensors import SafetensorError
from safetensors.torch import save_file

from ftui.errors import DiskError
from ftui.runs import checkpoint_folders
from ftui.runs.checkpoint_folders import Checkpoint, Manifest
from ftui.runs.events import CheckpointRemoved, CheckpointSaved, CheckpointTagged, CheckpointVerified
from ftui.runs.pins import read_pins
from ftui.system.files import PRIVATE_FOLDER, make_private_folder
from ftui.system.volume import check_room, disk_error, is_refused

from ..distributed.rank_state import accounts, random_state
from ..models.weights import all_finite, dtypes, read_tensors, read_weights, write_weights
from ..optim.optimizer_state import load, state_bytes, state_of
from ..system.environment import versions
from ..system.rng import RngState
from ..training.context import Training, TrainState

SMALL_FILES = 16 << 20  # tokenizer, configs, generators


class Keeper:
    """Saves checkpoints, reads each back in a thread, and only then lets old ones go."""

    def __init__(self, training: Training) -> None:
        self._training = training
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="read-back")
        self._reading: tuple[int, Future[str | None]] | None = None
        self._saved: dict[int, set[str]] = {}
        self._num_bytes = expected_bytes(training)
        self.last_save_seconds: float | None = None
        self.last_save_time = time.monotonic()

    def save(self, rng: RngState, *tags: str) -> Path:
        """Save the state of the last step's boundary; a step saved before only gains the tags.

        Raises:
            Leave: the disk stayed full.
            DiskError: the volume fails.
        """
        training, step = self._training, self._training.state.step
        path = training.run.checkpoints / f"checkpoint-{step}"
        if step in self._saved or checkpoint_folders.fault(path, quick=True) is None:
            for tag in sorted(set(tags) - self._saved.setdefault(step, set())):
                training.logbook.event(CheckpointTagged(step=step, tag=tag), durable=True)
                self._saved[step].add(tag)
            return path
        self.settle()
        begun = time.monotonic()
        with training.logbook.within("saving"):
            training.space.insist(lambda: self._publish(path, rng))
        seconds = time.monotonic() - begun
        self._saved[step] = set(tags)
        self._num_bytes = checkpoint_folders.total_size(path)
        self.last_save_seconds, self.last_save_time = seconds, time.monotonic()
        training.logbook.event(
            CheckpointSaved(
                step=step, path=f"checkpoints/{path.name}", tags=sorted(tags), num_bytes=self._num_bytes,
                seconds=seconds,
            ),
            durable=True,
        )  # fmt: skip
        self._reading = step, self._thread.submit(checkpoint_folders.fault, path)
        return path

    def _publish(self, path: Path, rng: RngState) -> None:
        check_room(make_private_folder(path.parent), self._num_bytes)
        others = accounts(self._training)
        _publish(path, self._training, lambda folder: fill(self._training, rng, others, folder))

    def settle(self, *, wait: bool = True) -> None:
        """Once the last checkpoint has been read back, delete the ones that are no longer needed.

        Raises:
            DiskError: what was read back is not what was written.
        """
        if self._reading is None or not (wait or self._reading[1].done()):
            return
        (step, reading), self._reading = self._reading, None
        if reason := reading.result():
            raise DiskError(f"The checkpoint just written reads back wrong: {reason}.", hint="Check the volume.")
        training = self._training
        training.logbook.event(CheckpointVerified(step=step))
        best = training.state.best_step
        removed = checkpoint_folders.rotate(
            training.run.checkpoints,
            keep=training.profile.checkpoint.save_total_limit,
            protected=read_pins(training.run) | (set() if best is None else {best}),
        )
        for checkpoint in removed:
            self.forget(checkpoint)

    def forget(self, checkpoint: Checkpoint) -> None:
        """Note that a checkpoint has been deleted."""
        self._saved.pop(checkpoint.step, None)
        path = f"checkpoints/{checkpoint.path.name}"
        self._training.logbook.event(CheckpointRemoved(step=checkpoint.step, path=path))


def expected_bytes(training: Training) -> int:
    """About the size of a checkpoint: the trained weights, the optimizer's state, and some room for the small files."""
    whole = training.model.parameters()
    weights = [weight for weight in whole if weight.requires_grad or not training.is_adapter]
    size = sum(weight.numel() * weight.element_size() for weight in weights)
    return size + state_bytes(training.optimizer) + SMALL_FILES


def _publish(target: Path, training: Training, write: Callable[[Path], None]) -> None:
    manifest = Manifest(
        run_id=training.run.read_facts().run_id,
        attempt=training.logbook.attempt,
        token=training.logbook.token,
        step=training.state.step,
        versions=versions(),
        fingerprints=training.fingerprints,
        environment=training.environment,
        dtypes=dtypes(training.model),
        finite=all_finite(training.model),
        created=time.time(),
    )
    with _Naming(f"{target.name} could not be saved (older checkpoints are intact)", target.parent):
        checkpoint_folders.publish(target, manifest, write)


class _Naming:
    """A block in which every refusal of the system becomes a DiskError, whatever a library makes of it.

    safetensors raises an error of its own, tokenizers a bare `Exception`.
    """

    def __init__(self, what: str, folder: Path) -> None:
        self._what = what
        self._folder = folder

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if isinstance(error, Exception) and (isinstance(error, OSError | SafetensorError) or is_refused(error)):
            raise disk_error(error, self._what, self._folder) from error


def publish_final(training: Training, write: Callable[[Path], None]) -> None:
    """Write RUN/final by the same protocol as a checkpoint."""
    training.space.insist(lambda: _publish(training.run.final, training, write))


def fill(training: Training, rng: RngState, others: dict[int, bytes], folder: Path) -> None:
    """Write everything a checkpoint holds but its manifest. `others`: what the other ranks have told, by rank."""
    write_weights(training, folder)
    ours = folder / "resume"
    ours.mkdir(mode=PRIVATE_FOLDER)
    tensors, plain = state_of(training.optimizer)
    save_file(tensors, ours / "optimizer.safetensors")
    (ours / "optimizer.json").write_text(json.dumps(plain))
    save_file(rng.tensors(), ours / "rng.safetensors")
    (ours / "rng.json").write_text(json.dumps(rng.plain()))
    for rank, told in others.items():
        (ours / f"rng-{rank}.safetensors").write_bytes(told)
    (ours / "state.json").write_bytes(msgspec.json.encode(training.state))


def restore(training: Training, checkpoint: Checkpoint) -> None:
    """Put weights, optimizer, generators and state back as they were at the checkpoint's step."""
    read_weights(training, checkpoint.path)
    ours = checkpoint.path / "resume"
    plain = json.loads((ours / "optimizer.json").read_bytes())
    load(training.optimizer, read_tensors(ours / "optimizer.safetensors"), plain)
    if (rng := _random_state(ours, training.ranks.rank)) is not None:
        rng.restore(training.hardware.device)
    saved = msgspec.json.decode((ours / "state.json").read_bytes(), type=TrainState)
    for name in TrainState.__struct_fields__:
        setattr(training.state, name, getattr(saved, name))


def _random_state(ours: Path, rank: int) -> RngState | None:
    """The random state of a rank; none where the checkpoint is of fewer ranks (a fork: resumes have as many)."""
    if rank == 0:
        return RngState.rebuilt(read_tensors(ours / "rng.safetensors"), json.loads((ours / "rng.json").read_bytes()))
    path = ours / f"rng-{rank}.safetensors"
    return random_state(path.read_bytes()) if path.exists() else None
