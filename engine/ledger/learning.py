"""How rows were learned over the epochs: pure functions of a ledger."""

from dataclasses import dataclass

import numpy as np

from ftui.helper.blame_facts import Course

from .ledger_file import Ledger

UNLEARNED = 0.9  # of its first loss
AT_ONCE = 0.2  # of its first loss
NOTHING = 0.05  # nats: a token as good as known
LEAST_RISE = 0.1  # nats


@dataclass(frozen=True)
class Courses:
    """Of each row that was seen, by number: how often, and its mean losses (float64, nats).

    `second` is NaN of one that was seen once; `best` is the lowest but the last, or the first.
    """

    numbers: np.ndarray
    times: np.ndarray
    first: np.ndarray
    second: np.ndarray
    best: np.ndarray
    last: np.ndarray

    def find(self, course: Course) -> np.ndarray:
        """Places of the rows that have this course, the plainest case first. One that is not finite has none."""
        seen_again = self.times > 1
        with np.errstate(invalid="ignore"):
            match course:
                case "never_learned":
                    usual = float(np.median(self.last[seen_again])) if seen_again.any() else 0.0
                    is_one = seen_again & (self.last > UNLEARNED * self.first) & (self.last > max(usual, NOTHING))
                    rank = -self.last
                case "forgotten":
                    fall, rise = self.first - self.best, self.last - self.best
                    is_one = (self.times > 2) & (fall > LEAST_RISE) & (rise > LEAST_RISE) & (rise >= fall / 2)
                    rank = -rise
                case "learned_at_once":
                    is_one = (self.first <= NOTHING) | (seen_again & (self.second <= AT_ONCE * self.first))
                    rank = np.where(np.isnan(self.second), self.first, self.second)
        found = np.flatnonzero(is_one & np.isfinite(self.first) & np.isfinite(self.last))
        return found[np.argsort(rank[found], kind="stable")]


def row_courses(ledger: Ledger) -> Courses:
    """The course of every row of a ledger."""
    order = np.argsort(ledger.rows["number"], kind="stable")  # by number, then by step
    rows = ledger.rows[order]
    losses = rows["loss"].astype(np.float64) / np.maximum(1, rows["count"])
    starts = np.flatnonzero(np.diff(rows["number"].astype(np.int64), prepend=-1))
    ends = np.append(starts, len(rows))[1:]
    times = ends - starts
    second = np.full(len(starts), np.nan)
    second[times > 1] = losses[starts[times > 1] + 1]
    but_last = losses.copy()
    but_last[(ends - 1)[times > 1]] = np.inf
    best = np.minimum.reduceat(but_last, starts) if len(starts) else np.zeros(0)
    return Courses(rows["number"][starts].astype(np.int64), times, losses[starts], second, best, losses[ends - 1])


def seen_before(ledger: Ledger, step: int) -> tuple[np.ndarray, np.ndarray]:
    """For each row of a step its mean loss when it was last seen before (NaN: never), and in which step (0: none)."""
    rows, end = ledger.at(step), int(np.searchsorted(ledger.steps, step))
    losses, steps = np.full(len(rows), np.nan), np.zeros(len(rows), np.int64)
    mine = np.flatnonzero(np.isin(ledger.rows["number"][:end], rows["number"]))
    earlier = ledger.rows["number"][mine]
    for place, number in enumerate(rows["number"]):
        found = mine[earlier == number]
        if len(found):
            row = ledger.rows[found[-1]]
            losses[place], steps[place] = row["loss"] / max(1, row["count"]), ledger.steps[found[-1]]
    return losses, steps
