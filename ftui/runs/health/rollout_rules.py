"""What goes wrong as a model learns from rewards, told from the figures of its steps. Names of figures are TRL's.

Limits are wide: an alarm shall be rare on a run that learns. Two windows of steps are compared by their means, and a
difference counts from `rewards_apart` standard errors on.
"""

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from statistics import fmean, variance
from typing import NamedTuple

from ftui.runs.health.health_rules import HealthFinding, Thresholds

Figures = Mapping[str, float | None]
"""What was measured in a step, by name."""

WINDOW = 20
READ_ANSWERS = "Read them: `ftui rollouts {run} --best`."


class Windows(NamedTuple):
    """`first`, `before` and `now`: the first `WINDOW` steps of an attempt, the newest ones, and those before them (none
    while the newest are not `WINDOW` steps later)."""

    first: Sequence[Figures]
    before: Sequence[Figures]
    now: Sequence[Figures]


class RolloutMonitor:
    """Takes in the figures of an attempt's steps as they come. Its memory does not grow."""

    def __init__(self, limits: Thresholds) -> None:
        self._limits = limits
        self._first: list[Figures] = []
        self._newest: deque[Figures] = deque(maxlen=2 * WINDOW)

    def read(self, figures: Figures) -> list[HealthFinding]:
        """What is wrong by the newest `WINDOW` steps; nothing before there are as many."""
        if len(self._first) < WINDOW:
            self._first.append(figures)
        self._newest.append(figures)
        newest = list(self._newest)
        if len(newest) < WINDOW:
            return []
        windows = Windows(self._first, newest[:-WINDOW], newest[-WINDOW:])
        return [finding for rule in _RULES for finding in rule(windows, self._limits)]


def _is_ppo(windows: Windows) -> bool:
    return "objective/kl_coef" in windows.now[-1]


def _without_spread(windows: Windows, limits: Thresholds) -> Iterator[HealthFinding]:
    share, what = _mean(windows.now, "frac_reward_zero_std"), "groups"
    if share is None and _is_ppo(windows):  # its answers are to different prompts: those of a step are one group
        share, what = _share_of_even_steps(windows.now), "steps"
    if share is not None and share > limits.groups_without_spread:
        yield HealthFinding(
            "groups_without_spread",
            f"in {share:.0%} of the {what} all answers have the same reward: there is hardly anything to learn from",
            "Take prompts that the model answers right now and then, or a reward with steps between; where all are "
            "right it has learned them: `ftui stop {run}`.",
        )


def _share_of_even_steps(steps: Sequence[Figures]) -> float | None:
    """Of the steps that have rewards, those in which each of these was the same for all answers."""
    spreads = [
        [value for name, value in one.items() if name.startswith("rewards/") and name.endswith("/std")] for one in steps
    ]
    known = [of_step for of_step in spreads if of_step and None not in of_step]
    return sum(not any(of_step) for of_step in known) / len(known) if 2 * len(known) > len(steps) else None


def _truncated(windows: Windows, limits: Thresholds) -> Iterator[HealthFinding]:
    share = _mean(windows.now, "completions/clipped_ratio")
    if share is not None and share > limits.answers_truncated:
        yield HealthFinding(
            "answers_truncated",
            f"{share:.0%} of the answers are cut off",
            "Raise max_completion_length, or give the reward 'overlong' where answers do not end"
            f"{', or set ppo.missing_eos_penalty = 1' if _is_ppo(windows) else ''}.",
        )


def _longer_for_nothing(windows: Windows, limits: Thresholds) -> Iterator[HealthFinding]:
    old, new = (_mean(steps, "completions/mean_length") for steps in (windows.before, windows.now))
    grows = len(windows.before) == WINDOW and old and new and new > limits.length_without_reward * old
    if grows and _move(windows, "reward") <= limits.rewards_apart:
        yield HealthFinding(
            "length_without_reward",
            f"answers grew from {old:.0f} to {new:.0f} tokens, and their reward did not",
            f'Give the reward "overlong"{"" if _is_ppo(windows) else _OTHER_LOSS}.',
        )


_OTHER_LOSS = ', or set grpo.loss_type = "dr_grpo", whose loss does not favour length'


def _against_each_other(windows: Windows, limits: Thresholds) -> Iterator[HealthFinding]:
    names = sorted(name for name in windows.now[-1] if name.startswith("rewards/") and name.endswith("/mean"))
    moves = {name: _move(windows, name) for name in names}
    for pair in combinations(names, 2):
        low, high = sorted(pair, key=moves.__getitem__)
        if moves[low] < -limits.rewards_apart and moves[high] > limits.rewards_apart:
            rising, falling = (name.removeprefix("rewards/").removesuffix("/mean") for name in (high, low))
            yield HealthFinding(
                "rewards_apart",
                f"reward {rising} rises while {falling} falls: one is won at the other's cost",
                f"{READ_ANSWERS} Change rewards.reward_weights, or the function {rising} where it pays for nothing.",
            )


def _entropy_gone(windows: Windows, limits: Thresholds) -> Iterator[HealthFinding]:
    first, now = _mean(windows.first, "entropy"), _mean(windows.now, "entropy")
    if first and now is not None and now < limits.entropy_gone * first:
        yield HealthFinding(
            "entropy_gone",
            f"entropy fell from {first:.3g} to {now:.3g}: answers hardly vary any more, and teach little",
            "Fork from a checkpoint before it (`ftui checkpoints {run}`) with a tenth of train.learning_rate"
            f"{', or with grpo.epsilon_high = 0.28' if _is_held_back(windows) else ''}.",
        )


def _is_held_back(windows: Windows) -> bool:
    """Whether answers that should become likelier were clipped: never, while each is used for one step alone."""
    return not _is_ppo(windows) and bool(_mean(windows.now, "clip_ratio/high_mean"))


def _identical(windows: Windows, limits: Thresholds) -> Iterator[HealthFinding]:
    share = _mean(windows.now, "completions/identical_ratio")
    if share is not None and share > limits.identical_answers:
        yield HealthFinding(
            "identical_answers",
            f"{share:.0%} of the answers are, to the letter, another answer to the same prompt",
            f"{READ_ANSWERS} Where they are not right, fork from a checkpoint before it with a tenth of "
            "train.learning_rate.",
        )


def _above_reference(windows: Windows, limits: Thresholds) -> Iterator[HealthFinding]:
    """Whoever wrote the reference answers did what was wanted; a reward above theirs is for something else."""
    reference, now = _mean(windows.now, "reference_reward"), _mean(windows.now, "reward")
    if reference is not None and now is not None and now > reference + limits.reward_above_reference:
        yield HealthFinding(
            "reward_above_reference",
            f"the mean reward is {now:.3g}, and that of the reference answers {reference:.3g}",
            f"{READ_ANSWERS} The reward may pay for something that nobody wants.",
        )


def _kl_spent(windows: Windows, limits: Thresholds) -> Iterator[HealthFinding]:
    kl = _nats_a_token(windows.now)
    if kl is not None and kl > limits.kl_budget:
        key = "ppo.kl_coef, or set ppo.target" if _is_ppo(windows) else "grpo.beta"
        yield HealthFinding(
            "kl_budget",
            f"the model is {kl:.3g} nats a token away from the one it began as",
            f"Raise {key}, or stop here: what is gained this far from the start is often for the reward alone.",
        )


def _nats_a_token(steps: Sequence[Figures]) -> float | None:
    """The distance from the reference: GRPO's loss has it by token, PPO's reward by answer."""
    of_answers, length = _mean(steps, "objective/kl"), _mean(steps, "completions/mean_length")
    return of_answers / length if of_answers is not None and length else _mean(steps, "kl")


_RULES = (
    _without_spread, _truncated, _longer_for_nothing, _against_each_other, _entropy_gone, _identical, _above_reference,
    _kl_spent,
)  # fmt: skip


def _values(steps: Sequence[Figures], name: str) -> list[float]:
    return [value for one in steps if (value := one.get(name)) is not None and math.isfinite(value)]


def _mean(steps: Sequence[Figures], name: str) -> float | None:
    """`None` unless most of them have it."""
    values = _values(steps, name)
    return fmean(values) if values and 2 * len(values) > len(steps) else None


def _move(windows: Windows, name: str) -> float:
    """By how many standard errors the mean has moved up (Welch); 0 where there is too little to tell."""
    old, new = _values(windows.before, name), _values(windows.now, name)
    if min(len(old), len(new)) < WINDOW // 2:
        return 0.0
    difference = fmean(new) - fmean(old)
    error = math.sqrt(variance(old) / len(old) + variance(new) / len(new))
    return difference / error if error else math.copysign(math.inf, difference) if difference else 0.0
