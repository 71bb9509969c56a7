"""From a config.json to the shape of its model, for the architectures that are known here. Never a guess.

Names and sizes are those of transformers 5.24; tests/ftui/models/test_shape.py compares them with its models.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from ftui.models.architectures import OTHERS, Sizes, context, ends, reuse_equal, windows
from ftui.models.shape import Activation, DecoderLayer, Experts, ModelShape, Norm
from ftui.text import cut

__all__ = ["ModelShape", "read_shape", "shape_from_scratch"]

# A constant, or the name of the key in the config that decides.
Flag = bool | str


@dataclass(frozen=True)
class LlamaVariant:
    """What sets an architecture of Llama's build apart from Llama.

    Attributes:
        tied: default of tie_word_embeddings, which old configs leave out.
        norms: of the layer, over the hidden width.
        qk: norms of queries and keys: over each head, over all, or one for each head (`list`, `heads`).
    """

    tied: bool = False
    head_dim: int | None = None
    qkv_bias: Flag = False
    o_bias: Flag = False
    mlp_bias: Flag = False
    norms: tuple[str, ...] = ("input_layernorm", "post_attention_layernorm")
    norm: Norm = "rms"
    norm_bias: bool = False
    qk: str = ""
    qk_when: Flag = True
    act: Activation = "silu"
    experts: str = ""
    expert_width: str = "intermediate_size"
    eager_only: bool = False


FOUR_NORMS = (
    "input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm",
)  # fmt: skip
LLAMA_VARIANTS: dict[str, LlamaVariant] = {
    "llama": LlamaVariant(qkv_bias="attention_bias", o_bias="attention_bias", mlp_bias="mlp_bias"),
    "mistral": LlamaVariant(),
    "qwen2": LlamaVariant(qkv_bias=True),
    "qwen3": LlamaVariant(head_dim=128, qkv_bias="attention_bias", o_bias="attention_bias", qk="head"),
    "gemma": LlamaVariant(
        tied=True, head_dim=256, qkv_bias="attention_bias", o_bias="attention_bias", norm="gemma", act="gelu"
    ),
    # its scores are capped, which transformers' sdpa cannot do: it asks for eager by itself
    "gemma2": LlamaVariant(
        tied=True, head_dim=256, qkv_bias="attention_bias", o_bias="attention_bias", norms=FOUR_NORMS, norm="gemma",
        act="gelu", eager_only=True,
    ),
    "gemma3_text": LlamaVariant(
        tied=True, head_dim=256, qkv_bias="attention_bias", o_bias="attention_bias", norms=FOUR_NORMS, norm="gemma",
        qk="head", act="gelu",
    ),
    "smollm3": LlamaVariant(tied=True, qkv_bias="attention_bias", o_bias="attention_bias", mlp_bias="mlp_bias"),
    "olmo2": LlamaVariant(
        qkv_bias="attention_bias", o_bias="attention_bias", qk="all",
        norms=("post_attention_layernorm", "post_feedforward_layernorm"),
    ),
    "granite": LlamaVariant(qkv_bias="attention_bias", o_bias="attention_bias", mlp_bias="mlp_bias"),
    "cohere": LlamaVariant(
        tied=True, qkv_bias="attention_bias", o_bias="attention_bias", norms=("input_layernorm",), norm="layer",
        qk="heads", qk_when="use_qk_norm",
    ),
    "stablelm": LlamaVariant(qkv_bias="use_qkv_bias", norm="layer", norm_bias=True, qk="list", qk_when="qk_layernorm"),
    "mixtral": LlamaVariant(experts="num_local_experts"),
    "qwen2_moe": LlamaVariant(qkv_bias=True, experts="num_experts", expert_width="moe_intermediate_size"),
    "qwen3_moe": LlamaVariant(
        qkv_bias="attention_bias", o_bias="attention_bias", qk="head", experts="num_experts",
        expert_width="moe_intermediate_size",
    ),
    "olmoe": LlamaVariant(qkv_bias="attention_bias", o_bias="attention_bias", qk="all", experts="num_experts"),
}  # fmt: skip


# Keys that must be whole numbers of at least 1 where they are there, and of at least 0; `None` is as if they were not.
COUNTS = (
    "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim",
    "vocab_size", "max_position_embeddings", "n_embd", "n_inner", "n_layer", "n_head", "n_positions",
    "shared_expert_intermediate_size",
)  # fmt: skip
NUMBERS = (
    "num_experts", "num_local_experts", "num_experts_per_tok", "moe_intermediate_size", "sliding_window",
    "decoder_sparse_step", "max_window_layers", "sliding_window_pattern",
)  # fmt: skip
MOST, DEEPEST = 1 << 24, 1 << 12
"""No model is near these: positions go to ten millions, layers to a few hundred."""


def read_shape(config: Mapping[str, Any]) -> ModelShape | None:
    """The shape of the model with this config.json; `None` for an architecture that is not known here, for a model that
    reads more than text, and where a size is missing or no model can have it."""
    kind = config.get("model_type")
    if refusal_of(config) or config.get("auto_map"):
        return None
    try:
        if not isinstance(kind, str) or not _are_sizes(config):
            return None
        if kind in LLAMA_VARIANTS:
            shape = _llama_like(config, LLAMA_VARIANTS[kind])
        elif kind in OTHERS:
            shape = OTHERS[kind](config)
        else:
            return None
    except (KeyError, TypeError, ValueError, ZeroDivisionError, AttributeError):  # a size is not there, or no number
        return None
    is_possible = shape.head_dim > 0 and shape.num_heads % shape.num_kv_heads == 0
    return shape if is_possible and all(_has_valid_experts(layer) for layer in shape.layers) else None


def find_impossible_size(config: Mapping[str, Any]) -> str:
    """The first size in a config.json that is negative, or beyond what any model has; empty where there is none.

    Types are not looked at: some models have a list of numbers, one for each layer.
    """
    for key in COUNTS:
        value = config.get(key)
        most = DEEPEST if key in ("num_hidden_layers", "n_layer") else MOST
        if isinstance(value, int | float) and not 0 <= value <= most:
            return f"{key} is {cut(str(value), 40)}"
    return ""


def refusal_of(config: Mapping[str, Any]) -> str | None:
    """Why a run refuses the model with this config.json (`check_kind` in engine/models/load_model.py), to follow its
    name; `None` where nothing here says so."""
    if any(config.get(key) is not None for key in ("vision_config", "audio_config")):
        return "reads more than text, and ftui trains on text only"
    if config.get("quantization_config") is not None:
        return "is stored quantised, and what is quantised cannot be trained"
    return None


def _are_sizes(config: Mapping[str, Any]) -> bool:
    for least, keys in ((1, COUNTS), (0, NUMBERS)):
        for key in keys:
            value = config.get(key)
            if value is not None and (type(value) is not int or not least <= value <= MOST):
                return False
    return max(config.get("num_hidden_layers") or 0, config.get("n_layer") or 0) <= DEEPEST


def _has_valid_experts(layer: DecoderLayer) -> bool:
    experts = layer.experts
    return experts is None or (0 < experts.num_active <= experts.num and experts.width > 0)


def shape_from_scratch(section: Any, vocab_size: int | None = None) -> ModelShape | None:
    """The shape of `[model.from_scratch]`; `None` where no model can have it. `vocab_size`: if it is known."""
    config: dict[str, Any] = {
        "model_type": section.model_type, "hidden_size": section.hidden_size,
        "intermediate_size": section.intermediate_size, "num_hidden_layers": section.num_hidden_layers,
        "num_attention_heads": section.num_attention_heads, "num_key_value_heads": section.num_key_value_heads,
        "head_dim": section.hidden_size // section.num_attention_heads,
        "max_position_embeddings": section.max_position_embeddings,
        "tie_word_embeddings": section.tie_word_embeddings,
        "vocab_size": vocabulary_size(section) if vocab_size is None else vocab_size,
    }  # fmt: skip
    if section.model_type == "gpt2":
        config |= {
            "n_embd": section.hidden_size, "n_inner": section.intermediate_size,
            "n_layer": section.num_hidden_layers, "n_head": section.num_attention_heads,
            "n_positions": section.max_position_embeddings,
        }  # fmt: skip
    return read_shape(config)


def _llama_like(config: Mapping[str, Any], kind: LlamaVariant) -> ModelShape:
    hidden, vocab, width = (int(config[key]) for key in ("hidden_size", "vocab_size", "intermediate_size"))
    heads, depth = int(config["num_attention_heads"]), int(config["num_hidden_layers"])
    kv_heads = int(config.get("num_key_value_heads") or heads)
    head_dim = int(config.get("head_dim") or kind.head_dim or hidden // heads)
    inputs = {"q_proj": heads * head_dim, "k_proj": kv_heads * head_dim, "v_proj": kv_heads * head_dim}
    attention: Sizes = {f"self_attn.{name}": (hidden, size) for name, size in inputs.items()}
    attention["self_attn.o_proj"] = (heads * head_dim, hidden)
    biased = set(list(attention)[:3]) if _is(config, kind.qkv_bias) else set()
    biased |= {"self_attn.o_proj"} if _is(config, kind.o_bias) else set()
    others = _norms(config, kind, hidden)
    if kind.qk and _is(config, kind.qk_when):
        others |= _qk_norms(kind.qk, heads, kv_heads, head_dim)
    dense = _gated(hidden, width, "mlp")
    mlp_biased = set(dense) if _is(config, kind.mlp_bias) else set()
    layers = []
    for number, window in enumerate(windows(config, depth)):
        if kind.experts and _has_experts(config, number):
            layers.append(_mixed(config, kind, hidden, attention, biased, others, window))
        else:
            layers.append(DecoderLayer(attention | dense, frozenset(biased | mlp_biased), others, None, window))
    tied = bool(config.get("tie_word_embeddings", kind.tied))
    norm = {"model.norm.weight": hidden} | ({"model.norm.bias": hidden} if kind.norm_bias else {})
    return ModelShape(
        str(config["model_type"]), hidden, width, heads, kv_heads, head_dim, vocab, context(config), tied,
        "model.layers", reuse_equal(layers), ends("model.embed_tokens", vocab, hidden, tied=tied) | norm,
        "model.embed_tokens", "lm_head", kind.norm, kind.act, True, kind.eager_only,
    )  # fmt: skip


def _norms(config: Mapping[str, Any], kind: LlamaVariant, hidden: int) -> dict[str, int]:
    names: Iterable[str] = kind.norms
    if config["model_type"] == "stablelm" and config.get("use_parallel_residual"):
        names = kind.norms[:1]
    weights = {f"{name}.weight": hidden for name in names}
    return weights | ({f"{name}.bias": hidden for name in names} if kind.norm_bias else {})


def _qk_norms(kind: str, heads: int, kv_heads: int, head_dim: int) -> dict[str, int]:
    numbers = {"q": heads, "k": kv_heads}
    if kind == "list":
        return {
            f"self_attn.{of}_layernorm.norms.{i}.weight": head_dim for of, number in numbers.items()
            for i in range(number)
        }  # fmt: skip
    return {
        f"self_attn.{of}_norm.weight": head_dim if kind == "head" else number * head_dim
        for of, number in numbers.items()
    }


def _gated(hidden: int, width: int, place: str) -> Sizes:
    return {
        f"{place}.gate_proj": (hidden, width), f"{place}.up_proj": (hidden, width),
        f"{place}.down_proj": (width, hidden),
    }  # fmt: skip


def _has_experts(config: Mapping[str, Any], number: int) -> bool:
    step = int(config.get("decoder_sparse_step") or 1)
    return number not in (config.get("mlp_only_layers") or ()) and (number + 1) % step == 0


def _mixed(
    config: Mapping[str, Any],
    kind: LlamaVariant,
    hidden: int,
    attention: Sizes,
    biased: set[str],
    others: dict[str, int],
    window: int | None,
) -> DecoderLayer:
    """A layer whose feed-forward part is a mixture of experts, which lie stacked in two parameters."""
    num = int(config.get(kind.experts) or config["num_local_experts"])
    width = int(config[kind.expert_width])
    stacked = {
        "mlp.gate.weight": num * hidden,
        "mlp.experts.gate_up_proj": num * 2 * width * hidden,
        "mlp.experts.down_proj": num * hidden * width,
    }
    linears = dict(attention)
    if config["model_type"] == "qwen2_moe":
        linears |= _gated(hidden, int(config["shared_expert_intermediate_size"]), "mlp.shared_expert")
        linears["mlp.shared_expert_gate"] = (hidden, 1)
    experts = Experts(num, int(config["num_experts_per_tok"]), width)
    return DecoderLayer(linears, frozenset(biased), others | stacked, experts, window)


def _is(config: Mapping[str, Any], flag: Flag) -> bool:
    return flag if isinstance(flag, bool) else bool(config.get(flag, False))


def vocabulary_size(section: Any) -> int:
    """Entries of the vocabulary of `[model.from_scratch]`: those of its tokenizer on this disk, else as asked for.

    A tokenizer that is trained may get fewer, where the rows are few: that is known when they have been read.
    """
    if section.tokenizer is not None:
        path = Path(section.tokenizer).expanduser() / "tokenizer.json"
        try:
            size = _count_entries(path, path.stat().st_mtime_ns)
        except OSError:  # on the hub, or of another kind
            size = None
        if size is not None:
            return size
    return int(section.vocab_size)


@lru_cache(maxsize=8)
def _count_entries(path: Path, _modified: int) -> int | None:
    """Entries of a tokenizer.json, added ones too; `None` where it cannot be understood."""
    try:
        table = json.loads(path.read_bytes())
        vocabulary = table["model"]["vocab"]
        is_table = isinstance(vocabulary, dict)  # Unigram's is a list
        names = set(vocabulary) if is_table else {entry[0] for entry in vocabulary}
        return len(names | {token["content"] for token in table.get("added_tokens") or ()}) or None
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
        return None
