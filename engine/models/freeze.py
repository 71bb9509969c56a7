"""`freeze`: a part of the model is trained, the rest stays as it is."""

import re
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from ftui.errors import ModelError
from ftui.profile.sections.adapter import AdapterSection


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
    matches = [weight for name, weight in weights if re.search(pattern, name)]
    if not matches:
        names = sorted({re.sub(r"\.\d+\.", ".N.", name) for name, _ in weights})
        raise ModelError(
            f"adapter.trainable_modules: {pattern!r} matches no weight.", hint=f"The weights are {', '.join(names)}."
        )
    return matches
