"""How a byte-level tokenizer cuts text before it merges, under the names that llama.cpp has for it.

llama.cpp knows splits by name and has each in code of its own. So a name is given for a definition that is known word
by word, and each one here was compared on texts (tests/engine/gguf_files/test_vocabulary.py); nothing is guessed.
"""

import json
from typing import Any

from ftui.errors import ModelError

Split = tuple[str, ...]

DIGITS = "one digit"
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = _WORDS + r"\p{N}" + _REST
LLAMA3 = _WORDS + r"\p{N}{1,3}" + _REST

NAMES: dict[tuple[Split, bool], str] = {
    ((GPT2,), False): "gpt-2",
    ((DIGITS, GPT2), False): "smollm",
    ((QWEN2,), False): "qwen2",
    ((LLAMA3,), True): "llama-bpe",
    ((LLAMA3,), False): "smaug-bpe",
}
"""By the split, and whether a word that is a token is taken whole (`ignore_merges`)."""


def pre_tokenizer_name(definition: dict[str, Any]) -> str:
    """The value of `tokenizer.ggml.pre`; `definition` is that of a tokenizer.json.

    Raises:
        ModelError: the split is none of those that are known.
    """
    split = _split_of(definition.get("pre_tokenizer"))
    name = None if split is None else NAMES.get((split, bool(definition["model"].get("ignore_merges"))))
    if name is None:
        text = json.dumps(definition.get("pre_tokenizer"), ensure_ascii=False)
        raise ModelError(
            f"llama.cpp has no name for how this tokenizer splits text: {text[:400]}",
            hint=f"It is not guessed, since tokens would differ. Known: {', '.join(sorted(NAMES.values()))}.",
        )
    return name


def _split_of(pre_tokenizer: Any) -> Split | None:
    """The expressions that cut the text, in their order; `None` for what has no such form."""
    if pre_tokenizer is None:
        return None
    steps = pre_tokenizer["pretokenizers"] if pre_tokenizer["type"] == "Sequence" else [pre_tokenizer]
    *cuts, last = steps
    if last["type"] != "ByteLevel" or last.get("add_prefix_space"):
        return None
    found: list[str] = []
    for cut in cuts:
        if cut["type"] == "Digits" and cut.get("individual_digits"):
            found.append(DIGITS)
        elif cut["type"] == "Split" and cut.get("behavior") == "Isolated" and not cut.get("invert"):
            found.append(cut["pattern"].get("Regex", ""))
        else:
            return None
    return (*found, GPT2) if last.get("use_regex", True) else tuple(found)
