"""Sizes of published models, as their config.json gives them (facts; the keys are transformers')."""

from typing import Any

Config = dict[str, Any]


def _sizes(
    kind: str, hidden: int, width: int, depth: int, heads: int, kv_heads: int, vocab: int, **more: Any
) -> Config:
    return {
        "model_type": kind, "hidden_size": hidden, "intermediate_size": width, "num_hidden_layers": depth,
        "num_attention_heads": heads, "num_key_value_heads": kv_heads, "vocab_size": vocab,
        "pad_token_id": None, "bos_token_id": None, "eos_token_id": None,
    } | more  # fmt: skip


TIED: Config = {"tie_word_embeddings": True}
UNTIED: Config = {"tie_word_embeddings": False}

MODELS: dict[str, Config] = {
    "Llama-2-7b": _sizes("llama", 4096, 11008, 32, 32, 32, 32000),
    "Llama-2-13b": _sizes("llama", 5120, 13824, 40, 40, 40, 32000),
    "Llama-3-8B": _sizes("llama", 4096, 14336, 32, 32, 8, 128256),
    "Llama-3.1-70B": _sizes("llama", 8192, 28672, 80, 64, 8, 128256),
    "Llama-3.2-1B": _sizes("llama", 2048, 8192, 16, 32, 8, 128256, head_dim=64, **TIED),
    "Llama-3.2-3B": _sizes("llama", 3072, 8192, 28, 24, 8, 128256, head_dim=128, **TIED),
    "TinyLlama-1.1B": _sizes("llama", 2048, 5632, 22, 32, 4, 32000),
    "SmolLM-135M": _sizes("llama", 576, 1536, 30, 9, 3, 49152, **TIED),
    "SmolLM2-360M": _sizes("llama", 960, 2560, 32, 15, 5, 49152, **TIED),
    "SmolLM2-1.7B": _sizes("llama", 2048, 8192, 24, 32, 32, 49152, **TIED),
    "SmolLM3-3B": _sizes("smollm3", 2048, 11008, 36, 16, 4, 128256),
    "Mistral-7B-v0.1": _sizes("mistral", 4096, 14336, 32, 32, 8, 32000, sliding_window=4096),
    "Mistral-7B-v0.3": _sizes("mistral", 4096, 14336, 32, 32, 8, 32768, sliding_window=None),
    "Mistral-Nemo-12B": _sizes("mistral", 5120, 14336, 40, 32, 8, 131072, head_dim=128, sliding_window=None),
    "Qwen2-0.5B": _sizes("qwen2", 896, 4864, 24, 14, 2, 151936, **TIED),
    "Qwen2.5-1.5B": _sizes("qwen2", 1536, 8960, 28, 12, 2, 151936, **TIED),
    "Qwen2.5-7B": _sizes("qwen2", 3584, 18944, 28, 28, 4, 152064),
    "Qwen2.5-32B": _sizes("qwen2", 5120, 27648, 64, 40, 8, 152064),
    "Qwen3-0.6B": _sizes("qwen3", 1024, 3072, 28, 16, 8, 151936, head_dim=128, **TIED),
    "Qwen3-8B": _sizes("qwen3", 4096, 12288, 36, 32, 8, 151936, head_dim=128),
    "Qwen3-30B-A3B": _sizes(
        "qwen3_moe", 2048, 6144, 48, 32, 4, 151936, head_dim=128, num_experts=128, num_experts_per_tok=8,
        moe_intermediate_size=768,
    ),
    "Gemma-2b": _sizes("gemma", 2048, 16384, 18, 8, 1, 256000, head_dim=256),
    "Gemma-7b": _sizes("gemma", 3072, 24576, 28, 16, 16, 256000, head_dim=256),
    "Gemma-2-2b": _sizes("gemma2", 2304, 9216, 26, 8, 4, 256000, head_dim=256),
    "Gemma-2-9b": _sizes("gemma2", 3584, 14336, 42, 16, 8, 256000, head_dim=256),
    "Gemma-3-1b": _sizes("gemma3_text", 1152, 6912, 26, 4, 1, 262144, head_dim=256, sliding_window=512),
    "Phi-1.5": _sizes("phi", 2048, 8192, 24, 32, 32, 51200),
    "Phi-2": _sizes("phi", 2560, 10240, 32, 32, 32, 51200),
    "Phi-3-mini": _sizes("phi3", 3072, 8192, 32, 32, 32, 32064, sliding_window=2047),
    "Phi-3-medium": _sizes("phi3", 5120, 17920, 40, 40, 10, 32064, sliding_window=2047),
    "Phi-3.5-mini": _sizes("phi3", 3072, 8192, 32, 32, 32, 32064, sliding_window=262144),
    "OLMo-2-7B": _sizes("olmo2", 4096, 11008, 32, 32, 32, 100352),
    "OLMoE-1B-7B": _sizes("olmoe", 2048, 1024, 16, 16, 16, 50304, num_experts=64, num_experts_per_tok=8),
    "StarCoder2-3B": _sizes("starcoder2", 3072, 12288, 30, 24, 2, 49152, sliding_window=4096),
    "StableLM-2-1.6B": _sizes("stablelm", 2048, 5632, 24, 32, 32, 100352, use_qkv_bias=True),
    "Command-R7B": _sizes("cohere", 4096, 14336, 32, 32, 8, 256000),
    "Granite-3-2B": _sizes("granite", 2048, 8192, 40, 32, 8, 49155, **TIED),
    "Mixtral-8x7B": _sizes("mixtral", 4096, 14336, 32, 32, 8, 32000, num_local_experts=8, num_experts_per_tok=2),
    "Qwen1.5-MoE-A2.7B": _sizes(
        "qwen2_moe", 2048, 5632, 24, 16, 16, 151936, num_experts=60, num_experts_per_tok=4, moe_intermediate_size=1408,
        shared_expert_intermediate_size=5632,
    ),
    "Pythia-1.4B": _sizes("gpt_neox", 2048, 8192, 24, 16, 16, 50304),
    "GPT-2": {
        "model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024, "vocab_size": 50257,
    },
}  # fmt: skip

# Parameters as the models' own pages state them, a check of the table above.
STATED = {
    "Llama-2-7b": 6_738_415_616, "Llama-3-8B": 8_030_261_248, "Llama-3.1-70B": 70_553_706_496,
    "Llama-3.2-1B": 1_235_814_400, "Llama-3.2-3B": 3_212_749_824, "SmolLM2-1.7B": 1_711_376_384,
    "SmolLM3-3B": 3_075_098_624, "Mistral-7B-v0.1": 7_241_732_096, "Mistral-7B-v0.3": 7_248_023_552,
    "Qwen2.5-1.5B": 1_543_714_304, "Qwen2.5-7B": 7_615_616_512, "Qwen3-8B": 8_190_735_360,
    "Qwen3-30B-A3B": 30_532_122_624, "Gemma-2b": 2_506_172_416, "Gemma-7b": 8_537_680_896,
    "Gemma-2-2b": 2_614_341_888, "Gemma-2-9b": 9_241_705_984, "Phi-2": 2_779_683_840, "Phi-3-mini": 3_821_079_552,
    "Mixtral-8x7B": 46_702_792_704, "GPT-2": 124_439_808,
}  # fmt: skip
