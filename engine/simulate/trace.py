"""Runs real training steps on the `meta` device and tells what memory they take, by phase, layer and part."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from .kernels import Kernels
from .tracker import Event, MemoryTracker, PhaseMark

Step = Callable[[nn.Module, Any], Iterator[str]]
"""One training step of a model with an optimizer: names each phase just before it begins."""


class Loader(Protocol):
    """Notes what loading the model's weights takes and leaves (engine/simulate/loading.py)."""

    def __call__(self, tracker: MemoryTracker, model: nn.Module, /) -> None: ...


@dataclass(frozen=True)
class Peak:
    """Most bytes alive at once while a phase runs; `index` of the event that reached them."""

    phase: str
    layer: int | None
    num_bytes: int
    index: int


@dataclass(frozen=True)
class Trace:
    """What happened: see Tracker. Phases of the last pass are the ones that count."""

    events: Sequence[Event]
    parts: Sequence[str]
    marks: Sequence[PhaseMark]

    def peaks(self) -> list[Peak]:
        """One for each phase and layer of the last pass, and of loading, in order of first appearance."""
        last = self.marks[-1].iteration
        bounds = [mark.index for mark in self.marks[1:]] + [len(self.events)]
        best: dict[tuple[str, int | None], Peak] = {}
        alive = 0
        for mark, end in zip(self.marks, bounds, strict=True):
            top, at = alive, mark.index - 1
            for index in range(mark.index, end):
                alive += self.events[index][1]
                if alive > top:
                    top, at = alive, index
            if mark.phase == "loading" or mark.iteration == last:
                key = (mark.phase, mark.layer)
                if key not in best or top > best[key].num_bytes:
                    best[key] = Peak(mark.phase, mark.layer, top, at)
        return list(best.values())

    def peak(self) -> Peak:
        """The highest of all."""
        return max(self.peaks(), key=lambda peak: peak.num_bytes)

    def by_phase(self) -> dict[str, int]:
        """Peak bytes of each phase."""
        found: dict[str, int] = {}
        for peak in self.peaks():
            found[peak.phase] = max(found.get(peak.phase, 0), peak.num_bytes)
        return found

    def breakdown(self, index: int) -> dict[str, int]:
        """Bytes by part of what is alive after event `index`."""
        alive: dict[int, int] = {}
        for number, size in self.events[: index + 1]:
            if size > 0:
                alive[number] = size
            else:
                alive.pop(number, None)
        found: dict[str, int] = {}
        for number, size in alive.items():
            found[self.parts[number]] = found.get(self.parts[number], 0) + size
        return found

    def remaining(self) -> int:
        """Bytes that are alive at the end."""
        return sum(size for _, size in self.events)


def trace(
    model: nn.Module,
    make_optimizer: Callable[[list[nn.Parameter]], Any],
    step: Step,
    kernels: Kernels,
    *,
    iterations: int = 2,
    load: Loader | None = None,
    layers: Sequence[nn.Module] = (),
    vocab_size: int = 0,
    truth: bool = True,
) -> Trace:
    """Take a model on `meta` through loading and `iterations` training steps.

    Args:
        make_optimizer: of the trained parameters.
        load: what loading takes; without it the weights just appear.
        layers: those whose events shall be told apart.
        vocab_size, truth: see Tracker.
    """
    tracker = MemoryTracker(kernels, vocab_size, truth)
    if load is not None:
        load(tracker, model)
    note_model(tracker, model)
    hooks = [hook for number, layer in enumerate(layers) for hook in mark_layer(tracker, number, layer)]
    trained_weights = [weight for weight in model.parameters() if weight.requires_grad]
    try:
        with tracker, kernels.chosen():
            optimizer = make_optimizer(trained_weights)
            for iteration in range(iterations):
                for phase in step(model, optimizer):
                    label_trained(tracker, trained_weights, optimizer)
                    tracker.enter(phase, iteration)
                label_trained(tracker, trained_weights, optimizer)
    finally:
        for hook in hooks:
            hook.remove()
    return Trace(tuple(tracker.events), tuple(tracker.parts), tuple(tracker.marks))


def note_model(tracker: MemoryTracker, model: nn.Module) -> None:
    """Note all weights and buffers that have not been noted, and say of all what they are."""
    for name, weight in model.named_parameters():
        is_adapter = weight.requires_grad and any(word in name for word in ADAPTERS)
        note_tensor(tracker, weight, "adapters" if is_adapter else "weights")
        for tensor in quantization_constants(weight):
            note_tensor(tracker, tensor, "quantisation")
    for _, buffer in model.named_buffers():
        note_tensor(tracker, buffer, "weights")


ADAPTERS = ("lora_", "modules_to_save", "prompt_encoder", "adapter")
"""Parts of names that tell a weight of PEFT."""


def note_tensor(tracker: MemoryTracker, tensor: Tensor, part: str) -> None:
    """See and label."""
    tracker.see(tensor, part)
    tracker.label(tensor, part)


def quantization_constants(weight: Any) -> list[Tensor]:
    """The constants beside a weight that bitsandbytes holds in few bits."""
    found: list[Tensor] = []
    state = getattr(weight, "quant_state", None)
    while state is not None:
        tensors = (state.absmax, state.code, state.offset)
        found += [tensor for tensor in tensors if isinstance(tensor, Tensor)]
        state = state.state2
    scale = getattr(weight, "SCB", None)
    return [*found, scale] if isinstance(scale, Tensor) else found


def mark_layer(tracker: MemoryTracker, number: int, layer: nn.Module) -> Iterable[Any]:
    def begins(*_: Any) -> None:
        tracker.enter_layer(number)

    def ends(_: nn.Module, __: Any, output: Any) -> None:
        tracker.enter_layer(None)
        tensor = output[0] if isinstance(output, tuple) else output
        if isinstance(tensor, Tensor) and tensor.requires_grad:
            tensor.register_hook(begins)  # its gradient is there: the layer's backward pass begins

    return layer.register_forward_pre_hook(begins), layer.register_forward_hook(ends)


def label_trained(tracker: MemoryTracker, trained_weights: Sequence[nn.Parameter], optimizer: Any) -> None:
    for weight in trained_weights:
        if weight.grad is not None:
            tracker.label(weight.grad, "gradients")
    states: Mapping[Any, Any] = getattr(optimizer, "state", {})
    for state in list(states.values()):
        for value in state.values():
            if torch.is_tensor(value):
                note_tensor(tracker, value, "optimizer")
