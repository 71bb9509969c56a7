"""Frozen weights of a model's layers in host memory: a layer's come to the device for each pass over it.

While a layer computes, the weights of the next one come (forward: of the layer above, backward: of the layer below), so
that those of two layers at most are on the device. What a backward pass needs of them is there only where it computes
the layer again (activation checkpointing): its copies then live as long as its graph.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import Parameter


@contextmanager
def base_on_host(layers: Sequence[nn.Module], device: torch.device) -> Iterator[None]:
    """A block in which a model is moved to its device, and the frozen weights of its layers are not."""
    host_layers = HostLayers(layers, device)
    yield
    for weights in host_layers.weights:
        weights.drop()


class HostWeights:
    """The frozen weights of one layer: on the host, and between `bring` and `drop` on the device as well."""

    def __init__(self, weights: Sequence[Parameter], device: torch.device) -> None:
        self._weights, self._device = weights, device
        self._on_host = [host_copy(weight.data, device) for weight in weights]
        self._arrival: torch.Event | None = None
        self.is_here = False
        self._point_at([tensor.new_empty(0, device=device) for tensor in self._on_host])

    def bring(self, stream: torch.Stream | None) -> None:
        """Begin to copy them to the device, on this stream if there is one."""
        if self.is_here:
            return
        copies = [torch.empty_like(tensor, device=self._device) for tensor in self._on_host]
        if stream is None:
            _copy_all(copies, self._on_host)
        else:  # memory is taken and given back in the order of the computation, which the copy waits for
            stream.wait_stream(torch.accelerator.current_stream(self._device))
            with stream:
                _copy_all(copies, self._on_host)
            self._arrival = stream.record_event()
        self._point_at(copies)
        self.is_here = True

    def wait(self) -> None:
        """Let the computation wait until they are there."""
        if self._arrival is not None:
            torch.accelerator.current_stream(self._device).wait_event(self._arrival)
            self._arrival = None

    def drop(self) -> None:
        """Leave them on the host only."""
        self.wait()
        self._point_at(self._on_host)
        self.is_here = False

    def _point_at(self, tensors: Sequence[Tensor]) -> None:
        for weight, tensor in zip(self._weights, tensors, strict=True):
            weight.data = tensor


class HostLayers:
    """The layers of a model in their order, whose frozen weights are on the host."""

    def __init__(self, layers: Sequence[nn.Module], device: torch.device) -> None:
        self.weights = [HostWeights(own, device) for own in _frozen(layers)]
        self._stream = torch.Stream(device) if device.type in ("cuda", "xpu") else None
        for number, layer in enumerate(layers):
            layer.register_forward_pre_hook(_BeforeForward(self, number))
            layer.register_forward_hook(_AfterForward(self, number))

    def use(self, number: int, following: int) -> None:
        """Have the weights of a layer on the device, those of another on their way, and of none besides."""
        number_of_layers = len(self.weights)
        for other, weights in enumerate(self.weights):
            if weights.is_here and other not in (number, following):
                weights.drop()
        self.weights[number].bring(self._stream)
        self.weights[number].wait()
        if 0 <= following < number_of_layers:
            self.weights[following].bring(self._stream)


class _BeforeForward:
    def __init__(self, layers: HostLayers, number: int) -> None:
        self._layers, self._number = layers, number

    def __call__(self, *_: Any) -> None:
        following = self._number + 1
        if not torch.is_grad_enabled():  # the next pass begins with the first layer, not with the last one's backward
            following %= len(self._layers.weights)
        self._layers.use(self._number, following)


class _AfterForward:
    def __init__(self, layers: HostLayers, number: int) -> None:
        self._layers, self._number = layers, number

    def __call__(self, _layer: nn.Module, _inputs: Any, output: Any) -> None:
        for tensor in _tensors(output):
            if tensor.requires_grad:
                tensor.register_hook(self._before_backward)

    def _before_backward(self, _gradient: Tensor) -> None:
        self._layers.use(self._number, self._number - 1)


def _tensors(output: Any) -> Iterator[Tensor]:
    if isinstance(output, Tensor):
        yield output
    elif isinstance(output, tuple | list):
        for part in output:
            yield from _tensors(part)


def _frozen(layers: Sequence[nn.Module]) -> list[list[Parameter]]:
    """Of each layer, its frozen weights; one that several share stays where it is."""
    each = [[weight for weight in layer.parameters() if not weight.requires_grad] for layer in layers]
    times: dict[int, int] = {}
    for weight in (weight for own in each for weight in own):
        times[id(weight)] = times.get(id(weight), 0) + 1
    return [[weight for weight in own if times[id(weight)] == 1] for own in each]


def host_copy(tensor: Tensor, device: torch.device) -> Tensor:
    """A tensor on the host, pinned where the device copies from pinned memory beside its computation."""
    if device.type == "cuda" and not tensor.is_pinned():
        return torch.empty_like(tensor, device="cpu", pin_memory=True).copy_(tensor)
    return tensor.cpu()


def _copy_all(targets: Sequence[Tensor], sources: Sequence[Tensor]) -> None:
    for target, source in zip(targets, sources, strict=True):
        target.copy_(source, non_blocking=True)
