"""Sequences laid end to end with common beginnings once: every target is predicted from its own sequence alone."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ftui.engine.data.tokens.encode import Sequence, num_common
from ftui.engine.objectives.loss import Batch, RowLayout
from ftui.engine.training.collate import collate

TOKENS = st.lists(st.integers(3, 5), max_size=9)  # few of them: answers begin alike, too


@st.composite
def examples(draw: st.DrawFn) -> tuple[int, list[list[Sequence]]]:
    """Answers of an example, and that many sequences of each of some examples; each has a target."""
    per_example, rows = draw(st.integers(1, 3)), []
    for _ in range(draw(st.integers(1, 4))):
        prompt = draw(TOKENS)
        for _ in range(per_example):
            ids = np.array([*(prompt or [3]), *draw(TOKENS), 6], dtype=np.int32)
            targets = np.array(draw(st.lists(st.booleans(), min_size=len(ids), max_size=len(ids))))
            targets[-1] |= draw(st.booleans())
            rows.append([Sequence(ids, targets)])
    return per_example, rows


def seen_by(batch: Batch, predictor: int) -> list[tuple[int, int]]:
    """Token and position of each place that a place attends to, as the pieces of the row say."""
    assert batch.joined is not None and batch.position_ids is not None
    ends = np.cumsum(np.abs(batch.joined))
    piece = int(np.searchsorted(ends, predictor, side="right"))
    places = list(range(ends[piece] - abs(batch.joined[piece]), predictor + 1))
    if batch.joined[piece] < 0:
        prompt = max(number for number in range(piece) if batch.joined[number] > 0)
        places = [*range(ends[prompt] - batch.joined[prompt], ends[prompt]), *places]
    return [(int(batch.input_ids[0, place]), int(batch.position_ids[0, place])) for place in places]


@settings(max_examples=60, deadline=None)
@given(examples())
def test_a_target_is_predicted_from_what_precedes_it_in_its_sequence(given: tuple[int, list[list[Sequence]]]) -> None:
    per_example, rows = given
    if len(rows) == 1:
        return  # a row of one sequence has no positions
    batch, padded = collate(rows, 0, per_example, layout=RowLayout.SHARED), collate(rows, 0, per_example)
    assert batch.amounts == padded.amounts and batch.target_ids.tolist() == padded.target_ids.tolist()
    expected = [
        ([*enumerate_ids(sequence.input_ids[:place])], int(sequence.input_ids[place]))
        for (sequence,) in rows
        for place in np.flatnonzero(sequence.targets)
        if place > 0
    ]
    found = [
        (seen_by(batch, predictor), target)
        for predictor, target in zip(batch.predictors.tolist(), batch.target_ids.tolist(), strict=True)
    ]
    assert found == expected


def enumerate_ids(ids: np.ndarray) -> list[tuple[int, int]]:
    return [(int(token), position) for position, token in enumerate(ids)]


@settings(max_examples=60, deadline=None)
@given(examples())
def test_what_an_example_begins_with_is_computed_once(given: tuple[int, list[list[Sequence]]]) -> None:
    per_example, rows = given
    read = [one.input_ids[: max(1, int(np.flatnonzero(np.append(True, one.targets))[-1]) - 1)] for (one,) in rows]
    groups = [read[start : start + per_example] for start in range(0, len(read), per_example)]
    beginnings = [{bytes(one[:end]) for one in group for end in range(1, len(one) + 1)} for group in groups]
    batch = collate(rows, 0, per_example, layout=RowLayout.SHARED)
    assert batch.joined is not None and sum(map(abs, batch.joined)) == batch.input_ids.numel()
    if per_example < 3:  # of three, two may have more in common than all
        assert batch.input_ids.numel() == sum(map(len, beginnings))
    assert all(batch.joined) and batch.joined[0] > 0


@pytest.mark.parametrize(
    ("answers", "pieces"),
    [
        (([4, 5, 6], [7, 8]), (5, -2, -1)),
        (([4, 5, 6], [4, 8]), (6, -1)),  # the second answer parts after a token; what it reads is in the first's
        (([4], [4]), (5,)),
        (([4], [7]), (5,)),  # both are predicted by the end of the prompt, and nothing else is read
    ],
)
def test_pieces_of_a_pair(answers: tuple[list[int], list[int]], pieces: tuple[int, ...]) -> None:
    prompt = [9, 8, 7, 6, 5]
    rows = [[Sequence(np.array(prompt + one, dtype=np.int32), np.arange(5 + len(one)) >= 5)] for one in answers]
    batch = collate(rows, 0, 2, layout=RowLayout.SHARED)
    assert batch.joined == pieces
    first = np.searchsorted(batch.target_ids.numpy(), 0)
    assert batch.predictors[first] == batch.predictors[len(answers[0])] == 4, "one place predicts both first tokens"


@pytest.mark.parametrize(
    ("sequences", "number"), [(([1, 2],), 2), (([1, 2], [1, 2, 3]), 2), (([1, 2], [3]), 0), (([1, 2], [1, 3], [1]), 1)]
)
def test_common_beginnings(sequences: tuple[list[int], ...], number: int) -> None:
    assert num_common([np.array(one) for one in sequences]) == number
