"""The methods: which weights of the model are trained, and in which type each is stored."""

import re
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from ftui.errors import ModelError
from ftui.models.shape import SCORE_HEAD
from ftui.profile.schema import Profile
from ftui.profile.sections.adapter import AdapterSection
from ftui.system.expression_time import check_expressions_end

from ..system.device import Hardware
from .files.blame import blame
from .fused_lora import fuse_adapters
from .load_model import gives_scores
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
        with blame(start.adapter, "used as an adapter"):
            adapted = continued_adapter(model, section, start.adapter, base, start.new_token_ids)
    else:
        adapted = new_adapter(model, section, base, start.new_token_ids)
    if profile.train.activation_checkpointing:
        model.disable_input_require_grads()  # PEFT turns them on: see prepare_base
    if section.use_fused_lora:
        fuse_adapters(adapted, hardware)
    return adapted


def freeze(
    model: PreTrainedModel, section: AdapterSection, *, frozen: torch.dtype, trained: torch.dtype = torch.float32
) -> PreTrainedModel:
    """Leave trainable only what the profile names; store that as `trained` and the rest as `frozen`.

    Raises:
        ModelError: there are not so many layers, or a pattern matches no weight.
    """
    trained_ids: set[int] = set()
    if section.trainable_layers is not None:
        trained_ids |= {id(weight) for layer in _last_layers(model, section.trainable_layers) for weight in layer}
    for pattern in section.trainable_modules or ():
        trained_ids |= {id(weight) for weight in _matching(model, pattern)}
    if gives_scores(model):
        trained_ids |= {id(weight) for weight in getattr(model, SCORE_HEAD).parameters()}
    for weight in model.parameters():
        weight.requires_grad_(id(weight) in trained_ids)
        weight.data = weight.data.to(trained if weight.requires_grad else frozen)
    return model


def _last_layers(model: PreTrainedModel, number: int) -> list[Iterable[nn.Parameter]]:
    config: Any = model.config.get_text_config()
    size = config.num_hidden_layers
    stacks = [module for module in model.modules() if isinstance(module, nn.ModuleList) and len(module) == size]
    if not stacks:
        raise ModelError(f"No list of {size} decoder layers is found in this model.", hint="Use trainable_modules.")
    if number > size:
        raise ModelError(f"adapter.trainable_layers is {number}, but the model has {size} decoder layers.")
    return [layer.parameters() for layer in stacks[0][size - number :]]


def _matching(model: PreTrainedModel, pattern: str) -> list[nn.Parameter]:
    weights = list(model.named_parameters(remove_duplicate=False))  # a tied head goes by its own name too
    check_expressions_end({pattern: "adapter.trainable_modules"}, (name for name, _ in weights))
    matches = [weight for name, weight in weights if re.search(pattern, name)]
    if not matches:
        names = sorted({re.sub(r"\.\d+\.", ".N.", name) for name, _ in weights})
        raise ModelError(
            f"adapter.trainable_modules: {pattern!r} matches no weight.", hint=f"The weights are {', '.join(names)}."
        )
    return matches
