"""`[model.from_scratch]`: a new model and, unless one is given, a new tokenizer."""

from typing import Literal, Self

from pydantic import model_validator

from ftui.profile.fields import Section, weights


class FromScratch(Section):
    """Architecture of a new Llama model with random weights, and the tokenizer trained for it."""

    model_type: Literal["llama"] = weights("llama")
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
    """Heads that keys and values share; must divide num_attention_heads."""

    max_position_embeddings: int = weights(1024, ge=8)
    """Longest sequence the model can see."""

    rope_theta: float = weights(10000.0, gt=0)
    """Base of the rotary position encoding."""

    tie_word_embeddings: bool = weights(True)
    """Use one matrix for the embeddings and the output head."""

    tokenizer: str | None = weights(None)
    """Folder of an existing tokenizer. Without it, one is trained on data.train."""

    vocab_size: int = weights(4096, ge=300)
    """Entries of the trained tokenizer (byte-level BPE), special tokens included."""

    special_tokens: tuple[str, ...] = weights(("<|pad|>", "<|im_start|>", "<|im_end|>"))
    """Special tokens of the trained tokenizer: padding, start of a turn, your own, last the end of turn and text."""

    @model_validator(mode="after")
    def _heads_divide(self) -> Self:
        if self.hidden_size % (2 * self.num_attention_heads):
            raise ValueError("hidden_size must be an even multiple of num_attention_heads")
        if self.num_attention_heads % self.num_key_value_heads:
            raise ValueError("num_attention_heads must be a multiple of num_key_value_heads")
        if len(self.special_tokens) < 3 or len(set(self.special_tokens)) != len(self.special_tokens):
            raise ValueError(
                "special_tokens needs three different ones or more: padding, start of a turn, end of a turn"
            )
        return self
