"""Whether the files of a model, a tokenizer or an adapter are whole, as far as it shows without reading all weights.

Downloads break off, disks fill up, clones leave pointers. Libraries answer that with errors of any kind, deep inside,
or take another file instead. 140 GB of weights in 30 files are checked in 0.1 s.
"""

import json
import os
from pathlib import Path
from typing import Any

import msgspec

from ftui.errors import ModelError
from ftui.models.config_reader import find_impossible_size
from ftui.models.safetensors_header import StoredTensor, damaged, fetch_again, find_zeros, read_header
from ftui.system.files import DAMAGED
from ftui.system.input_files import name_special, open_input, read_input

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
ADAPTER = "adapter_model.safetensors"
JSON_FILES = (
    CONFIG, "generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
    "added_tokens.json", "vocab.json", "chat_template.json", "adapter_config.json", INDEX,
)  # fmt: skip
OTHER_FILES = ("tokenizer.model", "merges.txt", "vocab.txt", "chat_template.jinja")
LONGEST = 256 << 20  # bytes; the longest tokenizer.json is of 35 MB
POINTER = b"version https://git-lfs.github.com/"


def check_files(folder: Path, *, is_complete: bool) -> None:
    """See that every file in `folder` that is read to load a model, a tokenizer or an adapter is whole.

    Args:
        is_complete: weights must be there. Without it only those that are there are looked at.

    Raises:
        ModelError: one is damaged, missing or no file: its name, what is wrong with it, and how to fetch it again.
    """
    for name in (*JSON_FILES, *OTHER_FILES):
        file = folder / name
        if os.path.lexists(file):
            data = _read(file)
            if name in JSON_FILES:
                _check_json(file, data)
    read_tensors_of(folder, is_complete=is_complete)


def read_tensors_of(folder: Path, *, is_complete: bool) -> dict[str, StoredTensor]:
    """The tensors in the files of weights that would be loaded, by name; empty where there are none.

    Raises:
        ModelError: as `check_files`.
    """
    index, tensors = folder / INDEX, dict[str, StoredTensor]()
    parts: dict[str, list[str]]
    if os.path.lexists(folder / WEIGHTS) or not index.is_file():
        parts = {name: [] for name in (WEIGHTS, ADAPTER) if os.path.lexists(folder / name)}
        if is_complete and not parts and (shard := next(folder.glob("*.safetensors"), None)):
            raise ModelError(f"{index} is missing: it says which weights are in {shard.name}.", hint=fetch_again(index))
    else:
        parts = _parts_in(index)
    for name, promised in parts.items():
        file = folder / name
        if not os.path.lexists(file):
            if not is_complete:
                continue
            raise ModelError(f"{file} is missing: {INDEX} names it.", hint=fetch_again(file))
        _refuse_stand_in(file)
        own = read_header(file)
        if lost := next((tensor for tensor in promised if tensor not in own), None):
            raise damaged(file, f"it lacks {lost}, which {INDEX} says is in it")
        if name != ADAPTER and (empty := find_zeros(file, own)):  # a new adapter's are zero by right
            raise damaged(file, f"{empty} in it is all zeros, as when a download made room and broke off")
        tensors |= own
    return tensors


def _parts_in(index: Path) -> dict[str, list[str]]:
    """The names of the tensors of each file that an index names."""
    parts: dict[str, list[str]] = {}
    try:
        for tensor, name in json.loads(_read(index))["weight_map"].items():
            parts.setdefault(name, []).append(tensor)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise damaged(index, f"it has no table weight_map ({type(error).__name__}: {error})") from error
    if wrong := next((name for name in parts if not isinstance(name, str) or Path(name).name != name), None):
        raise damaged(index, f"{wrong!r} is no file beside it")
    return parts


def _read(file: Path) -> bytes:
    """Its bytes."""
    _refuse_stand_in(file)
    try:
        data = read_input(file, LONGEST)
    except OSError as error:
        raise ModelError(f"{file} cannot be read: {error.strerror or error}.", hint=fetch_again(file)) from error
    if not data.strip():
        raise damaged(file, "it is empty")
    return data


def _refuse_stand_in(file: Path) -> None:
    """Raises `ModelError` for what lies in the place of a file that was never fetched, and for what is no file."""
    if not file.exists():
        raise ModelError(f"{file} is a link to nothing.", hint=fetch_again(file))
    if special := name_special(file):
        raise ModelError(f"{file} is {special}, not a regular file.", hint=fetch_again(file))
    try:
        with open_input(file) as stream:
            head = stream.read(len(POINTER))
    except OSError as error:
        raise ModelError(f"{file} cannot be read: {error.strerror or error}.", hint=fetch_again(file)) from error
    if head == POINTER:
        hint = f"`git lfs pull` in its folder fetches it. Or: {fetch_again(file)}"
        raise ModelError(f"{file} is a pointer of Git LFS, not the file itself.", hint=hint)


def _check_json(file: Path, data: bytes) -> None:
    try:
        table: Any = msgspec.json.decode(data, type=dict[str, msgspec.Raw])  # 30 times as fast as `json`
    except DAMAGED:
        table = None
    if table is None or file.name == CONFIG:
        try:
            table = json.loads(data.decode())  # this one knows Infinity, which some configs have
        except (ValueError, RecursionError) as error:
            raise damaged(file, f"it is no JSON ({type(error).__name__}: {error})") from error
    if not isinstance(table, dict):
        raise damaged(file, "it holds no table")
    if file.name == CONFIG and (wrong := find_impossible_size(table)):
        raise damaged(file, f"{wrong}, which no model can have")
