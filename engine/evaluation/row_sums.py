"""What a model says of the target tokens of each row of a batch: sums of nats, of right ones, of the KL to a base."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from ..generation.conversation import Speaker
from ..models.model_parts import autocast
from ..objectives.chunked_head import chunk_size, target_facts
from ..objectives.loss import Batch, Predictions, predict_targets


@dataclass(frozen=True)
class RowSums:
    """Sums over the targets of each row of a batch (float64): cross-entropy, targets that are the likeliest tokens,
    and KL(base || model), all in nats; without a base no `kl`.
    """

    nats: np.ndarray
    num_right: np.ndarray
    kl: np.ndarray | None


def sum_rows(speaker: Speaker, batch: Batch, num_targets: np.ndarray, base: Speaker | None = None) -> RowSums:
    """The sums of each row of a batch, which has `num_targets` (one a row, each at least 1), in its order.

    As in training no more logits than a chunk of them exist at once where the head is a plain layer.
    """
    on_device = batch.to(speaker.model.hardware.device)
    with speaker.model.answering(speaker.adapter):
        ours = predict_targets(speaker.model.model, on_device)
    theirs = None
    if base is not None:
        with base.model.answering(base.adapter):
            theirs = predict_targets(base.model.model, on_device)
    with torch.no_grad(), autocast(speaker.model.hardware, keeps_casts=True):
        columns = list(_facts(ours, theirs, on_device.target_ids))
    starts = np.concatenate([[0], np.cumsum(num_targets)[:-1]])
    nats, right, kl = (
        None if parts[0] is None else np.add.reduceat(torch.cat(parts).double().cpu().numpy(), starts)
        for parts in zip(*columns, strict=True)
    )
    assert nats is not None and right is not None, "both are always there"
    return RowSums(nats, right, kl)


def _facts(
    ours: Predictions, theirs: Predictions | None, target_ids: Tensor
) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
    """Of each target its cross-entropy, whether it is the likeliest token (two equal to the last bit both are, as in
    evaluations of a run), and the divergence; chunk by chunk."""
    size = len(target_ids) if ours.head is None else chunk_size(ours.head.weight)
    for start in range(0, len(target_ids), size):
        rows = slice(start, start + size)
        ids, logits = target_ids[rows], _logits(ours, rows)
        facts, logs = target_facts(logits, ids)
        right = logits.gather(1, ids[:, None]).squeeze(1) >= logits.amax(-1)
        kl = None
        if theirs is not None:
            base_logs = torch.log_softmax(_logits(theirs, rows), dim=-1, dtype=torch.float32)
            kl = (base_logs.exp() * (base_logs - logs)).sum(-1)
        yield -facts.log_probs, right, kl


def _logits(predictions: Predictions, rows: slice) -> Tensor:
    states, head = predictions.states[rows], predictions.head
    return states if head is None else F.linear(states, head.weight, head.bias)
