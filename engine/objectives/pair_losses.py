"""Losses of pairs of answers, from their summed log-probabilities."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F


class Pairs(NamedTuple):
    """Of each pair (pairs,), float32: summed log-probabilities of both answers, here and in the reference, lengths."""

    chosen: Tensor
    rejected: Tensor
    reference_chosen: Tensor
    reference_rejected: Tensor
    chosen_length: Tensor
    rejected_length: Tensor


@dataclass(frozen=True)
class LossSettings:
    """Keys of `[preference]`."""

    beta: float
    label_smoothing: float = 0.0
    discopop_tau: float = 0.05


def sum_by_sequence(values: Tensor, sequence_of: Tensor, number: int) -> Tensor:
    """Sums (number,) of values (targets,) over the sequences they belong to."""
    return torch.zeros(number, device=values.device, dtype=values.dtype).index_add(0, sequence_of, values)


def sigmoid(pairs: Pairs, settings: LossSettings) -> Tensor:
    """DPO's own loss of each pair."""
    ratio = pairs.chosen - pairs.reference_chosen - (pairs.rejected - pairs.reference_rejected)
    return -F.logsigmoid(settings.beta * ratio)


PAIR_LOSSES = {"sigmoid": sigmoid}


def pair_metrics(pairs: Pairs, settings: LossSettings) -> dict[str, Tensor]:
    """Sums over the pairs, without gradient. Equal rewards count as a wrong verdict, as in TRL."""
    chosen = settings.beta * (pairs.chosen - pairs.reference_chosen).detach()
    rejected = settings.beta * (pairs.rejected - pairs.reference_rejected).detach()
    return {
        "rewards/chosen": chosen.sum(),
        "rewards/rejected": rejected.sum(),
        "rewards/margins": (chosen - rejected).sum(),
        "rewards/accuracies": (chosen > rejected).float().sum(),
    }
