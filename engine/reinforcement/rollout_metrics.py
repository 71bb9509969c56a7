"""What is measured of the answers of a step. Names are TRL's."""

from collections.abc import Sequence

import numpy as np

from ..rollouts.rollout import Rollout


def measure_answers(rollout: Rollout, answers: Sequence[int]) -> dict[str, float | None]:
    """Rewards and lengths of these answers, whole groups of a scored rollout; `None` where there is nothing to say.

    `reward_std` is the mean over the prompts of the standard deviation (n - 1) of their answers' rewards. What is known
    of the rollout as a whole is that of each of its steps.
    """
    numbers = np.asarray(answers)
    assert rollout.rewards is not None, "it is scored"
    table, totals = rollout.rewards, rollout.rewards.totals[numbers]
    groups = totals.reshape(-1, rollout.group_size)
    spreads = np.array([_spread(group) for group in groups])
    values = {"reward": _mean(totals)}
    if rollout.group_size > 1:
        values["reward_std"] = _mean(spreads)
        values["frac_reward_zero_std"] = float(np.isclose(np.nan_to_num(spreads), 0).mean())
        values["completions/identical_ratio"] = _identical(rollout, numbers)
    for place, name in enumerate(table.names):
        own = table.values[numbers, place]
        values |= {f"rewards/{name}/mean": _mean(own), f"rewards/{name}/std": _none_of_nan(_spread(own))}
    lengths = np.array([len(rollout.completion_ids[number]) for number in numbers])
    ended = rollout.is_complete[numbers]
    values |= {f"completions/{name}_length": float(of(lengths)) for name, of in _OF_LENGTHS}
    values["completions/mean_terminated_length"] = _mean(lengths[ended])
    values["completions/clipped_ratio"] = float(1 - ended.mean())
    return values | dict(rollout.figures)


_OF_LENGTHS = (("mean", np.mean), ("min", np.min), ("max", np.max))


def _identical(rollout: Rollout, numbers: np.ndarray) -> float:
    """The share of the answers of a group that are another one of it; 1 where all are the same."""
    groups = numbers.reshape(-1, rollout.group_size)
    different = [len({rollout.completion_ids[number].tobytes() for number in group}) for group in groups]
    return float(1 - (np.mean(different) - 1) / (rollout.group_size - 1))


def _mean(values: np.ndarray) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else None


def _spread(values: np.ndarray) -> float:
    """Standard deviation (n - 1) of what is known; NaN of fewer than two."""
    known = values[~np.isnan(values)]
    return float(known.std(ddof=1)) if len(known) > 1 else float("nan")


def _none_of_nan(value: float) -> float | None:
    return None if np.isnan(value) else value
