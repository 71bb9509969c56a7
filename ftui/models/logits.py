"""How logits are made: in pieces where the head is plain. The engine computes so, and the estimate counts so."""

PLAIN_HEADS = frozenset({
    "llama", "mistral", "qwen2", "qwen3", "smollm3", "gpt2", "phi", "phi3", "gemma", "olmo2", "starcoder2", "stablelm",
    "mixtral", "qwen2_moe", "qwen3_moe", "olmoe",
})  # fmt: skip
"""Model types of transformers with nothing between the last hidden state and the head, or after the head: their logits
are made in pieces (engine/objectives/chunked_head.py). All others make them at once."""

CHUNK_BYTES = 256 << 20
"""Bytes of float32 logits that exist at once."""
