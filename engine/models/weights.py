"""A model's trained weights to and from a folder, in the layout PEFT and transformers load."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from peft import get_peft_model_state_dict, set_peft_model_state_dict
from safetensors import SafetensorError
from safetensors.torch import load, load_file, save_file
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ftui.errors import ModelError

from .adapter_files import ADAPTER


def write_weights(model: Any, tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """The adapter, or the whole model, with its config, generation config and tokenizer (chat template included)."""
    if is_adapted(model):
        write_adapter(model, folder)
        model.get_base_model().generation_config.save_pretrained(folder)
    else:
        write_model(model, folder)
    tokenizer.save_pretrained(folder)


def is_adapted(model: Any) -> bool:
    """Whether only an adapter (PEFT) of the model is trained."""
    return hasattr(model, "peft_config")


def write_adapter(adapted: Any, folder: Path) -> None:
    """Weights and config of an adapter, as PEFT writes them."""
    save_file(adapter_tensors(adapted), folder / ADAPTER, metadata={"format": "pt"})
    config = adapted.peft_config["default"]
    config.inference_mode = True  # as PEFT does: the folder is loaded for use
    config.save_pretrained(folder)
    config.inference_mode = False


def write_model(model: PreTrainedModel, folder: Path) -> None:
    """A whole model. What is trained only in part is stored in two types: its config says to load it in float32.

    transformers says the type of the first weight, and would round the trained ones to that of the frozen.
    """
    model.save_pretrained(folder, max_shard_size="5GB")
    if len({weight.dtype for weight in model.parameters()}) > 1:
        config = folder / "config.json"
        config.write_text(json.dumps(json.loads(config.read_text()) | {"dtype": "float32"}, indent=2) + "\n")


def adapter_tensors(adapted: Any) -> dict[str, torch.Tensor]:
    """The tensors of an adapter under PEFT's names, on the CPU; none shares its memory with another."""
    tensors: dict[str, torch.Tensor] = {}
    places: set[int] = set()
    for name, tensor in get_peft_model_state_dict(adapted, save_embedding_layers=False).items():
        own = tensor.detach().cpu().contiguous()
        tensors[name] = own.clone() if own.data_ptr() in places else own  # a tied head is saved under both its names
        places.add(own.data_ptr())
    return tensors


def fill_adapter(adapted: Any, folder: Path) -> None:
    """Put the weights of the adapter in `folder` into a model that has one of the same shape.

    Raises:
        ModelError: it has other weights than the model trains.
        RuntimeError, KeyError: shapes or names differ.
    """
    result: Any = set_peft_model_state_dict(adapted, read_tensors(folder / ADAPTER))
    absent = set(result.missing_keys)
    weights = list(adapted.named_parameters(remove_duplicate=False))
    filled_ids = {id(weight) for name, weight in weights if name not in absent}  # of tied weights one name is enough
    if missing := [name for name, weight in weights if weight.requires_grad and id(weight) not in filled_ids]:
        raise ModelError(f"{folder / ADAPTER} lacks {missing[0]} and {len(missing) - 1} others.")
    frozen = {name for name, weight in weights if not weight.requires_grad and name not in absent}
    if foreign := sorted({*result.unexpected_keys, *frozen}):
        names = ", ".join(foreign[:3])
        raise ModelError(f"{folder / ADAPTER} has weights that are not trained here: {names}.")


def read_tensors(path: Path) -> dict[str, torch.Tensor]:
    """The tensors of a safetensors file; by plain reading where the volume refuses to map files (network disks)."""
    try:
        return load_file(path)
    except (OSError, SafetensorError):
        return load(path.read_bytes())


def read_weights(model: Any, folder: Path) -> None:
    """Put the weights in `folder` into a model of the same shape, in place."""
    if is_adapted(model):
        fill_adapter(model, folder)
        return
    loaded = type(model).from_pretrained(folder, dtype=torch.float32, local_files_only=True)
    model.load_state_dict(loaded.state_dict())


def trainable(model: PreTrainedModel) -> dict[str, torch.Tensor]:
    """The weights that are trained, by name."""
    return {name: weight for name, weight in model.named_parameters() if weight.requires_grad}


def all_finite(model: PreTrainedModel) -> bool:
    """Whether no trained weight is NaN or infinite."""
    return all(bool(torch.isfinite(weight).all()) for weight in trainable(model).values())


def dtypes(model: PreTrainedModel) -> dict[str, int]:
    """The number of trained tensors of each type, by its name (`float32`)."""
    return dict(Counter(str(weight.dtype).removeprefix("torch.") for weight in trainable(model).values()))
