"""Whether the losses of contestants are those of the others: a fast wrong loop does not count."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.bench.throughput.contestants import ALL

if TYPE_CHECKING:
    from tests.bench.throughput.session import Result

# Of the first step, whose weights are the same everywhere: float32 differs by the order of its sums only. Its loss, or
# where that is always the same (dpo) the log-probabilities of chosen and of rejected answers.
FIRST_STEP = {True: 2e-5, False: 2e-2}
# Of the mean over all rows: adapters start from other random matrices, and rows come in other steps.
MEAN = {True: 1e-2, False: 3e-2}
# The same of dpo in float32 and of the same steps: its losses stay close to ln 2, 3e-3 would be to learn nothing.
MEAN_OF_PAIRS = 1e-3


@dataclass(frozen=True)
class Finding:
    agrees: bool
    text: str


def compare(results: "Sequence[Result]") -> list[Finding]:
    """One finding for each cell: the largest relative difference from ftui over its rounds.

    The first step is compared where both take the same rows in it. The yardstick is ftui's run in the same order of the
    rows; where there is none, ftui's other one (of the mean loss only).
    """
    findings = []
    for cell in dict.fromkeys(result.cell for result in results):
        contestant = ALL[cell]
        if contestant.tool == "ftui" and contestant.kind == "default":
            continue
        firsts, means = [], []
        for result in (r for r in results if r.cell == cell):
            others = [r for r in results if r.round == result.round and r.cell != cell and _is_yardstick(r, cell)]
            same = [r for r in others if ALL[r.cell].order == contestant.order]
            if not others:
                continue
            means.append(abs(result.mean_loss / (same or others)[0].mean_loss - 1))
            firsts += [_first_difference(result, other) for other in same[:1] if not contestant.has_own_batches]
        if means:
            findings.append(_finding(cell, firsts, means))
    return findings


def _first_difference(result: "Result", other: "Result") -> float:
    own, others = result.log_probs or result.losses[:1], other.log_probs or other.losses[:1]
    return max(abs(mine / its - 1) for mine, its in zip(own, others, strict=True))


def _is_yardstick(result: "Result", cell: str) -> bool:
    method = ALL[cell].method
    return result.cell in (f"{method}/ftui_default", f"{method}/ftui_best")


def _finding(cell: str, firsts: list[float], means: list[float]) -> Finding:
    is_exact = ALL[cell].is_exact
    first, mean = max(firsts, default=None), max(means)
    is_close = is_exact and ALL[cell].method == "dpo" and first is not None
    limit = MEAN_OF_PAIRS if is_close else MEAN[is_exact]
    agrees = mean <= limit and (first is None or first <= FIRST_STEP[is_exact])
    of_first = "other rows in its steps" if first is None else f"first step {first:.1e}"
    verdict = "agrees" if agrees else "DOES NOT AGREE"
    return Finding(agrees, f"{cell}: {verdict}: {of_first}, mean over all rows {mean:.1e}")
