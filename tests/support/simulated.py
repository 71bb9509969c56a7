"""Small models of every supported type, and what a simulation of them comes to."""

import json
from itertools import groupby
from typing import Any

from transformers import AutoConfig

from ftui.engine.simulate.kernels import kernels_for
from ftui.engine.simulate.meta_model import card_hardware, make_meta_model
from ftui.engine.simulate.meta_step import BatchShape, trace_step
from ftui.engine.simulate.trace import Trace
from ftui.hardware.devices import Card, GiB
from ftui.profile.schema import Profile
from tests.support.tracing import phase_peaks

A100 = Card("a100-80", "A100", "cuda", 80 * GiB, 80, context=300 << 20)
T4 = Card("t4", "T4", "cuda", 15 * GiB, 75, context=141 << 20)
CPU = Card("cpu", "CPU", "cpu", 16 * GiB)

SMALL = {
    "vocab_size": 512, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 5, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 256, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2,
}  # fmt: skip
EXPERTS = {
    "num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 64,
}  # fmt: skip
SLIDING = {"sliding_window": 32}
HALF_SLIDING = {"use_sliding_window": True, "sliding_window": 32, "max_window_layers": 2}
OWN: dict[str, dict[str, Any]] = {
    "mixtral": EXPERTS | SLIDING, "qwen2_moe": EXPERTS, "qwen3_moe": EXPERTS, "olmoe": EXPERTS, "gpt_oss": EXPERTS,
    "mistral": SLIDING, "starcoder2": SLIDING, "phi3": SLIDING, "gemma2": SLIDING, "cohere2": SLIDING,
    "gemma3_text": SLIDING | {"num_hidden_layers": 8}, "qwen2": HALF_SLIDING, "qwen3": HALF_SLIDING,
}  # fmt: skip
GPT2 = {
    "vocab_size": 512, "n_embd": 64, "n_layer": 5, "n_head": 4, "n_positions": 256, "resid_pdrop": 0.0,
    "embd_pdrop": 0.0, "attn_pdrop": 0.0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip


def config(kind: str, **changes: Any) -> Any:
    """A config of five narrow layers; of types that have several kinds of layers, with more than one of each."""
    base = GPT2 if kind == "gpt2" else SMALL | OWN.get(kind, {})
    return AutoConfig.for_model(kind, **(base | changes))


def profile(**sections: dict[str, Any]) -> Profile:
    base: dict[str, dict[str, Any]] = {
        "run": {"stage": "sft"}, "model": {"name_or_path": "/x"}, "data": {"train": "/x"},
    }  # fmt: skip
    merged = base | {name: base.get(name, {}) | values for name, values in sections.items()}
    return Profile.model_validate_json(json.dumps(merged))


def traced(kind: str, chosen: Profile, card: Card, *, full_depth: bool) -> Trace:
    deep = {"n_layer" if kind == "gpt2" else "num_hidden_layers": 12}  # twice every pattern of layers
    made = make_meta_model(chosen, config(kind, **deep), card_hardware(chosen, card))
    return trace_step(
        made, chosen, kernels_for(card), BatchShape(2, 2, chosen.num_lines, 64), None, full_depth=full_depth
    )


def told(trace: Trace) -> tuple[dict[str, int], list[tuple[int, int]]]:
    """Peaks by phase, and all events: blocks numbered as they were made, those given back in one go in that order."""
    numbers: dict[int, int] = {}
    events: list[tuple[int, int]] = []
    for is_made, group in groupby(trace.events, lambda event: event[1] > 0):
        if is_made:
            for number, size in group:
                numbers[number] = len(numbers)
                events.append((numbers[number], size))
        else:
            events += sorted((numbers[number], size) for number, size in group)
    return phase_peaks(trace), events
