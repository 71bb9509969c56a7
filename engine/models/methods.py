"""The methods: which weights of the model are trained, and in which type each is stored."""

from typing import Any

import torch
from transformers import PreTrainedModel

from ftui.profile.schema import Profile

from ..system.device import Hardware
from .freeze import freeze
from .fused_lora import fuse_adapters
from .lora import BaseReference, continued_adapter, new_adapter
from .quantization import check_share
from .starting_point import StartingPoint

TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def storage_dtype(profile: Profile, hardware: Hardware) -> torch.dtype | str:
    """The type to load the model in.

    Frozen weights are stored as they are computed; trained ones in float32, or small updates would round away. Where
    there are both (`freeze`), they are loaded as they lie in their files, so that the trained ones lose no digit.
    """
    if profile.model.dtype != "auto":
        return TYPES[profile.model.dtype]
    if profile.adapter.is_lora:
        return hardware.compute_dtype
    return "auto" if profile.adapter.method == "freeze" else torch.float32


def apply_method(model: PreTrainedModel, profile: Profile, hardware: Hardware, start: StartingPoint) -> Any:
    """Make the loaded model what the method trains: with an adapter, partly frozen, or whole.

    Raises:
        ModelError: the profile names layers that the model does not have, or an adapter that does not fit it; or
            little of a model that is to be quantised can be.
    """
    section = profile.adapter
    if section.method == "freeze":
        if profile.model.dtype != "auto":
            return freeze(model, section, frozen=model.dtype, trained=model.dtype)
        return freeze(model, section, frozen=hardware.compute_dtype)
    if not section.is_lora:
        return model
    if section.is_quantised:
        check_share(model)
    name = str(profile.model.name_or_path) if start.commit else str(start.folder)
    base = BaseReference(name, start.commit)
    if start.adapter is not None:
        adapted = continued_adapter(model, section, start.adapter, base, start.new_token_ids)
    else:
        adapted = new_adapter(model, section, base, start.new_token_ids)
    if section.use_fused_lora:
        fuse_adapters(adapted, hardware)
    return adapted
