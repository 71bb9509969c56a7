"""Whether a merged model is what was trained: it is read from the disk, and compared with base and adapter on rows.

Both are computed in float32, one after the other: what differs is what the merge and its rounding have changed, not
noise of the arithmetic.
"""

import gc
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from ftui.helper.merge_facts import Agreement

from ..data.load_rows import DataSplit
from ..objectives.loss import Batch, predict_targets
from ..objectives.reward_losses import reward_loss, sequence_scores
from ..training.collate import collate_examples

POSITIONS_PER_ROW = 32
"""Whose logits are kept for the comparison: 512 of a vocabulary of 150,000 are 300 MB."""
CHUNK = 128  # positions whose logits are there at once


@dataclass(frozen=True)
class Measured:
    """What a model makes of some rows: logits (positions, vocabulary) or scores (answers), float32 on the CPU; the sum
    of its losses over `num_targets` (of a reward model: pairs)."""

    outputs: Tensor
    loss_sum: float
    num_targets: int


def choose_rows(rows: DataSplit, number: int) -> list[int]:
    """Examples spread over all of them by their lengths."""
    order = rows.longest_first
    return [
        int(order[place]) for place in np.unique(np.linspace(0, len(order) - 1, min(number, len(order))).astype(int))
    ]


def measure(model: Any, rows: DataSplit, numbers: list[int], pad_id: int, tick: Callable[[], object]) -> Measured:
    """One forward pass over each of the rows; `tick` is called after each."""
    outputs, loss_sum, num_targets = [], 0.0, 0
    model.eval()
    for number in numbers:
        batch = collate_examples(rows, [(number,)], pad_id).to(model.device)
        if not len(batch.target_ids):  # a prompt, whose answers a run gave itself: all of it is compared
            ids = batch.input_ids[0]
            batch = replace(batch, predictors=torch.arange(len(ids) - 1, device=ids.device), target_ids=ids[1:])
        with torch.no_grad():
            found = _scores(model, batch) if rows.scored else _logits(model, batch)
        outputs.append(found.outputs)
        loss_sum += found.loss_sum
        num_targets += found.num_targets
        tick()
    return Measured(torch.cat(outputs), loss_sum, num_targets)


def _scores(model: Any, batch: Batch) -> Measured:
    scores = sequence_scores(model, batch).float()
    losses = reward_loss(scores[::2], scores[1::2], batch.margins)
    return Measured(scores.cpu(), float(losses.sum()), len(losses))


def _logits(model: Any, batch: Batch) -> Measured:
    states, head, _, _ = predict_targets(model, batch)
    kept = set(np.linspace(0, len(states) - 1, min(POSITIONS_PER_ROW, len(states))).astype(int).tolist())
    outputs, loss_sum = [], 0.0
    for start in range(0, len(states), CHUNK):
        part = states[start : start + CHUNK]
        logits = (part if head is None else head(part)).float()
        loss_sum += float(F.cross_entropy(logits, batch.target_ids[start : start + CHUNK], reduction="sum"))
        outputs.append(logits[[place - start for place in sorted(kept) if start <= place < start + CHUNK]].cpu())
    return Measured(torch.cat(outputs), loss_sum, len(states))


def compare(expected: Measured, merged: Measured, num_rows: int, *, scored: bool) -> Agreement:
    """How what a merged model makes of some rows agrees with what base and adapter make of them."""
    difference = float((expected.outputs - merged.outputs).abs().max())
    mean_kl = top1 = None
    if not scored:
        old, new = F.log_softmax(expected.outputs, -1), F.log_softmax(merged.outputs, -1)
        mean_kl = max(0.0, float(F.kl_div(new, old, log_target=True, reduction="batchmean")))
        top1 = float((old.argmax(-1) == new.argmax(-1)).float().mean())
    return Agreement(
        num_rows, len(expected.outputs), expected.num_targets, difference, expected.loss_sum / expected.num_targets,
        merged.loss_sum / merged.num_targets, mean_kl, top1,
    )  # fmt: skip


def release(device: torch.device) -> None:
    """Let the memory of a model go that nobody holds any more, before the next one is loaded."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
