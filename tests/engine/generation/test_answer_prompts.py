"""Answers to many prompts: those of each prompt alone, whatever the batches were and however often memory ran out."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from ftui.engine.generation.answer_prompts import FinishedAnswer, answer_prompts, finished_answers, in_order
from ftui.engine.generation.decode import Prompt, decode
from ftui.engine.generation.sampling import Sampling
from tests.support.answering import PROMPTS, STOPS, make_model

LENGTH = 8
MANY = [*PROMPTS, [1, 22, 23], [1, 40, 41, 42, 43, 44], [1]]
NO_ROOM = "out of memory (a test)"


def answer(
    model: Any, sampling: Sampling, batch_size: int, stops: Sequence[int] = STOPS, **options: Any
) -> list[FinishedAnswer]:
    prompts = [Prompt(ids, 10 + number) for number, ids in enumerate(MANY)]
    found = answer_prompts(
        model, prompts, sampling, stop_ids=stops, max_new_tokens=LENGTH, batch_size=batch_size, **options
    )
    return list(finished_answers(found))


def alone(model: Any, sampling: Sampling, stops: Sequence[int] = STOPS) -> list[tuple[int, ...]]:
    found = []
    for number, ids in enumerate(MANY):
        passes = decode(model, [Prompt(ids, 10 + number)], sampling, stop_ids=stops, max_new_tokens=LENGTH)
        found.append(tuple(token.id for (token,) in passes))
    return found


def run_out(model: Any, monkeypatch: pytest.MonkeyPatch, fits: Callable[[int, int], bool]) -> list[tuple[int, int]]:
    """Memory runs out in passes whose rows and tokens do not fit; the shapes of those that did."""
    shapes, forward = [], model.forward

    @functools.wraps(forward)  # whose signature says whether positions can be given
    def fail(*arguments: Any, input_ids: torch.Tensor, **options: Any) -> Any:
        shape = (input_ids.shape[0], input_ids.shape[1])
        result = forward(*arguments, input_ids=input_ids, **options)
        if not fits(*shape):
            raise torch.OutOfMemoryError(NO_ROOM)
        shapes.append(shape)
        return result

    monkeypatch.setattr(model, "forward", fail)
    return shapes


@pytest.fixture(scope="module", params=["llama", "mamba"])
def one_or_other(request: pytest.FixtureRequest) -> Any:
    """A model that keeps keys and values, and one that computes all tokens in each pass."""
    return make_model(request.param)


@pytest.fixture(scope="module")
def llama() -> Any:
    return make_model("llama")


def test_answers_are_those_of_each_prompt_alone(model: Any) -> None:
    sampling = Sampling(1.0, top_p=0.95, seed=3)
    expected = alone(model, sampling)
    found = answer(model, sampling, 3)
    assert [one.ids for one in sorted(found, key=lambda one: one.number)] == expected
    assert all(one.ending == ("stop" if one.ids[-1] in STOPS else "length") for one in found)


@pytest.mark.parametrize("batch_size", [1, 2, 100])
def test_the_size_of_batches_changes_no_answer(llama: Any, batch_size: int) -> None:
    found = answer(llama, Sampling(), batch_size)
    assert [one.ids for one in in_order(found)] == alone(llama, Sampling())


def test_memory_that_runs_out_halves_the_batches(one_or_other: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """All fit until the first is finished, then one alone: what is finished by then is kept."""
    model = one_or_other
    stops = range(5, 25)
    expected, passes, sizes = alone(model, Sampling(), stops), [0], list[int]()
    shortest = min(map(len, expected))

    def fits(rows: int, length: int) -> bool:
        passes[0] += 1
        return rows <= (7 if passes[0] <= shortest else 1)

    shapes = run_out(model, monkeypatch, fits)
    found = answer(model, Sampling(), 7, stops, on_smaller=sizes.append)
    assert len(found) == len(MANY), "what was finished before is not answered again"
    assert sizes == [4, 2, 1]
    assert max(rows for rows, _ in shapes) > 2
    assert [one.number for one in in_order(found)] == list(range(len(MANY)))
    assert [one.ids for one in in_order(found)] == expected


def test_a_prompt_that_fits_not_even_alone_costs_only_its_own_answer(
    one_or_other: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = one_or_other
    expected = alone(model, Sampling())
    run_out(model, monkeypatch, lambda rows, length: length < 14)
    if not model._supports_default_dynamic_cache():  # it computes all tokens in each pass
        expected = [ids if len(ids) + len(prompt) <= 14 else () for ids, prompt in zip(expected, MANY, strict=True)]
    expected[1] = ()
    found = list(in_order(answer(model, Sampling(), 3)))
    assert [one.ids for one in found] == expected
    assert [one.ending == "memory" for one in found] == [not ids for ids in expected]


def test_a_prompt_without_finite_numbers_costs_only_its_own_answer(
    one_or_other: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, forward = alone(one_or_other, Sampling()), one_or_other.forward

    @functools.wraps(forward)
    def overflow(*arguments: Any, input_ids: torch.Tensor, **options: Any) -> Any:
        result = forward(*arguments, input_ids=input_ids, **options)
        result.logits[(input_ids == 50).any(1)] = torch.nan
        return result

    monkeypatch.setattr(one_or_other, "forward", overflow)
    found = list(in_order(answer(one_or_other, Sampling(), 4)))
    assert [one.number for one in found if one.ending == "not finite"] == [2]
    assert [one.ids for one in found] == [*expected[:2], (), *expected[3:]]


def test_answers_are_given_as_they_are_finished(llama: Any) -> None:
    """A short one of a batch does not wait for the others; in order, it waits for those before it."""
    num_passes, places = [0], list[int]()

    def count() -> None:
        num_passes[0] += 1

    prompts = [Prompt(ids) for ids in MANY]
    options: dict[str, Any] = {"stop_ids": range(5, 25), "max_new_tokens": LENGTH, "batch_size": 7}
    found = []
    for one in finished_answers(answer_prompts(llama, prompts, Sampling(), before_pass=count, **options)):
        places.append(num_passes[0])
        found.append(one)
    assert places == [min(len(one.ids) + (one.ending == "length"), LENGTH + 1) for one in found]
    assert len(set(places)) > 1
    number_of_first = [one.number for one in found].index(0)
    held = iter(found)
    assert next(in_order(held)).number == 0
    assert len(list(held)) == len(found) - 1 - number_of_first


def test_whoever_looks_between_two_passes_may_leave(llama: Any) -> None:
    def leave() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        answer(llama, Sampling(), 3, before_pass=leave)


def test_other_errors_are_not_taken_for_a_lack_of_memory(llama: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any, **options: Any) -> Any:
        raise RuntimeError("shapes do not match")

    monkeypatch.setattr(llama, "forward", fail)
    with pytest.raises(RuntimeError, match="shapes"):
        answer(llama, Sampling(), 3)
