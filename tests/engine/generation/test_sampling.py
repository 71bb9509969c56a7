"""What is sampled is transformers' distribution, and a draw depends on seed, answer and position only."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import GenerationConfig, GenerationMixin

from ftui.engine.generation.sampling import NonFiniteLogitsError, Sampling, choose_tokens, uniform

VOCABULARY = 40


def distribution_of_transformers(logits: torch.Tensor, ids: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    """The probabilities from which `generate` would draw."""
    config = GenerationConfig(
        do_sample=True, temperature=sampling.temperature, top_p=sampling.top_p, top_k=sampling.top_k,
        min_p=sampling.min_p or None, repetition_penalty=sampling.repetition_penalty,
    )  # fmt: skip
    mixin: Any = GenerationMixin()
    mixin.config = SimpleNamespace(is_encoder_decoder=False)
    processors = mixin._get_logits_processor(config, input_ids_seq_length=ids.shape[1], device="cpu")
    return torch.softmax(processors(ids, logits.clone()), -1)


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(1.0), Sampling(0.7), Sampling(1.3, top_p=0.8), Sampling(1.0, top_k=5), Sampling(1.0, min_p=0.1),
        Sampling(0.9, top_p=0.9, top_k=12, min_p=0.02, repetition_penalty=1.2),
    ],
)  # fmt: skip
def test_draws_are_from_the_distribution_of_generate(sampling: Sampling) -> None:
    torch.manual_seed(1)
    logits, ids = 2 * torch.randn(1, VOCABULARY), torch.randint(VOCABULARY, (1, 9))
    expected = distribution_of_transformers(logits, ids, sampling)[0]
    number = 4000
    drawn = choose_tokens(logits.expand(number, -1), ids.expand(number, -1), range(number), 3, sampling)
    shares = torch.bincount(torch.tensor(drawn), minlength=VOCABULARY) / number
    assert not shares[expected == 0].any()
    deviation = (expected * (1 - expected) / number).sqrt()
    assert ((shares - expected).abs() <= 5 * deviation + 1e-9).all()


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=1.0), Sampling(temperature=1.0, top_p=0.5)])
def test_rows_in_which_nothing_can_be_chosen_are_named(sampling: Sampling) -> None:
    out = -torch.inf
    rows = [[1.0, 2.0], [torch.nan, 1.0], [torch.inf, 1.0], [out, 1.0], [out, out]]
    with pytest.raises(NonFiniteLogitsError, match="NaN or infinite") as raised:
        choose_tokens(torch.tensor(rows), torch.zeros(5, 1, dtype=torch.long), range(5), 0, sampling)
    assert raised.value.rows == [1, 2, 4], "tokens may be ruled out"


def test_greedy_takes_the_likeliest_whatever_the_seed_is() -> None:
    logits = torch.tensor([[0.0, 3.0, 1.0], [2.0, 1.0, 0.0]])
    ids = torch.zeros(2, 1, dtype=torch.long)
    assert {tuple(choose_tokens(logits, ids, (0, 1), 0, Sampling(seed=seed))) for seed in range(5)} == {(1, 0)}


@given(seed=st.integers(0, 2**63), answer=st.integers(0, 2**40), position=st.integers(0, 2**40))
def test_a_number_is_a_function_of_its_place(seed: int, answer: int, position: int) -> None:
    number = uniform(seed, answer, position)
    assert 0 <= number < 1
    assert number == uniform(seed, answer, position)
    others = {
        uniform(seed + 1, answer, position),
        uniform(seed, answer + 1, position),
        uniform(seed, answer, position + 1),
    }
    assert number not in others


def test_numbers_are_uniform_along_answers_and_positions() -> None:
    for numbers in ([uniform(7, 3, i) for i in range(4000)], [uniform(7, i, 3) for i in range(4000)]):
        counts = torch.histc(torch.tensor(numbers, dtype=torch.float64), bins=10, min=0, max=1)
        assert (counts - 400).abs().max() < 5 * 19, "five standard deviations"


def test_a_row_draws_the_same_in_every_batch() -> None:
    torch.manual_seed(2)
    logits, ids = torch.randn(6, VOCABULARY), torch.randint(VOCABULARY, (6, 4))
    sampling = Sampling(1.0, top_p=0.9, seed=11)
    together = choose_tokens(logits, ids, range(6), 5, sampling)
    alone = [choose_tokens(logits[[i]], ids[[i]], [i], 5, sampling)[0] for i in range(6)]
    assert together == alone
