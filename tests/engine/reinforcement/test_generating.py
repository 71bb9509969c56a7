"""Which rank generates which answers, and what is said where fewer at once fit there."""

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftui.engine.distributed.process_group import ProcessGroup
from ftui.engine.generation.answer_prompts import FinishedAnswer
from ftui.engine.reinforcement import generating
from ftui.engine.reinforcement.asked_rows import AskedRow
from ftui.engine.reinforcement.generating import AnswerGeneration, share_of_answers
from ftui.engine.system.train_state import TrainState
from ftui.rollouts.dealt_answers import dealt_size, largest_part
from tests.support.tiny import make_profile

PROMPTS = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=4), min_size=1, max_size=9)


@given(PROMPTS, st.integers(1, 4), st.none() | st.integers(1, 9), st.integers(1, 5))
def test_each_answer_is_generated_by_one_rank(
    prompts: list[list[int]], group_size: int, at_once: int | None, num_ranks: int
) -> None:
    """None of them has more than one batch, or group, more than another; batches that fit are those of one rank."""
    number = len(prompts) * group_size
    shares = [share_of_answers(prompts, group_size, at_once, ProcessGroup(n, num_ranks)) for n in range(num_ranks)]
    assert sorted(answer for share in shares for answer in share) == list(range(number))
    assert max(map(len, shares)) == largest_part(number, dealt_size(number, group_size, at_once, num_ranks), num_ranks)
    part = -(-number // num_ranks)
    assert max(map(len, shares)) - min(map(len, shares)) <= min(at_once or group_size, part)
    if at_once is not None and at_once <= part:
        alone = share_of_answers(prompts, group_size, at_once, ProcessGroup())
        batches = [share[start : start + at_once] for share in shares for start in range(0, len(share), at_once)]
        assert sorted(batches) == sorted(alone[start : start + at_once] for start in range(0, number, at_once))


def test_a_smaller_size_of_another_rank_is_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes, told = [None, 4, 4, 2, 2], list[str]()
    later, none = iter(sizes), cast(Any, None)

    def share(*arguments: Any) -> list[bytes]:
        answers = [{0: FinishedAnswer(0, (5,), "stop", (0.0,))}, {1: FinishedAnswer(0, (5,), "stop", (0.0,))}]
        sizes = [None, next(later)]
        return [
            msgspec.msgpack.encode({"answers": own, "batch_size": size})
            for own, size in zip(answers, sizes, strict=True)
        ]

    monkeypatch.setattr(generating, "share_work", share)
    profile = make_profile(
        tmp_path, tmp_path / "rows", run={"stage": "grpo"}, rewards={"reward_funcs": ["number_answer"]},
        grpo={"num_generations": 2, "max_completion_length": 8}, train={"per_device_train_batch_size": 2},
    )  # fmt: skip
    data = cast(Any, SimpleNamespace(tokenizer=SimpleNamespace(decode=lambda ids, **options: "")))
    ranks, events = ProcessGroup(0, 2), cast(Any, Told(told))
    generation = AnswerGeneration(profile, data, none, ranks, TrainState(), none, none, events)
    for number in range(len(sizes)):
        row = cast(AskedRow, SimpleNamespace(number=0))
        generation.generate(number, [row], [np.arange(3, dtype=np.int32)])
    assert told == [f"rank 1: answers are generated {size} at a time: more did not fit into memory" for size in (4, 2)]


class Told:
    """In the place of the journal."""

    def __init__(self, warnings: list[str]) -> None:
        self.warn = warnings.append

    def within(self, phase: str, detail: str) -> Any:
        return nullcontext()
