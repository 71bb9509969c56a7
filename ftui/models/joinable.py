"""Which types of models can have the rows of a micro-batch end to end (engine/models/joined_rows.py)."""

JOINABLE = frozenset({
    "llama", "mistral", "qwen2", "qwen3", "smollm3", "gpt2", "gpt_neox", "phi", "phi3", "gemma", "gemma3_text", "olmo2",
    "olmo3", "cohere", "cohere2", "granite", "granitemoe", "starcoder2", "glm4", "nemotron", "ernie4_5", "exaone4",
    "hunyuan_v1_dense", "mixtral", "qwen2_moe", "qwen3_moe", "olmoe",
})  # fmt: skip
"""Model types of transformers whose layers mix tokens in sdpa only, and hand it the mask that the model was given."""
