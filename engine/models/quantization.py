"""A frozen base stored by bitsandbytes in 4 or 8 bits: how it is loaded, and what it may not do by itself.

Of what PEFT's `prepare_model_for_kbit_training` does, nothing is wanted here: the base is frozen by the adapter; norms,
embeddings and head stay in the computing type as they do beside an unquantised base (in float32 the embeddings and head
of an 8 B model with 128 000 entries would take 2 GiB more); and checkpointing without reentry needs no gradient at the
inputs.
"""

from functools import cache
from typing import Any, cast

import torch
from torch import nn
from transformers import BitsAndBytesConfig, PreTrainedModel

from ftui.errors import ModelError
from ftui.profile.sections.adapter import AdapterSection

from ..system.device import Hardware

LEAST_SHARE = 0.5


def quantized_loading(section: AdapterSection, hardware: Hardware) -> dict[str, Any]:
    """Options of `load_model` that store the base as the profile says; none for an unquantised one.

    Each layer is quantised as it is read, on the device that trains, so that the whole model is never in memory at 16
    or 32 bits. Linear layers only, and not the head. The same file gives the same bytes at every start.
    """
    if not section.is_quantised:
        return {}
    device = hardware.device
    index = torch.cuda.current_device() if device.type == "cuda" and device.index is None else device.index
    place = {"": device.type if index is None else f"{device.type}:{index}"}
    return {"quantization": quantization(section, hardware), "device_map": place}


def quantization(section: AdapterSection, hardware: Hardware) -> BitsAndBytesConfig:
    """The quantisation of the base in 4 or 8 bits, as a config of transformers."""
    if section.load_in_8bit:
        keep_products_exact()
        return BitsAndBytesConfig(load_in_8bit=True)
    dtype = section.bnb_4bit_compute_dtype
    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type=section.bnb_4bit_quant_type,
        bnb_4bit_use_double_quant=section.bnb_4bit_use_double_quant,
        bnb_4bit_compute_dtype=hardware.compute_dtype if dtype == "auto" else getattr(torch, dtype),
    )


def keep_layout(model: PreTrainedModel) -> None:
    """Keep bitsandbytes from packing the 4-bit weights anew for evaluation. To be called before the first forward.

    On CPUs with AVX512-BF16 a layer does that at its first forward in evaluation mode, for good: its gradient is lost
    in every training step that follows, and its outputs differ in the last digits from those of a run without
    evaluations.
    """
    from bitsandbytes.nn.modules import Linear4bit  # which macOS has not

    for module in model.modules():
        if isinstance(module, Linear4bit):
            module.support_avx512bf16_for_cpu = False


@cache
def keep_products_exact() -> None:
    """Keep autocast out of bitsandbytes' product of 8-bit integers, which must be exact.

    Without AVX512, and on MPS, bitsandbytes 0.50 multiplies them as float32. Autocast makes float16 of that: a sum
    beyond 65,504, which four products can reach, is infinite, and the layer's output NaN. (In bfloat16 it is only
    inexact.) Training does not show it: there the layers multiply in floats.
    """
    import bitsandbytes  # noqa: F401  which defines the operator; macOS may not have it

    for device in ("cpu", "mps"):
        torch.library.register_autocast("bitsandbytes::int8_linear_matmul", device, torch.float32)


def check_share(model: PreTrainedModel) -> None:
    """Refuse a model that would mostly stay unquantised: the experts of a mixture are no linear layers.

    Raises:
        ModelError: too few of its weights can be quantised.
    """
    ends: list[Any] = [model.get_input_embeddings(), model.get_output_embeddings()]
    outer = {id(end.weight) for end in ends if end is not None}
    inner = [weight for weight in model.parameters() if id(weight) not in outer]
    packed = sum(number_of(weight) for weight in inner if is_packed(weight))
    share = packed / max(1, sum(number_of(weight) for weight in inner))
    if share < LEAST_SHARE:
        raise ModelError(
            f"Only {share:.0%} of the layers' weights can be stored in few bits: the others are no linear layers.",
            hint='Mixtures of experts are like that. Use method = "lora" without load_in_8bit, on a larger card.',
        )


def is_packed(weight: torch.Tensor) -> bool:
    """Whether a weight is no plain tensor of numbers, so that it cannot be trained."""
    return not weight.is_floating_point()


def is_dense_or_4bit(layer: nn.Module) -> bool:
    """Whether a layer is torch's linear one, or bitsandbytes' in 4 bits; not one in 8 bits, nor one of another kind."""
    return type(layer) is nn.Linear or hasattr(getattr(layer, "weight", None), "quant_state")


def dense_weight(layer: Any, dtype: torch.dtype) -> torch.Tensor:
    """A linear layer's weight (outputs, inputs) in a type that can be multiplied, also of one held in 4 bits."""
    weight = layer.weight
    if not is_packed(weight):
        return cast(torch.Tensor, weight.to(dtype))
    from bitsandbytes.functional import dequantize_4bit

    state = getattr(weight, "quant_state", None) or layer.quant_state  # one that was gathered has lost its own
    return dequantize_4bit(weight, state).to(dtype)


def num_parameters(model: nn.Module) -> int:
    """Weights of the model; in 4 bits two of them share a byte."""
    layers: list[Any] = [module for module in model.modules() if getattr(module, "quant_state", None) is not None]
    packed = {id(layer.weight): int(layer.quant_state.shape.numel()) for layer in layers}
    return sum(packed.get(id(weight), number_of(weight)) for weight in model.parameters())


def number_of(weight: torch.Tensor) -> int:
    """Elements of a weight before it was packed."""
    state = getattr(weight, "quant_state", None)
    return weight.numel() if state is None else int(state.shape.numel())
