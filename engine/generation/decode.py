"""Decoding: prompts are computed once, keys and values are kept, and each pass adds a token to every open answer."""

import inspect
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

from ftui.errors import DataError

from ..models.load_model import longest_in
from .sampling import NonFiniteLogitsError, Sampling, choose_tokens


@dataclass(frozen=True)
class Prompt:
    """Token ids to be answered; `answer` tells the random numbers of one answer from those of another."""

    ids: Sequence[int]
    answer: int = 0


@dataclass(frozen=True)
class Token:
    """A token of the answer to prompt `row`.

    `log_prob` is that of the model (at the temperature, before any choice of `top_p` and so on); `likeliest` are ids
    and log-probabilities of the likeliest ones.
    """

    row: int
    id: int
    log_prob: float
    likeliest: tuple[tuple[int, float], ...] = ()


@dataclass(eq=False)
class Memory:
    """What a conversation keeps from turn to turn: the ids that were computed, and their keys and values."""

    ids: list[int] = field(default_factory=list)
    cache: DynamicCache | None = None

    def share(self, ids: Sequence[int]) -> int:
        """How many of the ids are computed already; what is kept beyond them is dropped.

        At least one is left to be computed: the next token is predicted from it.
        """
        shared = 0
        while shared < min(len(self.ids), len(ids) - 1) and self.ids[shared] == ids[shared]:
            shared += 1
        if self.cache is not None:
            kinds = {type(layer) for layer in self.cache.layers}
            if shared == len(self.ids) and kinds <= {DynamicLayer, DynamicSlidingWindowLayer}:
                pass  # recurrent layers do not go on from their state by several tokens (transformers 5.24)
            elif kinds == {DynamicLayer}:
                self.cache.crop(shared - len(self.ids))
            else:  # a window has forgotten what was before
                shared, self.cache = 0, None
        self.ids = self.ids[:shared]
        return shared


def decode(
    model: Any,
    prompts: Sequence[Prompt],
    sampling: Sampling,
    *,
    stop_ids: Sequence[int],
    max_new_tokens: int,
    num_likeliest: int = 0,
    memory: Memory | None = None,
) -> Iterator[list[Token]]:
    """The next token of each open answer, pass by pass, until all have ended; who stops asking stops the work.

    An answer ends with the first of `stop_ids`, which is its last token, after `max_new_tokens`, or where the model's
    context ends: learned positions beyond it are an error, which on CUDA takes the process with it. Finished answers
    cost nothing more. Equal prompts are computed once. With `memory` (one prompt only) what it has is not computed
    again, and afterwards it has this turn, too.

    The model is in evaluation mode, and `model` is transformers' own, not a wrapper of PEFT.

    Raises:
        DataError: see `why_unanswerable`.
        NonFiniteLogitsError: with the prompts' numbers.
    """
    assert memory is None or len(prompts) == 1
    for prompt in prompts:
        if reason := why_unanswerable(model, prompt.ids):
            raise DataError(f"The prompt {reason}.")
    context = longest_in(model.config) or math.inf
    batch = _Batch(model, prompts, memory or Memory())
    answers = [prompt.answer for prompt in prompts]
    for position in range(max_new_tokens):
        logits = batch.logits().float().cpu()
        try:
            tokens = choose_tokens(logits, batch.ids, [answers[row] for row in batch.rows], position, sampling)
        except NonFiniteLogitsError as error:
            raise NonFiniteLogitsError([batch.rows[place] for place in error.rows]) from None
        log_probs = torch.log_softmax(logits / (sampling.temperature or 1.0), -1)
        yield [
            Token(row, token, float(log_probs[place, token]), _likeliest(log_probs[place], num_likeliest))
            for place, (row, token) in enumerate(zip(batch.rows, tokens, strict=True))
        ]
        has_room = [len(prompts[row].ids) + position + 1 < context for row in batch.rows]
        batch.append(tokens, [place for place, token in enumerate(tokens) if token not in stop_ids and has_room[place]])
        if not batch.rows:
            return


def why_unanswerable(model: Any, ids: Sequence[int]) -> str:
    """What a prompt has that no answer can follow it; "" where one can."""
    context = longest_in(model.config) or math.inf
    if not ids:
        return "has no tokens, and the next one is predicted from those before it"
    if len(ids) >= context:
        return f"has {len(ids)} tokens, and the model sees {context}: no answer fits behind it"
    return ""


def _likeliest(log_probs: Tensor, number: int) -> tuple[tuple[int, float], ...]:
    values, ids = log_probs.topk(number)
    return tuple(zip(ids.tolist(), values.tolist(), strict=True))


class _Batch:
    """Answers in the making. `ids` (rows, length) begin with padding, which is masked."""

    def __init__(self, model: Any, prompts: Sequence[Prompt], memory: Memory) -> None:
        self.model, self.memory = model, memory
        self.rows = list(range(len(prompts)))
        distinct = list(dict.fromkeys(tuple(prompt.ids) for prompt in prompts))
        self._places = [distinct.index(tuple(prompt.ids)) for prompt in prompts]
        width = max(map(len, distinct))
        # Padded by a token of the row itself, not a special one: a penalty for repetition counts all it sees.
        self.ids = torch.tensor([[*[ids[0]] * (width - len(ids)), *ids] for ids in distinct])
        self.mask = torch.tensor([[0] * (width - len(ids)) + [1] * len(ids) for ids in distinct])
        self._computed = memory.share(distinct[0]) if len(prompts) == 1 else 0
        if memory.cache is None and model._supports_default_dynamic_cache():
            memory.cache = DynamicCache(config=model.config.get_text_config(decoder=True))

    @torch.no_grad()
    def logits(self) -> Tensor:
        """Those of each row's next token."""
        device = self.model.device
        new = self.ids.shape[1] - self._computed
        places: dict[str, Tensor] = {}
        if "position_ids" in inspect.signature(self.model.forward).parameters:
            places["position_ids"] = (self.mask.cumsum(1) - 1).clamp(min=0)[:, -new:].to(device)
        inputs = self.model.prepare_inputs_for_generation(
            self.ids.to(device), next_sequence_length=new, cache=self.memory.cache,
            use_cache=self.memory.cache is not None, attention_mask=self.mask.to(device),
            is_first_iteration=self._computed == 0, **places,
        )  # fmt: skip
        try:
            output: Tensor = self.model(**inputs, logits_to_keep=1).logits[:, -1]
        except BaseException:  # memory ran out, or someone leaves: some layers may have kept this pass, others not
            self.memory.cache, self.memory.ids = None, []
            raise
        if self.memory.cache is not None:
            self._computed = self.ids.shape[1]
            if len(self.rows) == 1:
                self.memory.ids = self.ids[0].tolist()
        if self._places != list(range(len(self.ids))):  # the prompts are computed: each answer gets its own copy
            output = output[self._places]
            self._select(self._places)
        self._places = list(range(len(self.ids)))
        return output

    def append(self, tokens: Sequence[int], open_places: list[int]) -> None:
        """Add a token to each row; only those in `open_places` go on."""
        self.ids = torch.cat([self.ids, torch.tensor(tokens)[:, None]], 1)
        self.mask = torch.cat([self.mask, torch.ones_like(self.mask[:, :1])], 1)
        if len(open_places) < len(tokens):
            self.rows = [self.rows[place] for place in open_places]
            self._select(open_places)
            self._places = list(range(len(open_places)))

    def _select(self, places: list[int]) -> None:
        self.ids, self.mask = self.ids[places], self.mask[places]
        if self.memory.cache is not None and places:
            chosen: Any = torch.tensor(places, device=self.model.device)
            self.memory.cache.reorder_cache(chosen)
