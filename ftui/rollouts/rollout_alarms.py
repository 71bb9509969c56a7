"""What goes wrong as a model learns from rewards, told from the figures of its rollouts. Names of figures are TRL's.

Thresholds are wide: an alarm shall be rare on a run that learns. Two windows of rollouts are compared by their means,
and a difference counts from `SIGMAS` standard errors on.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from statistics import fmean, variance
from typing import NamedTuple

Figures = Mapping[str, float | None]
"""What was measured of a rollout, by name."""

WINDOW = 20
SIGMAS = 4.0
MOST_WITHOUT_SPREAD = 0.8
MOST_TRUNCATED = 0.3
LENGTH_GROWS = 1.3
ENTROPY_LEFT = 0.1
"""Share of the entropy of the first rollouts below which sampling hardly varies any more."""


class RolloutAlarm(NamedTuple):
    """`name` stays the same for the same trouble; `words` have its numbers."""

    name: str
    words: str


def find_alarms(rollouts: Sequence[Figures]) -> list[RolloutAlarm]:
    """What is wrong by the newest `WINDOW` rollouts; nothing before there are as many."""
    if len(rollouts) < WINDOW:
        return []
    return [alarm for rule in _RULES for alarm in rule(rollouts)]


def _without_spread(rollouts: Sequence[Figures]) -> Iterator[RolloutAlarm]:
    share = _mean(rollouts[-WINDOW:], "frac_reward_zero_std")
    if share is not None and share > MOST_WITHOUT_SPREAD:
        words = f"in {share:.0%} of the groups all answers have the same reward: there is hardly anything to learn from"
        yield RolloutAlarm("groups_without_spread", words)


def _truncated(rollouts: Sequence[Figures]) -> Iterator[RolloutAlarm]:
    share = _mean(rollouts[-WINDOW:], "completions/clipped_ratio")
    if share is not None and share > MOST_TRUNCATED:
        words = f"{share:.0%} of the answers are cut off: grpo.max_completion_length is too short, or they do not end"
        yield RolloutAlarm("answers_truncated", words)


def _longer_for_nothing(rollouts: Sequence[Figures]) -> Iterator[RolloutAlarm]:
    before, now = rollouts[-2 * WINDOW : -WINDOW], rollouts[-WINDOW:]
    old, new = _mean(before, "completions/mean_length"), _mean(now, "completions/mean_length")
    if old and new and new > LENGTH_GROWS * old and _move(before, now, "reward") <= SIGMAS:
        words = f"answers grew from {old:.0f} to {new:.0f} tokens, and their reward did not"
        yield RolloutAlarm("length_without_reward", words)


def _against_each_other(rollouts: Sequence[Figures]) -> Iterator[RolloutAlarm]:
    before, now = rollouts[-2 * WINDOW : -WINDOW], rollouts[-WINDOW:]
    names = sorted(name for name in now[-1] if name.startswith("rewards/") and name.endswith("/mean"))
    moves = {name: _move(before, now, name) for name in names}
    for pair in combinations(names, 2):
        low, high = sorted(pair, key=moves.__getitem__)
        if moves[low] < -SIGMAS and moves[high] > SIGMAS:
            rising, falling = (name.removeprefix("rewards/").removesuffix("/mean") for name in (high, low))
            words = f"reward {rising} rises while {falling} falls: one is won at the other's cost"
            yield RolloutAlarm("rewards_apart", words)


def _entropy_gone(rollouts: Sequence[Figures]) -> Iterator[RolloutAlarm]:
    first, now = _mean(rollouts[:WINDOW], "entropy"), _mean(rollouts[-WINDOW:], "entropy")
    if first and now is not None and now < ENTROPY_LEFT * first:
        words = f"entropy fell from {first:.3g} to {now:.3g}: answers hardly vary any more, and groups teach little"
        yield RolloutAlarm("entropy_gone", words)


_RULES = (_without_spread, _truncated, _longer_for_nothing, _against_each_other, _entropy_gone)


def _values(rollouts: Sequence[Figures], name: str) -> list[float]:
    return [value for one in rollouts if (value := one.get(name)) is not None and math.isfinite(value)]


def _mean(rollouts: Sequence[Figures], name: str) -> float | None:
    """`None` unless most of them have it."""
    values = _values(rollouts, name)
    return fmean(values) if values and 2 * len(values) > len(rollouts) else None


def _move(before: Sequence[Figures], now: Sequence[Figures], name: str) -> float:
    """By how many standard errors the mean has moved up (Welch); 0 where there is too little to tell."""
    old, new = _values(before, name), _values(now, name)
    if min(len(old), len(new)) < WINDOW // 2:
        return 0.0
    difference = fmean(new) - fmean(old)
    error = math.sqrt(variance(old) / len(old) + variance(new) / len(new))
    return difference / error if error else math.copysign(math.inf, difference) if difference else 0.0
