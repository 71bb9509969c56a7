"""How many bytes of text a token stands for: what rows are counted with where a tokenizer is not to be had."""

from typing import NamedTuple


class BytesPerToken(NamedTuple):
    """Bytes of UTF-8 for a token: of text that takes many tokens, of most text, of text that takes few."""

    least: float
    usual: float
    most: float


# Measured on 8 collections of public rows in English and Python (chat, instructions, school mathematics, calls of
# tools, books, speeches): mathematics takes the most tokens, formal English the fewest. Samples in other languages lie
# between 2.6 and 9.
LARGE = BytesPerToken(3.2, 4.2, 5.2)  # Llama 3, Llama 4, Qwen, Mistral NeMo, DeepSeek: 3.2 to 5.2
SMALL = BytesPerToken(3.0, 3.8, 4.8)  # Mistral 7B (and, with as many entries, Llama 2, Phi 3): 3.0 to 4.8
LEAST_OF_LARGE = 64_000
"""Entries of a vocabulary; those of GPT-2 (50,257) and SmolLM (49,152) were not at hand, and count as small."""


def bytes_per_token(vocab_size: int | None) -> BytesPerToken:
    """By the size of a model's vocabulary, which is nearly all that tells families apart here (`None`: not known)."""
    return SMALL if vocab_size is not None and vocab_size < LEAST_OF_LARGE else LARGE
