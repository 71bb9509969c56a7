"""An optimizer's state in host memory: for an update it comes to the device, that of a few weights at a time.

The update itself is the optimizer's own, on the device: the same kernels as without, weight by weight, so that weights
and state come out the same to the last bit. Paged optimizers of bitsandbytes do the like by themselves.
"""

from collections.abc import Iterator, Sequence
from functools import wraps
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim import Optimizer

SLICE_BYTES = 256 << 20
"""Weights that are updated together. The state of adamw takes twice as much beside them."""


def keep_state_on_host(optimizer: Optimizer) -> None:
    """Let an optimizer of torch or transformers keep its state on the host."""
    update = optimizer.step
    host = _HostState(optimizer)

    @wraps(update)
    def update_in_slices(closure: None = None) -> None:
        groups = [group["params"] for group in optimizer.param_groups]
        try:
            for own, weights in zip(optimizer.param_groups, groups, strict=True):
                for part in _slices(weights):
                    for group in optimizer.param_groups:
                        group["params"] = part if group is own else []
                    host.bring(part)
                    update()
                    host.put_back(part)
        finally:
            for group, weights in zip(optimizer.param_groups, groups, strict=True):
                group["params"] = weights
        host.wait()

    optimizer.step = update_in_slices  # type: ignore[method-assign, assignment]


def is_on_host(optimizer: Optimizer) -> bool:
    """Whether its state lies in host memory."""
    return "step" in vars(optimizer)


def fill(optimizer: Optimizer, state_dict: dict[str, Any]) -> None:
    """Put a `state_dict` into an optimizer whose state is on the host: torch's loading would put all on the device."""
    for group, saved in zip(optimizer.param_groups, state_dict["param_groups"], strict=True):
        counts_on_device = group.get("fused") or group.get("capturable")
        for weight, index in zip(group["params"], saved["params"], strict=True):
            values = state_dict["state"].get(index, {})
            for name, value in values.items():
                if _is_moved(value):
                    if value.numel() > weight.numel():
                        raise ValueError(f"{name} of an optimizer over other weights")
                    value = _host_copy(value, weight.device)
                elif isinstance(value, Tensor) and counts_on_device:
                    value = value.to(weight.device)
                optimizer.state[weight][name] = value


class _HostState:
    def __init__(self, optimizer: Optimizer) -> None:
        self._optimizer = optimizer
        self._places: dict[tuple[Parameter, str], Tensor] = {}

    def bring(self, weights: Sequence[Parameter]) -> None:
        """Their state to their device."""
        for weight, name, value in self._moved(weights):
            self._places[weight, name] = value
            copy = torch.empty_like(value, device=weight.device).copy_(value, non_blocking=True)
            self._optimizer.state[weight][name] = copy

    def put_back(self, weights: Sequence[Parameter]) -> None:
        """Their state to the host, where it was."""
        for weight, name, value in self._moved(weights):
            place = self._places.pop((weight, name), None)
            if place is None:  # made in this update
                place = _host_copy(value, weight.device)
            else:
                place.copy_(value, non_blocking=True)
            self._optimizer.state[weight][name] = place

    def wait(self) -> None:
        """Until all of it is there: whoever saves reads it."""
        device = self._optimizer.param_groups[0]["params"][0].device
        if device.type != "cpu":
            torch.accelerator.synchronize(device)

    def _moved(self, weights: Sequence[Parameter]) -> Iterator[tuple[Parameter, str, Tensor]]:
        for weight in weights:
            for name, value in [*self._optimizer.state.get(weight, {}).items()]:
                if _is_moved(value):
                    yield weight, name, value


def _is_moved(value: Any) -> bool:
    """Single numbers, such as the count of updates, stay where the optimizer has them."""
    return isinstance(value, Tensor) and value.numel() > 1


def _host_copy(value: Tensor, device: torch.device) -> Tensor:
    return torch.empty_like(value, device="cpu", pin_memory=device.type == "cuda").copy_(value)


def _slices(weights: Sequence[Parameter]) -> Iterator[list[Parameter]]:
    part: list[Parameter] = []
    num_bytes = 0
    for weight in weights:
        size = weight.numel() * weight.element_size()
        if part and num_bytes + size > SLICE_BYTES:
            yield part
            part, num_bytes = [], 0
        part.append(weight)
        num_bytes += size
    if part:
        yield part
