"""The optimizer and the learning rate's curve."""

import math
from collections.abc import Callable

import torch
from torch import nn
from transformers import get_scheduler
from transformers.trainer_pt_utils import get_parameter_names

from ftui.profile.train import TrainSection

# Norms and biases are not decayed: the patterns of transformers' Trainer.
NO_DECAY = [r"bias", r"layernorm", r"rmsnorm", r"(?:^|\.)norm(?:$|\.)", r"_norm(?:$|\.)"]


def make_optimizer(model: nn.Module, train: TrainSection) -> torch.optim.Optimizer:
    """AdamW over the trainable weights."""
    decayed = set(get_parameter_names(model, [nn.LayerNorm], NO_DECAY))
    trainable = [(name, weight) for name, weight in model.named_parameters() if weight.requires_grad]
    groups = [
        {"params": [w for n, w in trainable if n in decayed], "weight_decay": train.weight_decay},
        {"params": [w for n, w in trainable if n not in decayed], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(
        [group for group in groups if group["params"]],
        lr=train.learning_rate,
        betas=(train.adam_beta1, train.adam_beta2),
        eps=train.adam_epsilon,
    )


def warmup_steps(train: TrainSection, max_steps: int) -> int:
    """Steps of warm-up: a share of all steps below 1 (rounded up), else a number of steps."""
    return int(train.warmup_steps) if train.warmup_steps >= 1 else math.ceil(max_steps * train.warmup_steps)


def learning_rate_curve(train: TrainSection, max_steps: int) -> Callable[[int], float]:
    """The learning rate of step n (1-based), a pure function: nothing to save, nothing to restore.

    Past `max_steps` (a run that was made longer) the rate stays where the curve ended. The curve itself is
    transformers'; its scheduler object is made over a weightless optimizer and only asked.
    """
    name = "constant_with_warmup" if train.lr_scheduler_type == "constant" else train.lr_scheduler_type
    nothing = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    scheduler = get_scheduler(
        name, nothing, num_warmup_steps=warmup_steps(train, max_steps), num_training_steps=max_steps
    )
    factor = scheduler.lr_lambdas[0]
    return lambda step: train.learning_rate * float(factor(min(step, max_steps) - 1))


def allocate_state(optimizer: torch.optim.Optimizer) -> None:
    """Let AdamW make its moments now: what does not fit must fail before the first step, not in it.

    An update with gradients of zero and a rate of zero changes no weight; its counters are set back.
    """
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
        state["step"].zero_()
