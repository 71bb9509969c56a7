"""Kahneman-Tversky optimisation: single answers, each judged good or bad, measured against a reference.

How far the model has moved from its reference (z0) is a mean over the whole step, on prompts with the answers of other
rows: it is measured before the step's first micro-batch (`Batch.divergence`).
"""

import torch
from torch import nn

from ftui.profile.schema import Profile

from . import Loss, Objective
from .answers import sum_by_sequence
from .kto_losses import KTO_LOSSES, JudgedAnswers, VerdictSettings, mean_divergence, verdict_metrics
from .log_probs import target_log_probs
from .loss import Batch


def stage(profile: Profile) -> Objective:
    """The objective `kto`; its keys are those of `[preference]`."""
    section = profile.preference
    settings = VerdictSettings(section.beta, section.desirable_weight, section.undesirable_weight)
    ((kind, _),) = section.weighted_losses("kto")
    loss_of, has_divergence = KTO_LOSSES[kind], section.needs_divergence("kto")

    def loss(model: nn.Module, batch: Batch) -> Loss:
        assert batch.sequence_of is not None and batch.labels is not None, "judged answers are numbered"
        number, log_probs = len(batch.labels), target_log_probs(model, batch)
        policy = sum_by_sequence(log_probs.values, batch.sequence_of, number)
        values = (
            torch.zeros_like(log_probs.values) if batch.reference is None else batch.reference
        )  # where only time is measured
        answers = JudgedAnswers(policy, sum_by_sequence(values, batch.sequence_of, number), batch.labels > 0)
        z0 = mean_divergence(torch.tensor(batch.divergence, device=policy.device), 1)
        each = loss_of(answers, z0, settings)
        losses = {"examples": each.sum()}
        if log_probs.balance is not None:
            losses["targets"] = len(batch.target_ids) * log_probs.balance
        divergence = {"kl": z0 * number} if has_divergence else {}
        return Loss(losses, verdict_metrics(answers, settings) | divergence, {"examples": each.detach()})

    others = {f"{name}/{side}": side for name in ("rewards", "logps") for side in ("chosen", "rejected")}
    return Objective("kto", loss, per="examples", others=others)
