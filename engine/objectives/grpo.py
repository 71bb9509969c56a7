"""Group relative policy optimisation: answers of the model become likelier the better they are in their group."""

import torch
from torch import nn

from ftui.profile.schema import Profile

from . import Loss, Objective
from .log_probs import target_log_probs
from .loss import Batch
from .policy_losses import PolicySettings, SampledAnswers, policy_loss, policy_metrics


def stage(profile: Profile) -> Objective:
    """The objective `grpo`; its keys are those of `[grpo]`."""
    section = profile.grpo
    settings = PolicySettings(
        section.loss_type, section.importance_sampling_level, section.epsilon, section.epsilon_high, section.delta,
        section.beta, section.use_bias_correction_kl, section.max_completion_length,
    )  # fmt: skip

    def loss(model: nn.Module, batch: Batch) -> Loss:
        assert batch.sequence_of is not None and batch.advantages is not None, "answers are numbered and judged"
        found = target_log_probs(model, batch, entropy=True, temperature=section.temperature)
        assert found.entropy is not None, "it was asked for"
        old = found.values.detach() if batch.old is None else batch.old
        answers = SampledAnswers(found.values, old, batch.reference, batch.advantages, batch.sequence_of)
        amount, total = policy_loss(answers, settings)
        sums = {amount: total}
        if found.balance is not None:
            sums["targets"] = sums.get("targets", torch.zeros_like(total)) + len(batch.target_ids) * found.balance
        return Loss(sums, policy_metrics(answers, settings) | {"entropy": found.entropy.sum()})

    return Objective("grpo", loss)
