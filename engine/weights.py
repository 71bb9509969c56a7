"""A model's trained weights to and from a folder, in the layout PEFT and transformers load."""

from pathlib import Path
from typing import Any

import torch
from peft import get_peft_model_state_dict, set_peft_model_state_dict
from safetensors import SafetensorError
from safetensors.torch import load, load_file, save_file
from transformers import PreTrainedModel

from ftui.engine.training import Training

ADAPTER = "adapter_model.safetensors"


def write_weights(training: Training, folder: Path) -> None:
    """The adapter, or the whole model, with its config, generation config and tokenizer (chat template included)."""
    model: Any = training.model
    if training.is_adapter:
        tensors = get_peft_model_state_dict(model, save_embedding_layers=False)
        on_cpu = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        save_file(on_cpu, folder / ADAPTER, metadata={"format": "pt"})
        config = model.peft_config["default"]
        config.inference_mode = True  # as PEFT writes it: whoever loads the folder wants to use it
        config.save_pretrained(folder)
        config.inference_mode = False
        model.get_base_model().generation_config.save_pretrained(folder)
    else:
        model.save_pretrained(folder, max_shard_size="5GB")
    training.prepared.tokenizer.save_pretrained(folder)


def read_tensors(path: Path) -> dict[str, torch.Tensor]:
    """The tensors of a safetensors file; by plain reading where the volume refuses to map files (network disks)."""
    try:
        return load_file(path)
    except (OSError, SafetensorError):
        return load(path.read_bytes())


def read_weights(training: Training, folder: Path) -> None:
    """Put the weights in `folder` into the model of this run, in place."""
    model: Any = training.model
    if training.is_adapter:
        result: Any = set_peft_model_state_dict(model, read_tensors(folder / ADAPTER))
        assert not result.unexpected_keys, f"foreign adapter weights: {result.unexpected_keys[:3]}"
        return
    loaded = type(model).from_pretrained(folder, dtype=torch.float32, local_files_only=True)
    model.load_state_dict(loaded.state_dict())


def trainable(model: PreTrainedModel) -> dict[str, torch.Tensor]:
    return {name: weight for name, weight in model.named_parameters() if weight.requires_grad}


def all_finite(model: PreTrainedModel) -> bool:
    return all(bool(torch.isfinite(weight).all()) for weight in trainable(model).values())


def dtypes(model: PreTrainedModel) -> dict[str, int]:
    """How many trained tensors there are of each type."""
    found: dict[str, int] = {}
    for weight in trainable(model).values():
        name = str(weight.dtype).removeprefix("torch.")
        found[name] = found.get(name, 0) + 1
    return found
