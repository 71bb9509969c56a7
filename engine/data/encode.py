"""Examples as token ids with a mark on every token that is learned (a target token)."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from transformers import PreTrainedTokenizerBase

from ftui.engine.data.chat import Rendered, Span, Unrenderable, render
from ftui.engine.data.formats import Chat, Completion, Example, Text, to_example
from ftui.engine.data.rows import Row
from ftui.errors import DataError


@dataclass(frozen=True)
class Sequence:
    """Token ids (int32) and, for each, whether it is learned (bool). `cut` = it was longer than max_length.

    `row` is the number of its row in the batch that was encoded.
    """

    input_ids: np.ndarray
    targets: np.ndarray
    cut: bool = False
    row: int = 0

    @property
    def num_targets(self) -> int:
        """The first token of a sequence is predicted from nothing, so it never counts."""
        return int(self.targets[1:].sum())


@dataclass(frozen=True)
class Encoder:
    """Turns rows into sequences with one tokenizer.

    `stops` are the texts that end an assistant's turn (from the tokenizer and the model's generation config).
    `loss_on` is `assistant` (all that it says), `last` (its last turn) or `everything`.
    """

    tokenizer: PreTrainedTokenizerBase
    stage: str
    max_length: int
    stops: frozenset[str]
    loss_on: str = "assistant"

    def encode(self, rows: list[Row], form: str) -> Iterator[Sequence]:
        """Sequences of a batch of rows, in order; a row may give none, one or several.

        Raises:
            DataError: a row does not have the form, or cannot be rendered (named by file and line).
        """
        pending = [
            (number, rendered)
            for number, row in enumerate(rows)
            for rendered in self._render(row, to_example(row, form))
        ]
        if not pending:
            return
        texts = [rendered.text for _, rendered in pending]
        tokens = self.tokenizer(texts, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        for (row, rendered), ids, offsets in zip(pending, tokens["input_ids"], tokens["offset_mapping"], strict=True):
            for sequence in self._limit(_with_targets(ids, offsets, rendered.spans)):
                yield replace(sequence, row=row)

    def _render(self, row: Row, example: Example) -> list[Rendered]:
        if self.stage == "pretrain" and not isinstance(example, Text):
            raise row.error("stage pretrain learns plain text", hint='Use stage = "sft" for conversations.')
        if isinstance(example, Chat):
            return self._render_chat(row, example)
        prompt = self._bos + (example.prompt if isinstance(example, Completion) else "")
        learned = example.completion if isinstance(example, Completion) else example.text
        text = prompt + learned + ("" if learned.endswith(self._eos) else self._eos)
        start = len(self._bos) if self.loss_on == "everything" else len(prompt)
        return [Rendered(text, ((start, len(text)),), ends=True)]

    def _render_chat(self, row: Row, chat: Chat) -> list[Rendered]:
        if not self.tokenizer.chat_template:
            raise row.error(
                "a conversation, but the model's tokenizer has no chat template",
                hint="Use an instruct model, or rows with prompt and completion.",
            )
        try:
            turns = render(self.tokenizer, chat, self.stops, self.loss_on)
        except Unrenderable as error:
            raise row.error(str(error)) from error
        return [turn if turn.ends else _with_stop(turn, self._eos) for turn in turns]

    @cached_property
    def _bos(self) -> str:
        """The one BOS of plain text, where the tokenizer would add one. (A chat template brings its own.)"""
        ids = self.tokenizer("a").input_ids
        return str(self.tokenizer.bos_token) if ids and ids[0] == self.tokenizer.bos_token_id else ""

    @property
    def _eos(self) -> str:
        return str(self.tokenizer.eos_token)

    def _limit(self, sequence: Sequence) -> Iterator[Sequence]:
        length = len(sequence.input_ids)
        if length <= self.max_length:
            yield sequence
        elif self.stage == "sft":
            yield Sequence(sequence.input_ids[: self.max_length], sequence.targets[: self.max_length], cut=True)
        else:
            starts = list(range(0, length, self.max_length))
            starts[-1] -= length - starts[-1] == 1  # a token alone is predicted from nothing: the end would be lost
            for start, end in zip(starts, [*starts[1:], length], strict=True):
                yield Sequence(sequence.input_ids[start:end], sequence.targets[start:end], cut=start == 0)


def _with_stop(rendered: Rendered, eos: str) -> Rendered:
    """Learn to stop even where the template does not say so: the end-of-text token follows the last turn."""
    *others, (start, end) = rendered.spans
    return Rendered(rendered.text[:end] + eos, (*others, (start, end + len(eos))), ends=True)


def _with_targets(ids: list[int], offsets: list[Span], spans: tuple[Span, ...]) -> Sequence:
    """A token is learned when its first character lies in a learned span (and it has a character at all)."""
    starts = np.fromiter((start for start, _ in offsets), dtype=np.int64, count=len(offsets))
    ends = np.fromiter((end for _, end in offsets), dtype=np.int64, count=len(offsets))
    targets = np.zeros(len(ids), dtype=bool)
    for start, end in spans:
        targets |= (starts >= start) & (starts < end) & (ends > starts)
    return Sequence(np.asarray(ids, dtype=np.int32), targets)


def stop_texts(tokenizer: PreTrainedTokenizerBase, eos_token_ids: list[int]) -> frozenset[str]:
    """Texts of every token that ends a turn.

    Raises:
        DataError: the tokenizer has no end-of-text token, so nothing could teach the model to stop.
    """
    if tokenizer.eos_token is None:
        raise DataError("The tokenizer has no end-of-text token.", hint="Set eos_token in its tokenizer_config.json.")
    ids = [i for i in eos_token_ids if i < len(tokenizer)]
    return frozenset([str(tokenizer.eos_token), *(str(tokenizer.convert_ids_to_tokens(i)) for i in ids)])
