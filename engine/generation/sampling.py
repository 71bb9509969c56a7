"""How the next token is chosen: greedily, or at random by numbers that depend on nothing but their place.

A random number is a function of the seed, the answer and the position (Philox, a counter-based generator), so there
is no state to save, a batch draws what its rows would draw alone, and the generators of the training do not move.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)  # fmt: skip

from ftui.errors import NonFiniteError


class NonFiniteLogitsError(NonFiniteError):
    """There is no next token in `rows`: what the model computes for them is NaN or infinite."""

    def __init__(self, rows: Sequence[int]) -> None:
        super().__init__(
            "The model's output is NaN or infinite.",
            hint="Its weights are, or they overflow in this precision, or at this temperature or penalty.",
        )
        self.rows = rows


@dataclass(frozen=True)
class Sampling:
    """Keys and defaults as those of transformers' GenerationConfig, but `top_k` is off. `temperature` 0 is greedy."""

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    seed: int = 0

    def processors(self) -> LogitsProcessorList:
        """What turns logits into those of the distribution that is sampled, in transformers' order."""
        found = LogitsProcessorList()
        if self.repetition_penalty != 1.0:
            found.append(RepetitionPenaltyLogitsProcessor(self.repetition_penalty))
        if not self.temperature:
            return found
        if self.temperature != 1.0:
            found.append(TemperatureLogitsWarper(self.temperature))
        if self.top_k:
            found.append(TopKLogitsWarper(self.top_k))
        if self.top_p < 1.0:
            found.append(TopPLogitsWarper(self.top_p))
        if self.min_p:
            found.append(MinPLogitsWarper(self.min_p))
        return found


def uniform(seed: int, answer: int, position: int) -> float:
    """The random number in [0, 1) for a position of an answer."""
    counter = np.random.Philox(key=(answer << 64) | (seed & (2**64 - 1)), counter=position)
    return float(np.random.Generator(counter).random())


def choose_tokens(logits: Tensor, ids: Any, answers: Sequence[int], position: int, sampling: Sampling) -> list[int]:
    """The next token of each row, for `position` of its answer.

    `logits` (rows, vocabulary) and `ids` (rows, length: what repetition_penalty counts) lie on the CPU: some of these
    operations have no deterministic kernel on a GPU, and all rows are needed here anyway to see which have ended.

    Raises:
        NonFiniteLogitsError: with the places of the rows in which no token can be chosen.
    """
    scores = sampling.processors()(ids, logits)
    if bad := (~scores.amax(-1).isfinite()).nonzero()[:, 0].tolist():  # single tokens may be ruled out by -inf
        raise NonFiniteLogitsError(bad)
    if not sampling.temperature:
        return [int(token) for token in scores.argmax(-1)]
    sums = torch.softmax(scores.double(), -1).cumsum(-1)
    draws = torch.tensor([uniform(sampling.seed, answer, position) for answer in answers], dtype=torch.float64)
    chosen = torch.searchsorted(sums, (draws * sums[:, -1])[:, None], right=True)
    return [int(token) for token in chosen[:, 0]]
