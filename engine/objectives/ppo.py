"""Proximal policy optimisation: tokens become likelier the better they turned out than was expected."""

from torch import nn

from ftui.profile.schema import Profile

from ..reinforcement.value_head import token_values
from . import Loss, Objective
from .log_probs import target_log_probs
from .loss import Batch
from .ppo_losses import PpoSettings, SampledTokens, ppo_loss, ppo_metrics


def stage(profile: Profile) -> Objective:
    """The objective `ppo`: a mean over the tokens of a step; its keys are those of `[ppo]`."""
    section = profile.ppo
    settings = PpoSettings(section.cliprange, section.vf_coef, section.cliprange_value)

    def loss(model: nn.Module, batch: Batch) -> Loss:
        assert batch.advantages is not None and batch.returns is not None, "answers are judged"
        assert batch.old is not None and batch.values is not None, "they were measured before"
        found = target_log_probs(model, batch, entropy=True, hidden=True, temperature=section.temperature)
        assert found.entropy is not None and found.hidden is not None, "they were asked for"
        values = token_values(model, found.hidden)
        facts = SampledTokens(found.values, values, batch.old, batch.values, batch.returns, batch.advantages)
        total = ppo_loss(facts, settings)
        if found.balance is not None:
            total = total + len(batch.target_ids) * found.balance
        return Loss({"targets": total}, ppo_metrics(facts, settings) | {"entropy": found.entropy.sum()})

    return Objective("ppo", loss)
