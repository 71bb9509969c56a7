"""Rows with several answers to one prompt, scored, ranked or compared by twos: the best and the worst make a pair."""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from ftui.profile.sections.row_forms import TWO_ANSWERS

from ..files.raw_rows import Row
from .column_names import SCORES
from .turns import read_list

TEXTS = ("response", "answer", "completion", "text", "content", "output")
SCORE_KEYS = ("overall_score", "score", "rating", "fine-grained_score")
SKIPPED = 'Score its answers, or leave such rows out: data.on_bad_row = "skip".'


class _Answer(NamedTuple):
    said: Any
    score: float


def with_pair(row: Row) -> Row:
    """The row with its best answer as `chosen` and its worst as `rejected`; itself where it has them already.

    They come with the columns `score_chosen` and `score_rejected`, of which a margin can be made.

    Raises:
        DataError: none of its answers is better than another.
    """
    value = row.value
    if value.get("chosen") is not None or value.get("rejected") is not None:
        return row
    for columns, read in _READERS:
        if columns <= value.keys():
            return _best_against_worst(row, columns, read)
    return row


def _best_against_worst(row: Row, columns: frozenset[str], read: Callable[[Row], Iterator[_Answer]]) -> Row:
    answers = [answer for answer in read(row) if math.isfinite(answer.score)]
    if len({answer.score for answer in answers}) < 2:
        raise row.error(f"none of its answers ({', '.join(sorted(columns))}) is better than another", hint=SKIPPED)
    best, worst = max(answers, key=lambda one: one.score), min(answers, key=lambda one: one.score)
    rest = {name: cell for name, cell in row.value.items() if name not in columns}
    made = {"chosen": best.said, "rejected": worst.said} | dict(zip(SCORES, (best.score, worst.score), strict=True))
    return row.with_value(_with_question(rest) | made)


def _with_question(value: Mapping[str, Any]) -> dict[str, Any]:
    """SHP has its question in `history`, which is a list of earlier turns elsewhere."""
    asked = value.get("history")
    if not isinstance(asked, str) or value.get("question") is not None:
        return dict(value)
    return {name: cell for name, cell in value.items() if name != "history"} | {"question": asked}


def _of_list(column: str) -> Callable[[Row], Iterator[_Answer]]:
    """UltraFeedback's `completions`, each with a score; Nectar's `answers`, each with a rank."""

    def read(row: Row) -> Iterator[_Answer]:
        for number, one in enumerate(read_list(row, column) or [], start=1):
            said = (
                next((one[key] for key in TEXTS if one.get(key) is not None), None) if isinstance(one, dict) else None
            )
            if said is None:
                raise row.error(f"answer {number} of {column!r} has no text", hint=f"It stands in {', '.join(TEXTS)}.")
            score = next((one[key] for key in SCORE_KEYS if one.get(key) is not None), None)
            yield _Answer(said, -_number(one.get("rank")) if score is None else _number(score))

    return read


def _of_generations(row: Row) -> Iterator[_Answer]:
    """distilabel's two lists."""
    said, ratings = (read_list(row, key) or [] for key in ("generations", "ratings"))
    if len(said) != len(ratings):
        raise row.error(f"'ratings' has {len(ratings)} of 'generations', which are {len(said)}", hint=SKIPPED)
    return (_Answer(text, _number(rating)) for text, rating in zip(said, ratings, strict=True) if text)


def _of_two(first: str, second: str, verdict: str, first_is: int) -> Callable[[Row], Iterator[_Answer]]:
    """SHP, PKU-SafeRLHF and their kin: a column says which of two answers is the better one."""

    def read(row: Row) -> Iterator[_Answer]:
        better = row.value[verdict]
        if better not in (0, 1):
            raise row.error(
                f"{verdict!r} is {better!r:.40}, which says of neither answer that it is better", hint=SKIPPED
            )
        is_first = better == first_is
        yield _Answer(row.value[first], float(is_first))
        yield _Answer(row.value[second], float(not is_first))

    return read


def _number(value: Any) -> float:
    """NaN where there is none: such an answer is passed over."""
    try:
        return math.nan if value is None or isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


_READERS: list[tuple[frozenset[str], Callable[[Row], Iterator[_Answer]]]] = [
    (frozenset({"completions"}), _of_list("completions")),
    (frozenset({"answers"}), _of_list("answers")),
    (frozenset({"generations", "ratings"}), _of_generations),
    *((frozenset(names[:3]), _of_two(*names)) for names in TWO_ANSWERS),
]
