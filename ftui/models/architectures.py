"""Architectures that are not of Llama's build, from their config.json; and what all share."""

from collections.abc import Callable, Mapping
from typing import Any

from ftui.models.shape import Activation, DecoderLayer, ModelShape

Sizes = dict[str, tuple[int, int]]


def _phi(config: Mapping[str, Any]) -> ModelShape:
    hidden, width = int(config["hidden_size"]), int(config["intermediate_size"])
    heads, vocab = int(config["num_attention_heads"]), int(config["vocab_size"])
    kv_heads = int(config.get("num_key_value_heads") or heads)
    size = hidden // heads
    linears: Sizes = {
        "self_attn.q_proj": (hidden, heads * size), "self_attn.k_proj": (hidden, kv_heads * size),
        "self_attn.v_proj": (hidden, kv_heads * size), "self_attn.dense": (heads * size, hidden),
        "mlp.fc1": (hidden, width), "mlp.fc2": (width, hidden),
    }  # fmt: skip
    others = with_bias("input_layernorm", hidden)
    if config.get("qk_layernorm"):
        others |= with_bias("self_attn.q_layernorm", size) | with_bias("self_attn.k_layernorm", size)
    outer = ends("model.embed_tokens", vocab, hidden, tied=False) | with_bias("model.final_layernorm", hidden)
    outer["lm_head.bias"] = vocab
    return ModelShape(
        "phi", hidden, width, heads, kv_heads, size, vocab, context(config), False, "model.layers",
        (DecoderLayer(linears, frozenset(linears), others),) * int(config["num_hidden_layers"]), outer,
        "model.embed_tokens", "lm_head", "layer", "gelu_new", False,
    )  # fmt: skip


def _phi3(config: Mapping[str, Any]) -> ModelShape:
    hidden, width = int(config["hidden_size"]), int(config["intermediate_size"])
    heads, vocab = int(config["num_attention_heads"]), int(config["vocab_size"])
    kv_heads = int(config.get("num_key_value_heads") or heads)
    size = int(config.get("head_dim") or hidden // heads)
    linears: Sizes = {
        "self_attn.qkv_proj": (hidden, (heads + 2 * kv_heads) * size), "self_attn.o_proj": (heads * size, hidden),
        "mlp.gate_up_proj": (hidden, 2 * width), "mlp.down_proj": (width, hidden),
    }  # fmt: skip
    others = {"input_layernorm.weight": hidden, "post_attention_layernorm.weight": hidden}
    tied = bool(config.get("tie_word_embeddings", False))
    spans = windows(config, int(config["num_hidden_layers"]))
    return ModelShape(
        "phi3", hidden, width, heads, kv_heads, size, vocab, context(config), tied, "model.layers",
        reuse_equal([DecoderLayer(linears, frozenset(), others, None, window) for window in spans]),
        ends("model.embed_tokens", vocab, hidden, tied=tied) | {"model.norm.weight": hidden},
        "model.embed_tokens", "lm_head",
    )  # fmt: skip


def _starcoder2(config: Mapping[str, Any]) -> ModelShape:
    hidden, width = int(config["hidden_size"]), int(config["intermediate_size"])
    heads, vocab = int(config["num_attention_heads"]), int(config["vocab_size"])
    kv_heads = int(config.get("num_key_value_heads") or heads)
    size = hidden // heads
    linears: Sizes = {
        "self_attn.q_proj": (hidden, heads * size), "self_attn.k_proj": (hidden, kv_heads * size),
        "self_attn.v_proj": (hidden, kv_heads * size), "self_attn.o_proj": (heads * size, hidden),
        "mlp.c_fc": (hidden, width), "mlp.c_proj": (width, hidden),
    }  # fmt: skip
    biased = frozenset(linears) if config.get("use_bias", True) else frozenset()
    others = with_bias("input_layernorm", hidden) | with_bias("post_attention_layernorm", hidden)
    tied = bool(config.get("tie_word_embeddings", True))
    spans = windows(config, int(config["num_hidden_layers"]))
    return ModelShape(
        "starcoder2", hidden, width, heads, kv_heads, size, vocab, context(config), tied, "model.layers",
        reuse_equal([DecoderLayer(linears, biased, others, None, window) for window in spans]),
        ends("model.embed_tokens", vocab, hidden, tied=tied) | with_bias("model.norm", hidden),
        "model.embed_tokens", "lm_head", "layer", "gelu", False,
    )  # fmt: skip


def _gpt2(config: Mapping[str, Any]) -> ModelShape:
    hidden, heads, vocab = int(config["n_embd"]), int(config["n_head"]), int(config["vocab_size"])
    width, positions = int(config.get("n_inner") or 4 * hidden), int(config["n_positions"])
    linears: Sizes = {
        "attn.c_attn": (hidden, 3 * hidden), "attn.c_proj": (hidden, hidden),
        "mlp.c_fc": (hidden, width), "mlp.c_proj": (width, hidden),
    }  # fmt: skip
    layer = DecoderLayer(linears, frozenset(linears), with_bias("ln_1", hidden) | with_bias("ln_2", hidden))
    tied = bool(config.get("tie_word_embeddings", True))
    outer = ends("transformer.wte", vocab, hidden, tied=tied) | {"transformer.wpe.weight": positions * hidden}
    act: Activation = "gelu_new" if config.get("activation_function", "gelu_new") == "gelu_new" else "gelu"
    return ModelShape(
        "gpt2", hidden, width, heads, heads, hidden // heads, vocab, positions, tied, "transformer.h",
        (layer,) * int(config["n_layer"]), outer | with_bias("transformer.ln_f", hidden),
        "transformer.wte", "lm_head", "layer", act, False,
    )  # fmt: skip


def _gpt_neox(config: Mapping[str, Any]) -> ModelShape:
    hidden, width = int(config["hidden_size"]), int(config["intermediate_size"])
    heads, vocab = int(config["num_attention_heads"]), int(config["vocab_size"])
    linears: Sizes = {
        "attention.query_key_value": (hidden, 3 * hidden), "attention.dense": (hidden, hidden),
        "mlp.dense_h_to_4h": (hidden, width), "mlp.dense_4h_to_h": (width, hidden),
    }  # fmt: skip
    biased = set(linears) if config.get("attention_bias", True) else {"mlp.dense_h_to_4h", "mlp.dense_4h_to_h"}
    others = with_bias("input_layernorm", hidden) | with_bias("post_attention_layernorm", hidden)
    tied = bool(config.get("tie_word_embeddings", False))
    return ModelShape(
        "gpt_neox", hidden, width, heads, heads, hidden // heads, vocab, context(config), tied, "gpt_neox.layers",
        (DecoderLayer(linears, frozenset(biased), others),) * int(config["num_hidden_layers"]),
        ends("gpt_neox.embed_in", vocab, hidden, tied=tied) | with_bias("gpt_neox.final_layer_norm", hidden),
        "gpt_neox.embed_in", "lm_head", "layer", "gelu", False,
    )  # fmt: skip


OTHERS: dict[str, Callable[[Mapping[str, Any]], ModelShape]] = {
    "phi": _phi, "phi3": _phi3, "starcoder2": _starcoder2, "gpt2": _gpt2, "gpt_neox": _gpt_neox,
}  # fmt: skip


def with_bias(path: str, size: int) -> dict[str, int]:
    """Elements of a norm's weight and bias, by path."""
    return {f"{path}.weight": size, f"{path}.bias": size}


def ends(embeddings: str, vocab: int, hidden: int, *, tied: bool) -> dict[str, int]:
    """Elements of the embeddings and of the head, by path; a tied head is none."""
    return {f"{embeddings}.weight": vocab * hidden} | ({} if tied else {"lm_head.weight": vocab * hidden})


def context(config: Mapping[str, Any]) -> int | None:
    """Positions that the model was made for, in tokens."""
    positions = config.get("max_position_embeddings")
    return None if positions is None else int(positions)


def windows(config: Mapping[str, Any], depth: int) -> list[int | None]:
    """The attention window of each layer in tokens; `None`: all before."""
    window, kind = config.get("sliding_window"), config["model_type"]
    window = None if not window else int(window)
    if (types := config.get("layer_types")) and len(types) == depth:
        return [window if name == "sliding_attention" else None for name in types]
    if kind == "gemma2":
        return [None if number % 2 else window for number in range(depth)]
    if kind == "gemma3_text":
        pattern = int(config.get("sliding_window_pattern") or 6)
        return [window if (number + 1) % pattern else None for number in range(depth)]
    if kind in ("mistral", "phi3", "starcoder2", "mixtral"):
        return [window] * depth
    if config.get("use_sliding_window"):
        first = int(config.get("max_window_layers") or 0)
        return [window if number >= first else None for number in range(depth)]
    return [None] * depth


def reuse_equal(layers: list[DecoderLayer]) -> tuple[DecoderLayer, ...]:
    """The layers, equal ones as one object: what is computed for it is computed once."""
    different: list[DecoderLayer] = []
    for layer in layers:
        if layer not in different:
            different.append(layer)
    return tuple(different[different.index(layer)] for layer in layers)
