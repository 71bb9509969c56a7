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
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import msgspec
from safetensors import SafetensorError
from transformers import PreTrainedTokenizerBase

from ftui.runs import checkpoint_folders
from ftui.runs.checkpoint_folders import Checkpoint, Manifest
from ftui.runs.events import CheckpointRemoved, CheckpointSaved, CheckpointTagged, CheckpointVerified
from ftui.runs.pins import read_pins
from ftui.runs.run_folder import Run
from ftui.system.checked_write import MiswrittenError, Pieces
from ftui.system.files import PRIVATE_FOLDER, make_private_folder
from ftui.system.volume import check_room, disk_error, is_refused

from ..distributed.process_group import ProcessGroup
from ..distributed.rank_state import decode_random_state, gather_rank_states
from ..models.model_parts import ModelParts
from ..models.weights import all_finite, dtypes, is_adapted, read_tensors, read_weights, safetensors_file, write_weights
from ..optim.optimizer_state import load, state_bytes, state_of
from ..runtime.disk_wait import DiskWait
from ..runtime.event_writer import EventWriter
from ..system.environment import versions
from ..system.rng import RngState
from ..system.train_state import TrainState
from .reproducibility import Provenance

MISWRITTEN_TRIES = 3
SMALL_FILES = 16 << 20  # bytes: tokenizer, configs, generators


@dataclass(eq=False)
class CheckpointManager:
    """Saves checkpoints, and then lets old ones go: `publish` has compared each with what the disk gives back.

    `boundary` is the random state after the last finished step, `limit` how many checkpoints are kept beside the pinned
    and the best one.
    """

    run: Run
    parts: ModelParts
    tokenizer: PreTrainedTokenizerBase
    state: TrainState
    ranks: ProcessGroup
    events: EventWriter
    disk_wait: DiskWait
    provenance: Provenance
    limit: int

    def __post_init__(self) -> None:
        self.boundary = RngState.capture(self.parts.device)
        self.expected_bytes = expected_bytes(self.parts)
        """About the size of the next checkpoint."""
        self.last_save_seconds: float | None = None
        self.last_save_time = time.monotonic()
        self._tags: dict[int, set[str]] = {}

    def save(self, *tags: str) -> Path:
        """Save the state of the last step's boundary; a step saved before only gains the tags.

        Raises:
            Shutdown: the disk stayed full.
            DiskError: the volume fails.
        """
        step = self.state.step
        path = self.run.checkpoints / f"checkpoint-{step}"
        if step in self._tags or self.saved_path() is not None:
            for tag in sorted(set(tags) - self._tags.setdefault(step, set())):
                self.events.write(CheckpointTagged(step=step, tag=tag), durable=True)
                self._tags[step].add(tag)
            return path
        start = time.monotonic()
        with self.events.within("saving"):
            self.disk_wait.retry(lambda: self._save_to(path))
        self._tags[step] = set(tags)
        self.expected_bytes = checkpoint_folders.total_size(path)
        self.last_save_time = time.monotonic()
        self.last_save_seconds = self.last_save_time - start
        self.events.write(
            CheckpointSaved(
                step=step, path=f"checkpoints/{path.name}", tags=sorted(tags), num_bytes=self.expected_bytes,
                seconds=self.last_save_seconds,
            ),
            durable=True,
        )  # fmt: skip
        self.events.write(CheckpointVerified(step=step))
        self._rotate()
        return path

    def saved_path(self) -> str | None:
        """The checkpoint of the last finished step, relative to the run's folder, if there is one."""
        path = self.run.checkpoints / f"checkpoint-{self.state.step}"
        return f"checkpoints/{path.name}" if checkpoint_folders.fault(path, quick=True) is None else None

    def publish_final(self, write: Callable[[Path], dict[str, Pieces]]) -> None:
        """Write RUN/final by the same protocol as a checkpoint."""
        self.disk_wait.retry(lambda: self._publish(self.run.final, write))

    def _rotate(self) -> None:
        best = self.state.best_step
        protected = read_pins(self.run) | (set() if best is None else {best})
        for checkpoint in checkpoint_folders.rotate(self.run.checkpoints, keep=self.limit, protected=protected):
            self.forget(checkpoint)

    def forget(self, checkpoint: Checkpoint) -> None:
        """Note that a checkpoint has been deleted."""
        self._tags.pop(checkpoint.step, None)
        self.events.write(CheckpointRemoved(step=checkpoint.step, path=f"checkpoints/{checkpoint.path.name}"))

    def _save_to(self, path: Path) -> None:
        check_room(make_private_folder(path.parent, inside=self.run.folder), self.expected_bytes)
        ranks = gather_rank_states(self.ranks, self.parts, self.state.step)

        def write(folder: Path) -> dict[str, Pieces]:
            files = write_weights(self.parts.model, self.tokenizer, folder)
            return files | write_resume_state(self.parts, self.state, self.boundary, ranks, folder / "resume")

        self._publish(path, write)

    def _publish(self, target: Path, write: Callable[[Path], dict[str, Pieces]]) -> None:
        manifest = Manifest(
            run_id=self.run.read_facts().run_id,
            attempt=self.events.attempt,
            token=self.events.token,
            step=self.state.step,
            versions=versions(),
            fingerprints=self.provenance.fingerprints,
            environment=self.provenance.environment,
            dtypes=dtypes(self.parts.model),
            finite=all_finite(self.parts.model),
            created=time.time(),
        )
        with _DiskErrors(f"{target.name} could not be saved (older checkpoints are intact)", target.parent):
            for tries_left in reversed(range(MISWRITTEN_TRIES)):
                try:
                    checkpoint_folders.publish(target, manifest, write)
                    break
                except MiswrittenError as error:
                    if not tries_left:
                        raise
                    self.events.warn(f"{target.name}: {error.message}; it is written again")


def expected_bytes(parts: ModelParts) -> int:
    """About the size of a checkpoint: the trained weights, the optimizer's state, and some room for the small files."""
    trains_all = not is_adapted(parts.model)
    weights = [weight for weight in parts.model.parameters() if weight.requires_grad or trains_all]
    size: int = sum(weight.numel() * weight.element_size() for weight in weights)
    return size + state_bytes(parts.optimizer) + SMALL_FILES


class _DiskErrors:
    """A block in which every refusal of the system becomes a DiskError, whatever a library makes of it.

    safetensors raises an error of its own, tokenizers a bare `Exception`.
    """

    def __init__(self, message: str, folder: Path) -> None:
        self._message = message
        self._folder = folder

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if isinstance(error, Exception) and (isinstance(error, OSError | SafetensorError) or is_refused(error)):
            raise disk_error(error, self._message, self._folder) from error


def write_resume_state(
    parts: ModelParts, state: TrainState, rng: RngState, ranks: dict[int, bytes], folder: Path
) -> dict[str, Pieces]:
    """Write all that a resumed run needs beside the weights; the tensors are returned as files of the checkpoint.

    `ranks`: the states of the other ranks, by rank.
    """
    folder.mkdir(mode=PRIVATE_FOLDER)
    tensors, plain = state_of(parts.optimizer)
    (folder / "optimizer.json").write_text(json.dumps(plain))
    (folder / "rng.json").write_text(json.dumps(rng.plain()))
    for rank, data in ranks.items():
        (folder / f"rng-{rank}.safetensors").write_bytes(data)
    (folder / "state.json").write_bytes(msgspec.json.encode(state))
    return {
        "resume/optimizer.safetensors": safetensors_file(tensors),
        "resume/rng.safetensors": safetensors_file(rng.tensors()),
    }


def restore(parts: ModelParts, state: TrainState, checkpoint: Checkpoint, rank: int = 0) -> None:
    """Put weights, optimizer, generators and state back as they were at the checkpoint's step.

    Raises:
        RuntimeError, ValueError, KeyError: it is of other weights.
    """
    read_weights(parts.model, checkpoint.path)
    folder = checkpoint.path / "resume"
    plain = json.loads((folder / "optimizer.json").read_bytes())
    load(parts.optimizer, read_tensors(folder / "optimizer.safetensors"), plain)
    if (rng := _read_random_state(folder, rank)) is not None:
        rng.restore(parts.device)
    saved = msgspec.json.decode((folder / "state.json").read_bytes(), type=TrainState)
    for name in TrainState.__struct_fields__:
        setattr(state, name, getattr(saved, name))


def _read_random_state(folder: Path, rank: int) -> RngState | None:
    """The random state of a rank; none where the checkpoint is of fewer ranks (a fork: resumes have as many)."""
    if rank == 0:
        return RngState.rebuild(
            read_tensors(folder / "rng.safetensors"), json.loads((folder / "rng.json").read_bytes())
        )
    path = folder / f"rng-{rank}.safetensors"
    return decode_random_state(path.read_bytes()) if path.exists() else None
