"""What the rewards give for answers that stand in the rows: what whoever wrote them reaches."""

from typing import Any

import numpy as np

from ftui.errors import DataError
from ftui.profile.schema import Profile

from ..training.prepare import TrainingData
from .asked_rows import AskedRows, as_columns
from .scoring import AnswerScoring

MOST_ROWS = 64


def measure_references(profile: Profile, data: TrainingData, scoring: AnswerScoring) -> float | None:
    """The mean reward of the answers in rewards.reference_column, of rows evenly spaced over all; `None` without it.

    Raises:
        DataError: a row has no answer there.
        Shutdown: as `AnswerScoring.score_texts`.
    """
    column = profile.rewards.reference_column
    if column is None:
        return None
    rows, number = AskedRows(data.train, data.sources), len(data.train)
    asked = [rows[int(n)] for n in np.linspace(0, number - 1, min(MOST_ROWS, number)).round()]
    answers = [row.columns.get(column) for row in asked]
    if missing := [row for row, answer in zip(asked, answers, strict=True) if not isinstance(answer, str)]:
        raise DataError(
            f"Row {missing[0].number + 1} of data.train has no text in {column!r} (rewards.reference_column).",
            hint=f"Its columns are {', '.join(missing[0].columns) or 'none but the prompt'}.",
        )
    texts: list[Any] = [
        [{"role": "assistant", "content": text}] if row.is_chat else text
        for row, text in zip(asked, answers, strict=True)
    ]
    ids = [list(data.tokenizer(str(text), add_special_tokens=False)["input_ids"]) for text in answers]
    totals = scoring.score_texts([row.prompt for row in asked], texts, ids, as_columns(asked, 1)).totals
    known = totals[~np.isnan(totals)]
    return float(known.mean()) if len(known) else None
