"""How many entries the vocabulary of a new model has, as far as that can be told before its tokenizer is trained."""

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

TOKENIZER = "tokenizer.json"


def vocabulary_of(section: Any) -> int:
    """Of `[model.from_scratch]`: of the tokenizer in a folder on this disk, else what is asked for.

    A tokenizer that is trained may get fewer, where the rows are few: that is known when they have been read.
    """
    if section.tokenizer is not None:
        path = Path(section.tokenizer).expanduser() / TOKENIZER
        try:
            found = _entries(path, path.stat().st_mtime_ns)
        except OSError:  # on the hub, or of another kind
            found = None
        if found is not None:
            return found
    return int(section.vocab_size)


@lru_cache(maxsize=8)
def _entries(path: Path, _changed: int) -> int | None:
    """Entries of a tokenizer.json, added ones too; `None` where it cannot be understood."""
    try:
        table = json.loads(path.read_bytes())
        vocabulary = table["model"]["vocab"]
        names = (
            set(vocabulary) if isinstance(vocabulary, dict) else {entry[0] for entry in vocabulary}
        )  # Unigram: a list
        return len(names | {token["content"] for token in table.get("added_tokens") or ()}) or None
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
        return None
