"""The value head of stage ppo: one linear layer of the last hidden state, beside the head of the language model.

It hangs on the model that is trained (`v_head`, TRL's name), outside of what PEFT and transformers save: whoever loads
the result finds a language model. Its own file lies with a checkpoint's state.
"""

from typing import Any

import torch
from torch import Tensor, nn

NAME = "v_head"
FILE = "value_head.safetensors"


def add_value_head(model: Any) -> None:
    """Give a model (with its adapter, if it has one) a value head in float32, which begins by saying 0 everywhere."""
    width = model.config.get_text_config().hidden_size
    head = nn.Linear(width, 1, device=model.device, dtype=torch.float32)
    for weight in head.parameters():
        nn.init.zeros_(weight)
    model.add_module(NAME, head)


def is_of_value_head(name: str) -> bool:
    """Whether a weight of a model is one of its value head."""
    return name.startswith(f"{NAME}.")


def token_values(model: Any, hidden: Tensor) -> Tensor:
    """(targets,) float32 from hidden states (targets, width): the reward that is still to come, as the head sees it."""
    head: nn.Linear = getattr(model, NAME)
    with torch.autocast(hidden.device.type, enabled=False):
        values: Tensor = head(hidden.float())
    return values.squeeze(-1)


def value_head_tensors(model: Any) -> dict[str, Tensor]:
    """The weights of a model's value head by the names in `FILE`; none where it has none."""
    head = getattr(model, NAME, None)
    return {} if head is None else {f"{NAME}.{name}": weight.detach() for name, weight in head.named_parameters()}


def fill_value_head(model: Any, tensors: dict[str, Tensor]) -> None:
    """Put back what `value_head_tensors` gave.

    Raises:
        ValueError: they are those of another model, or of a run without a value head.
    """
    own = value_head_tensors(model)
    if {n: t.shape for n, t in own.items()} != {n: t.shape for n, t in tensors.items()}:
        raise ValueError(f"it has no value head of the size {list(getattr(model, NAME).weight.shape)}")
    for name, weight in own.items():
        weight.copy_(tensors[name])
