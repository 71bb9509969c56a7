"""A few words of a row that show what is found in it, taken from its tokens: what the model sees."""

from transformers import PreTrainedTokenizerBase

from ftui.engine.data.facts.damage import SIGNS
from ftui.engine.data.facts.row_facts import PATTERNS
from ftui.engine.report.rows import RowsOf

WIDTH = 72
_MOST = 2048  # tokens that are looked at
_BEFORE = 12  # characters before what is found
_PLACES = PATTERNS | {"damaged_text": SIGNS}


def excerpt(tokenizer: PreTrainedTokenizerBase, rows: RowsOf, row: int, finding: str) -> str:
    """At most 72 characters on one line, from where the finding shows, else from the beginning."""
    known = [int(token) for token in rows.tokens(row, _MOST) if 0 <= token < len(tokenizer)]
    text = " ".join(str(tokenizer.decode(known, skip_special_tokens=True)).split())
    found = _PLACES[finding].search(text) if finding in _PLACES else None
    start = max(0, found.start() - _BEFORE) if found else 0
    piece = text[start : start + WIDTH]
    return ("..." if start else "") + piece + ("..." if start + WIDTH < len(text) else "")
