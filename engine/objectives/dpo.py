"""Direct preference optimisation: chosen answers become likelier than rejected ones, measured against a reference.

The losses are those of TRL's `DPOTrainer`; each is a mean over the pairs of a step, but `sft`, which is one over the
tokens of the chosen answers.
"""

import torch
from torch import Tensor, nn

from ftui.profile.schema import Profile

from . import Loss, Objective
from .answers import answer_lengths, sum_by_sequence
from .log_probs import target_log_probs
from .loss import Batch
from .pair_losses import PAIR_LOSSES, LossSettings, Pairs, pair_metrics


def stage(profile: Profile) -> Objective:
    """The objective `dpo`; its keys are those of `[preference]`."""
    section = profile.preference
    settings = LossSettings(section.beta, section.label_smoothing, section.discopop_tau)

    def loss(model: nn.Module, batch: Batch) -> Loss:
        log_probs = target_log_probs(model, batch).values
        pairs = make_pairs(log_probs, batch)
        sums: dict[str, Tensor] = {}
        for name, weight in section.weighted_losses:
            if name == "sft":
                unit, value = "chosen_targets", -pairs.chosen.sum()
            else:
                unit, value = "examples", PAIR_LOSSES[name](pairs, settings).sum()
            sums[unit] = sums.get(unit, torch.zeros_like(value)) + weight * value
        return Loss(sums, pair_metrics(pairs, settings))

    return Objective("dpo", loss, per="examples")


def make_pairs(log_probs: Tensor, batch: Batch) -> Pairs:
    """Log-probabilities of the targets (targets,) summed over each answer; without a reference its are 0."""
    assert batch.sequence_of is not None, "answers of pairs are numbered"
    number = 2 * batch.amounts["examples"]
    policy = sum_by_sequence(log_probs, batch.sequence_of, number)
    reference = torch.zeros_like(log_probs) if batch.reference is None else batch.reference
    references = sum_by_sequence(reference, batch.sequence_of, number)
    lengths = answer_lengths(batch.sequence_of, number)
    return Pairs(policy[::2], policy[1::2], references[::2], references[1::2], lengths[::2], lengths[1::2])
