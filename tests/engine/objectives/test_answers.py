"""Numbers of answers from those of their tokens, against loops over the answers."""

import numpy as np
import pytest
import torch

from ftui.engine.objectives.answers import answer_lengths, length_weights, policy_weights, sum_by_sequence

LENGTHS = [[3, 5], [4, 4], [1, 9], [7, 2]]


def answers(lengths: list[list[int]]) -> tuple[torch.Tensor, int]:
    flat = torch.tensor(lengths).flatten()
    return torch.repeat_interleave(torch.arange(len(flat)), flat), len(flat)


def test_sums_and_their_gradients() -> None:
    sequence_of, number = answers(LENGTHS)
    values = torch.randn(len(sequence_of), generator=torch.Generator().manual_seed(2)).requires_grad_()
    sums = sum_by_sequence(values, sequence_of, number)
    assert sums.dtype == torch.float32
    flat, start = [n for pair in LENGTHS for n in pair], 0
    for own, length in zip(sums.tolist(), flat, strict=True):
        exact = values.detach().double()[start : start + length].sum()
        assert own == np.float32(float(exact)), "rounded once"
        start += length
    assert answer_lengths(sequence_of, number).tolist() == flat
    factors = torch.arange(1.0, number + 1)
    (sums * factors).sum().backward()
    assert values.grad is not None
    assert torch.equal(values.grad, factors[sequence_of])


def test_neighbours_change_nothing() -> None:
    """A long answer alone, and among others."""
    chance = np.random.default_rng(1)
    values = torch.from_numpy(-chance.exponential(2.0, 6000).astype(np.float32))
    whole = sum_by_sequence(values, torch.arange(3).repeat_interleave(2000), 3)
    alone = [sum_by_sequence(values[i : i + 2000], torch.zeros(2000, dtype=torch.long), 1) for i in (0, 2000, 4000)]
    assert torch.equal(whole, torch.cat(alone))


def test_an_answer_without_targets_sums_to_nothing() -> None:
    sequence_of = torch.tensor([0, 0, 2])
    assert sum_by_sequence(torch.ones(3), sequence_of, 4).tolist() == [2.0, 0.0, 1.0, 0.0]
    assert answer_lengths(sequence_of, 4).tolist() == [2.0, 0.0, 1.0, 0.0]


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
def test_tokens_beyond_the_shorter_answer_weigh_alpha(alpha: float) -> None:
    sequence_of, number = answers(LENGTHS)
    expected = [
        weight for pair in LENGTHS for length in pair
        for weight in [1.0] * min(pair) + [alpha] * (length - min(pair))
    ]  # fmt: skip
    assert length_weights(sequence_of, number, alpha).tolist() == expected


def test_weights_of_pairs_are_products_of_means() -> None:
    sequence_of, number = answers(LENGTHS)
    generator = torch.Generator().manual_seed(5)
    log_probs = -torch.rand(len(sequence_of), generator=generator).requires_grad_()
    squares = -torch.rand(len(sequence_of), generator=generator)
    weights = policy_weights(log_probs, squares, sequence_of, number)
    aligned = (log_probs - squares).detach().double().numpy()
    means = [aligned[sequence_of.numpy() == i].mean() for i in range(number)]
    np.testing.assert_allclose(
        weights, [np.exp(c + r) for c, r in zip(means[::2], means[1::2], strict=True)], rtol=1e-6
    )
    assert not weights.requires_grad
