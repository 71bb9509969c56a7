"""The architectures that are written as GGUF files: their header, their tensors, and what llama.cpp takes for granted.

Each was compared with transformers in float32 (tests/engine/gguf_files/test_write_model.py). What llama.cpp computes in
one way only (an activation, a scale of the attention) is checked against the config, since a file has no key for it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from gguf import MODEL_ARCH, GGUFWriter, RopeScalingType

from ftui.errors import ModelError

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Architecture:
    """How models of one `model_type` of transformers stand in a GGUF file."""

    arch: MODEL_ARCH
    activation: str
    check: Callable[[Any], None] = lambda config: None
    pairs_neighbours: bool = False
    """Rotary positions turn neighbours of a head, where transformers turns its two halves."""
    norm_offset: float = 0.0
    """What is added to the weights of norms."""
    transposes: bool = False
    """Its linear layers are stored with their inputs first."""

    @property
    def name(self) -> str:
        """`general.architecture`."""
        return MODEL_ARCH_NAMES[self.arch]


def find_architecture(config: Any) -> Architecture:
    """The architecture of a config of transformers.

    Raises:
        ModelError: it is none of those verified, or has a value that llama.cpp does not compute with.
    """
    found = ARCHITECTURES.get(config.model_type)
    if found is None:
        raise ModelError(
            f"A model of type {config.model_type!r} cannot be written as GGUF here.",
            hint=f"Verified are: {', '.join(sorted(ARCHITECTURES))}.",
        )
    activation = getattr(config, "hidden_activation", None) or getattr(config, "hidden_act", None)
    activation = activation or config.activation_function
    _require(config, "activation", activation, found.activation)
    found.check(config)
    return found


def write_header(writer: GGUFWriter, config: Any) -> None:
    """The keys of `config`: sizes, positions, norms, windows of attention."""
    writer.add_context_length(_context_length(config))
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_head_count(config.num_attention_heads)
    writer.add_vocab_size(config.vocab_size)
    if config.model_type == "gpt2":
        writer.add_feed_forward_length(config.n_inner or 4 * config.hidden_size)
        writer.add_layer_norm_eps(config.layer_norm_epsilon)
        return
    width = head_width(config)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_key_length(width)
    writer.add_value_length(width)
    writer.add_rope_dimension_count(width)
    _write_positions(writer, global_positions(config))
    if config.model_type == "gemma2":
        writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
        writer.add_final_logit_softcapping(config.final_logit_softcapping)
    if config.model_type in LAYERED:
        writer.add_sliding_window(config.sliding_window)


def head_width(config: Any) -> int:
    """Numbers of a head."""
    return int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)


def global_positions(config: Any) -> dict[str, Any]:
    """The rotary positions, those of layers that see everything where there are several kinds."""
    rope: dict[str, Any] = config.rope_parameters
    return dict(rope.get("full_attention", rope))


def frequency_divisors(config: Any) -> Array | None:
    """By how much each frequency of Llama 3's stretched positions is slowed; `None` for other positions."""
    if config.model_type == "gpt2" or (rope := global_positions(config)).get("rope_type") != "llama3":
        return None
    width = head_width(config)
    waves = 2 * np.pi * rope["rope_theta"] ** (np.arange(0, width, 2) / width)  # their lengths in tokens
    low, high, factor = rope["low_freq_factor"], rope["high_freq_factor"], rope["factor"]
    turns = rope["original_max_position_embeddings"] / waves
    share = np.clip((turns - low) / (high - low), 0.0, 1.0)  # of the frequency that stays as it is
    divisors: Array = (1.0 / ((1.0 - share) / factor + share)).astype(np.float32)
    return divisors


def _write_positions(writer: GGUFWriter, rope: dict[str, Any]) -> None:
    writer.add_rope_freq_base(rope["rope_theta"])
    kind = rope.get("rope_type", "default")
    if kind == "linear":
        writer.add_rope_scaling_type(RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(rope["factor"])
    elif kind == "yarn":
        writer.add_rope_scaling_type(RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])


def _context_length(config: Any) -> int:
    """Beyond a window that every layer has, llama.cpp would see more than the model: the file ends there."""
    length = int(config.max_position_embeddings)
    window = getattr(config, "sliding_window", None)
    if config.model_type in LAYERED or not window or not getattr(config, "use_sliding_window", True):
        return length
    return min(length, int(window))


def _require(config: Any, what: str, value: Any, computed: Any) -> None:
    if value != computed:
        raise ModelError(
            f"The model's {what} is {value!r}; llama.cpp computes {config.model_type} with {computed!r} only.",
            hint="It cannot be written as GGUF without answering differently.",
        )


def _check_positions(config: Any) -> None:
    rope = global_positions(config)
    kind = rope.get("rope_type", "default")
    if kind not in POSITIONS:
        raise ModelError(
            f"Positions of type {kind!r} cannot be written as GGUF here.", hint=f"Verified: {', '.join(POSITIONS)}."
        )
    _require(config, "partial_rotary_factor", rope.get("partial_rotary_factor", 1.0), 1.0)
    if kind == "yarn":
        tuned = sorted(set(rope) - YARN_KEYS)
        _require(config, "yarn keys beside factor and length", tuned, [])


def _check_gemma(config: Any) -> None:
    _check_positions(config)
    _require(config, "tie_word_embeddings", config.tie_word_embeddings, True)


def _check_gemma2(config: Any) -> None:
    _check_gemma(config)
    _require(config, "query_pre_attn_scalar", config.query_pre_attn_scalar, _attention_scalar(config, {46}))
    _check_layers(config, period=2)


def _check_gemma3(config: Any) -> None:
    _check_gemma(config)
    _require(config, "query_pre_attn_scalar", config.query_pre_attn_scalar, _attention_scalar(config, {62}))
    _check_layers(config, period=6)
    local = config.rope_parameters["sliding_attention"]
    _require(config, "base of local positions", local["rope_theta"], 10000.0)
    _require(config, "type of local positions", local.get("rope_type", "default"), "default")
    caps = (config.attn_logit_softcapping, config.final_logit_softcapping)
    _require(config, "softcapping", caps, (None, None))


def _attention_scalar(config: Any, depths_of_27b: set[int]) -> int:
    """llama.cpp knows Gemma's largest models by their depth."""
    if config.num_hidden_layers in depths_of_27b:
        return int(config.hidden_size // config.num_attention_heads)
    return head_width(config)


def _check_layers(config: Any, period: int) -> None:
    kinds = [
        "full_attention" if (layer + 1) % period == 0 else "sliding_attention"
        for layer in range(config.num_hidden_layers)
    ]
    _require(config, "order of layers", config.layer_types, kinds)


def _check_gpt2(config: Any) -> None:
    _require(config, "scaled attention", config.scale_attn_weights, True)
    _require(config, "scaling by layer", config.scale_attn_by_inverse_layer_idx, False)


MODEL_ARCH_NAMES = {
    MODEL_ARCH.LLAMA: "llama", MODEL_ARCH.QWEN2: "qwen2", MODEL_ARCH.QWEN3: "qwen3", MODEL_ARCH.GEMMA: "gemma",
    MODEL_ARCH.GEMMA2: "gemma2", MODEL_ARCH.GEMMA3: "gemma3", MODEL_ARCH.GPT2: "gpt2",
}  # fmt: skip
LAYERED = {"gemma2", "gemma3_text"}
"""Those whose layers differ in how far they see."""
POSITIONS = ("default", "linear", "llama3", "yarn")
YARN_KEYS = {"rope_type", "rope_theta", "factor", "original_max_position_embeddings", "partial_rotary_factor"}
_TANH = "gelu_pytorch_tanh"
ARCHITECTURES = {
    "llama": Architecture(MODEL_ARCH.LLAMA, "silu", _check_positions, pairs_neighbours=True),
    "mistral": Architecture(MODEL_ARCH.LLAMA, "silu", _check_positions, pairs_neighbours=True),
    "qwen2": Architecture(MODEL_ARCH.QWEN2, "silu", _check_positions),
    "qwen3": Architecture(MODEL_ARCH.QWEN3, "silu", _check_positions),
    "gemma": Architecture(MODEL_ARCH.GEMMA, _TANH, _check_gemma, norm_offset=1.0),
    "gemma2": Architecture(MODEL_ARCH.GEMMA2, _TANH, _check_gemma2, norm_offset=1.0),
    "gemma3_text": Architecture(MODEL_ARCH.GEMMA3, _TANH, _check_gemma3, norm_offset=1.0),
    "gpt2": Architecture(MODEL_ARCH.GPT2, "gelu_new", _check_gpt2, transposes=True),
}
"""By the `model_type` of transformers."""
