"""How rows begin and end and what pads them, in words: from the tokenizer and the first rows as the model sees them."""

import re
from collections import Counter

import numpy as np
from transformers import PreTrainedTokenizerBase

from ...data.stores.sequences import Sequences
from ...data.tokens.encode import Sequence as Row
from ...system.distinct import distinct

LOOKED_AT = 64


def describe_special_tokens(tokenizer: PreTrainedTokenizerBase, sequences: Sequences) -> list[str]:
    """One line each about the beginning, the end and the padding, from the first rows of each source.

    A beginning is looked at where a row has one (a text that is split has one, in its first part), and so is an end.
    """
    if not len(sequences):
        return ["no row is trained on, so that none begins or ends", _padding(tokenizer)]
    begin, end = _bounds(sequences)
    begins = Counter(int(sequences[place].input_ids[0]) for place in _first(sequences, begin))
    ends = Counter(_last_trained(sequences[place]) for place in _first(sequences, end))
    is_cut = len(distinct(sequences.rows[end])) < len(distinct(sequences.rows))
    return [_beginning(tokenizer, begins), _end(tokenizer, ends, is_cut=is_cut), _padding(tokenizer)]


def _bounds(sequences: Sequences) -> tuple[np.ndarray, np.ndarray]:
    """The masks of the sequences with which a row begins, and with which it ends."""
    begins, ends = [], []
    for number, store in enumerate(sequences.stores):
        start, stop = sequences.bounds[number], sequences.bounds[number + 1]
        its = sequences.starts[start:stop]
        begins.append(_are_among(its, store.starts))
        ends.append(_are_among(its + sequences.lengths[start:stop], store.starts + store.lengths))
    return np.concatenate(begins), np.concatenate(ends)


def _are_among(values: np.ndarray, ascending: np.ndarray) -> np.ndarray:
    places = np.minimum(np.searchsorted(ascending, values), len(ascending) - 1)
    return np.asarray(ascending[places] == values) if len(ascending) else np.zeros(len(values), dtype=bool)


def _first(sequences: Sequences, mask: np.ndarray) -> list[int]:
    """The first places of each source that are wanted (a mask)."""
    bounds = zip(sequences.bounds, sequences.bounds[1:], strict=False)
    return [int(start + n) for start, end in bounds for n in np.flatnonzero(mask[start:end])[:LOOKED_AT]]


def _last_trained(row: Row) -> int:
    trained = row.input_ids[row.targets]
    return int(trained[-1]) if len(trained) else -1


def _beginning(tokenizer: PreTrainedTokenizerBase, begins: Counter[int]) -> str:
    bos, total = tokenizer.bos_token_id, begins.total()
    with_bos = begins[bos] if bos is not None else 0
    if total and with_bos == total:
        return f"rows begin with the token that starts a text, {_named(tokenizer, bos)}"
    if with_bos:
        return f"{with_bos} of {total} rows begin with the token that starts a text, {_named(tokenizer, bos)}"
    none = "the tokenizer has no token that starts a text" if bos is None else f"none with {_named(tokenizer, bos)}"
    return f"rows begin with {_most(tokenizer, begins, 'their own text')}; {none}" if total else none


def _end(tokenizer: PreTrainedTokenizerBase, ends: Counter[int], *, is_cut: bool) -> str:
    total = ends.total()
    if not total:
        return "every row is cut, so that no end of one is trained on"
    whole = "each row that is not cut" if is_cut else "each row"
    if len(ends) == 1 and next(iter(ends)) >= 0:
        return f"the last trained token of {whole} is {_named(tokenizer, next(iter(ends)))}"
    eos = tokenizer.eos_token_id
    if eos is None:
        return f"the last trained token of {whole} is {_most(tokenizer, ends, 'of its own')}; no token ends a text"
    not_cut = " that are not cut" if is_cut else ""
    return f"{ends[int(eos)]} of {total} rows{not_cut} end with {_named(tokenizer, int(eos))}, which is trained"


def _most(tokenizer: PreTrainedTokenizerBase, tokens: Counter[int], otherwise: str) -> str:
    """The token of all of them, or of most if it is a special one; `otherwise` where each has another."""
    token, number = tokens.most_common(1)[0]
    if number == tokens.total():
        return _named(tokenizer, token)
    if token in tokenizer.added_tokens_decoder and 2 * number > tokens.total():
        return f"{_named(tokenizer, token)} ({number} of {tokens.total()})"
    return otherwise


def _padding(tokenizer: PreTrainedTokenizerBase) -> str:
    pad = tokenizer.pad_token_id
    if pad is None:
        return "the tokenizer has no token for padding: places after a row hold token 0 and are never trained"
    if pad == tokenizer.eos_token_id:
        return (
            f"padding is {_named(tokenizer, pad)}, which also ends a text: it is trained at the end of a row and never "
            "beyond it, for padding is told by its place"
        )
    return f"padding is {_named(tokenizer, pad)}, which is never trained"


def _named(tokenizer: PreTrainedTokenizerBase, token: int | None) -> str:
    """A special token as it is called; another one in quotes, as the text it stands for."""
    if token is None or token < 0:
        return "nothing"
    if token in tokenizer.added_tokens_decoder:
        return f"{tokenizer.convert_ids_to_tokens(int(token))} ({token})"
    text = tokenizer.decode([int(token)])
    if "\ufffd" not in text:
        return repr(text)
    piece = str(tokenizer.convert_ids_to_tokens(int(token)))
    if re.fullmatch(r"<0x[0-9A-Fa-f]{2}>", piece):
        return f"the byte {piece[1:-1]}, a part of a character"
    codes = [_BYTES.get(letter) for letter in piece]
    listed = " ".join(f"{code:#04x}" for code in codes if code is not None)
    word = "byte" if len(codes) == 1 else "bytes"
    return f"the {word} {listed}, with a part of a character" if None not in codes else repr(piece)


def _byte_letters() -> dict[str, int]:
    """The letters that byte-level tokenizers write for bytes: itself for a visible one, else the next from U+0100."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [code for code in range(0x100) if code not in visible]
    return {chr(code): code for code in visible} | {chr(0x100 + n): code for n, code in enumerate(others)}


_BYTES = _byte_letters()
