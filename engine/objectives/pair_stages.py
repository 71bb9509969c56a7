"""Stages on pairs: chosen answers become likelier than rejected ones. Losses and their names are TRL's.

Each is a mean over the pairs of a step, but `sft`, which is one over the target tokens of the chosen answers.
"""

import torch
from torch import Tensor, nn

from ftui.profile.schema import Profile
from ftui.profile.sections.preference import PreferenceSection

from . import Loss, Objective, add_up
from .answers import answer_lengths, length_weights, policy_weights, sum_by_sequence
from .log_probs import TokenLogProbs, target_log_probs
from .loss import Batch
from .pair_losses import PAIR_LOSSES, LossSettings, Pairs, odds_metrics, pair_metrics

SFT = "sft"
PER_TOKEN = {"orpo": "odds_ratio", "simpo": "simpo", "cpo": "ipo"}
"""The loss of a stage that compares log-probabilities per token: so do its rewards (in TRL, too)."""


def stage(profile: Profile) -> Objective:
    """The objectives `dpo`, `orpo`, `simpo` and `cpo`; their keys are those of `[preference]`."""
    name, section = profile.run.stage, profile.preference
    losses = losses_of(name, section)
    per_token = {kind for kind, _ in losses} - {SFT} == {PER_TOKEN.get(name)}
    settings = LossSettings(section.beta, section.label_smoothing, section.discopop_tau, section.simpo_gamma)

    def loss(model: nn.Module, batch: Batch) -> Loss:
        log_probs = target_log_probs(model, batch, squares=section.use_weighting)
        pairs = make_pairs(log_probs.values, batch, section.ld_alpha)
        weights = _pair_weights(log_probs, batch) if section.use_weighting else None
        sums: dict[str, Tensor] = {}
        each: dict[str, Tensor] = {}
        metrics = pair_metrics(pairs.per_token if per_token else pairs, settings)
        for kind, factor in losses:
            if kind == SFT:
                of_targets = _chosen_nats(log_probs.values, batch)
                nats = of_targets.sum()
                sums["chosen_targets"], metrics["nll_loss"] = factor * nats, nats.detach()
                each["chosen_targets"] = factor * of_targets.detach()
            else:
                values = PAIR_LOSSES[kind](pairs, settings)
                values = factor * (values if weights is None else weights * values)
                add_up(sums, {"examples": values.sum()})
                add_up(each, {"examples": values.detach()})
        if log_probs.balance is not None:
            sums["targets"] = len(batch.target_ids) * log_probs.balance
        return Loss(sums, metrics | (odds_metrics(pairs) if name == "orpo" else {}), each)

    return Objective(name, loss, per="examples", others={"nll_loss": "chosen_targets"})


def losses_of(stage: str, section: PreferenceSection) -> tuple[tuple[str, float], ...]:
    """The losses that a stage adds up, each with its factor."""
    if stage == "orpo":
        return ("odds_ratio", 1.0), (SFT, 1.0)
    if stage == "simpo":
        return (("simpo", 1.0),)
    losses = section.weighted_losses(stage)
    return losses if stage == "dpo" else (*losses, (SFT, section.cpo_alpha))


def make_pairs(log_probs: Tensor, batch: Batch, ld_alpha: float | None = None) -> Pairs:
    """Log-probabilities of the targets (targets,) summed over each answer; without a reference, its sums are 0.

    With `ld_alpha`, tokens beyond the shorter answer of a pair count so much, in both models.
    """
    assert batch.sequence_of is not None, "answers of pairs are numbered"
    number = 2 * batch.amounts["examples"]
    reference = torch.zeros_like(log_probs) if batch.reference is None else batch.reference
    if ld_alpha is not None:
        weights = length_weights(batch.sequence_of, number, ld_alpha)
        log_probs, reference = weights * log_probs, weights * reference
    policy = sum_by_sequence(log_probs, batch.sequence_of, number)
    references = sum_by_sequence(reference, batch.sequence_of, number)
    lengths = answer_lengths(batch.sequence_of, number)
    return Pairs(policy[::2], policy[1::2], references[::2], references[1::2], lengths[::2], lengths[1::2])


def _pair_weights(log_probs: TokenLogProbs, batch: Batch) -> Tensor:
    assert log_probs.squares is not None and batch.sequence_of is not None, "they were asked for"
    return policy_weights(log_probs.values, log_probs.squares, batch.sequence_of, 2 * batch.amounts["examples"])


def _chosen_nats(log_probs: Tensor, batch: Batch) -> Tensor:
    """(targets,) cross-entropy of the target tokens of the chosen answers, 0 of all others."""
    assert batch.sequence_of is not None, "answers of pairs are numbered"
    return -torch.where(batch.sequence_of % 2 == 0, log_probs, 0)
