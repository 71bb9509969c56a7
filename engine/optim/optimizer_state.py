"""An optimizer's state to and from safetensors and JSON, bit for bit, for optimizers of every library."""

from collections import defaultdict
from typing import Any

import torch

from ..offload.host_state import fill, is_on_host
from .optimizer import allocate_state


def state_bytes(optimizer: torch.optim.Optimizer) -> int:
    """Size of all moments."""
    values = [value for state in optimizer.state.values() for value in state.values()]
    return sum(value.numel() * value.element_size() for value in values if isinstance(value, torch.Tensor))


def kind_of(optimizer: torch.optim.Optimizer) -> str:
    """The class, and the bits of bitsandbytes: what must be the same for moments to mean the same."""
    details = getattr(optimizer, "args", None)
    bits = "" if details is None else f", {details.optim_bits} bits"
    return f"{type(optimizer).__module__}.{type(optimizer).__qualname__}{bits}"


def state_of(optimizer: torch.optim.Optimizer) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """The whole state as tensors for safetensors and the rest for JSON."""
    tensors, plain = flatten_state(optimizer.state_dict())
    return tensors, plain | {"kind": kind_of(optimizer)}


def flatten_state(state: dict[str, Any]) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """An optimizer's `state_dict` as tensors for safetensors ("index.name") and the rest for JSON.

    bitsandbytes wraps its tensors in a dict of their own, which is left out; and its weights share the tables of their
    8-bit codes, which safetensors refuses: a shared tensor is written once, and `shared` says under which name.
    """
    tensors: dict[str, torch.Tensor] = {}
    numbers: dict[str, dict[str, Any]] = {}
    shared: dict[str, str] = {}
    first_names: dict[int, str] = {}
    for index, values in state["state"].items():
        numbers[str(index)] = {}
        for name, value in _unwrap(values).items():
            if not isinstance(value, torch.Tensor):
                numbers[str(index)][name] = value
            elif (first := first_names.setdefault(id(value), f"{index}.{name}")) != f"{index}.{name}":
                shared[f"{index}.{name}"] = first
            else:
                tensors[first] = value.detach().contiguous()
    return tensors, {"state": numbers, "param_groups": state["param_groups"], "shared": shared}


def _unwrap(values: dict[str, Any]) -> dict[str, Any]:
    flat_values: dict[str, Any] = {}
    for name, value in values.items():
        flat_values |= value if isinstance(value, dict) else {name: value}
    return flat_values


def nest_state(tensors: dict[str, torch.Tensor], plain: dict[str, Any]) -> dict[str, Any]:
    """The `state_dict` that `flatten_state` took apart, without the wrapping of bitsandbytes."""
    state: dict[int, dict[str, Any]] = defaultdict(dict)
    state |= {int(index): dict(values) for index, values in plain["state"].items()}
    shared = {name: tensors[first] for name, first in plain.get("shared", {}).items()}  # older checkpoints have none
    for key, tensor in (tensors | shared).items():
        index, _, name = key.partition(".")
        state[int(index)][name] = tensor
    return {"state": dict(state), "param_groups": plain["param_groups"]}


def load(optimizer: torch.optim.Optimizer, tensors: dict[str, torch.Tensor], plain: dict[str, Any]) -> None:
    """Put a state back into a new optimizer over the same weights; one of another kind (a fork's) begins with its own.

    Settings such as the weight decay are the new optimizer's: they are the profile's, and a fork may have changed them.
    bitsandbytes' own loading would bring paged moments back as ordinary ones, which may not fit, and give every weight
    a code table of its own: so its state is allocated as for a new run, and filled.

    Raises:
        ValueError, KeyError: it is that of other weights.
    """
    if plain.get("kind", kind_of(optimizer)) != kind_of(optimizer):
        return allocate_state(optimizer)
    state_dict = nest_state(tensors, plain)
    if is_on_host(optimizer):
        return fill(optimizer, state_dict)
    if not hasattr(optimizer, "init_state"):
        settings = [{name: value for name, value in g.items() if name != "params"} for g in optimizer.param_groups]
        optimizer.load_state_dict(state_dict)
        for group, own in zip(optimizer.param_groups, settings, strict=True):
            group.update(own)
        return _restore_types(optimizer, state_dict)
    allocate_state(optimizer)
    for group, saved in zip(optimizer.param_groups, state_dict["param_groups"], strict=True):
        for weight, index in zip(group["params"], saved["params"], strict=True):
            state, values = optimizer.state[weight], state_dict["state"][index]
            for name, value in state.items():
                if isinstance(value, torch.Tensor):
                    if value.shape != values[name].shape or value.dtype != values[name].dtype:
                        raise ValueError(f"{name} of an optimizer over other weights")
                    value.copy_(values[name])
                else:
                    state[name] = values[name]


def _restore_types(optimizer: torch.optim.Optimizer, state_dict: dict[str, Any]) -> None:
    """Moments as they were saved: torch's loading gives them the type of their weight, and Adafactor's are float32
    whatever that is."""
    for group, saved in zip(optimizer.param_groups, state_dict["param_groups"], strict=True):
        for weight, index in zip(group["params"], saved["params"], strict=True):
            for name, value in state_dict["state"].get(index, {}).items():
                if isinstance(value, torch.Tensor) and optimizer.state[weight][name].dtype != value.dtype:
                    optimizer.state[weight][name] = value.to(weight.device)
