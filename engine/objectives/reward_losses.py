"""Reward models: a score for each sequence, and the loss of pairs of scores (Bradley-Terry). Formulas are TRL's."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..models.transformers_internals import packing_is
from .loss import Batch, model_and_inputs


def sequence_scores(model: nn.Module, batch: Batch) -> Tensor:
    """(sequences,) float32: what a model of type `AutoModelForSequenceClassification` with one label says.

    It is read at the last real token, which comes from lengths: the padding token may be one that ends a text. The head
    computes in the type of its weights: bfloat16 has 8 bits, and near scores would tie.
    """
    assert batch.ends is not None, "sequences that get a score are read to their end"
    base, inputs = model_and_inputs(model, batch)
    with packing_is(batch.position_ids is not None):
        states: Tensor = base.base_model(**inputs).last_hidden_state.flatten(0, 1)[batch.ends]
    head: Any = base.score
    with torch.autocast(states.device.type, enabled=False):
        scores: Tensor = head(states.to(head.weight.dtype))
    return scores.squeeze(-1).float()


def reward_loss(chosen: Tensor, rejected: Tensor, margins: Tensor | None = None) -> Tensor:
    """(pairs,) from scores (pairs,): minus ln of the probability that the chosen one is better, by its margin."""
    difference = chosen - rejected
    return -F.logsigmoid(difference if margins is None else difference - margins)


def centring_loss(chosen: Tensor, rejected: Tensor) -> Tensor:
    """(pairs,): how far the scores of a pair are from a mean of 0 (Eisenstein et al. 2023).

    It is to be multiplied by `center_rewards_coefficient`.
    """
    return (chosen + rejected) ** 2


def reward_metrics(chosen: Tensor, rejected: Tensor) -> dict[str, Tensor]:
    """Sums over the pairs, without gradient, by the names of the stages that compare answers. A tie is no success."""
    chosen, rejected = chosen.detach(), rejected.detach()
    return {
        "rewards/chosen": chosen.sum(),
        "rewards/rejected": rejected.sum(),
        "rewards/accuracies": (chosen > rejected).float().sum(),
        "rewards/margins": (chosen - rejected).sum(),
    }
