"""What a traced training step holds, by part, and the hooks that tell the tracker of weights and layers."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from .tracker import Event, MemoryTracker, PhaseMark


class Loader(Protocol):
    """Notes what loading the model's weights takes and leaves (engine/simulate/loading.py)."""

    def __call__(self, tracker: MemoryTracker, model: nn.Module, /) -> None: ...


@dataclass(frozen=True)
class Trace:
    """What happened: see MemoryTracker."""

    events: Sequence[Event]
    parts: Sequence[str]
    marks: Sequence[PhaseMark]

    def breakdown(self, index: int) -> dict[str, int]:
        """Bytes by part of what is alive after event `index`."""
        alive: dict[int, int] = {}
        for number, size in self.events[: index + 1]:
            if size > 0:
                alive[number] = size
            else:
                alive.pop(number, None)
        parts: dict[str, int] = {}
        for number, size in alive.items():
            parts[self.parts[number]] = parts.get(self.parts[number], 0) + size
        return parts


def note_model(tracker: MemoryTracker, model: nn.Module) -> None:
    """Note all weights and buffers that have not been noted, and say of all what they are."""
    for name, weight in model.named_parameters():
        is_adapter = weight.requires_grad and any(word in name for word in ADAPTERS)
        note_weight(tracker, weight, "adapters" if is_adapter else "weights")
    for _, buffer in model.named_buffers():
        note_tensor(tracker, buffer, "weights")


ADAPTERS = ("lora_", "modules_to_save", "prompt_encoder", "adapter")
"""Parts of names that tell a weight of PEFT."""


def note_tensor(tracker: MemoryTracker, tensor: Tensor, part: str) -> None:
    """See and label."""
    tracker.see(tensor, part)
    tracker.label(tensor, part)


def note_weight(tracker: MemoryTracker, weight: nn.Parameter, part: str = "weights") -> None:
    """See and label a weight, and the constants beside it where bitsandbytes holds it."""
    note_tensor(tracker, weight, part)
    for tensor in quantization_constants(weight):
        note_tensor(tracker, tensor, "quantisation")


def quantization_constants(weight: Any) -> list[Tensor]:
    """The constants beside a weight that bitsandbytes holds in few bits."""
    constants: list[Tensor] = []
    state = getattr(weight, "quant_state", None)
    while state is not None:
        tensors = (state.absmax, state.code, state.offset)
        constants += [tensor for tensor in tensors if isinstance(tensor, Tensor)]
        state = state.state2
    scale = getattr(weight, "SCB", None)
    return [*constants, scale] if isinstance(scale, Tensor) else constants


def mark_layer(tracker: MemoryTracker, number: int, layer: nn.Module) -> Iterable[Any]:
    """Let the tracker know when the layer's forward and backward passes begin; returns the handles of its hooks."""

    def begins(*_: Any) -> None:
        tracker.enter_layer(number)

    def ends(_: nn.Module, __: Any, output: Any) -> None:
        tracker.enter_layer(None)
        tensor = output[0] if isinstance(output, tuple) else output
        if isinstance(tensor, Tensor) and tensor.requires_grad:
            tensor.register_hook(begins)  # its gradient is there: the layer's backward pass begins

    return layer.register_forward_pre_hook(begins), layer.register_forward_hook(ends)


def label_trained(tracker: MemoryTracker, trained_weights: Sequence[nn.Parameter], optimizer: Any) -> None:
    """Say which tensors are gradients, and which are the optimizer's."""
    for weight in trained_weights:
        if weight.grad is not None:
            tracker.label(weight.grad, "gradients")
    states: Mapping[Any, Any] = getattr(optimizer, "state", {})
    for state in list(states.values()):
        for value in state.values():
            if torch.is_tensor(value):
                note_tensor(tracker, value, "optimizer")
