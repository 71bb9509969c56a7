"""`[model.from_scratch]`: a new model and, unless one is named, a new tokenizer."""

from typing import Any, Literal

from pydantic import field_validator, model_validator

from ftui.profile.sections.fields import Section, weights

# Heads of 64 (32 in the tiny one), feed-forward layers of 8/3 the width where they are gated (Llama), tied embeddings
# (at this size a second matrix would be most of the model), deeper rather than wider (MobileLLM, arXiv 2402.14905).
# Parameters of a Llama with a vocabulary of that size: 2.8, 19, 52 million. `gpt2` is the smallest model of Radford et
# al. 2019 as it was: 124 million.
SIZES: dict[str, dict[str, Any]] = {
    "custom": {},
    "tiny": {
        "hidden_size": 192, "intermediate_size": 512, "num_hidden_layers": 5, "num_attention_heads": 6,
        "num_key_value_heads": 2, "max_position_embeddings": 512, "vocab_size": 4096,
    },
    "small": {
        "hidden_size": 384, "intermediate_size": 1024, "num_hidden_layers": 8, "num_attention_heads": 6,
        "num_key_value_heads": 2, "max_position_embeddings": 1024, "vocab_size": 16384,
    },
    "medium": {
        "hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 12, "num_attention_heads": 8,
        "num_key_value_heads": 4, "max_position_embeddings": 2048, "vocab_size": 32768,
    },
    "gpt2": {
        "model_type": "gpt2", "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12,
        "num_attention_heads": 12, "num_key_value_heads": 12, "max_position_embeddings": 1024, "vocab_size": 50257,
    },
}  # fmt: skip
GATED_GPT2 = {"intermediate_size": 2048}  # three matrices instead of two: the same number of parameters


class FromScratch(Section):
    """Architecture of a new model with random weights, and the tokenizer trained for it."""

    size: Literal["custom", "tiny", "small", "medium", "gpt2"] = weights("custom")
    """Sets the absent keys below: about 3, 19, 52 and 124 million parameters. `custom` keeps their defaults."""

    model_type: Literal["llama", "qwen3", "mistral", "gpt2"] = weights("llama")
    """Architecture."""

    hidden_size: int = weights(192, ge=8)
    """Width of the model."""

    intermediate_size: int = weights(512, ge=8)
    """Width of the feed-forward layers."""

    num_hidden_layers: int = weights(4, ge=1)
    """Number of layers."""

    num_attention_heads: int = weights(6, ge=1)
    """Attention heads per layer; must divide hidden_size."""

    num_key_value_heads: int = weights(2, ge=1)
    """Key and value heads, shared by the attention heads; must divide num_attention_heads. (gpt2 shares none.)"""

    max_position_embeddings: int = weights(1024, ge=8)
    """Longest sequence that the model can read, in tokens."""

    rope_theta: float = weights(10000.0, gt=0)
    """Base of the rotary position encoding. (gpt2 learns its positions instead.)"""

    tie_word_embeddings: bool = weights(True)
    """Use one matrix for the embeddings and the output head."""

    tokenizer: str | None = weights(None)
    """Folder or hub id of an existing tokenizer. Default: train one on data.train."""

    vocab_size: int = weights(4096, ge=300)
    """Entries of the trained tokenizer (byte-level BPE), special tokens included."""

    special_tokens: tuple[str, ...] = weights(("<|pad|>", "<|im_start|>", "<|im_end|>"))
    """Special tokens of the trained tokenizer: padding, start of a turn, your own, last the end of turn and text."""

    @model_validator(mode="before")
    @classmethod
    def _sized(cls, given: Any) -> Any:
        """What is given wins over the figures of its size."""
        size = given.get("size", "custom") if isinstance(given, dict) else None
        if not isinstance(size, str) or size not in SIZES:
            return given  # the fields themselves say what is wrong
        values = SIZES[size] | given
        is_gpt2 = values.get("model_type") == "gpt2"
        if size == "gpt2" and not is_gpt2:
            values = SIZES[size] | GATED_GPT2 | given
        if is_gpt2 and "num_key_value_heads" not in given:
            heads = values.get("num_attention_heads", cls.model_fields["num_attention_heads"].default)
            values["num_key_value_heads"] = heads
        # pydantic takes what a validator returns for Python, where a list is no tuple
        return {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}

    @field_validator("special_tokens")
    @classmethod
    def _enough_tokens(cls, tokens: tuple[str, ...]) -> tuple[str, ...]:
        if len(tokens) < 3 or len(set(tokens)) != len(tokens):
            raise ValueError(
                "special_tokens needs three different ones or more: padding, start of a turn, end of a turn"
            )
        return tokens
