"""The configuration files of models, on this machine or from the hub."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from transformers import AutoConfig

from ftui.errors import ModelError
from ftui.models.known import known_config
from ftui.profile.schema import Profile

from ..models.files.hub import model_folder


def model_config(on_detail: Callable[[str], None], name: str, revision: str | None) -> str:
    """The path of a model's config.json, which is fetched if it is not here; nothing else of the model is.

    Raises:
        ModelError: no such model, gated, or the hub cannot be reached.
    """
    return str(model_folder(name, revision, on_detail, patterns=["config.json", "README.md"])[0] / "config.json")


def find_config(profile: Profile) -> Any:
    """The folder (or `.gguf` file) with the config of the profile's model; of one on the hub little else is fetched.

    Where the hub cannot be reached, the config that comes with ftui, if there is one. `None`: the model is new.

    Raises:
        ModelError: there is none.
    """
    section = profile.model
    if section.name_or_path is None:
        return None
    if section.name_or_path.endswith(".gguf"):
        return Path(section.name_or_path)
    try:
        return model_folder(section.name_or_path, section.revision, lambda detail: None, patterns=["*.json"])[0]
    except ModelError:
        known = known_config(section.name_or_path)
        if known is None:
            raise
    return AutoConfig.for_model(**known)
