"""What makes training faster or smaller, or noisier, whatever the model: keys of `[train]`."""

import contextlib
import importlib
import importlib.util
import os
import shutil
from contextlib import AbstractContextManager
from typing import Any

import torch
from transformers import PreTrainedModel
from transformers.integrations.liger import apply_liger_kernel
from transformers.integrations.neftune import activate_neftune
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.utils.import_utils import is_liger_kernel_available

from ftui.errors import HardwareError, ModelError
from ftui.profile.sections.train import TrainSection

from ..optim.optimizer import check_optimizer
from ..system.device import AMPERE, Hardware

BACKEND = "inductor"


def check_machine(train: TrainSection, hardware: Hardware) -> None:
    """Refuse what this hardware cannot do; of packages it can only be known which are on this machine.

    Raises:
        HardwareError: a key asks for a GPU, a compiler or a package that is not there.
    """
    check_optimizer(train.optim, hardware.device)
    if train.tf32 and hardware.capability < AMPERE:
        raise HardwareError(
            f"train.tf32 needs an NVIDIA GPU since Ampere, and this run trains on {hardware.name}.",
            hint="Set train.tf32 = false.",
        )
    if train.use_liger_kernel:
        _check_liger(hardware)
    if train.torch_compile and hardware.is_here:
        _check_compiler(hardware)


def _check_liger(hardware: Hardware) -> None:
    if hardware.device.type != "cuda":
        raise HardwareError(
            f"train.use_liger_kernel: Liger's kernels run on a GPU only, and this run trains on {hardware.name}.",
            hint="Set train.use_liger_kernel = false.",
        )
    if hardware.is_here and not is_liger_kernel_available():
        raise HardwareError(
            "train.use_liger_kernel needs the package liger-kernel (0.3 or newer), which is not installed here.",
            hint="pip install liger-kernel, or set train.use_liger_kernel = false.",
        )


def _check_compiler(hardware: Hardware) -> None:
    """torch makes C++ for the CPU, and Triton a C stub for each kernel: an image without a compiler can do neither."""
    compilers = [os.environ.get("CXX"), "g++", "clang++", "gcc", "clang"]
    if not any(shutil.which(name) for name in compilers if name):
        raise HardwareError(
            "train.torch_compile needs a C++ compiler, and there is none on this machine.",
            hint="Install g++ (apt-get install g++), or set train.torch_compile = false.",
        )
    if hardware.device.type == "cuda" and importlib.util.find_spec("triton") is None:
        raise HardwareError(
            "train.torch_compile needs Triton on a GPU, and this torch came without it.",
            hint="Install triton, or set train.torch_compile = false.",
        )


def check_layers(model: PreTrainedModel, train: TrainSection, *, in_turn: bool = False) -> None:
    """Refuse what makes nothing faster or smaller in this model. `in_turn`: its layers come to the device one by one.

    Raises:
        ModelError: Liger does not know its type (where it is installed), or it has no layers that could be compiled,
            recomputed or brought.
    """
    if train.use_liger_kernel and is_liger_kernel_available():
        kind = model.config.model_type
        supported = importlib.import_module("liger_kernel.transformers.monkey_patch").MODEL_TYPE_TO_APPLY_LIGER_FN
        if kind not in supported:  # it would say so in the log and continue without
            raise ModelError(
                f"Liger has no kernels for models of type {kind}.", hint="Set train.use_liger_kernel = false."
            )
    if train.torch_compile and not decoder_layers(model):
        raise ModelError("This model has no layers that could be compiled.", hint="Set train.torch_compile = false.")
    if in_turn and not decoder_layers(model):
        raise ModelError(
            "This model has no layers that could come to the GPU one at a time.", hint='Set hardware.offload = "none".'
        )
    details = train.activation_checkpointing_kwargs
    if details is not None and details.num_layers is not None and not decoder_layers(model):
        raise ModelError(
            "This model recomputes the activations of all its layers or of none.",
            hint="Leave out train.activation_checkpointing_kwargs.num_layers.",
        )


def decoder_layers(model: torch.nn.Module) -> list[GradientCheckpointingLayer]:
    """The layers of a model, in their order; empty where transformers does not mark them."""
    return [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]


def prepare_base(model: PreTrainedModel, train: TrainSection) -> None:
    """Liger's kernels and activation checkpointing, for the model without an adapter."""
    if train.use_liger_kernel:
        apply_liger_kernel(model, {"cross_entropy": False, "fused_linear_cross_entropy": False})  # the loss is ours
    if train.activation_checkpointing:
        details = train.activation_checkpointing_kwargs
        every = 1 if details is None else details.every_n_layers
        model.activation_checkpointing_enable({"use_reentrant": False}, every_n_layers=every)
        if details is not None and details.num_layers is not None:
            for layer in decoder_layers(model)[details.num_layers :]:
                layer.gradient_checkpointing = False
        # Gradients of the embeddings' output are for reentrant checkpoints: they would flow through frozen layers.
        model.disable_input_require_grads()


def prepare_trained(model: Any, train: TrainSection) -> None:
    """Noise on the embeddings and compiled layers, for the model as its method trains it. No weight gets another name.

    The noise is drawn from torch's generator of the device, while training only. Layers are compiled one by one, for
    any length: those that are alike share their code, so a deep model takes no longer than a flat one.
    """
    if train.neftune_noise_alpha is not None:
        activate_neftune(model, train.neftune_noise_alpha)
    if not train.torch_compile:
        return
    for layer in decoder_layers(model):
        layer.compile(dynamic=True, backend=BACKEND)


def disable_dropout(model: torch.nn.Module) -> None:
    """Drop nothing, in training neither: layers for it, and rates that attention and others read off their module."""
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        for name in [name for name, value in vars(module).items() if "dropout" in name and isinstance(value, float)]:
            setattr(module, name, 0.0)


def uncompiled(train: TrainSection) -> AbstractContextManager[Any]:
    """A block in which nothing is compiled: generating and evaluating would each take compilations of their own."""
    return torch.compiler.set_stance("force_eager") if train.torch_compile else contextlib.nullcontext()
