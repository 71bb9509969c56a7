"""A model with random weights, of the architecture the profile describes."""

from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase

from ftui.profile.sections.from_scratch import FromScratch


def new_model(config: Any, dtype: torch.dtype | str, attention: str | None) -> PreTrainedModel:
    """A model of this config, stored in `dtype`. Its weights come from torch's generator, seeded by the caller.

    They are drawn in float32 whatever `dtype` is. `attention` is what `attention_for` says.
    """
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation=attention)
    assert isinstance(model, PreTrainedModel)
    model.generation_config = GenerationConfig.from_model_config(model.config)
    return model if dtype in ("auto", torch.float32) else model.to(dtype)  # type: ignore[arg-type]


def new_config(scratch: FromScratch, tokenizer: PreTrainedTokenizerBase) -> Any:
    """The vocabulary is the tokenizer's, whatever `scratch.vocab_size` asked for: few rows may give fewer entries."""
    shape = {
        "vocab_size": len(tokenizer),
        "hidden_size": scratch.hidden_size,
        "num_hidden_layers": scratch.num_hidden_layers,
        "num_attention_heads": scratch.num_attention_heads,
        "max_position_embeddings": scratch.max_position_embeddings,
        "tie_word_embeddings": scratch.tie_word_embeddings,
        "pad_token_id": tokenizer.pad_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "bos_token_id": tokenizer.bos_token_id,
    }
    return AutoConfig.for_model(scratch.model_type, **shape, **_own(scratch))


def _own(scratch: FromScratch) -> dict[str, Any]:
    """Keys that only some types have, and defaults of a type that new models no longer use."""
    if scratch.model_type == "gpt2":  # 10 % dropout is its default, which new models no longer use
        return {"n_inner": scratch.intermediate_size, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    gated = {
        "intermediate_size": scratch.intermediate_size,
        "num_key_value_heads": scratch.num_key_value_heads,
        "rope_parameters": {"rope_type": "default", "rope_theta": scratch.rope_theta},
    }
    if scratch.model_type == "qwen3":  # its heads are 128 wide by default, whatever the model's width is
        gated["head_dim"] = scratch.hidden_size // scratch.num_attention_heads
    if scratch.model_type == "mistral":
        gated["sliding_window"] = None
    return gated
