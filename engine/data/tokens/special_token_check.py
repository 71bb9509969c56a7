"""What is odd about the special tokens of a sequence."""

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from transformers import PreTrainedTokenizerBase

from ..forms.examples import Chat, Tokens
from .pieces import TextTokens

if TYPE_CHECKING:
    from .encode import Sequence


@dataclass(frozen=True)
class SpecialTokens:
    """Ids of the token that begins a text, of those that end an answer, of those for what is unknown and for padding.

    `marks` finds the text of any special token; `ids` are those of these texts.
    """

    bos: int | None
    stops: frozenset[int]
    unknown: int | None
    pad: int | None
    marks: re.Pattern[str]
    ids: dict[str, int]


def find_special_tokens(tokenizer: PreTrainedTokenizerBase, stops: frozenset[str]) -> SpecialTokens:
    """An unknown token that has another use too (GPT-2's is its end of text) says nothing."""
    notes = (tokenizer.convert_tokens_to_ids(text) for text in stops)
    ids = frozenset(one for one in notes if isinstance(one, int))
    unknown = tokenizer.unk_token_id
    others = {tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id, *ids}
    added = {
        one.content: number for number, one in tokenizer.added_tokens_decoder.items() if one.special and one.content
    }
    marks = re.compile("|".join(map(re.escape, sorted(added, key=len, reverse=True))) or "(?!)")
    rare = None if unknown in others else unknown
    return SpecialTokens(tokenizer.bos_token_id, ids - {unknown}, rare, tokenizer.pad_token_id, marks, added)


def oddities(sequence: "Sequence", num_stops: int, special: SpecialTokens) -> list[str]:
    """Names of the findings that this sequence adds to; `num_stops` as `count_stops` gives it."""
    ids, notes = sequence.input_ids, []
    if special.bos is not None and len(ids) > 1 and ids[0] == ids[1] == special.bos:
        notes.append("two_bos")
    if not num_stops and sequence.targets.any():
        notes.append("no_eos")
    if special.unknown is not None and special.unknown in ids:
        notes.append("unknown_tokens")
    return notes


def count_stops(sequence: "Sequence", special: SpecialTokens) -> int:
    """Tokens that end a turn among the last three trained ones: a line's end may follow."""
    last = sequence.input_ids[np.flatnonzero(sequence.targets)[-3:]].tolist()
    return sum(one in special.stops for one in last)


def has_special_text(special: SpecialTokens, chat: Chat, text: str, encoding: TextTokens) -> bool:
    """Whether a turn says the text of a special token that has become that token in what was made of the chat."""
    said = [message.get(key) for message in chat.messages for key in ("reasoning_content", "content")]
    words = [one.strip() for one in said if isinstance(one, str)]
    if not any(map(special.marks.search, words)):
        return False
    at, ids = 0, encoding.ids
    for one in words:
        start = text.find(one, at)
        if start < 0:  # the template has changed it
            continue
        at = start + len(one)
        for mark in special.marks.finditer(one):
            token = encoding.char_to_token(start + mark.start())
            if token is not None and ids[token] == special.ids[mark.group()]:
                return True
    return False


def strip_padding(tokens: Tokens, special: SpecialTokens) -> Tokens:
    """The row without the padding at its ends, where no attention mask has told it: else it would be trained on.

    Padding is a run of the token for it, or of one that ends a text: of that the first is kept as the end of the row
    unless another one ends it. A single token that could also be the end of a document stays.
    """
    ids = tokens.input_ids
    if tokens.is_bare or not len(ids):
        return tokens
    pads = special.stops | ({special.pad} if special.pad is not None else set())
    end, last = len(ids), int(ids[-1])
    if last in pads:
        run = _run(ids[::-1])
        is_ended = not (special.stops - {last}).isdisjoint(ids[max(0, end - run - 3) : end - run].tolist())
        is_kept = (not is_ended and (last in special.stops or run == 1)) or (last != special.pad and run == 1)
        end -= run - is_kept
    start, first = 0, int(ids[0])
    if first in pads:
        run = _run(ids)
        start = run - 1 if first == special.bos else run if run > 1 or first not in special.stops else 0
    if start >= end:
        return tokens  # nothing else: not ours to judge
    return replace(tokens, input_ids=ids[start:end], targets=tokens.targets[start:end])


def _run(ids: np.ndarray) -> int:
    """How many of the first ids are the same."""
    others = np.flatnonzero(ids != ids[0])
    return int(others[0]) if len(others) else len(ids)
