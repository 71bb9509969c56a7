"""Python code that comes with a model: run only where the profile says so, and only what lies in its own folder."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ftui.errors import ModelError
from ftui.profile.consent import REMOTE_CODE

CONFIGS = ("config.json", "tokenizer_config.json")
HOW = f"If you have read it: model.trust_remote_code = true, and start the run with --allow {REMOTE_CODE}."


def brings_code(folder: Path) -> bool:
    """Whether a config in the folder names classes of the model's own Python files (`auto_map`)."""
    return bool(list(_classes(folder)))


def check_code(folder: Path) -> None:
    """Code that a config takes from another repository is at no fixed commit.

    Raises:
        ModelError: there is such code.
    """
    for name in _classes(folder):
        if "--" in name:
            repository = name.partition("--")[0]
            raise ModelError(
                f"The model in {folder} runs code of another repository ({repository}).",
                hint="Copy that code into the model's own folder, and let auto_map in its config name it there.",
            )


def _classes(folder: Path) -> Iterator[str]:
    """Names of the classes that the folder's configs want from Python files."""
    for name in CONFIGS:
        path = folder / name
        if not path.is_file():
            continue
        try:
            config: Any = json.loads(path.read_bytes())
        except ValueError:
            continue  # loading it will say what is wrong with it
        classes = config.get("auto_map") if isinstance(config, dict) else None
        for entry in classes.values() if isinstance(classes, dict) else [classes] if classes else []:
            yield from (str(part) for part in (entry if isinstance(entry, list) else [entry]) if part)
