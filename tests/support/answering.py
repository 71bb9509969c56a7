"""Small models of every kind of memory (full and sliding attention, recurrent layers), and prompts for them."""

from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

STOPS = (5, 6)
LENGTH = 24
SIZES: dict[str, Any] = {
    "vocab_size": 64, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 128, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2, "initializer_range": 0.4,
}  # fmt: skip
LINEAR = {"linear_num_value_heads": 2, "linear_num_key_heads": 2, "linear_key_head_dim": 8, "linear_value_head_dim": 8}
KINDS: dict[str, dict[str, Any]] = {
    "llama": {}, "gpt2": {}, "qwen3": {},
    "mistral": {"sliding_window": 8}, "gemma3_text": {"sliding_window": 8, "initializer_range": 0.1},
    "qwen3_5_text": {"layer_types": ["linear_attention", "full_attention"], **LINEAR},
    "mamba": {"state_size": 8},
}  # fmt: skip
PROMPTS = [[1, 9, 8, 7], [1, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42], [1, 50], [1, 9, 8, 7]]


def make_model(kind: str) -> Any:
    """A model of random weights that never hesitates much between two tokens."""
    torch.manual_seed(4)
    config = AutoConfig.for_model(kind, **SIZES | KINDS[kind])
    return AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
