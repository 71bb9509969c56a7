"""What stands in a checkpoint, and how a run is put back where it was. Safetensors and JSON only: no pickle, ever.

adapter_model.safetensors | model.safetensors, configs, tokenizer     at the top, for anyone
resume/optimizer.safetensors, optimizer.json                          moments; groups
resume/rng.safetensors, rng.json                                      random generators at the step's boundary
resume/rng-1.safetensors ...                                          those of the other ranks
resume/value_head.safetensors                                         what only training needs of the model: stage ppo
resume/state.json                                                     TrainState
"""

import json
import time
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
from transformers import PreTrainedTokenizerBase

from ftui.runs import checkpoint_folders
from ftui.runs.checkpoint_folders import Checkpoint, Manifest
from ftui.runs.events import CheckpointRemoved, CheckpointSaved, CheckpointTagged, CheckpointVerified
from ftui.runs.pins import read_pins
from ftui.runs.run_folder import Run
from ftui.system.checked_write import Pieces
from ftui.system.files import PRIVATE_FOLDER, make_private_folder

from ..distributed.gather_shards import gatherer
from ..distributed.load_shards import fill_shards, read_moments
from ..distributed.process_group import Action, ProcessGroup, RankCommand
from ..distributed.rank_state import decode_random_state, gather_rank_states
from ..models.model_parts import ModelParts
from ..models.weights import (
    TensorFile,
    all_finite,
    dtypes,
    is_adapted,
    read_tensors,
    read_weights,
    safetensors_file,
    write_weights,
)
from ..optim.optimizer_state import load, state_bytes, state_of
from ..reinforcement.value_head import FILE as VALUE_HEAD
from ..reinforcement.value_head import fill_value_head, value_head_tensors
from ..runtime.disk_wait import DiskWait
from ..runtime.event_writer import EventWriter
from ..system.environment import versions
from ..system.rng import RngState, rank_seed, seed_everything
from ..system.train_state import TrainState
from .pending_save import DiskErrors, HostCopies, PendingSave
from .reproducibility import Provenance

SMALL_FILES = 16 << 20  # bytes: tokenizer, configs, generators


@dataclass(eq=False)
class CheckpointManager:
    """Saves checkpoints, and then lets old ones go: `publish` has compared each with what the disk gives back.

    Only the thread that trains writes events and deletes; the thread beside it only writes files.

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
        self._under_way: PendingSave | None = None
        self._copies = HostCopies(self.parts.device)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="save")

    def save(self, *tags: str) -> Path:
        """Save the state of the last step's boundary: it is on the disk when this returns.

        A save under way is waited for. A step saved before only gains the tags.

        Raises:
            Shutdown: the disk stayed full.
            DiskError: the volume fails.
        """
        self.finish()
        if not self._add_tags(tags):
            with self.events.within("saving"):
                save = self.disk_wait.retry(lambda: self._prepare(tags))
                self.disk_wait.retry(save)
            self._record(save)
        return self._path

    def start_save(self, *tags: str) -> None:
        """Save as `save` does, while the steps go on: a thread writes a copy. `collect` or `finish` records it.

        One save is written at a time, so that there is one copy, and checkpoints appear in the order of their steps: if
        the one before is not written yet, it is waited for. Without host memory for a copy the steps wait, too.

        Raises:
            Shutdown, DiskError: as `save`.
        """
        self.finish()
        if self._add_tags(tags):
            return
        save = self.disk_wait.retry(lambda: self._prepare(tags))
        self.last_save_time = save.start
        if save.write_beside(self._thread, self._copies):
            self._under_way = save
            return
        with self.events.within("saving"):
            self.disk_wait.retry(save)
        self._record(save)

    def finish(self) -> None:
        """Wait for the save under way, if there is one, and record it.

        A full disk is met here as in `save`: the copy is written again when there is room.

        Raises:
            Shutdown, DiskError: as `save`.
        """
        save, self._under_way = self._under_way, None
        if save is None:
            return
        if not save.is_written:
            with self.events.within("saving"):
                self.disk_wait.retry(save)
        self._record(save)

    def collect(self, *, only_whole: bool = False) -> None:
        """Finish the save under way if its thread has ended; with `only_whole` one that failed is left for later."""
        save = self._under_way
        if save is not None and (save.is_written if only_whole else save.has_ended):
            self.finish()

    def close(self) -> None:
        """Wait for the thread, whatever ends the attempt; nothing is recorded."""
        self._thread.shutdown()

    @property
    def _path(self) -> Path:
        return self.run.checkpoints / f"checkpoint-{self.state.step}"

    def _add_tags(self, tags: Collection[str]) -> bool:
        """Whether the last step is saved already; it gains the tags."""
        step = self.state.step
        if step not in self._tags and self.saved_path() is None:
            return False
        for tag in sorted(set(tags) - self._tags.setdefault(step, set())):
            self.events.write(CheckpointTagged(step=step, tag=tag), durable=True)
            self._tags[step].add(tag)
        return True

    def _record(self, save: PendingSave) -> None:
        step = save.manifest.step
        self._tags[step] = set(save.tags)
        self.expected_bytes = checkpoint_folders.total_size(save.target)
        self.last_save_time, self.last_save_seconds = time.monotonic(), save.seconds
        for warning in save.warnings:
            self.events.warn(warning)
        self.events.write(
            CheckpointSaved(
                step=step, path=f"checkpoints/{save.target.name}", tags=sorted(save.tags),
                num_bytes=self.expected_bytes, seconds=save.seconds,
            ),
            durable=True,
        )  # fmt: skip
        self.events.write(CheckpointVerified(step=step))
        self._rotate()

    def saved_path(self) -> str | None:
        """The checkpoint of the last finished step, relative to the run's folder, if there is one."""
        path = self._path
        return f"checkpoints/{path.name}" if checkpoint_folders.fault(path, quick=True) is None else None

    def publish_final(self, write: Callable[[Path], dict[str, Pieces]]) -> None:
        """Write RUN/final by the same protocol as a checkpoint."""
        self.finish()
        final = self.disk_wait.retry(lambda: self._stage(self.run.final, write))
        self.disk_wait.retry(final)
        for warning in final.warnings:
            self.events.warn(warning)

    def _rotate(self) -> None:
        best = self.state.best_step
        protected = read_pins(self.run) | (set() if best is None else {best})
        for checkpoint in checkpoint_folders.rotate(self.run.checkpoints, keep=self.limit, protected=protected):
            self.forget(checkpoint)

    def forget(self, checkpoint: Checkpoint) -> None:
        """Note that a checkpoint has been deleted."""
        self._tags.pop(checkpoint.step, None)
        self.events.write(CheckpointRemoved(step=checkpoint.step, path=f"checkpoints/{checkpoint.path.name}"))

    def _prepare(self, tags: Collection[str]) -> PendingSave:
        """All files of a checkpoint of the last step; their tensors are still those that the next step changes."""
        ranks = gather_rank_states(self.ranks, self.parts, self.state.step)

        def write(folder: Path) -> dict[str, Pieces]:
            files = write_weights(self.parts.model, self.tokenizer, folder)
            return files | write_resume_state(self.parts, self.state, self.boundary, ranks, folder / "resume")

        with DiskErrors(self._path):
            make_private_folder(self.run.checkpoints, inside=self.run.folder)
        return self._stage(self._path, write, tags, self.expected_bytes)

    def _stage(
        self,
        target: Path,
        write: Callable[[Path], dict[str, Pieces]],
        tags: Collection[str] = (),
        expected_bytes: int = 0,
    ) -> PendingSave:
        start = time.monotonic()
        manifest = Manifest(
            run_id=self.run.read_facts().run_id,
            attempt=self.events.attempt,
            token=self.events.token,
            step=self.state.step,
            versions=versions(),
            fingerprints=self.provenance.fingerprints,
            environment=self.provenance.environment,
            dtypes=dtypes(self.parts.model),
            finite=check_finite(self.parts, self.ranks),
            created=time.time(),
        )
        with DiskErrors(target):
            files = checkpoint_folders.contents(target.parent, write)
        if (gather := gatherer(self.parts, self.ranks)) is not None:
            files = {n: replace(f, gather=gather) if isinstance(f, TensorFile) else f for n, f in files.items()}
        return PendingSave(target, manifest, files, sorted(tags), expected_bytes, start)


def expected_bytes(parts: ModelParts) -> int:
    """About the size of a checkpoint: the trained weights, the optimizer's state, and some room for the small files."""
    trains_all = not is_adapted(parts.model)
    weights = [weight for weight in parts.model.parameters() if weight.requires_grad or trains_all]
    size: int = sum(weight.numel() * weight.element_size() for weight in weights)
    return size + state_bytes(parts.optimizer) + SMALL_FILES


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
    head = value_head_tensors(parts.model)
    return {
        "resume/optimizer.safetensors": safetensors_file(tensors),
        "resume/rng.safetensors": safetensors_file(rng.tensors()),
        **({f"resume/{VALUE_HEAD}": safetensors_file(head)} if head else {}),
    }


def restore(parts: ModelParts, state: TrainState, checkpoint: Checkpoint, rank: int = 0, seed: int = 0) -> None:
    """Put weights, optimizer, generators and state back as they were at the checkpoint's step.

    A rank that the checkpoint knows nothing of gets generators made from `seed` and that step.

    Raises:
        RuntimeError, ValueError, KeyError: it is of other weights.
    """
    read_own_weights(parts, checkpoint.path)
    folder = checkpoint.path / "resume"
    if value_head_tensors(parts.model):
        head = folder / VALUE_HEAD
        fill_value_head(parts.model, read_tensors(head) if head.exists() else {})
    plain = json.loads((folder / "optimizer.json").read_bytes())
    load(parts.optimizer, read_moments(parts.optimizer, folder / "optimizer.safetensors"), plain)
    if (rng := _read_random_state(folder, rank)) is None:
        seed_everything(rank_seed(seed, rank, checkpoint.step))
    else:
        rng.restore(parts.device)
    saved = msgspec.json.decode((folder / "state.json").read_bytes(), type=TrainState)
    for name in TrainState.__struct_fields__:
        setattr(state, name, getattr(saved, name))


def read_own_weights(parts: ModelParts, folder: Path) -> None:
    """Put the weights in `folder` into the model; of those that are divided among the ranks this rank reads its own."""
    if parts.base is not None and parts.base.is_trained:
        fill_shards(parts.model, folder)
    else:
        read_weights(parts.model, folder)


def check_finite(parts: ModelParts, ranks: ProcessGroup) -> bool:
    """On rank 0, between two steps: whether no trained weight is NaN or infinite, on whichever rank it is."""
    if parts.base is None or not parts.base.is_trained:
        return all_finite(parts.model)
    ranks.order(RankCommand(Action.CHECK_FINITE))
    return not ranks.any(not all_finite(parts.model))


def _read_random_state(folder: Path, rank: int) -> RngState | None:
    """The random state of a rank; none where the checkpoint is of fewer ranks."""
    if rank == 0:
        return RngState.rebuild(
            read_tensors(folder / "rng.safetensors"), json.loads((folder / "rng.json").read_bytes())
        )
    path = folder / f"rng-{rank}.safetensors"
    return decode_random_state(path.read_bytes()) if path.exists() else None
