"""A model's folder on this disk, whatever the profile names: a local folder, or a hub id fetched at one commit."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi, snapshot_download
from huggingface_hub.errors import (  # type: ignore[attr-defined]  # HTTPError
    GatedRepoError,
    HFValidationError,
    HTTPError,  # of whichever httpx the hub library uses; no OSError
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from tqdm import tqdm

from ftui.errors import DiskError, ModelError, UnavailableError
from ftui.models.known import nearest_models
from ftui.models.model_files import check_files
from ftui.profile.sections.model import ModelSection
from ftui.units import size

TOKENIZER = ["*.json", "*.model", "*.txt", "*.jinja"]
# Weights as safetensors only: a repository's pickles are never fetched, so they can never be read.
WANTED = [*TOKENIZER, "*.safetensors", "*.safetensors.index.json"]
CODE = ["*.py"]
CONNECT = "Check the connection (and HF_HUB_OFFLINE), or set model.name_or_path to a local folder."
PICKLED = ("*.bin", "*.pt", "*.pth", "*.ckpt")

Report = Callable[[str], None]


def base_folder(section: ModelSection, cache: Path, report: Report) -> tuple[Path, str | None]:
    """The folder of the profile's base model, and its commit where it came from the hub. A `.gguf` file is unpacked.

    Raises:
        ModelError: see `model_folder` and gguf.py; also where there are no safetensors, or an adapter.
    """
    assert section.name_or_path is not None, "a model that is not new has a name or path"
    path = Path(section.name_or_path)
    if path.is_absolute() and path.suffix.lower() == ".gguf":
        if not path.is_file():
            raise ModelError(f"There is no file {path}.", hint="Check model.name_or_path.")
        from .gguf import unpacked

        return unpacked(path, cache, report), None
    patterns = [*WANTED, *CODE] if section.trust_remote_code else WANTED
    folder, commit = model_folder(section.name_or_path, section.revision, report, patterns=patterns)
    _check_weights(folder, section.name_or_path)
    return folder, commit


def check_folder(folder: Path, name: str) -> None:
    """See that a folder on this disk holds a whole model with weights.

    Raises:
        ModelError: as `base_folder`.
    """
    check_files(_local(folder), is_complete=True)
    _check_weights(folder, name)


def _check_weights(folder: Path, name: str) -> None:
    if (folder / "adapter_config.json").is_file():  # transformers would put it into the model, and say nothing
        raise ModelError(
            f"{name} has an adapter beside a model: which of them is to be trained?",
            hint="Merge them, or set adapter.name_or_path to it and model.name_or_path to the base of the adapter.",
        )
    if any(folder.glob("*.safetensors")):
        return
    pickled = [path.name for pattern in PICKLED for path in folder.glob(pattern)]
    reason = f"only {pickled[0]}: a pickle, which can run any code when it is read" if pickled else "none in its folder"
    raise ModelError(
        f"{name} has no weights as safetensors ({reason}).",
        hint="Where you trust it, load it with transformers: save_pretrained() writes safetensors.",
    )


def tokenizer_folder(name_or_path: str, report: Report) -> Path:
    """The folder with a tokenizer's files: a local one, or the tokenizer of a model on the hub, without its weights.

    Raises:
        ModelError: see `model_folder`.
    """
    path = Path(name_or_path)
    if path.is_absolute():
        if not path.is_dir():
            raise ModelError(f"There is no tokenizer folder {path}.", hint="Check model.from_scratch.tokenizer.")
        check_files(path, is_complete=False)
        return path
    return model_folder(name_or_path, None, report, patterns=TOKENIZER)[0]


def model_folder(
    name_or_path: str, revision: str | None, report: Report, *, patterns: list[str] = WANTED
) -> tuple[Path, str | None]:
    """The folder with the files of a model that match `patterns`, and its commit where it came from the hub.

    `report(detail)` is called with the progress of a download.

    Raises:
        ModelError: no such folder or repository, gated, or offline with nothing in the cache; a file in it is damaged.
    """
    folder, commit = _find_folder(name_or_path, revision, report, patterns)
    check_files(folder, is_complete="*.safetensors" in patterns)
    return folder, commit


def _find_folder(
    name_or_path: str, revision: str | None, report: Report, patterns: list[str]
) -> tuple[Path, str | None]:
    path = Path(name_or_path)
    if path.is_absolute():
        return _local(path), None
    try:
        HfApi().model_info(name_or_path, revision=revision)  # says what is wrong better than a download does
    except GatedRepoError as error:
        raise UnavailableError(
            f"{name_or_path} is gated: its owner must let you in.",
            hint=f"Ask for access at https://huggingface.co/{name_or_path}, then set HF_TOKEN.",
        ) from error
    except RevisionNotFoundError as error:
        raise ModelError(f"{name_or_path} has no revision {revision!r}.", hint="Check model.revision.") from error
    except (RepositoryNotFoundError, HFValidationError) as error:
        raise ModelError(
            f"There is no model {name_or_path!r}: no such folder beside the profile, and none on the hub.",
            hint=f"{nearest_models(name_or_path) or 'Check the spelling.'} A private model needs HF_TOKEN.",
        ) from error
    except (HTTPError, OfflineModeIsEnabled, OSError) as error:
        return _find_cached(name_or_path, revision, error, patterns)
    return _fetch(name_or_path, revision, report, patterns)


def _local(path: Path) -> Path:
    if not path.is_dir():
        raise ModelError(f"There is no model folder {path}.", hint="Check model.name_or_path.")
    if not (path / "config.json").is_file():
        raise ModelError(f"{path} is not a transformers model: it has no config.json.")
    return path


def _find_cached(name: str, revision: str | None, cause: Exception, patterns: list[str]) -> tuple[Path, str | None]:
    """The folder that an earlier download left, where the hub cannot be reached."""
    try:
        folder = Path(snapshot_download(name, revision=revision, allow_patterns=patterns, local_files_only=True))
    except LocalEntryNotFoundError as error:
        raise UnavailableError(
            f"The hub cannot be reached ({type(cause).__name__}) and {name} is not in the local cache.",
            hint=f"{CONNECT} {nearest_models(name)}".rstrip(),
        ) from error
    return folder, folder.name


def _fetch(name: str, revision: str | None, report: Report, patterns: list[str]) -> tuple[Path, str]:
    """Asked for by the revision's own name, so that the cache finds it by that name when offline."""

    class Progress(tqdm):  # type: ignore[misc]
        """Reports bytes to the run instead of drawing on a terminal."""

        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options | {"disable": False, "file": open(os.devnull, "w")})  # noqa: SIM115

        def update(self, n: float | None = 1) -> None:
            super().update(n)
            if self.unit == "B":
                report(f"downloading {name}: {size(self.n)} of {size(self.total)}")

    try:
        folder = Path(snapshot_download(name, revision=revision, allow_patterns=patterns, tqdm_class=Progress))
    except (HTTPError, LocalEntryNotFoundError) as error:
        raise UnavailableError(
            f"The download of {name} broke off ({type(error).__name__}).",
            hint="Start the run again: what has arrived stays.",
        ) from error
    except OSError as error:
        raise DiskError(f"{name} could not be stored: {error}.", hint="Free space, or set HF_HOME.") from error
    return folder, folder.name
