"""The configuration files of models, on this machine or from the hub."""

from collections.abc import Callable

from ..models.files.hub import model_folder


def model_config(on_detail: Callable[[str], None], name: str, revision: str | None) -> str:
    """The path of a model's config.json, which is fetched if it is not here; nothing else of the model is.

    Raises:
        ModelError: no such model, gated, or the hub cannot be reached.
    """
    return str(model_folder(name, revision, on_detail, patterns=["config.json", "README.md"])[0] / "config.json")
