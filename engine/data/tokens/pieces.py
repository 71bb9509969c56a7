"""Texts as token ids, piece by piece from memory: a tenth of the time that a tokenizer takes for whole texts.

The tokenizers known here part a text at its marks (added tokens) and then into words, each tokenised by itself, and no
word goes on past a character before a space. So the tokens of a text are those of its pieces, cut at marks and before
spaces, one after another; and most pieces have been there before.
"""

import json
import re
from bisect import bisect_right
from collections.abc import Collection, Sequence
from itertools import accumulate, chain
from typing import Any, Protocol

from transformers import PreTrainedTokenizerBase

from ...models.tokenizer import is_bare

Ids = tuple[int, ...]
Span = tuple[int, int]
CUT = "\0"  # stands at each cut; texts that have one are cut by the slower way
MOST_PIECES = 1 << 18  # remembered, some 60 MB: then they begin anew. A quarter of that costs a tenth of the time more
MOST_ENCODINGS = 1 << 12
_SPACE_IN_RUN = re.compile(r"\s ")
_WORDS = re.compile(r"(?<=\S)(?= )")
# Within a piece: numbers, and the signs behind a word, which another word may have too. No word of the patterns below
# has both of what stands on the two sides. (A sign before a letter may be a part of its word, as is an apostrophe.)
_INSIDE = re.compile(r"(?<=[A-Za-z])(?=[.,:;!?)0-9])|(?<=[0-9])(?=[.,:;!?)A-Za-z])|(?<=[.,:;!?($])(?=[0-9])")
_LETTERS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_UPPER, _LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
WORD_PATTERNS = {
    rf"{_CONTRACTIONS}|{_LETTERS}|\p{{N}}{{1,3}}|{_REST}",  # Llama 3, cl100k
    rf"{_CONTRACTIONS}|{_LETTERS}|\p{{N}}|{_REST}",  # Qwen
    rf"[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]*[{_LOWER}]+{_CONTRACTIONS}?|"  # o200k
    rf"[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]+[{_LOWER}]*{_CONTRACTIONS}?|"
    r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
}
"""Patterns of words none of which has a space behind its first character but in a run of white space."""
PROBE = (
    "It's  a\n test \n\n of   12 345 words,\tdon't\u00a0 you? \u3042\u3044 caf\u00e9 -- x  {0}\n"
    "{0} user {0}{0}\n\n  def f(a):\n    return '\U0001f600 ' {0}  "
)


class TextTokens(Protocol):
    """What a loss mask asks of the tokens of a text: `tokenizers.Encoding` has it."""

    @property
    def ids(self) -> list[int]: ...

    def __len__(self) -> int: ...

    def char_to_token(self, char_pos: int) -> int | None: ...

    def token_to_chars(self, token_index: int) -> Span | None: ...


class _Memory(dict[str, Ids]):
    """The ids of pieces; those of one that is not there yet are asked of the tokenizer."""

    def __init__(self, backend: Any, marks: Collection[str]) -> None:
        super().__init__()
        self._backend = backend
        self.marks = frozenset(marks)
        self.misspelt: set[str] = set()
        """Pieces whose ids are read back as another text."""

    def __missing__(self, piece: str) -> Ids:
        if len(self) >= MOST_PIECES:
            self.clear()
        parts = _INSIDE.split(piece) if piece not in self.marks else [piece]
        if len(parts) > 1:
            ids = tuple(chain.from_iterable(map(self.__getitem__, parts)))
            is_spelt = self.misspelt.isdisjoint(parts)
        else:
            ids = tuple(self._backend.encode(piece, add_special_tokens=False).ids)
            is_spelt = self._backend.decode(ids, skip_special_tokens=False) == piece
        self[piece] = ids
        if not is_spelt:
            self.misspelt.add(piece)
        return ids


class PieceTokenizer:
    """Tokenises as the tokenizer itself does, which has to be one that `parts_before_spaces`."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._backend: Any = tokenizer.backend_tokenizer
        marks = sorted((one.content for one in tokenizer.added_tokens_decoder.values()), key=len, reverse=True)
        self._marks = re.compile(f"({'|'.join(map(re.escape, marks)) or '(?!)'})")
        self._ids = _Memory(self._backend, marks)
        self._encodings: dict[str, TextTokens] = {}

    def encode(self, text: str) -> "PieceTokens":
        pieces = self._pieces(text)
        return PieceTokens(self, pieces, list(map(self._ids.__getitem__, pieces)))

    def _pieces(self, text: str) -> list[str]:
        parts = self._marks.split(text)
        if CUT in text or _SPACE_IN_RUN.search(text):
            return [piece for part in parts for piece in _WORDS.split(part)]
        return CUT.join(parts).replace(" ", f"{CUT} ").split(CUT)

    def spells(self, pieces: Sequence[str]) -> bool:
        """Whether the ids of all of them are read back as they are written."""
        return not self._ids.misspelt or self._ids.misspelt.isdisjoint(pieces)

    def encoding(self, piece: str) -> TextTokens:
        """With the characters of each token."""
        if piece not in self._encodings:
            if len(self._encodings) >= MOST_ENCODINGS:
                self._encodings.clear()
            self._encodings[piece] = self._backend.encode(piece, add_special_tokens=False)
        return self._encodings[piece]


class PieceTokens:
    """The tokens of a text. Where they stand in it is looked up piece by piece: few are asked for."""

    def __init__(self, tokenizer: PieceTokenizer, pieces: list[str], each: list[Ids]) -> None:
        self._tokenizer, self._pieces, self._each = tokenizer, pieces, each
        self.ids = list(chain.from_iterable(each))
        self._chars_behind = list(accumulate(map(len, pieces)))
        self._tokens_behind = list(accumulate(map(len, each)))

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def are_spelt(self) -> bool:
        """Whether they are read back as the text for certain."""
        return self._tokenizer.spells(self._pieces)

    def char_to_token(self, char_pos: int) -> int | None:
        number = bisect_right(self._chars_behind, char_pos)
        if char_pos < 0 or number == len(self._pieces):
            return None
        piece = self._pieces[number]
        start = self._chars_behind[number] - len(piece)
        token = self._tokenizer.encoding(piece).char_to_token(char_pos - start)
        return None if token is None else self._tokens_behind[number] - len(self._each[number]) + token

    def token_to_chars(self, token_index: int) -> Span | None:
        number = bisect_right(self._tokens_behind, token_index)
        if token_index < 0 or number == len(self._pieces):
            return None
        piece, first = self._pieces[number], self._tokens_behind[number] - len(self._each[number])
        chars = self._tokenizer.encoding(piece).token_to_chars(token_index - first)
        start = self._chars_behind[number] - len(piece)
        return None if chars is None else (chars[0] + start, chars[1] + start)


def find_piece_tokenizer(tokenizer: PreTrainedTokenizerBase) -> PieceTokenizer | None:
    """The same tokenizer by pieces; `None` where it is not known that this gives the same tokens."""
    if not is_bare(tokenizer) or not _parts_before_spaces(tokenizer):
        return None
    pieces = PieceTokenizer(tokenizer)
    marks = [one.content for one in tokenizer.added_tokens_decoder.values()][:3]
    for mark in (*marks, "a"):
        text = PROBE.format(mark)
        whole, parted = tokenizer.backend_tokenizer.encode(text, add_special_tokens=False), pieces.encode(text)
        if whole.ids != parted.ids or whole.offsets != list(map(parted.token_to_chars, range(len(parted)))):
            return None
    return pieces


def _parts_before_spaces(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether its steps are known to part every text before each space behind a character that is no white space."""
    backend: Any = tokenizer.backend_tokenizer
    added = tokenizer.added_tokens_decoder.values()
    return (
        type(backend.model).__name__ == "BPE"
        and not backend.model.dropout
        and backend.normalizer is None
        and backend.truncation is None
        and backend.padding is None
        and not backend.encode_special_tokens
        and len({one.normalized for one in added}) <= 1
        and not any(one.lstrip or one.rstrip or one.single_word or not _is_one_word(one.content) for one in added)
        and _has_words(_state(backend.pre_tokenizer))
        and _decodes_bytes(backend.decoder)
        and _keeps_spaces(_state(backend.post_processor))
    )


def _is_one_word(mark: str) -> bool:
    return mark.split() == [mark]


def _state(step: Any) -> dict[str, Any]:
    return dict(json.loads(step.__getstate__())) if step is not None else {}


def _has_words(state: dict[str, Any]) -> bool:
    """Whether one of the steps parts a text into words, and all the others part these at most."""
    steps = state.get("pretokenizers", [state])
    return all(map(_is_known_step, steps)) and any(
        step["type"] == "Split" or (step["type"] == "ByteLevel" and step["use_regex"]) for step in steps
    )


def _is_known_step(step: dict[str, Any]) -> bool:
    if step.get("type") == "Split":
        is_whole = (step["behavior"], step["invert"]) in (("Isolated", False), ("Removed", True))
        return is_whole and step["pattern"].get("Regex") in WORD_PATTERNS
    return step.get("type") == "Digits" or (step.get("type") == "ByteLevel" and not step["add_prefix_space"])


def _decodes_bytes(decoder: Any) -> bool:
    """Whether what is read back of two texts is what is read back of both together."""
    return type(decoder).__name__ == "ByteLevel"


def _keeps_spaces(state: dict[str, Any]) -> bool:
    """Whether the offsets of a token are the same at the beginning of a text as within it."""
    steps = state.get("processors", [state])
    return all(
        step.get("type", "TemplateProcessing") == "TemplateProcessing"
        or (step["type"] == "ByteLevel" and not (step["trim_offsets"] and step["add_prefix_space"]))
        for step in steps
    )
