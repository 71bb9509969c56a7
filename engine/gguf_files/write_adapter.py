"""A LoRA adapter as a GGUF file, for a GGUF file of the base it was trained on."""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf import GGUFWriter, Keys, get_tensor_name_map
from peft.utils.other import get_pattern_key
from safetensors import safe_open
from transformers import AutoConfig

from ftui.errors import ModelError

from ..models.adapter_files import ADAPTER, CONFIG
from .gguf_architectures import Architecture, Array, find_architecture
from .tensors import KINDS, PlannedTensor, arrange, stored_values
from .write_model import file_pieces

MERGE_FIRST = "Merge first: `ftui export` without --adapter does, and writes the whole model."
REFUSED = {
    "use_dora": "DoRA", "modules_to_save": "whole modules", "trainable_token_indices": "rows of single tokens",
    "lora_bias": "biases", "layer_replication": "repeated layers", "target_parameters": "parameters of experts",
}  # fmt: skip
"""What an adapter may hold that llama.cpp does not load, by the key of its config."""
PREFIX = "base_model.model."
PARTS = {".lora_A.weight": ".lora_a", ".lora_B.weight": ".lora_b"}


@dataclass(frozen=True)
class AdapterPlan:
    """Everything that is known of an adapter's file before it is written.

    `factors`: llama.cpp has one alpha for all; the second matrix of a layer with another scale is multiplied by it.
    """

    config: Any
    architecture: Architecture
    alpha: float
    factors: dict[str, float]
    tensors: list[PlannedTensor]

    @property
    def num_bytes(self) -> int:
        """About the size of the file, and not less."""
        return sum(tensor.num_bytes + 256 for tensor in self.tensors) + (1 << 16)


def plan_adapter(folder: Path, base: Path, kind: str) -> AdapterPlan:
    """What the file of the adapter in `folder` will hold; `base` is the folder of its base, `kind` is f16 or bf16.

    Raises:
        ModelError: it is no plain LoRA, or changes what llama.cpp cannot change.
    """
    settings = json.loads((folder / CONFIG).read_bytes())
    _check(settings)
    config = AutoConfig.from_pretrained(base, local_files_only=True)
    architecture = find_architecture(config)
    names = get_tensor_name_map(architecture.arch, config.num_hidden_layers)
    tensors, factors = [], {}
    with safe_open(folder / ADAPTER, framework="pt") as opened:
        for stored in sorted(opened.keys()):
            module, part = _split(stored)
            theirs = names.get_name(f"{module}.weight", try_suffixes=(".weight",))
            if theirs is None or (theirs == "output.weight" and config.tie_word_embeddings):
                raise ModelError(f"The adapter changes {module}, which no adapter of llama.cpp can.", hint=MERGE_FIRST)
            shape = tuple(opened.get_slice(stored).get_shape())
            if part == ".lora_b":
                factors[stored] = _factor(settings, module, rank=shape[1])
            tensors.append(PlannedTensor(theirs + part, stored, folder / ADAPTER, shape, KINDS[kind]))
    return AdapterPlan(config, architecture, float(settings["lora_alpha"]), factors, tensors)


def adapter_pieces(plan: AdapterPlan) -> Iterator[memoryview]:
    """The bytes of the file from its beginning.

    Raises:
        ModelError: a tensor holds what its type cannot.
    """
    writer = GGUFWriter(None, plan.architecture.name)
    writer.add_type("adapter")
    writer.add_string(Keys.Adapter.TYPE, "lora")
    writer.add_float32(Keys.Adapter.LORA_ALPHA, plan.alpha)
    yield from file_pieces(writer, plan.tensors, lambda tensor: [_read(tensor, plan)])


def _check(settings: dict[str, Any]) -> None:
    held = [words for key, words in REFUSED.items() if settings.get(key)]
    if settings.get("bias", "none") != "none":
        held.append("biases")
    if settings.get("peft_type") != "LORA":
        held.append(str(settings.get("peft_type")))
    if held:
        raise ModelError(f"The adapter holds {', '.join(held)}: llama.cpp loads LoRA matrices only.", hint=MERGE_FIRST)


def _split(stored: str) -> tuple[str, str]:
    """The module of a tensor of an adapter, and which of its two matrices it is."""
    for ending, part in PARTS.items():
        if stored.endswith(ending):
            return stored.removeprefix(PREFIX).removesuffix(ending), part
    raise ModelError(f"The adapter holds {stored}: llama.cpp loads LoRA matrices only.", hint=MERGE_FIRST)


def _factor(settings: dict[str, Any], module: str, rank: int) -> float:
    """llama.cpp scales by alpha / rank, with the rank of the matrix."""
    pattern: dict[str, float] = settings.get("alpha_pattern") or {}
    alpha = pattern.get(get_pattern_key(list(pattern), module), float(settings["lora_alpha"]))
    scale = alpha / (math.sqrt(rank) if settings.get("use_rslora") else rank)
    return float(scale * rank / settings["lora_alpha"])


def _read(tensor: PlannedTensor, plan: AdapterPlan) -> Array:
    with safe_open(tensor.file, framework="pt") as opened:
        values: Array = opened.get_tensor(tensor.source).to(torch.float32).numpy()
    if tensor.source in plan.factors:
        base_name = tensor.name.removesuffix(".lora_b")
        if plan.architecture.pairs_neighbours:
            values = arrange(values, base_name, plan.config, plan.architecture)
        values = values * np.float32(plan.factors[tensor.source])
    return stored_values(values, tensor)
