"""Architectures of the models that published measurements name: the numbers of their `config.json`, as facts.

Each line is (type, vocabulary, width, width of the MLP, layers, heads, key-value heads, the rest). Source: the
`config.json` of the model under its name on the Hugging Face hub, or, for Qwen of 2023, the one of its repository.
"""

import re
from typing import Any

from transformers import AutoConfig, PretrainedConfig

TIED = {"tie_word_embeddings": True}
UNTIED = {"tie_word_embeddings": False}
QWEN3 = {"head_dim": 128}
GEMMA = {"head_dim": 256, "hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": True}
PYTHIA = {"use_parallel_residual": True, "tie_word_embeddings": False}
FALCON = {"multi_query": True, "parallel_attn": True, "bias": False, "alibi": False, "new_decoder_architecture": False,
          "tie_word_embeddings": True}  # fmt: skip

Row = tuple[str, int, int, int, int, int, int, dict[str, Any]]

MODELS: dict[str, Row] = {
    "tinyllama-1.1b": ("llama", 32000, 2048, 5632, 22, 32, 4, UNTIED),
    "smollm2-135m": ("llama", 49152, 576, 1536, 30, 9, 3, TIED),
    "smollm2-360m": ("llama", 49152, 960, 2560, 32, 15, 5, TIED),
    "smollm2-1.7b": ("llama", 49152, 2048, 8192, 24, 32, 32, TIED),
    "smollm3-3b": ("smollm3", 128256, 2048, 11008, 36, 16, 4, TIED),
    "llama-2-7b": ("llama", 32000, 4096, 11008, 32, 32, 32, UNTIED),
    "llama-2-13b": ("llama", 32000, 5120, 13824, 40, 40, 40, UNTIED),
    "llama-2-70b": ("llama", 32000, 8192, 28672, 80, 64, 8, UNTIED),
    "codellama-7b": ("llama", 32016, 4096, 11008, 32, 32, 32, UNTIED),
    "codellama-13b": ("llama", 32016, 5120, 13824, 40, 40, 40, UNTIED),
    "codellama-34b": ("llama", 32000, 8192, 22016, 48, 64, 8, UNTIED),
    "llama-3-8b": ("llama", 128256, 4096, 14336, 32, 32, 8, UNTIED),
    "llama-3-70b": ("llama", 128256, 8192, 28672, 80, 64, 8, UNTIED),
    "llama-3.1-405b": ("llama", 128256, 16384, 53248, 126, 128, 8, UNTIED),
    "llama-3.2-1b": ("llama", 128256, 2048, 8192, 16, 32, 8, TIED | {"head_dim": 64}),
    "llama-3.2-3b": ("llama", 128256, 3072, 8192, 28, 24, 8, TIED | {"head_dim": 128}),
    "deepseek-coder-1.3b": ("llama", 32256, 2048, 5504, 24, 16, 16, UNTIED),
    "deepseek-coder-6.7b": ("llama", 32256, 4096, 11008, 32, 32, 32, UNTIED),
    "yi-6b": ("llama", 64000, 4096, 11008, 32, 32, 4, UNTIED),
    "yi-34b": ("llama", 64000, 7168, 20480, 60, 56, 8, UNTIED),
    "mistral-7b-v0.1": ("mistral", 32000, 4096, 14336, 32, 32, 8, UNTIED | {"sliding_window": 4096}),
    "mistral-7b-v0.2": ("mistral", 32000, 4096, 14336, 32, 32, 8, UNTIED | {"sliding_window": None}),
    "mistral-7b-v0.3": ("mistral", 32768, 4096, 14336, 32, 32, 8, UNTIED | {"sliding_window": None}),
    "qwen-1.8b": ("qwen2", 151936, 2048, 5504, 24, 16, 16, UNTIED),
    "qwen-7b": ("qwen2", 151936, 4096, 11008, 32, 32, 32, UNTIED),
    "qwen-14b": ("qwen2", 152064, 5120, 13696, 40, 40, 40, UNTIED),
    "qwen-72b": ("qwen2", 152064, 8192, 24576, 80, 64, 64, UNTIED),
    "qwen2.5-0.5b": ("qwen2", 151936, 896, 4864, 24, 14, 2, TIED),
    "qwen2.5-1.5b": ("qwen2", 151936, 1536, 8960, 28, 12, 2, TIED),
    "qwen2.5-3b": ("qwen2", 151936, 2048, 11008, 36, 16, 2, TIED),
    "qwen2.5-7b": ("qwen2", 152064, 3584, 18944, 28, 28, 4, UNTIED),
    "qwen2.5-14b": ("qwen2", 152064, 5120, 13824, 48, 40, 8, UNTIED),
    "qwen2.5-32b": ("qwen2", 152064, 5120, 27648, 64, 40, 8, UNTIED),
    "qwen2.5-72b": ("qwen2", 152064, 8192, 29568, 80, 64, 8, UNTIED),
    "qwen3-0.6b": ("qwen3", 151936, 1024, 3072, 28, 16, 8, QWEN3 | TIED),
    "qwen3-1.7b": ("qwen3", 151936, 2048, 6144, 28, 16, 8, QWEN3 | TIED),
    "qwen3-4b": ("qwen3", 151936, 2560, 9728, 36, 32, 8, QWEN3 | TIED),
    "qwen3-8b": ("qwen3", 151936, 4096, 12288, 36, 32, 8, QWEN3 | UNTIED),
    "qwen3-14b": ("qwen3", 151936, 5120, 17408, 40, 40, 8, QWEN3 | UNTIED),
    "qwen3-32b": ("qwen3", 151936, 5120, 25600, 64, 64, 8, QWEN3 | UNTIED),
    "phi-1.5": ("phi", 51200, 2048, 8192, 24, 32, 32, UNTIED | {"partial_rotary_factor": 0.5}),
    "phi-2": ("phi", 51200, 2560, 10240, 32, 32, 32, UNTIED | {"partial_rotary_factor": 0.4}),
    "phi-3-mini": ("phi3", 32064, 3072, 8192, 32, 32, 32, UNTIED | {"sliding_window": None, "pad_token_id": 32000}),
    "phi-4": ("phi3", 100352, 5120, 17920, 40, 40, 10, UNTIED | {"sliding_window": None, "pad_token_id": 100351}),
    "gemma-2b": ("gemma", 256000, 2048, 16384, 18, 8, 1, GEMMA),
    "gemma-7b": ("gemma", 256000, 3072, 24576, 28, 16, 16, GEMMA),
    "gemma-2-2b": ("gemma2", 256000, 2304, 9216, 26, 8, 4, GEMMA | {"query_pre_attn_scalar": 256}),
    "gemma-2-9b": ("gemma2", 256000, 3584, 14336, 42, 16, 8, GEMMA | {"query_pre_attn_scalar": 256}),
    "gemma-2-27b": ("gemma2", 256000, 4608, 36864, 46, 32, 16, GEMMA | {"head_dim": 128, "query_pre_attn_scalar": 144}),
    "gemma-3-1b": ("gemma3_text", 262144, 1152, 6912, 26, 4, 1, GEMMA | {"sliding_window": 512}),
    "falcon-7b": ("falcon", 65024, 4544, 18176, 32, 71, 1, FALCON),
    "stablelm-alpha-3b": ("gpt_neox", 50688, 4096, 16384, 16, 32, 32, PYTHIA | {"rotary_pct": 0.25}),
    "stablelm-alpha-7b": ("gpt_neox", 50432, 6144, 24576, 16, 48, 48, PYTHIA | {"rotary_pct": 0.25}),
    "pythia-70m": ("gpt_neox", 50304, 512, 2048, 6, 8, 8, PYTHIA),
    "pythia-160m": ("gpt_neox", 50304, 768, 3072, 12, 12, 12, PYTHIA),
    "pythia-410m": ("gpt_neox", 50304, 1024, 4096, 24, 16, 16, PYTHIA),
    "pythia-1b": ("gpt_neox", 50304, 2048, 8192, 16, 8, 8, PYTHIA),
    "pythia-1.4b": ("gpt_neox", 50304, 2048, 8192, 24, 16, 16, PYTHIA),
    "pythia-2.8b": ("gpt_neox", 50304, 2560, 10240, 32, 32, 32, PYTHIA),
    "pythia-6.9b": ("gpt_neox", 50432, 4096, 16384, 32, 32, 32, PYTHIA),
    "pythia-12b": ("gpt_neox", 50688, 5120, 20480, 36, 40, 40, PYTHIA),
}

SAME = {
    "phi-1.5-1.3b": "phi-1.5", "phi-1_5": "phi-1.5", "phi-3-mini-4k": "phi-3-mini", "phi-3.5-mini": "phi-3-mini",
    "stablelm-base-alpha-3b": "stablelm-alpha-3b", "stablelm-base-alpha-7b": "stablelm-alpha-7b",
    "tiny-llama": "tinyllama-1.1b", "tinyllama": "tinyllama-1.1b", "tiny-llama-1.1b": "tinyllama-1.1b",
    "tinyllama-1.1b-chat-v1.0": "tinyllama-1.1b", "tinyllama-1.1b-intermediate-step-1431k-3t": "tinyllama-1.1b",
    "mistral-7b": "mistral-7b-v0.1", "llama-3.1-8b": "llama-3-8b", "llama-3.1-70b": "llama-3-70b",
    "llama-3.3-70b": "llama-3-70b", "gemma2-2b": "gemma-2-2b", "gemma2-9b": "gemma-2-9b", "gemma2-27b": "gemma-2-27b",
    "qwen2-0.5b": "qwen2.5-0.5b", "qwen2-1.5b": "qwen2.5-1.5b", "qwen2-7b": "qwen2.5-7b",
}  # fmt: skip
"""Other names of the same architecture."""

DECORATION = re.compile(r"-(hf|base|chat|instruct|it|meta|instruct-v\d.*|chat-v\d.*)$")


def key_of(name: str) -> str | None:
    """The line of MODELS that a model's published name means; `None`: none, and none is guessed."""
    plain = re.sub(r"[ _]+", "-", name.split("/")[-1].strip().lower()).removeprefix("meta-")
    for candidate in (plain, plain.replace("qwen2.5-coder", "qwen2.5").replace("qwen2.5-math", "qwen2.5")):
        shorter = re.sub(r"-(instruct|chat)(?=-v\d)", "", candidate)
        for form in (candidate, shorter, DECORATION.sub("", candidate), DECORATION.sub("", shorter)):
            form = SAME.get(form, form)
            if form in MODELS:
                return form
    return None


def config_of(key: str, num_layers: int | None = None) -> PretrainedConfig:
    """The configuration for transformers, with another number of layers if wanted."""
    kind, vocab, width, mlp, layers, heads, kv_heads, rest = MODELS[key]
    shape: dict[str, Any] = {
        "vocab_size": vocab, "hidden_size": width, "intermediate_size": mlp, "num_attention_heads": heads,
        "num_hidden_layers": layers if num_layers is None else num_layers, "max_position_embeddings": 32768,
        "use_cache": False, **rest,
    }  # fmt: skip
    if kind == "falcon":
        shape["ffn_hidden_size"] = shape.pop("intermediate_size")
    elif kind != "gpt_neox":
        shape["num_key_value_heads"] = kv_heads
    return AutoConfig.for_model(kind, **shape)
