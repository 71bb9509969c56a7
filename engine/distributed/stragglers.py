"""Ranks that are slower than the others for long: every step waits for them."""

from collections.abc import Sequence
from statistics import mean, median_low

from ftui.runs.events import RankSeconds

from .rank_clock import RankTime

SLOWER = 1.3  # times the median rank
STEPS = 50  # in a row: rows that happen to be long do not last
DIGITS = 4  # 0.1 ms: each record of a step has three figures for each rank


def seconds_by_rank(times: Sequence[RankTime]) -> RankSeconds | None:
    """The times of all ranks as a record of a step has them; `None` where there is one rank."""
    if not times:
        return None
    passes, data, communication = ([round(one[column], DIGITS) for one in times] for column in range(3))
    return RankSeconds(passes, data, communication)


class Stragglers:
    """Follows the times of all ranks; each rank that falls behind is named once.

    A rank is slow only where it is so by the place (token or padding) as well: one that is dealt more rows than the
    others in every step is no slower machine.
    """

    def __init__(self) -> None:
        self._late: dict[int, list[float]] = {}
        self._named: set[int] = set()

    def look(self, step: int, times: Sequence[RankTime]) -> list[str]:
        """Take in a step; returns a sentence for each rank that has been slow for `STEPS` steps in a row."""
        own = [one.passes + one.data for one in times]
        paces = [seconds / max(1, one.places) for seconds, one in zip(own, times, strict=True)]
        messages = []
        for rank, one in enumerate(times):
            usual = median_low(own)  # of two ranks the faster one
            if own[rank] < SLOWER * usual or paces[rank] < SLOWER * median_low(paces):
                self._late.pop(rank, None)
                continue
            late = self._late.setdefault(rank, [])
            late.append(own[rank] / usual)
            if len(late) == STEPS and rank not in self._named:
                self._named.add(rank)
                cause = "its rows come late" if one.data > one.passes else "it computes more slowly"
                messages.append(
                    f"Rank {rank} has taken {mean(late) - 1:.0%} longer than the median rank for {STEPS} steps, up to "
                    f"step {step}: {cause}, and every step waits for it."
                )
        return messages
