"""The optimizer: torch's, transformers' Adafactor, or one of bitsandbytes, built as transformers' Trainer builds it."""

import importlib.util
from typing import Any

import torch
from torch import nn
from transformers import Adafactor
from transformers.trainer_pt_utils import get_parameter_names

from ftui.errors import HardwareError
from ftui.profile.sections.schedulers import explicit_values
from ftui.profile.sections.train import TrainSection

# Norms and biases are not decayed: the patterns of transformers' Trainer.
NO_DECAY = [r"bias", r"layernorm", r"rmsnorm", r"(?:^|\.)norm(?:$|\.)", r"_norm(?:$|\.)"]

# Class of bitsandbytes.optim, and bits of its moments. Weights of fewer than 4096 elements have 32 whatever it says.
BITS_AND_BYTES: dict[str, tuple[str, int]] = {
    "adamw_8bit": ("AdamW", 8),
    "adamw_bnb_8bit": ("AdamW", 8),
    "paged_adamw_8bit": ("AdamW", 8),
    "paged_adamw_32bit": ("AdamW", 32),
    "rmsprop_bnb": ("RMSprop", 32),
    "rmsprop_bnb_8bit": ("RMSprop", 8),
    "rmsprop_bnb_32bit": ("RMSprop", 32),
    "lion_32bit": ("Lion", 32),
    "lion_8bit": ("Lion", 8),
    "paged_lion_32bit": ("Lion", 32),
    "paged_lion_8bit": ("Lion", 8),
    "ademamix": ("AdEMAMix", 32),
    "ademamix_8bit": ("AdEMAMix", 8),
    "paged_ademamix_32bit": ("AdEMAMix", 32),
    "paged_ademamix_8bit": ("AdEMAMix", 8),
}
TORCH: dict[str, type[torch.optim.Optimizer]] = {
    "adamw_torch": torch.optim.AdamW,
    "adamw_torch_fused": torch.optim.AdamW,
    "adafactor": Adafactor,
    "sgd": torch.optim.SGD,
    "adagrad": torch.optim.Adagrad,
    "rmsprop": torch.optim.RMSprop,
}


def check_optimizer(optim: str, device: torch.device) -> None:
    """Whether the optimizer can run here, before anything is loaded.

    bitsandbytes 0.50 has all of them for CUDA and for the CPU, none for MPS.

    Raises:
        HardwareError: it cannot.
    """
    if optim not in BITS_AND_BYTES:
        return
    if device.type not in ("cuda", "cpu"):
        raise HardwareError(
            f'train.optim = "{optim}" is one of bitsandbytes, which has none for {device.type}.',
            hint='Set train.optim = "adamw_torch", or "adafactor" where memory is short.',
        )
    if importlib.util.find_spec("bitsandbytes") is None:
        raise HardwareError(
            f'train.optim = "{optim}" needs the package bitsandbytes, which is not installed here.',
            hint='Install bitsandbytes, or set train.optim = "adamw_torch".',
        )


def make_optimizer(model: nn.Module, train: TrainSection) -> torch.optim.Optimizer:
    """The optimizer over the trainable weights, which are where they will be trained."""
    decayed = set(get_parameter_names(model, [nn.LayerNorm], NO_DECAY))
    trainable = [(name, weight) for name, weight in model.named_parameters() if weight.requires_grad]
    groups = [
        {"params": [w for n, w in trainable if n in decayed], "weight_decay": train.weight_decay},
        {"params": [w for n, w in trainable if n not in decayed], "weight_decay": 0.0},
    ]
    nonempty = [group for group in groups if group["params"]]
    if train.optim in BITS_AND_BYTES:
        return _bits_and_bytes(model, nonempty, train, on_cpu=trainable[0][1].device.type == "cpu")
    return TORCH[train.optim](nonempty, **_torch_settings(train))


def _torch_settings(train: TrainSection) -> dict[str, Any]:
    settings: dict[str, Any] = {"lr": train.learning_rate, **explicit_values(train.optim_args)}
    match train.optim:
        case "adamw_torch" | "adamw_torch_fused":
            settings |= {"betas": (train.adam_beta1, train.adam_beta2), "eps": train.adam_epsilon}
            return settings | ({"fused": True} if train.optim == "adamw_torch_fused" else {})
        case "adafactor":  # the learning rate is the curve's, not Adafactor's own
            return settings | {"scale_parameter": False, "relative_step": False}
    return settings


def _bits_and_bytes(
    model: nn.Module, groups: list[dict[str, Any]], train: TrainSection, *, on_cpu: bool
) -> torch.optim.Optimizer:
    """An optimizer of bitsandbytes. Embeddings keep 32-bit moments: their gradients are too uneven for 8 bits."""
    import bitsandbytes.optim
    from bitsandbytes.optim.optimizer import GlobalOptimManager

    name, bits = BITS_AND_BYTES[train.optim]
    settings: dict[str, Any] = {"lr": train.learning_rate, "optim_bits": bits}
    betas, args = (train.adam_beta1, train.adam_beta2), explicit_values(train.optim_args)
    match name:
        case "AdamW":
            settings |= {"betas": betas, "eps": train.adam_epsilon}
        case "Lion":
            settings |= {"betas": betas}
        case "AdEMAMix":
            settings |= {"betas": (*betas, args.pop("beta3", 0.9999)), "eps": train.adam_epsilon, "alpha": 5.0, **args}
    if train.optim.startswith("paged") and not on_cpu:  # there it has no pages, and would say so in the log
        settings["is_paged"] = True
    manager: Any = GlobalOptimManager.get_instance()  # type: ignore[no-untyped-call]
    manager.initialize()  # one for the whole process; what it knows of another optimizer's weights must not count here
    if bits == 8:
        for module in model.modules():
            if isinstance(module, nn.Embedding):
                manager.override_config(module.weight, "optim_bits", 32)
    bnb_optimizer: torch.optim.Optimizer = getattr(bitsandbytes.optim, name)(groups, **settings)
    return bnb_optimizer


def allocate_state(optimizer: torch.optim.Optimizer) -> None:
    """Let the optimizer make its moments now: what does not fit must fail before the first step, not in it.

    bitsandbytes has a method for it. torch's make them in an update: one with gradients of zero and a rate of zero
    changes no weight, and what it leaves is set back to the zeros they all begin with.
    """
    init_state = getattr(optimizer, "init_state", None)
    if init_state is not None:
        for group_index, group in enumerate(optimizer.param_groups):
            for index, weight in enumerate(group["params"]):
                init_state(group, weight, group_index, index)
        return
    if any(group.get("dampening") for group in optimizer.param_groups):
        return  # SGD takes its first gradient undamped, and knows it by having no momentum yet
    rates = [group["lr"] for group in optimizer.param_groups]
    for group in optimizer.param_groups:
        group["lr"] = 0.0
        for weight in group["params"]:
            weight.grad = torch.zeros_like(weight)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate
    for state in optimizer.state.values():
        for name, value in state.items():
            state[name] = value.zero_() if isinstance(value, torch.Tensor) else 0 if name == "step" else value
