"""What can be wrong with a run that trains: the rules by name, what each finding says, and the limits they use."""

from typing import Literal

import msgspec

Level = Literal["red", "amber"]

RED = {
    "non_finite": "a loss, a gradient or a trained weight is NaN or infinite",
    "zero_loss": "the loss is exactly 0: nothing is learned from",
    "worse_than_guessing": "the loss is above ln(vocabulary), that of guessing every token evenly",
    "dead_adapter": "a target of the adapter has no effect, or no gradient reaches it",
    "gpu_errors": "the GPU reports memory errors it could not correct, or an XID error",
}
"""Exact rules: what they find is so, whatever else is true of the run."""

AMBER = {
    "spike": "the loss of a few steps is far above those before",
    "gradient_spike": "the gradient of a few steps is far longer than those before, for as many target tokens",
    "divergence": "the loss rises and does not come back",
    "plateau": "the loss falls no further although the learning rate is still high",
    "overfitting": "the evaluation rows get worse, row by row",
    "memorisation": "the loss in training is far below that of evaluation: rows are known by heart",
    "data_starvation": "steps wait for their rows",
    "slow_steps": "fewer tokens a second than before, at as many tokens a step",
    "throttling": "the GPU lowers its clock for heat or for want of power",
    "host_memory": "host memory will be full before the run has ended",
    "disk": "the disk will be full before the run has ended",
    "clipping": "nearly every gradient is clipped, and by far",
}
"""Statistical rules, and forecasts: each is wrong now and then, how often stands in docs/health.md."""

OF_ROLLOUTS = {
    "groups_without_spread": "the answers to nearly every prompt have the same reward",
    "answers_truncated": "many answers are cut off",
    "length_without_reward": "answers grow, and their reward does not",
    "rewards_apart": "one reward rises while another falls",
    "entropy_gone": "answers hardly vary any more",
    "identical_answers": "the answers to a prompt are the same, to the letter",
    "reward_above_reference": "answers are rewarded more than those that stand in the rows",
    "kl_budget": "the model is far from the one it began as",
}
"""Amber, too: what goes wrong as a model learns from rewards."""

RULES = RED | AMBER | OF_ROLLOUTS


class HealthFinding(msgspec.Struct, frozen=True):
    """What a rule has found: the evidence with its numbers, and one thing to do. `{run}` stands for the run's name."""

    rule: str
    evidence: str
    suggestion: str


class Thresholds(msgspec.Struct, frozen=True, kw_only=True):
    """The limit of each statistical rule, as `[health]` sets it."""

    spike: float = 12.0
    """Robust standard deviations that the loss of one step is above those before it. Two of three steps in a row are
    a spike at half of it."""
    gradient_spike: float = 12.0
    """The same of the logarithm of the gradient's length."""
    divergence: float = 9.0
    """Standard deviations of a mean of 20 steps that it is above its own lowest point."""
    plateau: float = 0.001
    """Share of the evaluation loss that it has to fall by in four evaluations."""
    overfitting: float = 3.0
    """Standard errors that the evaluation rows are worse by, on average and row by row, than at their best."""
    memorisation: float = 0.5
    """Loss in training as a share of the evaluation loss."""
    data_starvation: float = 0.2
    """Share of the time of a step that is spent waiting for its rows."""
    slow_steps: float = 0.3
    """Share of the tokens a second that is gone."""
    throttling: float = 30.0
    """Seconds in a row."""
    clipping: float = 10.0
    """Times that the usual gradient is longer than train.max_grad_norm."""
    groups_without_spread: float = 0.8
    """Share of the groups of 20 steps; the same for the next two of answers."""
    answers_truncated: float = 0.3
    identical_answers: float = 0.9
    length_without_reward: float = 1.3
    """Times that answers are longer than 20 steps before."""
    rewards_apart: float = 4.0
    """Standard errors between the means of 20 steps and of those before."""
    entropy_gone: float = 0.1
    """Share of the entropy of the first 20 steps of an attempt."""
    reward_above_reference: float = 0.0
    """By how much the mean reward is above that of the rows' own answers."""
    kl_budget: float = 2.0
    """Nats a token, the mean of 20 steps."""


def level_of(rule: str) -> Level:
    """Red for exact rules, amber for all others."""
    return "red" if rule in RED else "amber"
