"""A few words of a row that show what is found in it, taken from its tokens: what the model sees."""

import re

import numpy as np
from transformers import PreTrainedTokenizerBase

from ...data.facts.mojibake import SIGNS
from ...data.facts.row_facts import PATTERNS
from .row_index import RowIndex

WIDTH = 72
_MOST = 4096  # tokens that are looked at: of longer rows half of them from each end
_BEFORE = 12  # characters before what is found
_PLACES = PATTERNS | {"damaged_text": SIGNS}
_SPEAKER = re.compile(r"\W*(?:user|human|assistant|model|gpt|system|developer|tool)\W*(?:\n|$)", re.IGNORECASE)


def make_excerpt(tokenizer: PreTrainedTokenizerBase, rows: RowIndex, row: int, finding: str) -> str:
    """At most 72 characters on one line: from where the finding shows, else what the row's last answer answers.

    A row often begins with a system turn that many have, or that the template adds.
    """
    ids, trained, _ = rows.tokens_of(np.array([row]), _MOST, from_both_ends=True)
    is_known = (ids >= 0) & (ids < len(tokenizer))
    ids, trained = ids[is_known], trained[is_known]
    text = _decode(tokenizer, ids)
    match = _PLACES[finding].search(text) if finding in _PLACES else None
    start = max(0, match.start() - _BEFORE) if match else 0
    if not match:
        text = _last_question(tokenizer, ids, trained) or text
    piece = text[start : start + WIDTH]
    return ("..." if start else "") + piece + ("..." if start + WIDTH < len(text) else "")


def _last_question(tokenizer: PreTrainedTokenizerBase, ids: np.ndarray, trained: np.ndarray) -> str:
    """The last turn before the last run of trained tokens, without the name of its speaker; nothing where none is.

    Where nothing is trained on, the last turn of all. Special tokens part the turns.
    """
    begins = np.flatnonzero(trained & ~np.concatenate([[False], trained[:-1]]))
    before = ids[: begins[-1]] if len(begins) else ids
    special = [number for number, added in tokenizer.added_tokens_decoder.items() if added.special]
    for turn in reversed(np.split(before, np.flatnonzero(np.isin(before, special)))):
        text = str(tokenizer.decode(turn.tolist(), skip_special_tokens=True))
        if words := " ".join(_SPEAKER.sub("", text, count=1).split() if _SPEAKER.match(text) else text.split()):
            return words
    return ""


def _decode(tokenizer: PreTrainedTokenizerBase, ids: np.ndarray) -> str:
    return " ".join(str(tokenizer.decode(ids.tolist(), skip_special_tokens=True)).split())
