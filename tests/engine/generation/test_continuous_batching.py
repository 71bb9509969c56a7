"""transformers' continuous batching behind the call of our own loop: the same greedy answers, an end at any time."""

import threading
from typing import Any

import pytest

from ftui.engine.generation.answer_prompts import FinishedAnswer, answer_prompts, finished_answers
from ftui.engine.generation.continuous_batching import batch_continuously
from ftui.engine.generation.decode import Prompt
from ftui.engine.generation.sampling import Sampling
from ftui.errors import ModelError
from tests.support.answering import PROMPTS, STOPS, make_model

MANY = [Prompt(ids, number) for number, ids in enumerate([*PROMPTS, [1, 22, 23], [1, 40, 41, 42, 43, 44], [1]])]


@pytest.fixture
def model() -> Any:
    return make_model("llama")


def by_number(found: Any) -> list[FinishedAnswer]:
    return sorted(finished_answers(found), key=lambda answer: answer.number)


@pytest.mark.parametrize("stops", [STOPS, pytest.param((), marks=pytest.mark.slow)])
def test_greedy_answers_are_those_of_our_loop(model: Any, stops: tuple[int, ...]) -> None:
    kernel = model.config._attn_implementation
    expected, found = (
        by_number(generator(model, MANY, Sampling(), stop_ids=stops, max_new_tokens=8, batch_size=3))
        for generator in (answer_prompts, batch_continuously)
    )
    assert [(one.number, one.ids, one.ending) for one in found] == [(o.number, o.ids, o.ending) for o in expected]
    for one, ours in zip(found, expected, strict=True):
        assert one.log_probs == pytest.approx(ours.log_probs, abs=1e-4)
    assert model.config._attn_implementation == kernel, "the model trains on as it was"


@pytest.mark.slow
def test_it_samples_by_a_temperature_only(model: Any) -> None:
    passes = batch_continuously(model, MANY, Sampling(1.5), stop_ids=(), max_new_tokens=8, batch_size=3)
    drawn = list(finished_answers(passes))
    assert sorted(one.number for one in drawn) == list(range(len(MANY))) and {len(one.ids) for one in drawn} == {8}
    with pytest.raises(ModelError, match="by a temperature only"):
        next(batch_continuously(model, MANY, Sampling(1.0, top_p=0.9), stop_ids=(), max_new_tokens=8, batch_size=3))


@pytest.mark.slow
def test_whoever_leaves_ends_it(model: Any) -> None:
    def leave() -> None:
        raise KeyboardInterrupt

    before = threading.active_count()
    with pytest.raises(KeyboardInterrupt):
        list(
            batch_continuously(model, MANY, Sampling(), stop_ids=(), max_new_tokens=64, batch_size=3, before_pass=leave)
        )
    assert threading.active_count() == before
