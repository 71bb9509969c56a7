"""`[health]`: what is watched while a run trains, and what is done about it."""

from typing import Any, Literal

from pydantic import field_validator

from ftui.profile.sections.fields import Section, conduct, one_or_list
from ftui.runs.health.health_rules import Thresholds

Rule = Literal[
    "non_finite", "zero_loss", "worse_than_guessing", "dead_adapter", "gpu_errors", "spike", "gradient_spike",
    "divergence", "plateau", "overfitting", "memorisation", "data_starvation", "slow_steps", "throttling",
    "host_memory", "disk", "clipping", "groups_without_spread", "answers_truncated", "length_without_reward",
    "rewards_apart", "entropy_gone", "identical_answers", "reward_above_reference", "kl_budget",
]  # fmt: skip
RolloutRule = Literal[
    "groups_without_spread", "answers_truncated", "length_without_reward", "rewards_apart", "entropy_gone",
    "identical_answers", "reward_above_reference", "kl_budget",
]  # fmt: skip
DEFAULTS = Thresholds()


class ThresholdsSection(Section):
    """`[health.thresholds]`: the limits of the rules that may be wrong. How often they are stands in docs/health.md."""

    spike: float = conduct(DEFAULTS.spike, gt=0)
    """Robust standard deviations that the loss of one step must be above those before it, for as many target tokens.
    Two of three steps in a row are a spike at half of it."""

    gradient_spike: float = conduct(DEFAULTS.gradient_spike, gt=0)
    """The same of the logarithm of the gradient's length."""

    divergence: float = conduct(DEFAULTS.divergence, gt=0)
    """Standard deviations that a mean of about 20 losses must be above its lowest point."""

    plateau: float = conduct(DEFAULTS.plateau, gt=0, lt=1)
    """Share of the evaluation loss: four evaluations that differ by less, at a high learning rate, are a plateau."""

    overfitting: float = conduct(DEFAULTS.overfitting, gt=0)
    """Standard errors that the evaluation rows must be worse by than at their best, compared row by row."""

    memorisation: float = conduct(DEFAULTS.memorisation, gt=0, lt=1)
    """Rows are known by heart where the loss in training is below this share of the evaluation loss."""

    data_starvation: float = conduct(DEFAULTS.data_starvation, gt=0, lt=1)
    """Share of the time of a step that may be spent waiting for its rows."""

    slow_steps: float = conduct(DEFAULTS.slow_steps, gt=0, lt=1)
    """Share of the tokens a second that must be gone, at as many tokens a step."""

    throttling: float = conduct(DEFAULTS.throttling, gt=0)
    """Seconds in a row that a GPU must lower its clock for heat or want of power."""

    clipping: float = conduct(DEFAULTS.clipping, ge=1)
    """Times that the usual gradient must be longer than train.max_grad_norm."""

    groups_without_spread: float = conduct(DEFAULTS.groups_without_spread, gt=0, lt=1)
    """Share of the groups of 20 steps (in stage ppo, of these steps) whose answers all have the same reward."""

    answers_truncated: float = conduct(DEFAULTS.answers_truncated, gt=0, lt=1)
    """Share of the answers of 20 steps that are cut off."""

    identical_answers: float = conduct(DEFAULTS.identical_answers, gt=0, lt=1)
    """Share of the answers of 20 steps that are another one to the same prompt, to the letter."""

    length_without_reward: float = conduct(DEFAULTS.length_without_reward, gt=1)
    """Times that answers must be longer than 20 steps before, while their reward is no higher."""

    rewards_apart: float = conduct(DEFAULTS.rewards_apart, gt=0)
    """Standard errors that one reward must rise by within 20 steps, and another fall."""

    entropy_gone: float = conduct(DEFAULTS.entropy_gone, gt=0, lt=1)
    """Share of the entropy of the first 20 steps that must be left."""

    reward_above_reference: float = conduct(DEFAULTS.reward_above_reference, ge=0)
    """By how much the mean reward of 20 steps must be above that of rewards.reference_column."""

    kl_budget: float = conduct(DEFAULTS.kl_budget, gt=0)
    """Nats a token that the model may be away from its reference (grpo.beta or ppo.kl_coef), the mean of 20 steps."""


class HealthSection(Section):
    """`[health]`: what is watched, and when a broken run is ended."""

    max_bad_steps: int = conduct(3, ge=1)
    """End the run after this many steps in a row with a NaN or infinite loss or gradient. No such step is applied."""

    stall_minutes: float | None = conduct(5.0, gt=0)
    """Restart an engine that makes no progress for this long (and for 20 times its usual pace); replace a process that
    tokenises and gives no answer for as long. "none" = never."""

    on_red: Literal["warn", "pause", "park"] = conduct("warn")
    """What a red alarm does beside telling: `pause` keeps the GPU and waits, `park` saves and frees it."""

    act_on: tuple[RolloutRule, ...] = conduct(())
    """Rules about sampled answers that do what on_red says, too: docs/health.md lists them."""

    ignore: tuple[Rule, ...] = conduct(())
    """Rules whose alarms nobody wants, by name, as docs/health.md lists them."""

    thresholds: ThresholdsSection = conduct(ThresholdsSection())
    """Limits of the rules that may be wrong."""

    @field_validator("ignore", "act_on", mode="before")
    @classmethod
    def _one_or_none(cls, given: Any) -> Any:
        return one_or_list(given)
