"""The results of an evaluation: a line for each row and side as it is measured, and the table made of them."""

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from ftui.evaluation.paired import TOO_FEW, MeanDifference, paired_difference
from ftui.evaluation.text_measures import ALGORITHMS
from ftui.measures import MEASURES, TEXT_MEASURES, Measure
from ftui.runs.records.record import Record
from ftui.system.files import read_plain

LONGEST_RESULTS = 1 << 32  # bytes
MOST_NATS = 700.0  # e to the power of more is beyond all floats
KL = Measure("kl to base", "kl", None, ("sft", "pretrain"))
OF_TOKENS = {
    "loss": "cross-entropy of the trained tokens in nats, mean over the tokens, as in the run's own evaluations",
    "perplexity": "e to the power of the loss",
    "mean_token_accuracy": "share of the trained tokens that are held for the likeliest",
    "kl": "KL(base || model) of the next token in nats over the whole vocabulary, mean over the trained tokens",
}
"""How what is measured of tokens is computed."""

UNANSWERED = {
    "memory": "the answer does not fit into memory",
    "not finite": "the model's output is NaN or infinite",
}
"""Why there is no answer, by what stands as its ending."""

Part = Literal["data", "forgetting"]


class RowLoss(Record, frozen=True, tag="row_loss"):
    """What a side says of the tokens of a sequence. `number` counts them from 0; sums over its `num_targets`.

    `kl_nats`: the sum of KL(base || side), of the rows that forgetting is measured on. Both sums are `None` where there
    is none: `problem` says why.
    """

    part: Part
    number: int
    where: str
    side: str
    nats: float | None
    num_targets: int
    num_right: int
    kl_nats: float | None = None
    problem: Literal["", "memory", "not finite"] = ""


class RowAnswer(Record, frozen=True, tag="row_answer"):
    """What a side answers, beside the answer of the data, and what is measured of it.

    Nothing is where its ending is one of `UNANSWERED`.
    """

    number: int
    where: str
    side: str
    reference: str
    answer: str
    ending: str
    scores: dict[str, float]


RowResult = RowLoss | RowAnswer
_decoder = msgspec.json.Decoder(RowResult)


class MeasureLine(msgspec.Struct, frozen=True):
    """A line of a table. `values`: one a side; `difference`: the first side less the second, on `num_rows` rows."""

    name: str
    words: str
    algorithm: str
    values: list[float | None]
    num_rows: int
    difference: MeanDifference | None = None
    verdict: str = ""


class MeasureTable(msgspec.Struct, frozen=True):
    """What was measured of one or two sides on the rows of a part."""

    part: Part
    sides: list[str]
    lines: list[MeasureLine]


def read_results(path: Path) -> list[RowResult]:
    """The lines of a file of results, without a last one that is torn; none where it is not there yet."""
    try:
        data = read_plain(path, LONGEST_RESULTS)
    except FileNotFoundError:
        return []
    return [_decoder.decode(line) for line in data.split(b"\n")[:-1]]


def summarise(results: Sequence[RowResult], sides: Sequence[str], own: Iterable[str] = ()) -> list[MeasureTable]:
    """A table of what was measured on the data, and one of forgetting, each where there is any.

    Args:
        results: of a side and a row the last one counts.
        sides: one, or two that are compared. Forgetting compares the first with `base`.
        own: names of a person's own measures.
    """
    losses: dict[tuple[str, str], dict[int, RowLoss]] = {}
    answers: dict[str, dict[int, RowAnswer]] = {}
    for one in results:
        if isinstance(one, RowLoss):
            losses.setdefault((one.part, one.side), {})[one.number] = one
        else:
            answers.setdefault(one.side, {})[one.number] = one
    of_data = [
        *_token_lines([losses.get(("data", side), {}) for side in sides]),
        *_answer_lines([answers.get(side, {}) for side in sides], own),
    ]
    before_and_after = list(dict.fromkeys([sides[0], "base"]))
    forgotten = _token_lines([losses.get(("forgetting", side), {}) for side in before_and_after])
    tables = [MeasureTable("data", list(sides), of_data), MeasureTable("forgetting", before_and_after, forgotten)]
    return [table for table in tables if table.lines]


def find_gaps(results: Sequence[RowResult]) -> list[str]:
    """What could not be measured, in words: such rows are in no figure."""
    missing: dict[tuple[str, str], int] = {}
    for one in {(type(one), getattr(one, "part", ""), one.side, one.number): one for one in results}.values():
        if isinstance(one, RowLoss) and one.problem:
            why = "the loss is NaN or infinite" if one.problem == "not finite" else "the row does not fit into memory"
            missing[one.side, why] = missing.get((one.side, why), 0) + 1
        elif isinstance(one, RowAnswer) and one.ending in UNANSWERED:
            why = UNANSWERED[one.ending]
            missing[one.side, why] = missing.get((one.side, why), 0) + 1
    return [f"{side}: {why} on {number} rows, which are left out" for (side, why), number in missing.items()]


def _token_lines(sides: Sequence[Mapping[int, RowLoss]]) -> list[MeasureLine]:
    weights = {number: float(row.num_targets) for side in sides for number, row in side.items()}
    nats, right, divergence = (
        [{number: value for number, row in side.items() if (value := getattr(row, name)) is not None} for side in sides]
        for name in ("nats", "num_right", "kl_nats")
    )
    right = [{number: own[number] for number in measured} for own, measured in zip(right, nats, strict=True)]
    loss = _line("loss", MEASURES["loss"], OF_TOKENS["loss"], nats, weights)
    powers = [None if value is None else _exp(value) for value in loss.values]
    name = "mean_token_accuracy"
    lines = [
        loss,
        MeasureLine("perplexity", MEASURES["perplexity"].words, OF_TOKENS["perplexity"], powers, loss.num_rows),
        _line(name, MEASURES[name], OF_TOKENS[name], right, weights),
        _line("kl", KL, OF_TOKENS["kl"], divergence, weights),
    ]
    return [line for line in lines if any(value is not None for value in line.values)]


def _exp(nats: float) -> float:
    return math.exp(nats) if nats < MOST_NATS else math.inf


def _answer_lines(sides: Sequence[Mapping[int, RowAnswer]], own: Iterable[str]) -> list[MeasureLine]:
    lines = []
    for name in (*TEXT_MEASURES, *own):
        measure = TEXT_MEASURES.get(name) or Measure(name, name, None, ("sft",))
        scores = [{number: row.scores[name] for number, row in side.items() if name in row.scores} for side in sides]
        if any(scores):
            lines.append(_line(name, measure, ALGORITHMS.get(name, "your own, mean over the rows"), scores, None))
    return lines


def _line(
    name: str, measure: Measure, algorithm: str, sums: Sequence[Mapping[int, float]],
    weights: Mapping[int, float] | None,
) -> MeasureLine:  # fmt: skip
    """`sums`: of each side, by row; each mean is over the `weights` of its rows, or over the rows."""

    def weigh(rows: Iterable[int]) -> list[float]:
        return [1.0 if weights is None else weights[number] for number in rows]

    values = [math.fsum(own.values()) / math.fsum(weigh(own)) if own else None for own in sums]
    if len(sums) < 2:
        return MeasureLine(name, measure.words, algorithm, values, len(sums[0]))
    shared = [number for number in sums[0] if number in sums[1]]
    difference = paired_difference([sums[0][number] - sums[1][number] for number in shared], weigh(shared))
    verdict = "" if not shared else TOO_FEW if difference is None else difference.verdict(measure.greater_is_better)
    return MeasureLine(name, measure.words, algorithm, values, len(shared), difference, verdict)
