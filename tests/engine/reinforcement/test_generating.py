"""Which rank generates which answers."""

from hypothesis import given
from hypothesis import strategies as st

from ftui.engine.distributed.process_group import ProcessGroup
from ftui.engine.reinforcement.generating import share_of_answers

PROMPTS = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=4), min_size=1, max_size=9)


@given(PROMPTS, st.integers(1, 4), st.none() | st.integers(1, 9), st.integers(1, 5))
def test_each_answer_is_generated_by_one_rank(
    prompts: list[list[int]], group_size: int, at_once: int | None, num_ranks: int
) -> None:
    """None of them has more than one batch, or group, more than another; batches that fit are those of one rank."""
    number = len(prompts) * group_size
    shares = [share_of_answers(prompts, group_size, at_once, ProcessGroup(n, num_ranks)) for n in range(num_ranks)]
    assert sorted(answer for share in shares for answer in share) == list(range(number))
    part = -(-number // num_ranks)
    assert max(map(len, shares)) - min(map(len, shares)) <= min(at_once or group_size, part)
    if at_once is not None and at_once <= part:
        alone = share_of_answers(prompts, group_size, at_once, ProcessGroup())
        batches = [share[start : start + at_once] for share in shares for start in range(0, len(share), at_once)]
        assert sorted(batches) == sorted(alone[start : start + at_once] for start in range(0, number, at_once))
