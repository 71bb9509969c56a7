"""What loading a model leaves in the allocator: temporaries come and go between the weights, and leave holes.

As transformers 4.50 to 5.24 do it (modeling_utils.py `caching_allocator_warmup`; core_model_loading.py: tensors sorted
by name; quantised ones come to the device in 16 bits, one after the other) and PEFT's
`prepare_model_for_kbit_training`.
"""

import re
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from transformers.core_model_loading import dot_natural_key

from .trace import Loader, note_tensor, note_weight, quantization_constants
from .tracker import MemoryTracker

CODES = 256
"""Entries of the table for 8-bit constants (bitsandbytes functional.py, create_dynamic_map)."""
NESTED_BLOCK = 256
"""Constants of the first level that share one of the second (bitsandbytes functional.py, quantize_4bit)."""


def pack_layer(module: Any, double_quant: bool, dtype: torch.dtype) -> None:
    """Give a Linear4bit on `meta` the weight and constants it has once it is quantised.

    Args:
        dtype: of the weight before, which is the one it is dequantised to.
    """
    from bitsandbytes.functional import QuantState
    from bitsandbytes.nn.modules import Params4bit

    new_state: Any = QuantState

    old, shape = module.weight, module.weight.shape
    num_blocks = -(-shape.numel() // old.blocksize)
    inner = None
    if double_quant:
        inner = new_state(
            _empty(-(-num_blocks // NESTED_BLOCK)), code=_empty(CODES), blocksize=NESTED_BLOCK, dtype=torch.float32
        )
    state = new_state(
        absmax=_empty(num_blocks, dtype=torch.uint8 if double_quant else torch.float32), shape=shape, code=_empty(16),
        blocksize=old.blocksize, quant_type=old.quant_type, dtype=dtype, offset=_empty() if double_quant else None,
        state2=inner,
    )  # fmt: skip
    packed = _empty(-(-shape.numel() // (2 * module.quant_storage.itemsize)), 1, dtype=module.quant_storage)
    module.weight = Params4bit(
        packed, requires_grad=False, quant_state=state, blocksize=old.blocksize, compress_statistics=double_quant,
        quant_type=old.quant_type, quant_storage=module.quant_storage, module=module, bnb_quantized=True,
    )  # fmt: skip
    module.quant_state = state


def _empty(*size: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.empty(size, dtype=dtype, device="meta")


def transformers_loader(*, loaded: torch.dtype, prepared: bool) -> Loader:
    """`from_pretrained` straight onto the card (`device_map`), in 4 bits or as it is.

    Args:
        loaded: type in which weights come to the card.
        prepared: PEFT's `prepare_model_for_kbit_training` copied what is not packed to float32.
    """

    def load(tracker: MemoryTracker, model: nn.Module) -> None:
        base = list(_base_weights(model))
        sizes = [w.numel() * (w.element_size() if quantization_constants(w) else loaded.itemsize) for _, w in base]
        tracker.give_back(tracker.take(sum(sizes), "workspace"), sum(sizes))
        early: dict[int, tuple[int, int]] = {}
        for _, weight in sorted(base, key=lambda item: dot_natural_key(item[0])):
            state = getattr(weight, "quant_state", None)
            if state is not None:
                size = state.shape.numel() * loaded.itemsize
                whole = tracker.take(size, "workspace")
                note_weight(tracker, weight)
                tracker.give_back(whole, size)
            elif prepared and weight.dtype == torch.float32:
                size = weight.numel() * loaded.itemsize
                early[id(weight)] = tracker.take(size, "weights"), size
            else:
                note_tensor(tracker, weight, "weights")
        for _, weight in base:
            if id(weight) in early:
                note_tensor(tracker, weight, "weights")
                tracker.give_back(*early[id(weight)])

    return load


def _base_weights(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """Names as in the files, without what PEFT puts around and beside them."""
    for name, weight in model.named_parameters():
        if not weight.requires_grad:
            yield re.sub(r"^base_model\.model\.", "", name).replace(".base_layer", ""), weight
