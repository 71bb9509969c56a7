"""A model's tensors under the names, in the order of rows and in the types that llama.cpp reads."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf import GGMLQuantizationType, get_tensor_name_map
from gguf.quants import quant_shape_to_byte_shape, quantize
from safetensors import safe_open
from transformers import AutoModelForCausalLM

from ftui.errors import ModelError
from ftui.models.model_files import read_tensors_of

from ..merging.stored_tensors import weight_files
from .gguf_architectures import Architecture, Array, frequency_divisors
from .k_quants import MIXTURES, SHORT_ROWS, Quantize, k_kind

Kind = GGMLQuantizationType
KINDS = {"f16": Kind.F16, "bf16": Kind.BF16, "q8_0": Kind.Q8_0, **MIXTURES}
BLOCK = 32  # numbers of a row that share a scale in Q8_0
PIECE = 16 << 20  # numbers that are converted at once
FREQUENCIES = "rope_freqs.weight"
BUFFERS = (".rotary_emb.inv_freq", ".attn.bias", ".attn.masked_bias")
"""Ends of names that older versions of transformers stored, and that are no weights."""


@dataclass(frozen=True)
class PlannedTensor:
    """A tensor of the file to come; `source` is its name in `file`, or empty for the divisors of frequencies."""

    name: str
    source: str
    file: Path
    shape: tuple[int, ...]
    kind: Kind

    @property
    def num_bytes(self) -> int:
        return math.prod(quant_shape_to_byte_shape(self.shape, self.kind))


def plan_tensors(folder: Path, config: Any, architecture: Architecture, kind: Kind) -> list[PlannedTensor]:
    """All tensors of the file, in the order they are written; none is read.

    Raises:
        ModelError: the folder's weights are not those of its config.
    """
    expected, tied, prefix = _expected_shapes(config)
    names = get_tensor_name_map(architecture.arch, config.num_hidden_layers)
    planned, seen = [], set()
    for stored, file in _files_of(folder).items():
        name = stored if stored in expected or stored in tied else prefix + stored
        if stored.endswith(BUFFERS) or name in tied:
            continue
        theirs = names.get_name(name, try_suffixes=(".weight", ".bias"))
        if name not in expected or theirs is None:
            raise ModelError(f"{file} holds {stored}, which is no tensor of a {config.model_type} model.")
        seen.add(name)
        shape = expected[name]
        if architecture.transposes and name.endswith(TRANSPOSED):
            shape = shape[::-1]
        stored_in = _kind_of(theirs, shape, kind, config, is_tied=bool(tied))
        planned.append(PlannedTensor(theirs, stored, file, shape, stored_in))
    if missing := sorted(set(expected) - seen):
        raise ModelError(f"{folder} lacks weights of its model: {', '.join(missing[:3])}.")
    if (divisors := frequency_divisors(config)) is not None:
        planned.append(PlannedTensor(FREQUENCIES, "", folder, divisors.shape, Kind.F32))
    return planned


TRANSPOSED = ("c_attn.weight", "c_proj.weight", "c_fc.weight")


def _kind_of(name: str, shape: tuple[int, ...], kind: Kind, config: Any, *, is_tied: bool) -> Kind:
    if len(shape) == 1 or name.startswith("position_embd"):
        return Kind.F32
    if kind in MIXTURES.values():
        return k_kind(name, shape[-1], kind, config.num_hidden_layers, is_tied=is_tied)
    return Kind.F16 if kind == Kind.Q8_0 and shape[-1] % BLOCK else kind


def _expected_shapes(config: Any) -> tuple[dict[str, tuple[int, ...]], set[str], str]:
    """Shapes of the tensors of such a model, the names that are tied to another one, and the prefix of its parts."""
    with torch.device("meta"):
        model: Any = AutoModelForCausalLM.from_config(config)
    tied = set(model.all_tied_weights_keys) if config.tie_word_embeddings else set()
    shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items() if name not in tied}
    return shapes, tied, f"{model.base_model_prefix}."


def _files_of(folder: Path) -> dict[str, Path]:
    """The file of each tensor."""
    read_tensors_of(folder, is_complete=True)  # refuses what is damaged
    found: dict[str, Path] = {}
    for file in weight_files(folder):
        with safe_open(file, framework="pt") as opened:
            found |= dict.fromkeys(opened.keys(), file)
    return found


def read_pieces(
    tensor: PlannedTensor, config: Any, architecture: Architecture, quantize: Quantize = quantize
) -> Iterator[Array]:
    """The bytes of a tensor as llama.cpp reads them, some rows at a time where rows keep their places.

    Raises:
        ModelError: it is not finite, or too large for the type.
    """
    if not tensor.source:
        divisors = frequency_divisors(config)
        assert divisors is not None, "it was planned for the positions of this config"
        yield divisors
        return
    with safe_open(tensor.file, framework="pt") as opened:
        view = opened.get_slice(tensor.source)
        number = rows_at_once(tensor, architecture)
        for first in range(0, tensor.shape[0], number):
            piece = view[first : first + number] if number < tensor.shape[0] else opened.get_tensor(tensor.source)
            values = arrange(piece.to(torch.float32).numpy(), tensor.name, config, architecture)
            yield stored_values(values, tensor, quantize)


def rows_at_once(tensor: PlannedTensor, architecture: Architecture) -> int:
    """All rows of a tensor whose rows change places."""
    is_moved = architecture.transposes or (architecture.pairs_neighbours and _heads_of(tensor.name))
    return tensor.shape[0] if is_moved else max(1, PIECE // math.prod(tensor.shape[1:]))


def arrange(values: Array, name: str, config: Any, architecture: Architecture) -> Array:
    """Values of transformers as llama.cpp has them, of the tensor `name` of a file."""
    if architecture.norm_offset and name.endswith("norm.weight"):
        return values + np.float32(architecture.norm_offset)
    if architecture.transposes and values.ndim == 2 and name.startswith("blk."):
        return np.ascontiguousarray(values.T)
    if architecture.pairs_neighbours and (key := _heads_of(name)):
        return pair_neighbours(values, int(getattr(config, key)))
    return values


def _heads_of(name: str) -> str | None:
    """The key of the config that says how many heads a projection has, where its rows are turned by positions."""
    if ".attn_q." in name:
        return "num_attention_heads"
    return "num_key_value_heads" if ".attn_k." in name else None


def pair_neighbours(values: Array, num_heads: int) -> Array:
    """Rows of each head so that those which a position turns together are neighbours, not half a head apart."""
    shape = values.shape
    return np.ascontiguousarray(values.reshape(num_heads, 2, -1, *shape[1:]).swapaxes(1, 2).reshape(shape))


def stored_values(values: Array, tensor: PlannedTensor, quantize: Quantize = quantize) -> Array:
    """Float32 values in the type of the file.

    Raises:
        ModelError: they are not finite, or too large for it.
    """
    largest = float(np.abs(values).max(initial=0.0))
    if not largest <= LARGEST.get(tensor.kind, np.finfo(np.float32).max):  # NaN is not, either
        raise ModelError(
            f"{tensor.source} holds {largest:g}, which {tensor.kind.name} cannot.",
            hint="--gguf bf16 holds all finite numbers.",
        )
    stored: Array = quantize(values, tensor.kind)
    return stored


LARGEST = {
    Kind.F16: 65504.0,
    Kind.Q8_0: 65504.0 * 127,
    **dict.fromkeys([*MIXTURES.values(), *SHORT_ROWS.values()], 65504.0),
}
