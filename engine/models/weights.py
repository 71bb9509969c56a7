"""A model's trained weights to and from a folder, in the layout PEFT and transformers load."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from peft import get_peft_model_state_dict, set_peft_model_state_dict
from safetensors import SafetensorError
from safetensors.torch import load, load_file
from torch.distributed.tensor import DTensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ftui.errors import ModelError
from ftui.system.checked_write import Pieces

from ..distributed.sharded_base import own_part
from ..reinforcement.value_head import is_of_value_head, value_head_tensors
from .adapter_files import ADAPTER
from .transformers_internals import redirect_weight_files

DTYPES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64",
    torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.uint16: "U16",
    torch.uint32: "U32", torch.uint64: "U64", torch.bool: "BOOL", torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2", torch.complex64: "C64",
}  # fmt: skip
"""Names that safetensors gives to types."""


def write_weights(model: Any, tokenizer: PreTrainedTokenizerBase, folder: Path) -> dict[str, Pieces]:
    """The adapter, or the whole model, with its config, generation config and tokenizer (chat template included).

    The small files are written into `folder`, those of weights are returned.
    """
    if is_adapted(model):
        files = write_adapter(model, folder)
        if (generation := getattr(model.get_base_model(), "generation_config", None)) is not None:
            generation.save_pretrained(folder)  # a reward model has none
    else:
        files = write_model(model, folder)
    tokenizer.save_pretrained(folder)
    return files


@dataclass(frozen=True, eq=False)
class TensorFile:
    """A safetensors file as the pieces it is made of; called, it gives them from the beginning.

    `head` is all before the data, `tensors` are the data in the file's order. `gather` makes a whole tensor of one that
    is divided among ranks.
    """

    head: bytes
    tensors: list[torch.Tensor]
    gather: Callable[[torch.Tensor], torch.Tensor] | None = None

    def __call__(self) -> Iterator[bytes | memoryview]:
        yield self.head
        for tensor in self.tensors:
            whole = tensor if self.gather is None else self.gather(tensor)
            data = whole.detach().cpu().contiguous().reshape(-1)
            yield data.view(torch.uint8).numpy().data

    @property
    def data_bytes(self) -> int:
        """Bytes of the data."""
        return sum(tensor.numel() * tensor.element_size() for tensor in self.tensors)

    def copy_into(self, room: torch.Tensor) -> "TensorFile":
        """The same file with its data in `room`, as many bytes (uint8) of host memory.

        On a GPU the copies are queued behind what it computes now, and nothing waits for them.
        """
        end = 0
        for tensor in self.tensors:
            start, end = end, end + tensor.numel() * tensor.element_size()
            place = room[start:end].view(tensor.dtype).view(tensor.shape)
            place.copy_(tensor.detach(), non_blocking=tensor.is_cuda)
        return TensorFile(self.head, [room])


def safetensors_file(tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str] | None = None) -> TensorFile:
    """A safetensors file of these tensors: always the same bytes, and no tensor is copied before it is asked for.

    (The library writes its metadata in another order each time, and cannot say what it was about to write.)
    """
    header: dict[str, Any] = {} if metadata is None else {"__metadata__": dict(sorted(metadata.items()))}
    names, end = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name)), 0
    for name in names:
        tensor, start = tensors[name], end
        end += tensor.numel() * tensor.element_size()
        header[name] = {
            "dtype": DTYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [start, end],
        }  # fmt: skip
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return TensorFile(len(text).to_bytes(8, "little") + text, [tensors[name] for name in names])


def is_adapted(model: Any) -> bool:
    """Whether only an adapter (PEFT) of the model is trained."""
    return hasattr(model, "peft_config")


def write_adapter(adapted: Any, folder: Path) -> dict[str, Pieces]:
    """Weights and config of an adapter, as PEFT writes them; the weights are returned."""
    config = adapted.peft_config["default"]
    config.inference_mode = True  # as PEFT does: the folder is loaded for use
    config.save_pretrained(folder)
    config.inference_mode = False
    return {ADAPTER: safetensors_file(adapter_tensors(adapted), {"format": "pt"})}


def write_model(model: PreTrainedModel, folder: Path) -> dict[str, Pieces]:
    """A whole model; its weights are returned.

    What is trained only in part is stored in two types, and its config says to load it in float32: transformers
    says the type of the first weight, and would round the trained ones to that of the frozen.
    """
    files: dict[str, Pieces] = {}

    state_dict, divided = _stand_ins(model)

    def take(tensors: dict[str, torch.Tensor], path: str, metadata: dict[str, str] | None = None) -> None:
        own = {name: divided.get(id(tensor), tensor) for name, tensor in tensors.items()}
        if strangers := [name for name, tensor in own.items() if tensor.is_meta]:
            raise ModelError(f"transformers stores {strangers[0]} as something else than it is in the model.")
        files[Path(path).name] = safetensors_file(own, metadata)

    with redirect_weight_files(take):
        model.save_pretrained(folder, max_shard_size="5GB", state_dict=state_dict)
    if len({weight.dtype for weight in model.parameters()}) > 1:
        config = folder / "config.json"
        config.write_text(json.dumps(json.loads(config.read_text()) | {"dtype": "float32"}, indent=2) + "\n")
    return files


def _stand_ins(model: PreTrainedModel) -> tuple[dict[str, torch.Tensor] | None, dict[int, torch.Tensor]]:
    """What transformers saves of a model where that is not all it has: of one with a value head the rest; of one whose
    weights are divided among ranks tensors without memory that have the shapes of the whole ones, and which weight each
    (by its id) stands for. transformers looks at sizes and memory."""
    weights: dict[str, torch.Tensor] = model.state_dict()
    if not any(isinstance(weight, DTensor) for weight in weights.values()):
        without = {name: weight for name, weight in weights.items() if not is_of_value_head(name)}
        return (without if len(without) < len(weights) else None), {}
    stand_ins = {name: torch.empty(weight.shape, dtype=weight.dtype, device="meta") for name, weight in weights.items()}
    return stand_ins, {id(stand_in): weights[name] for name, stand_in in stand_ins.items()}


def adapter_tensors(adapted: Any) -> dict[str, torch.Tensor]:
    """The tensors of an adapter under PEFT's names; none shares its memory with another."""
    tensors: dict[str, torch.Tensor] = {}
    places: set[int] = set()
    for name, tensor in get_peft_model_state_dict(adapted, save_embedding_layers=False).items():
        own = tensor.detach().contiguous()
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
    weights = [one for one in adapted.named_parameters(remove_duplicate=False) if not is_of_value_head(one[0])]
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
    model.load_state_dict(loaded.state_dict() | value_head_tensors(model))  # which has a file of its own


def trainable(model: PreTrainedModel) -> dict[str, torch.Tensor]:
    """The weights that are trained, by name."""
    return {name: weight for name, weight in model.named_parameters() if weight.requires_grad}


def all_finite(model: PreTrainedModel) -> bool:
    """Whether no trained weight, or part of one that this rank has, is NaN or infinite. It waits for the device once,
    not for each weight."""
    parts = [own_part(weight.detach()) for weight in trainable(model).values()]
    ends = [end for own in parts if own.numel() for end in torch.aminmax(own)]
    return not ends or bool(torch.isfinite(torch.stack([end.float() for end in ends])).all())


def dtypes(model: PreTrainedModel) -> dict[str, int]:
    """The number of trained tensors of each type, by its name (`float32`)."""
    return dict(Counter(str(weight.dtype).removeprefix("torch.") for weight in trainable(model).values()))
