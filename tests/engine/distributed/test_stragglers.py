"""A rank that is slow for long is named, once; one that has more rows, or a few slow steps, is not."""

import pytest

from ftui.engine.distributed.rank_clock import RankTime
from ftui.engine.distributed.stragglers import STEPS, Stragglers, seconds_by_rank
from ftui.runs.events import RankSeconds

EVEN = RankTime(1.0, 0.0, 0.3, 100)


def slow(passes: float, data: float = 0.0, places: int = 100) -> RankTime:
    return RankTime(passes, data, 0.0, places)


@pytest.mark.parametrize(
    ("times", "words"),
    [
        ([EVEN, slow(1.4)], "Rank 1 has taken 40% longer than the median rank for 50 steps, up to step 57: it comp"),
        ([slow(1.31), EVEN, EVEN, EVEN], "Rank 0 has taken 31%"),
        ([EVEN, slow(0.5, data=1.0), EVEN], "Rank 1 has taken 50% .* its rows come late"),
        ([EVEN, slow(1.29)], ""),
        ([EVEN, slow(2.0, places=200)], ""),  # twice the rows
        ([EVEN, slow(1.0, places=50)], ""),  # few rows, and nobody waits for it
        ([EVEN, slow(1.0, places=0)], ""),
        ([], ""),
    ],
)  # fmt: skip
def test_who_is_a_straggler(times: list[RankTime], words: str) -> None:
    stragglers, messages = Stragglers(), []
    for step in range(8, 8 + 3 * STEPS):
        messages += stragglers.look(step, times)
    assert len(messages) == bool(words)
    if words:
        start, _, end = words.partition(" .* ")
        assert messages[0].startswith(start) and end in messages[0]


def test_slow_steps_must_follow_one_another() -> None:
    stragglers = Stragglers()
    for step in range(10 * STEPS):
        late = step % STEPS != STEPS - 1
        assert not stragglers.look(step, [EVEN, slow(3.0 if late else 1.0)])


def test_a_record_has_the_seconds_by_rank() -> None:
    assert seconds_by_rank([]) is None
    times = [RankTime(1.00004, 0.1, 0.2, 7), RankTime(2.0, 0.0, 0.123456, 9)]
    assert seconds_by_rank(times) == RankSeconds([1.0, 2.0], [0.1, 0.0], [0.2, 0.1235])
