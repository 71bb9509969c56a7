"""The loss that the base model has on each sequence, for a curriculum that sorts by it.

Measured once, before the first step, and kept in the run's folder: a resumed run has the same order, whatever computes
by then. A checkpoint has its hash, as of everything else that the weights are made from.
"""

import contextlib
import hashlib
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from ftui.profile.sections.curriculum import needs_losses
from ftui.system.files import replace_file
from ftui.system.volume import disk_error
from ftui.units import duration

from ..data.tokens.encode import Sequence
from ..models.performance import uncompiled
from ..objectives.loss import target_losses
from ..planning.mixing import planned
from ..system.memory import give_back, is_out_of_memory, no_memory
from ..system.rng import RngState
from .collate import collate
from .context import Training, autocast

MADE_FROM = ("data", "tokenizer", "base_model")  # fingerprints of what losses depend on


def with_losses(training: Training, report: Callable[[str], None]) -> Training:
    """The training with the order that the base model's losses give, where a stage of its curriculum asks for them.

    The leader measures them, or finds what it has measured before; the others read what it has written.

    Raises:
        Leave: between two batches.
        GpuMemoryError, HostMemoryError: not even one sequence fits.
    """
    profile, prepared = training.profile, training.prepared
    if not needs_losses(profile.curriculum, profile.train.train_sampling_strategy):
        return training
    losses = training.ranks.leader_first(lambda: _known(training, report))
    rows, digest = prepared.train, hashlib.sha256(losses.tobytes()).hexdigest()
    plan = planned(
        profile, rows.sequences.lengths[rows.indices], rows.sequences.num_targets[rows.indices], prepared.shares, losses
    )
    return replace(
        training, prepared=replace(prepared, plan=plan), fingerprints=training.fingerprints | {"losses": digest}
    )


def _known(training: Training, report: Callable[[str], None]) -> np.ndarray:
    made_from = _made_from(training)
    found = _kept(training, made_from)
    if found is not None or not training.ranks.is_leader:
        assert found is not None, "the leader has written it"
        return found
    training.logbook.phase("preparing", "the base model's loss on each row")
    losses = measured(training, report)
    training.space.insist(lambda: _keep(training, losses, made_from))
    return losses


def _made_from(training: Training) -> str:
    """A hash of all that the losses depend on; only the leader knows it."""
    parts = [training.fingerprints.get(name, "") for name in MADE_FROM]
    if training.profile.model.from_scratch is not None:
        parts.append(str(training.profile.train.seed))
    digest = hashlib.sha256("\n".join(parts).encode())
    digest.update(np.ascontiguousarray(training.prepared.train.indices, dtype=np.int64).tobytes())
    return digest.hexdigest()


def _keep(training: Training, losses: np.ndarray, made_from: str) -> None:
    path = training.run.losses
    digest = hashlib.sha256(losses.tobytes()).hexdigest()
    data = save({"losses": torch.from_numpy(losses)}, {"made_from": made_from, "sha256": digest})
    try:
        replace_file(path, data, durable=True)
    except OSError as error:
        raise disk_error(error, f"{path.name} could not be written", path.parent, len(data)) from error


def _kept(training: Training, made_from: str) -> np.ndarray | None:
    """What an earlier attempt has measured; `None` where there is nothing, or something else, or half of it."""
    path = training.run.losses
    if not path.exists():
        return None
    try:
        with safe_open(path, framework="numpy") as file:
            losses, metadata = np.asarray(file.get_tensor("losses")), file.metadata() or {}
    except (OSError, SafetensorError):
        return None
    is_whole = metadata.get("sha256") == hashlib.sha256(losses.tobytes()).hexdigest()
    is_ours = metadata.get("made_from") == made_from or not training.ranks.is_leader
    return losses if is_whole and is_ours else None


def measured(training: Training, report: Callable[[str], None]) -> np.ndarray:
    """The mean loss in nats over the targets of each sequence (float32), without the adapter. Moves no generator."""
    rows, device = training.prepared.train, training.hardware.device
    lengths = rows.sequences.lengths[rows.indices]
    order = np.argsort(-lengths.astype(np.int64), kind="stable")
    ends = np.cumsum(lengths[order], dtype=np.int64)
    losses = np.empty(len(order), dtype=np.float32)
    size, start, state = training.profile.eval.per_device_eval_batch_size, 0, RngState.capture(device)
    begun = time.monotonic()
    with _base_alone(training.model):
        while start < len(order):
            part = order[start : start + size]
            found = _batch_losses(training, [rows.sequences[int(rows.indices[i])] for i in part])
            if found is None and size == 1:
                raise no_memory(device, f"a row of {lengths[part[0]]} tokens", "Shorten data.max_length.")
            if found is None:
                size = (size + 1) // 2
                continue
            losses[part], start = found, start + len(part)
            share = ends[start - 1] / ends[-1]
            left = duration((time.monotonic() - begun) * (1 - share) / share)
            report(f"the base model's loss on each row · {100 * share:.0f} % · {left} left")
    state.restore(device)
    return losses


@contextlib.contextmanager
def _base_alone(model: Any) -> Iterator[None]:
    """A block in which the model is what it was before the run: not learning, its adapter off."""
    model.eval()
    try:
        with model.disable_adapter() if hasattr(model, "peft_config") else contextlib.nullcontext():
            yield
    finally:
        model.train()


def _batch_losses(training: Training, sequences: list[Sequence]) -> np.ndarray | None:
    """The mean loss of each sequence; `None` when memory ran out."""
    pad, device = int(training.prepared.tokenizer.pad_token_id or 0), training.hardware.device
    batch = collate([[sequence] for sequence in sequences], pad)
    row_of = (batch.predictors // batch.input_ids.shape[1]).numpy()
    try:
        with torch.no_grad(), uncompiled(training.profile.train), autocast(training.hardware):
            each = target_losses(training.model, batch.to(device)).cpu().numpy().astype(np.float64)
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        each = None
    if each is None:
        give_back(device)
        return None
    return np.bincount(row_of, each, len(sequences)) / np.bincount(row_of, minlength=len(sequences))
