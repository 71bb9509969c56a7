"""Tiny models of every architecture that is written as GGUF, with weights that show a mistake."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from ftui.engine.gguf_files.gguf_certificate import why_not_measured
from tests.support.tiny import make_tokenizer

needs_llama = pytest.mark.skipif(why_not_measured() is not None, reason=str(why_not_measured()))
SMALL: dict[str, Any] = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 256, "tie_word_embeddings": False,
}  # fmt: skip
TIED = {"tie_word_embeddings": True}
GEMMA = {"head_dim": 32, "query_pre_attn_scalar": 32, "sliding_window": 16, **TIED}
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "llama-tied": ("llama", TIED),
    "llama-biases": ("llama", {"attention_bias": True}),
    "llama-wide-heads": ("llama", {"head_dim": 32}),
    "llama-3-positions": ("llama", {"rope_parameters": {
        "rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64}}),
    "llama-linear": ("llama", {"rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}}),
    "mistral": ("mistral", {"sliding_window": None}),
    "qwen2": ("qwen2", TIED),
    "qwen2-yarn": ("qwen2", {"rope_parameters": {
        "rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 64}}),
    "qwen3": ("qwen3", {"head_dim": 32}),
    "gemma": ("gemma", {"head_dim": 32, **TIED}),
    "gemma2": ("gemma2", GEMMA),
    "gemma3_text": ("gemma3_text", GEMMA | {"num_hidden_layers": 7}),
    "gpt2": ("gpt2", {
        "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 256, "activation_function": "gelu_new", **TIED}),
}  # fmt: skip

MakeModel = Callable[..., tuple[Path, Any]]


@pytest.fixture
def make_model(tmp_path: Path) -> MakeModel:
    def make(kind: str, folder: Path = tmp_path / "model", **more: Any) -> tuple[Path, Any]:
        """A model of KINDS with its tokenizer in `folder`; all its weights are drawn by chance."""
        tokenizer = make_tokenizer()
        model_type, keys = KINDS[kind]
        sizes = {} if model_type == "gpt2" else SMALL
        ids = {"vocab_size": len(tokenizer) + 4, "eos_token_id": tokenizer.eos_token_id, "bos_token_id": None}
        config = AutoConfig.for_model(model_type, **(sizes | keys | ids | more))
        torch.manual_seed(3)
        model: Any = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
        for name, weight in model.named_parameters():
            spread = 0.2 if weight.ndim == 1 else weight.shape[-1] ** -0.5
            with torch.no_grad():
                weight.copy_(torch.randn_like(weight) * spread + ("norm" in name and "gemma" not in kind))
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return folder, model

    return make
