"""Values that are measured once, before the first step, and kept in the run's folder: a resumed run has the same.

While they are measured each rank keeps its part in a file of its own beside them.
"""

import hashlib
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from ftui.system.files import replace_file
from ftui.system.volume import disk_error

Values = dict[str, np.ndarray]


def write_values(path: Path, values: Values, inputs: str, arithmetic: str = "") -> None:
    """Store values with the hash of their inputs, and in words the arithmetic that is one of them.

    Raises:
        DiskError: the volume refuses.
    """
    tensors = {name: torch.from_numpy(array) for name, array in values.items()}
    content = save(tensors, {"made_from": inputs, "sha256": values_hash(values), "arithmetic": arithmetic})
    try:
        replace_file(path, content, durable=True)
    except OSError as error:
        raise disk_error(error, f"{path.name} could not be written", path.parent, len(content)) from error


def read_values(path: Path, inputs: str) -> Values | None:
    """The values that were measured from the same inputs; `None` where there is no such file, or it is damaged."""
    if not path.exists():
        return None
    try:
        with safe_open(path, framework="numpy") as file:
            names, metadata = list(file.keys()), file.metadata() or {}
            if metadata.get("made_from") != inputs:
                return None
            values = {name: np.asarray(file.get_tensor(name)) for name in names}
    except (OSError, SafetensorError):
        return None
    return values if metadata.get("sha256") == values_hash(values) else None


def read_arithmetic(path: Path) -> str:
    """What `write_values` wrote of it; "" where nothing can be read."""
    try:
        with safe_open(path, framework="numpy") as file:
            return str((file.metadata() or {}).get("arithmetic", ""))
    except (OSError, SafetensorError):
        return ""


def part_path(path: Path, rank: int) -> Path:
    """The file of what one rank has measured of the values in `path`."""
    return path.with_name(f"{path.stem}.{rank}{path.suffix}")


def part_paths(path: Path) -> list[Path]:
    """The files of the ranks' parts that are there."""
    return sorted(path.parent.glob(f"{path.stem}.*{path.suffix}"))


def values_hash(values: Values) -> str:
    """SHA-256 of the values, in the order of their names."""
    digest = hashlib.sha256()
    for name in sorted(values):
        digest.update(values[name].tobytes())
    return digest.hexdigest()
