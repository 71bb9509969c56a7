"""Whether the evaluation rows have got worse: compared row by row, since rows differ far more than evaluations do."""

import math
from collections.abc import Sequence
from statistics import fmean, stdev

from ftui.runs.health.health_rules import HealthFinding

FEWEST_ROWS = 20
LEAST_RISE = 0.005
"""Share of the loss: less is no matter, however sure it is."""


def too_few_rows(number: int) -> str:
    """The answer where there is none; "" where there are enough rows."""
    return "" if number >= FEWEST_ROWS else f"{number} evaluation rows are too few to tell: {FEWEST_ROWS} are needed"


def overfitting(
    best_step: int, best: Sequence[float], step: int, now: Sequence[float], limit: float
) -> HealthFinding | None:
    """The rows are worse than at `best_step` by more than `limit` standard errors of their mean difference.

    Args:
        best, now: the loss of each row, nats a token, in the same order.
    """
    if too_few_rows(len(best)) or best_step >= step:
        return None
    rises = [new - old for old, new in zip(best, now, strict=True)]
    mean, error = fmean(rises), stdev(rises) / math.sqrt(len(rises))
    if mean < LEAST_RISE * fmean(best) or mean <= limit * error:
        return None
    worse = sum(rise > 0 for rise in rises)
    evidence = (
        f"{worse} of {len(rises)} evaluation rows are worse at step {step} than at step {best_step}, by "
        f"{mean:.3f} ± {error:.3f} nats a token"
    )
    if best_step == 0:  # final/ would be the model as it was
        return HealthFinding(
            "overfitting",
            evidence,
            "So far training has only made them worse: `ftui abort {run}`, and begin again with a tenth of "
            "train.learning_rate, or with more rows like these.",
        )
    return HealthFinding(
        "overfitting",
        evidence,
        f"End it: `ftui stop {{run}}`. With eval.load_best_model_at_end final/ is made of step {best_step}.",
    )
