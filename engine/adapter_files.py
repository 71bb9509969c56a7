"""An adapter as a folder, in PEFT's layout: where the one to go on from lies, and its hash."""

import hashlib
from collections.abc import Callable
from pathlib import Path

from ftui.checkpoints import file_hash
from ftui.engine.hub import model_folder
from ftui.errors import ModelError
from ftui.profile.adapter import AdapterSection

ADAPTER = "adapter_model.safetensors"
CONFIG = "adapter_config.json"


def starting_adapter(section: AdapterSection, report: Callable[[str], None]) -> Path | None:
    """The folder of the adapter to go on from, fetched if it is on the hub; `None` for a new one.

    Raises:
        ModelError: there is none, or its weights are no safetensors.
    """
    if section.name_or_path is None:
        return None
    folder = Path(section.name_or_path)
    if not folder.is_absolute():
        folder, _ = model_folder(section.name_or_path, None, report)
    if not folder.is_dir():
        raise ModelError(f"There is no adapter folder {folder}.", hint="Check adapter.name_or_path.")
    if missing := [name for name in (CONFIG, ADAPTER) if not (folder / name).is_file()]:
        raise ModelError(f"{folder} is not an adapter: it has no {missing[0]}.", hint="Check adapter.name_or_path.")
    return folder


def adapter_fingerprint(folder: Path) -> str:
    """SHA-256 over the adapter's config and weights."""
    return hashlib.sha256((file_hash(folder / CONFIG) + file_hash(folder / ADAPTER)).encode()).hexdigest()
