"""Which attention kernel a model is asked to use."""

from typing import Any

import torch
from transformers.utils.import_utils import is_flash_attn_2_available

from ftui.errors import HardwareError, ModelError
from ftui.profile.sections.model import ModelSection

from ..system.device import AMPERE, Hardware
from .transformers_internals import let_sdpa_share_keys, supports_flash

FLASH = "flash_attention_2"
OTHER = 'Set model.attn_implementation = "auto".'


def attention_for(requested: str, config: Any, hardware: Hardware | None) -> str | None:
    """The attention kernel to ask transformers for; without `hardware`, weights are only read, on the CPU.

    Raises:
        HardwareError: flash attention is asked for where it cannot run.
        ModelError: this type of model does not have it.
    """
    if hardware is None:
        return choose_attention(requested, device="cpu", dtype=torch.float32, is_importable=False, is_supported=False)
    if requested == FLASH:
        _check_flash(config, hardware)
    return choose_attention(
        requested,
        device=hardware.device.type,
        dtype=hardware.compute_dtype,
        is_importable=is_flash_attn_2_available(),
        is_supported=supports_flash(config),
    )


def choose_attention(
    requested: str, *, device: str, dtype: torch.dtype, is_importable: bool, is_supported: bool
) -> str | None:
    """The name of the kernel; `None` leaves it to transformers: sdpa, or eager for the types that have no sdpa.

    `dtype` is the one that is computed in: flash attention knows only 16 bits.
    """
    if requested != "auto":
        return requested
    can_work = device == "cuda" and dtype in (torch.float16, torch.bfloat16)
    return FLASH if is_importable and is_supported and can_work else None


def attention_here(section: ModelSection, hardware: Hardware) -> ModelSection:
    """The section for a model that was trained elsewhere: flash attention only where it can run, else `auto`."""
    can_run = hardware.capability >= AMPERE and hardware.compute_dtype != torch.float32 and is_flash_attn_2_available()
    if section.attn_implementation != FLASH or can_run:
        return section
    return section.model_copy(update={"attn_implementation": "auto"})


def _check_flash(config: Any, hardware: Hardware) -> None:
    if hardware.capability < AMPERE or hardware.compute_dtype == torch.float32:
        raise HardwareError(
            f"Flash attention needs an NVIDIA GPU since Ampere and 16 bits, and this run trains on {hardware.name} "
            f"in {hardware.precision}.",
            hint=OTHER,
        )
    if hardware.is_here and not is_flash_attn_2_available():
        raise HardwareError(
            "Flash attention needs the package flash-attn, which is not installed here.",
            hint=f"Install flash-attn. {OTHER}",
        )
    is_known = type(config).__module__.startswith("transformers.")  # code that comes with a model says nothing of it
    if is_known and not supports_flash(config):
        raise ModelError(f"Models of type {config.model_type} have no flash attention.", hint=OTHER)


def settle_groups(hardware: Hardware) -> None:
    """Repeat keys and values for the heads that share them, before sdpa, where none of its kernels could.

    transformers 5.24 hands shared ones to sdpa whenever there is no mask. Of torch's kernels (up to 2.13) only flash
    takes those, which is for 16 bits since Ampere; elsewhere torch falls back to plain arithmetic, which keeps every
    score: an 8 B model with rows of 4096 tokens would take 15.2 GiB on a T4 instead of 7.9 (simulated).
    """
    is_half = hardware.compute_dtype in (torch.float16, torch.bfloat16)
    can_share = hardware.device.type != "cuda" or (hardware.capability >= AMPERE and is_half)
    let_sdpa_share_keys(can_share)
