"""Predicted beside measured: one line for every published row, and what the errors of a group come to."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, median

from tests.engine.published.rows import Row
from tests.engine.published.running import NotTheSame, simulate
from tests.engine.published.translate import NotReproduced, translate

FAILED = "FAILED:"

LOW, HIGH, BOUND = 0.95, 1.08, 1.15
"""Of the replayed process memory: the range that is shown, and what no measured value may exceed."""


@dataclass(frozen=True)
class Outcome:
    """One quantity of one row, in bytes; without a prediction, `reason` says why.

    Attributes:
        group: rows that are judged together.
        number: of the row in its file's order.
    """

    number: int
    row: Row
    group: str
    quantity: str
    measured: float
    predicted: float | None = None
    reason: str = ""

    @property
    def error(self) -> float:
        assert self.predicted is not None
        return self.predicted / self.measured - 1

    def line(self) -> str:
        row, size = self.row, f"{row_size(self.row)}"
        what = f"{row.source[:28]:28} {row.model[-26:]:26} {row.method[:13]:13} {size:>9} {self.quantity:9}"
        if self.predicted is None:
            return f"{what} {self.measured / 2**30:8.2f}        - {self.reason}"
        return f"{what} {self.measured / 2**30:8.2f} {self.predicted / 2**30:8.2f} {self.error:+8.2%}"


def row_size(row: Row) -> str:
    return f"{row.micro_batch or '?'}x{row.seq_len or '?'}"


def group_of(row: Row) -> str:
    if row.source.startswith("fitcheck"):
        return "T4"
    if row.source.startswith("PEFT method"):
        plain = row.method in ("lora", "full") and row.optimizer != "lora-fa"
        return "PEFT LoRA and full" if plain else "PEFT, other methods"
    if row.source.startswith(("litgpt", "torchtune")):
        return "litgpt and torchtune"
    return "others"


def outcomes_of(number: int, row: Row) -> list[Outcome]:
    """Simulate one row over its whole depth; a row may tell more than one quantity."""
    group, quantity = group_of(row), row.kind if row.kind in ("allocated", "reserved") else "process"
    quantity = "allocated" if row.kind == "active" else quantity
    path = translate(row)
    if isinstance(path, NotReproduced):
        return [Outcome(number, row, group, quantity, row.measured, reason=path.reason)]
    try:
        found = simulate(path)
    except NotTheSame as difference:
        return [Outcome(number, row, group, quantity, row.measured, reason=str(difference))]
    except Exception as fault:  # told in the table, and by a test of its own: the other rows are still judged
        return [Outcome(number, row, group, quantity, row.measured, reason=f"{FAILED} {type(fault).__name__}: {fault}")]
    process = found.reserved + path.card.context
    value = {"allocated": found.allocated, "reserved": found.reserved, "process": process}[quantity]
    outcomes = [Outcome(number, row, group, quantity, row.measured, value)]
    if row.more("process_gib"):
        outcomes.append(Outcome(number, row, group, "process", row.more("process_gib") * 2**30, process))
    return outcomes


def table(outcomes: Sequence[Outcome]) -> str:
    """Memory in GiB."""
    head = f"{'source':28} {'model':26} {'method':13} {'size':>9} {'quantity':9} measured predicted   error"
    lines = [head, *(outcome.line() for outcome in outcomes), ""]
    for group in dict.fromkeys(outcome.group for outcome in outcomes):
        for quantity in ("allocated", "reserved", "process"):
            chosen = [o for o in outcomes if (o.group, o.quantity) == (group, quantity)]
            errors = errors_of(chosen)
            if chosen:
                lines.append(f"{group:22} {quantity:9} {len(errors):3} of {len(chosen):3} predicted" + told(errors))
    return "\n".join(lines)


def told(errors: Sequence[float]) -> str:
    if not errors:
        return ""
    sizes = sorted(abs(error) for error in errors)
    return f": |error| mean {mean(sizes):.2%}, median {median(sizes):.2%}, p90 {ninth(sizes):.2%}, max {sizes[-1]:.2%}"


def ninth(sizes: Sequence[float]) -> float:
    """The 90th percentile of sorted values."""
    return sizes[round(0.9 * (len(sizes) - 1))]


def errors_of(outcomes: Sequence[Outcome]) -> list[float]:
    return [outcome.error for outcome in outcomes if outcome.predicted is not None]
