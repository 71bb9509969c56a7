"""Pairs and verdicts in the spellings of public data sets: what is read of each, and what is said of those that cannot
be.
"""

from pathlib import Path
from typing import Any

import pytest

from ftui.engine.data.files.raw_rows import Row
from ftui.engine.data.forms.column_names import ColumnNames
from ftui.engine.data.forms.examples import Pair
from ftui.engine.data.forms.formats import to_example
from ftui.errors import DataError

SCORES = ColumnNames({"margin": "score_chosen - score_rejected"})
PAIR = {"prompt": "why?", "chosen": "so", "rejected": "no"}


def row(**value: Any) -> Row:
    return Row(Path("rows.jsonl"), 7, value)


@pytest.mark.parametrize(
    ("columns", "shape", "margin"),
    [
        ({}, ColumnNames(), 0.0),
        ({"margin": 1.5}, ColumnNames(), 1.5),
        ({"margin": -2}, ColumnNames(), -2.0),
        ({"margin": "0.25"}, ColumnNames(), 0.25),
        ({"margin": None}, ColumnNames(), 0.0),
        ({"margin": "large"}, ColumnNames({"margin": ""}), 0.0),
        ({"by": 3}, ColumnNames({"margin": "by"}), 3.0),
        ({"score_chosen": 8.5, "score_rejected": 7.0}, ColumnNames(), 0.0),
        ({"score_chosen": 8.5, "score_rejected": 7.0}, SCORES, 1.5),
        ({"score_chosen": "5", "score_rejected": "7"}, SCORES, -2.0),
        ({"a - b": 4.0, "a": 1.0}, ColumnNames({"margin": "a - b"}), 4.0),
    ],
)
def test_a_margin_is_a_column_or_a_difference(columns: dict[str, Any], shape: ColumnNames, margin: float) -> None:
    pair = to_example(row(**PAIR, **columns), "preference", shape)
    assert isinstance(pair, Pair)
    assert pair.margin == margin


@pytest.mark.parametrize(
    ("columns", "shape", "error"),
    [
        ({"margin": "large"}, ColumnNames(), "'margin' is no number ('large')"),
        ({"margin": True}, ColumnNames(), "'margin' is no number (True)"),
        ({"margin": [1]}, ColumnNames(), "'margin' is no number ([1])"),
        ({"margin": float("nan")}, ColumnNames(), "'margin' is no number (nan)"),
        ({"margin": 10**400}, ColumnNames(), "'margin' is no number (1000"),
        ({"score_chosen": 1, "score_rejected": None}, SCORES, "'score_rejected' is missing"),
    ],
)
def test_a_margin_that_is_no_number_is_an_error(columns: dict[str, Any], shape: ColumnNames, error: str) -> None:
    with pytest.raises(DataError) as caught:
        to_example(row(**PAIR, **columns), "preference", shape)
    assert error in caught.value.message
    assert caught.value.hint == 'data.columns = {margin = ""} reads no margin.'
