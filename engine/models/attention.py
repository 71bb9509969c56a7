"""Which attention kernel a model is asked to use."""

from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM
from transformers.integrations import sdpa_attention
from transformers.utils.import_utils import is_flash_attn_2_available

from ..system.device import Hardware

FLASH = "flash_attention_2"
AMPERE = 80

_as_transformers_does = sdpa_attention.use_gqa_in_sdpa


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


def settle_groups(hardware: Hardware) -> None:
    """Repeat keys and values for the heads that share them, before sdpa, where none of its kernels could.

    transformers 5.24 hands shared ones to sdpa whenever there is no mask. Of torch's kernels (up to 2.13) only flash
    takes those, which is for 16 bits since Ampere; elsewhere torch falls back to plain arithmetic, which keeps every
    score: an 8 B model with rows of 4096 tokens would take 15.2 GiB on a T4 instead of 7.9 (simulated).
    """
    is_half = hardware.compute_dtype in (torch.float16, torch.bfloat16)
    can_share = hardware.device.type != "cuda" or (hardware.capability >= AMPERE and is_half)
    setattr(sdpa_attention, "use_gqa_in_sdpa", _as_transformers_does if can_share else _never)  # noqa: B010


def _never(mask: Tensor | None, key: Tensor, value: Tensor) -> bool:
    return False
