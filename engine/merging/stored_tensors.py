"""Tensors of safetensors files, read one at a time by plain reads: nothing else of a file is ever in memory."""

import json
from dataclasses import dataclass
from pathlib import Path

import torch

from ftui.errors import ModelError
from ftui.models.model_files import INDEX, WEIGHTS
from ftui.models.safetensors_header import StoredTensor, read_header
from ftui.system.input_files import open_input

from ..models.weights import DTYPES

TYPES = {name: dtype for dtype, name in DTYPES.items()}


@dataclass(frozen=True)
class TensorPlace:
    """Where a tensor lies: a file, where its data begin in it, and what the header says of it."""

    file: Path
    start: int
    stored: StoredTensor

    @property
    def dtype(self) -> torch.dtype:
        """The type in torch.

        Raises:
            ModelError: torch has none of that name.
        """
        if self.stored.dtype not in TYPES:
            raise ModelError(f"{self.file.name} holds a type of number that torch has not: {self.stored.dtype}.")
        return TYPES[self.stored.dtype]

    def read(self) -> torch.Tensor:
        """The tensor, in memory of its own.

        Raises:
            OSError: it cannot be read, or the file has become shorter.
        """
        data = bytearray(self.stored.end - self.stored.start)
        with open_input(self.file) as stream:
            stream.seek(self.start)
            if stream.readinto(data) != len(data):
                raise OSError(f"{self.file} has become shorter")
        if not data:
            return torch.empty(self.stored.shape, dtype=self.dtype)
        return torch.frombuffer(data, dtype=self.dtype).view(self.stored.shape)


def places_in(file: Path) -> dict[str, TensorPlace]:
    """The tensors of a file by name.

    Raises:
        ModelError: it is damaged.
    """
    header = read_header(file)
    data = file.stat().st_size - max((tensor.end for tensor in header.values()), default=0)
    return {name: TensorPlace(file, data + tensor.start, tensor) for name, tensor in header.items()}


def weight_files(folder: Path) -> list[Path]:
    """The files of weights of a model that are loaded, in the order of their names."""
    if (folder / WEIGHTS).exists() or not (folder / INDEX).is_file():
        return [folder / WEIGHTS]
    return [folder / name for name in sorted(set(json.loads((folder / INDEX).read_bytes())["weight_map"].values()))]
