"""Which attention kernel a model is asked to use."""

from typing import Any

import torch
from transformers import AutoModelForCausalLM
from transformers.utils.import_utils import is_flash_attn_2_available

from ftui.engine.hardware import Hardware

FLASH = "flash_attention_2"


def attention_for(wanted: str, config: Any, hardware: Hardware | None) -> str | None:
    """What to ask transformers for on this hardware (`None`: the CPU, where weights are merely read)."""
    if hardware is None:
        return chosen(wanted, device="cpu", dtype=torch.float32, is_importable=False, is_supported=False)
    return chosen(
        wanted,
        device=hardware.device.type,
        dtype=hardware.compute_dtype,
        is_importable=is_flash_attn_2_available(),
        is_supported=_supports_flash(config),
    )


def chosen(wanted: str, *, device: str, dtype: torch.dtype, is_importable: bool, is_supported: bool) -> str | None:
    """`None` leaves it to transformers: sdpa, or eager for the types that have no sdpa.

    `dtype` is the one that is computed in: flash attention knows only 16 bits.
    """
    if wanted != "auto":
        return wanted
    can_work = device == "cuda" and dtype in (torch.float16, torch.bfloat16)
    return FLASH if is_importable and is_supported and can_work else None


def _supports_flash(config: Any) -> bool:
    """Whether the model type has that kernel. Of code that comes with a model nobody knows before it runs."""
    mapping = AutoModelForCausalLM._model_mapping
    return type(config) in mapping and bool(getattr(mapping[type(config)], "_supports_flash_attn", False))
