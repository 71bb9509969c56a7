"""Whether what there is of something will last to the end of the run."""

from collections.abc import Sequence

FEWEST = 120
"""Samples: fewer tell nothing of a trend."""
UNEVEN = 3.0
"""How many times more may be used up in one half than in the other, for it to go on like that."""
ALMOST_NONE = 0.02


def seconds_left(times: Sequence[float], free: Sequence[float]) -> float | None:
    """Seconds until nothing is free, if it goes on as it has; `None` where there is no steady decrease.

    A steady one: of three parts of the time, the most that was ever free falls from each to the next, by amounts that
    are alike. What is saved and deleted again, or taken once, is none.

    Args:
        times: of the samples, in seconds, oldest first.
        free: what was free then.
    """
    if len(times) < FEWEST:
        return None
    third = len(times) // 3
    most = [max(free[start : start + third]) for start in (0, third, len(free) - third)]
    early, late = most[0] - most[1], most[1] - most[2]
    if min(early, late) <= 0 or max(early, late) > UNEVEN * min(early, late):
        return None
    span = times[-third] - times[0]
    return free[-1] / ((early + late) / span) if span > 0 else None
