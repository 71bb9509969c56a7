"""Which rows are behind the loss of a step, and whether it is them or the model: pure functions of a ledger."""

import math
from dataclasses import dataclass

import numpy as np

from ftui.helper.blame_facts import Verdict

from .ledger_file import Ledger

WINDOW = 32  # steps
FEWEST = 8  # steps to compare with
SIGMA = 4.0
CANDIDATES = 200  # steps that are looked at closely
MAD_TO_SIGMA = 1.4826  # of a normal distribution
LEAST_NOISE = 0.01  # of the usual loss: repeated steps of a few rows have none
FEW_ROWS = 10  # one in so many, at least one, may be what is wrong with a step
EXPLAINED = 1 / 3  # of the rise that may be left without the rows that are blamed


@dataclass(frozen=True)
class StepLosses:
    """`steps` (int64, ascending), the loss of each (float64), and how many rows it has."""

    steps: np.ndarray
    losses: np.ndarray
    num_rows: np.ndarray


@dataclass(frozen=True)
class Spike:
    """What is wrong with a step: see `StepBlame`. `order`: places of its rows, the most to blame first."""

    loss: float
    usual: float | None
    noise: float
    lasts: int
    verdict: Verdict
    words: str
    order: np.ndarray


def step_losses(ledger: Ledger) -> StepLosses:
    """The loss of each step: the sum over its rows divided by what they count."""
    firsts = np.flatnonzero(np.diff(ledger.steps, prepend=-1))
    if not len(firsts):
        return StepLosses(ledger.steps, np.zeros(0), ledger.steps)
    with np.errstate(invalid="ignore"):  # infinities of both signs
        sums = np.add.reduceat(ledger.rows["loss"].astype(np.float64), firsts)
    counts = np.add.reduceat(ledger.rows["count"].astype(np.int64), firsts)
    return StepLosses(ledger.steps[firsts], sums / counts, np.diff(np.append(firsts, len(ledger.steps))))


def largest_spike(steps: StepLosses) -> int | None:
    """The step that stands out most, or the first that is not finite; `None` where there are too few to compare."""
    bad = np.flatnonzero(~np.isfinite(steps.losses))
    if len(bad):
        return int(steps.steps[bad[0]])
    heights = [(_height(steps, place), place) for place in _candidates(steps.losses)]
    return int(steps.steps[max(heights)[1]]) if heights else None


def _candidates(losses: np.ndarray) -> list[int]:
    """Places of the steps that rise most above those around them; a run begins with high losses, which do not count."""
    if len(losses) <= FEWEST:
        return []
    around = np.lib.stride_tricks.sliding_window_view(np.pad(losses, 2, mode="edge"), 5)
    rise = (losses - np.median(around, axis=1))[FEWEST:]
    return [int(place) + FEWEST for place in np.argsort(-rise, kind="stable")[:CANDIDATES]]


def _height(steps: StepLosses, place: int) -> float:
    usual, noise = compare_with(steps, place)
    return -np.inf if usual is None else float(steps.losses[place] - usual) / noise


def compare_with(steps: StepLosses, place: int) -> tuple[float | None, float]:
    """What the loss at `place` would be if it went on as in the steps before it, and the noise of these.

    A line through them (Theil and Sen: a quarter of them may be anything); where they are too few, also through the
    next ones. Noise is the median deviation from it, as a standard deviation.
    """
    first, end = max(0, place - WINDOW), place
    if place < FEWEST:
        end = place + 1 + FEWEST
    places = np.delete(np.arange(first, min(end, len(steps.losses))), slice(place - first, place - first + 1))
    places = places[np.isfinite(steps.losses[places])]
    if len(places) < FEWEST:
        return None, 0.0
    losses = steps.losses[places]
    left, right = np.triu_indices(len(places), 1)
    slope = float(np.median((losses[right] - losses[left]) / (places[right] - places[left])))
    level = float(np.median(losses - slope * (places - place)))
    noise = MAD_TO_SIGMA * float(np.median(np.abs(losses - slope * (places - place) - level)))
    noise *= math.sqrt(1 + 4 / len(places))  # the error of a line at its end (least squares; Theil-Sen's is near it)
    return level, max(noise, LEAST_NOISE * abs(level), 1e-9)


def explain_spike(ledger: Ledger, steps: StepLosses, step: int) -> Spike:
    """What is behind the loss of a step, which must be in the ledger."""
    place, rows = int(np.searchsorted(steps.steps, step)), ledger.at(step)
    usual, noise = compare_with(steps, place)
    losses, counts = rows["loss"].astype(np.float64), rows["count"].astype(np.int64)
    excess = losses - counts * (usual or 0.0)
    order = np.argsort(-np.where(np.isnan(excess), np.inf, excess), kind="stable")
    verdict, words = _judge(losses[order], counts[order], usual, noise)
    lasts = 0 if usual is None else _steps_above(steps.losses[place + 1 :], usual + SIGMA * noise)
    if verdict == "unclear" and len(rows) == 1 and usual is not None:
        verdict, words = _judge_alone(lasts)
    return Spike(float(steps.losses[place]), usual, noise, lasts, verdict, words, order)


def _judge(losses: np.ndarray, counts: np.ndarray, usual: float | None, noise: float) -> tuple[Verdict, str]:
    """Rows of a step, the most to blame first."""
    num_bad = int(np.count_nonzero(~np.isfinite(losses)))
    if num_bad == len(losses):
        return "model", "The loss of every row of it is NaN or infinite: it is the model, not a row."
    if num_bad:
        return "rows", f"The loss of {num_bad} of its {len(losses)} rows is NaN or infinite: look at them."
    if usual is None:
        return "unclear", f"There are fewer than {FEWEST} other steps to compare it with."
    rise = losses.sum() / counts.sum() - usual
    if rise <= SIGMA * noise:
        return "no spike", "It is no higher than the steps around it are now and then."
    if len(losses) == 1:
        return "unclear", ""
    few = max(1, len(losses) // FEW_ROWS)
    left = losses[few:].sum() / counts[few:].sum() - usual
    which = "the first row" if few == 1 else f"the first {few} rows"
    if left <= max(SIGMA * noise, EXPLAINED * rise) and left < (1 - EXPLAINED) * rise:
        return "rows", f"Without {which} its loss would be {left + usual:.3f}: it is the data, not the model."
    above = np.count_nonzero(losses > counts * (usual + noise)) / len(losses)
    if left >= (1 - EXPLAINED) * rise and above >= 0.5:
        return "model", f"{above:.0%} of its rows are above usual: it is the model (its learning rate?), not a row."
    return "unclear", f"Without {which} its loss would be {left + usual:.3f}: neither a row alone nor all of them."


def _judge_alone(lasts: int) -> tuple[Verdict, str]:
    if not lasts:
        return "rows", "It has one row, and the next step is as usual: it is the data, not the model."
    return "unclear", "It has one row, and the next step is above usual, too: it may be the row or the model."


def _steps_above(losses: np.ndarray, limit: float) -> int:
    """How many of the first ones are above a limit, without a gap; NaN is above all."""
    under = np.flatnonzero(losses <= limit)
    return int(under[0]) if len(under) else len(losses)
