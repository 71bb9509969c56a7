"""The header of a safetensors file, compared with the size of the file: the names and sizes of its tensors.

Format: 8 bytes (little-endian) with the length of the header, the header as JSON, the tensors one after another.
https://huggingface.co/docs/safetensors
"""

import json
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ftui.errors import ModelError
from ftui.system.input_files import open_input

LONGEST_HEADER = 100 << 20
"""As the safetensors library has it: a longer header is a damaged file."""
SAMPLE = 4096  # bytes
NUM_PLACES = 16  # of a file where it is looked for zeros
BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "U16": 16, "I16": 16, "U32": 32, "I32": 32, "U64": 64, "I64": 64, "F16": 16,
    "BF16": 16, "F32": 32, "F64": 64, "C64": 64, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8, "F6_E2M3": 6, "F6_E3M2": 6, "F4": 4,
}  # fmt: skip
"""Bits of a number by the format's name of its type; a type that is not here may have any."""


@dataclass(frozen=True)
class StoredTensor:
    """A tensor in a file: the format's name of its type (`BF16`), its shape, and the bytes after the header it has."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int

    @property
    def num_elements(self) -> int:
        return math.prod(self.shape)


def read_header(file: Path) -> dict[str, StoredTensor]:
    """The tensors of a safetensors file by name. It costs a millisecond, whatever the size of the file.

    Raises:
        ModelError: it is damaged: cut off, empty, no safetensors, or its header does not fit its size.
        OSError: it cannot be read.
    """
    with open_input(file) as stream:
        size = os.fstat(stream.fileno()).st_size
        length = int.from_bytes(stream.read(8), "little")
        if not size:
            raise damaged(file, "it is empty")
        if not 2 <= length <= min(LONGEST_HEADER, size - 8):
            raise damaged(file, f"it is no safetensors file, or ends in its header ({size} bytes)")
        try:
            header = json.loads(stream.read(length))
            header.pop("__metadata__", None)
            tensors = {name: _tensor(entry) for name, entry in header.items()}
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
            raise damaged(file, f"its header cannot be read ({type(error).__name__}: {error})") from error
    end = max((tensor.end for tensor in tensors.values()), default=0)
    if end != size - 8 - length:
        raise damaged(file, f"it has {size} bytes and should have {8 + length + end}, by its own header")
    return tensors


def _tensor(entry: dict[str, Any]) -> StoredTensor:
    """Raises what `read_header` takes for damage."""
    start, end = entry["data_offsets"]
    tensor = StoredTensor(str(entry["dtype"]), tuple(entry["shape"]), start, end)
    if not all(type(number) is int and 0 <= number < 1 << 63 for number in (start, end, *tensor.shape)):
        raise ValueError("a size is no size")
    bits = BITS.get(tensor.dtype)
    if bits is not None and tensor.num_elements * bits != (end - start) * 8:
        raise ValueError(f"{tensor.dtype} of shape {list(tensor.shape)} in {end - start} bytes")
    return tensor


def find_zeros(file: Path, tensors: dict[str, StoredTensor]) -> str:
    """The name of a matrix in a file of weights where zeros stand in place of what was not written; else "".

    Downloads that make room first, and break off, leave a file of the right size with zeros at its end, or, where they
    fetch several pieces at once, in between. At most `NUM_PLACES` matrices are looked at, spread over the file: a gap
    of an eighth of it is found. It costs a read each, so half a second for 30 files on a network volume of 1 ms.

    A single matrix may be zero by right (layers that were added to a trained model begin so), the last one excepted.

    Raises:
        OSError: it cannot be read.
    """
    names = [name for name, tensor in tensors.items() if len(tensor.shape) > 1 and tensor.num_elements]
    matrices = sorted(names, key=lambda name: tensors[name].end)
    if not matrices:
        return ""
    data = file.stat().st_size - max(tensor.end for tensor in tensors.values())
    with open_input(file) as stream:

        def is_zero(name: str) -> bool:
            """In its middle and at both ends."""
            start, end = tensors[name].start, tensors[name].end
            for place in ((start + end) // 2, start, max(start, end - SAMPLE)):
                stream.seek(data + place)
                if any(stream.read(min(SAMPLE, end - place))):
                    return False
            return True

        spread = list(range(0, len(matrices), -(-len(matrices) // NUM_PLACES)))
        for index in [*spread, len(matrices) - 1]:
            if all(is_zero(name) for name in matrices[index : index + 2]):
                return matrices[index]
    return ""


def damaged(file: Path, what: str) -> ModelError:
    """The error for a file of a model whose content is not what it should be."""
    return ModelError(f"{file} is damaged: {what}.", hint=fetch_again(file))


def fetch_again(path: Path) -> str:
    """How a damaged file of a model, or its folder, is replaced: by a command of the hub where it lies in its cache."""
    folder, name = (path, "") if path.is_dir() else (path.parent, f"{path.name} ")
    repository = folder.parent.parent.name
    if folder.parent.name == "snapshots" and repository.startswith("models--"):
        model = repository.removeprefix("models--").replace("--", "/", 1)
        return f"Fetch it again: hf download {model} {name}--revision {folder.name} --force-download"
    command = f"hf download OWNER/NAME {name}--local-dir '{folder}' --force-download"
    return f"Copy it again from where it came from. If that is the hub: {command}"
