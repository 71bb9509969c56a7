"""Evaluation rows as prompts with the answers that the data has: what `eval.generate` asks a model."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ftui.errors import DataError
from ftui.evaluation.text_measures import why_missing
from ftui.profile.schema import Profile
from ftui.profile.sections.evaluation import EvalSection

from ..data.load_rows import DataSplit
from ..data.tokens import encode


class RowToAnswer(NamedTuple):
    """Token ids up to the last answer of a row, and those of that answer without its stop token.

    `row` is its number among the rows of the data, from 1.
    """

    row: int
    prompt: list[int]
    reference: list[int]


@dataclass(frozen=True)
class RowsToAnswer:
    """`num_unfit` more were chosen, but have no prompt or no end of their answer within data.max_length."""

    rows: Sequence[RowToAnswer]
    num_unfit: int
    max_new_tokens: int


def choose_rows(section: EvalSection, split: DataSplit, stop_ids: Sequence[int]) -> RowsToAnswer:
    """The rows of the split that are answered, evenly spaced over it.

    Raises:
        DataError: none of them has a prompt and a whole answer.
    """
    wanted = len(split) if section.generate_samples is None else min(section.generate_samples, len(split))
    chosen = np.linspace(0, len(split) - 1, wanted).round().astype(int)
    rows = []
    for number in chosen:
        (sequence,) = split.example(int(number))
        if (parts := split_answer(sequence, stop_ids)) is not None:
            row = int(split.sequences.rows[split.indices[number]]) + 1
            rows.append(RowToAnswer(row, *parts))
    if not rows:
        raise DataError(
            f"eval.generate: none of {wanted} evaluation rows has a prompt and a whole answer.",
            hint="Does data.max_length cut their answers? Answers have to end with a stop token.",
        )
    longest = max(len(one.reference) for one in rows) + 1
    return RowsToAnswer(rows, wanted - len(rows), section.generate_max_new_tokens or longest)


def split_answer(sequence: encode.Sequence, stop_ids: Sequence[int]) -> tuple[list[int], list[int]] | None:
    """What comes before the last trained answer, and that answer up to its first stop token.

    `None` where nothing comes before it, or it does not end.
    """
    places = np.flatnonzero(sequence.targets)
    if not len(places):
        return None
    end = int(places[-1]) + 1
    context = np.flatnonzero(~sequence.targets[:end])
    start = int(context[-1]) + 1 if len(context) else 0
    answer = sequence.input_ids[start:end]
    stops = np.flatnonzero(np.isin(answer, stop_ids))
    if not start or not len(stops):
        return None
    return sequence.input_ids[:start].tolist(), answer[: stops[0]].tolist()


def describe_rows(profile: Profile, split: DataSplit | None, stop_ids: Sequence[int]) -> Iterator[str]:
    """What to know before a run answers evaluation rows: of those that it cannot, and of what is not measured.

    Raises:
        DataError: see `choose_rows`.
    """
    if not profile.eval.generate or split is None:
        return
    chosen = choose_rows(profile.eval, split, stop_ids)
    if chosen.num_unfit:
        yield (
            f"eval.generate: {chosen.num_unfit} of {chosen.num_unfit + len(chosen.rows)} evaluation rows are not "
            "answered: data.max_length cuts their answers"
        )
    longest = max(len(one.reference) for one in chosen.rows) + 1
    if chosen.max_new_tokens < longest:
        number = sum(len(one.reference) + 1 > chosen.max_new_tokens for one in chosen.rows)
        yield (
            f"eval.generate_max_new_tokens: {number} of {len(chosen.rows)} evaluation rows have longer answers, "
            f"up to {longest} tokens"
        )
    if reason := why_missing():
        yield f"eval.generate: {reason}"
