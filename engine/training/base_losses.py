"""The loss that the base model has on each sequence, for a curriculum that sorts by it.

Measured once, before the first step, and stored in the run's folder: a resumed run has the same order on any machine.
A checkpoint has its hash, as of everything else that the weights are made from.
"""

import contextlib
import hashlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from ftui.profile.schema import Profile
from ftui.runs.run_folder import Run
from ftui.units import duration

from ..data.tokens.encode import Sequence
from ..distributed.process_group import ProcessGroup
from ..models.model_parts import ModelParts, autocast
from ..models.performance import uncompiled
from ..objectives.log_probs import target_log_probs
from ..runtime.disk_wait import DiskWait
from ..runtime.event_writer import EventWriter
from ..system.memory import no_memory, release_cached_memory, within_memory
from ..system.rng import RngState
from .collate import collate
from .measured_values import read_values, write_values
from .prepare import TrainingData

INPUTS = ("data", "tokenizer", "base_model")  # fingerprints of what losses depend on


def base_losses(
    run: Run,
    profile: Profile,
    data: TrainingData,
    parts: ModelParts,
    ranks: ProcessGroup,
    fingerprints: dict[str, str],
    disk_wait: DiskWait,
    events: EventWriter,
    report: Callable[[str], None],
) -> np.ndarray:
    """The mean loss of each sequence: stored by an earlier attempt, or measured now.

    Rank 0 measures and stores them before the other ranks read them.

    Raises:
        Shutdown: between two batches.
        GpuMemoryError, HostMemoryError: not even one sequence fits.
    """

    def load() -> np.ndarray:
        inputs = inputs_hash(profile, data, fingerprints) if ranks.is_leader else None
        stored = read_values(run.losses, inputs)
        if stored is not None:
            return stored["losses"]
        assert inputs is not None, "rank 0 has written them"
        events.set_phase("preparing", "the base model's loss on each row")
        losses = measure_losses(profile, data, parts, report)
        disk_wait.retry(lambda: write_values(run.losses, {"losses": losses}, inputs))
        return losses

    return ranks.leader_first(load)


def inputs_hash(profile: Profile, data: TrainingData, fingerprints: dict[str, str]) -> str:
    """A hash of all that the losses depend on."""
    parts = [fingerprints.get(name, "") for name in INPUTS]
    if profile.model.from_scratch is not None:
        parts.append(str(profile.train.seed))
    digest = hashlib.sha256("\n".join(parts).encode())
    digest.update(np.ascontiguousarray(data.train.indices, dtype=np.int64).tobytes())
    return digest.hexdigest()


def measure_losses(
    profile: Profile, data: TrainingData, parts: ModelParts, report: Callable[[str], None]
) -> np.ndarray:
    """The mean loss in nats over the targets of each sequence (float32), without the adapter. Moves no generator.

    Raises:
        Shutdown: between two batches, from `report`.
        GpuMemoryError, HostMemoryError: not even one sequence fits.
    """
    rows, lengths, device = data.train, data.lengths, parts.device
    order = np.argsort(-lengths.astype(np.int64), kind="stable")
    ends = np.cumsum(lengths[order], dtype=np.int64)
    losses = np.empty(len(order), dtype=np.float32)
    size, start, rng = profile.eval.per_device_eval_batch_size, 0, RngState.capture(device)
    begin = time.monotonic()
    with _base_model(parts.model):
        while start < len(order):
            indices = order[start : start + size]
            sequences = [rows.example(int(i))[0] for i in indices]
            batch = _batch_losses(parts, sequences, data.pad_id, profile)
            if batch is None and size == 1:
                raise no_memory(device, f"a row of {lengths[indices[0]]} tokens", "Shorten data.max_length.")
            if batch is None:
                size = (size + 1) // 2
                continue
            losses[indices], start = batch, start + len(indices)
            share = ends[start - 1] / ends[-1]
            remaining = duration((time.monotonic() - begin) * (1 - share) / share)
            report(f"the base model's loss on each row · {100 * share:.0f} % · {remaining} left")
    rng.restore(device)
    return losses


@contextlib.contextmanager
def _base_model(model: Any) -> Iterator[None]:
    """A block in which the model is what it was before the run: evaluating, its adapter off."""
    model.eval()
    try:
        with model.disable_adapter() if hasattr(model, "peft_config") else contextlib.nullcontext():
            yield
    finally:
        model.train()


def _batch_losses(parts: ModelParts, sequences: list[Sequence], pad_id: int, profile: Profile) -> np.ndarray | None:
    """The mean loss of each sequence; `None` when memory ran out."""
    batch = collate([[sequence] for sequence in sequences], pad_id, joined=parts.joins_rows)
    row_of = np.repeat(np.arange(len(sequences)), [sequence.num_targets for sequence in sequences])

    def measure() -> np.ndarray:
        with torch.no_grad(), uncompiled(profile.train), autocast(parts.hardware):
            log_probs = target_log_probs(parts.model, batch.to(parts.device)).values
        return -log_probs.cpu().numpy().astype(np.float64)

    losses, _ = within_memory(measure)
    if losses is None:
        release_cached_memory(parts.device)
        return None
    return np.bincount(row_of, losses, len(sequences)) / np.bincount(row_of, minlength=len(sequences))
