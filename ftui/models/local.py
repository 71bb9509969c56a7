"""Models on this disk, read as plain files: folders, the hub's cache, GGUF files. No network, no library of the hub."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ftui.errors import ModelError
from ftui.models.config_reader import read_shape
from ftui.models.safetensors_header import StoredTensor, read_header
from ftui.system.user_folders import expand_user, hub_cache

CONFIG, CARD = "config.json", "README.md"
DTYPES = {"F64": "float64", "F32": "float32", "BF16": "bfloat16", "F16": "float16", "I8": "int8", "U8": "uint8"}


@dataclass(frozen=True)
class ModelFacts:
    """The facts about a model on this disk. `None`: not known.

    Attributes:
        name: what to write into `model.name_or_path`.
        parameters: exact where the architecture is known, else counted from the headers of the weights' files.
        dtype: type of the weights on disk (of most of them).
        num_bytes: size of the weights' files.
        problem: why it cannot be read, in words; all else is `None` then.
    """

    name: str
    path: Path
    model_type: str | None = None
    parameters: int | None = None
    layers: int | None = None
    context: int | None = None
    dtype: str | None = None
    num_bytes: int | None = None
    licence: str | None = None
    problem: str | None = None


def find_config(name_or_path: str, revision: str | None = None) -> Path | None:
    """The config.json of a model folder, or of a model in the hub's cache; `None` where there is none on this disk."""
    folder = find_folder(name_or_path, revision)
    return None if folder is None or not _is_file(folder / CONFIG) else folder / CONFIG


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # its folder may not be looked into, its name is too long: nothing that can be read
        return False


def find_folder(name_or_path: str, revision: str | None = None) -> Path | None:
    """The folder of a model: the one that is named, or its snapshot in the hub's cache; `None` for what is no name."""
    path = expand_user(name_or_path)
    try:
        if name_or_path and path.is_dir():
            return path
        if path.is_absolute() or name_or_path.count("/") > 1 or name_or_path.startswith((".", "~")):
            return None
        return _snapshot(hub_cache() / f"models--{name_or_path.replace('/', '--')}", revision)
    except (OSError, ValueError):  # too long, NUL or half of a character in it: nothing on a disk has such a name
        return None


def _snapshot(repository: Path, revision: str | None) -> Path | None:
    """The snapshot of a revision (main), else the newest one that has a config."""
    branch = revision or "main"
    ref = repository / "refs" / branch
    commit = ref.read_text(errors="replace").strip() if _is_file(ref) else branch
    if commit and _is_file(repository / "snapshots" / commit / CONFIG):
        return repository / "snapshots" / commit
    if revision is not None:
        return None
    configs = [config for config in (repository / "snapshots").glob(f"*/{CONFIG}") if _is_file(config)]
    return max((config.parent for config in configs), key=lambda folder: folder.stat().st_mtime, default=None)


def read_config(path: Path) -> dict[str, Any]:
    """A config.json.

    Raises:
        ModelError: it cannot be read, or is no JSON object.
    """
    try:
        config = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{path} cannot be read: {error}", hint="Is it the config.json of a model?") from error
    if not isinstance(config, dict):
        raise ModelError(f"{path} holds no table.", hint="Is it the config.json of a model?")
    return config


def models_in(folder: Path) -> list[ModelFacts]:
    """The models in a folder: itself, its sub-folders with a config.json, and GGUF files; by name.

    Raises:
        ModelError: the folder cannot be read.
    """
    if _is_file(folder / CONFIG):
        return [read_facts(folder)]
    try:
        entries = sorted(folder.iterdir())
    except (OSError, ValueError) as error:
        raise ModelError(f"{folder} cannot be read: {error}", hint="Check the path.") from error
    models = [e for e in entries if _is_file(e / CONFIG) or (e.suffix.lower() == ".gguf" and _is_file(e))]
    return [read_facts(entry) for entry in models]


def cached_models() -> list[ModelFacts]:
    """The models in the hub's cache, by name."""
    repositories = sorted(hub_cache().glob("models--*"))
    folders = {repository: _main_snapshot(repository) for repository in repositories}
    return [
        read_facts(folder, name=repository.name.removeprefix("models--").replace("--", "/", 1))
        for repository, folder in folders.items()
        if folder is not None
    ]


def _main_snapshot(repository: Path) -> Path | None:
    """The snapshot of a repository in the hub's cache that its main branch names, else the newest with a config."""
    try:
        return _snapshot(repository, None)
    except (OSError, ValueError):  # one damaged entry must not hide the others
        return None


def read_facts(path: Path, *, name: str | None = None) -> ModelFacts:
    """The facts about the model in a folder (or a GGUF file). A fault is in `problem`, not raised."""
    name = str(path) if name is None else name
    try:
        if path.suffix.lower() == ".gguf" and path.is_file():
            return ModelFacts(name, path, model_type="gguf", num_bytes=path.stat().st_size)
        config = read_config(path / CONFIG)
        files = sorted(file for file in path.glob("*.safetensors") if file.is_file())
        tensors = [tensor for file in files for tensor in read_header(file).values()]
        num_bytes = sum(file.stat().st_size for file in files)
        licence = _licence(path / CARD)
    except (ModelError, OSError) as error:
        return ModelFacts(name, path, problem=error.message if isinstance(error, ModelError) else str(error))
    shape = read_shape(config)
    num_elements = sum(tensor.num_elements for tensor in tensors) or None
    return ModelFacts(
        name, path, model_type=_text(config.get("model_type")),
        parameters=num_elements if shape is None else shape.num_parameters,
        layers=_number(config, "num_hidden_layers", "n_layer") if shape is None else shape.num_layers,
        context=_number(config, "max_position_embeddings", "n_positions") if shape is None else shape.context,
        dtype=_most(tensors) or _text(config.get("dtype") or config.get("torch_dtype")),
        num_bytes=num_bytes or None, licence=licence,
    )  # fmt: skip


def _number(config: Mapping[str, Any], *keys: str) -> int | None:
    return next((config[key] for key in keys if isinstance(config.get(key), int)), None)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _most(tensors: list[StoredTensor]) -> str | None:
    """The type that most elements have."""
    sums: dict[str, int] = {}
    for tensor in tensors:
        sums[tensor.dtype] = sums.get(tensor.dtype, 0) + tensor.num_elements
    most = max(sums, key=lambda dtype: sums[dtype], default=None)
    return None if most is None else DTYPES.get(most, most)


def _licence(card: Path) -> str | None:
    """`license:` in the front matter of a model card (`license_name:` where it is `other`)."""
    if not card.is_file():
        return None
    with card.open(errors="replace") as stream:
        lines = stream.read(64 << 10).split("\n")
    if lines[0].strip() != "---":
        return None
    values: dict[str, str] = {}
    for line in lines[1:]:
        if line.strip() == "---":
            break
        key, colon, value = line.partition(":")
        if colon and key in ("license", "license_name"):
            values[key] = value.strip().strip("'\"")
    licence = values.get("license") or None
    return values.get("license_name") or licence if licence == "other" else licence
