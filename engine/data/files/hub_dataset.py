"""Data sets on the hub, fetched at one commit by the `datasets` library; without the hub, what its cache holds."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from huggingface_hub import HfApi
from huggingface_hub.errors import (  # type: ignore[attr-defined]  # HTTPError
    GatedRepoError,
    HFValidationError,
    HTTPError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from ftui.dataset.report import RowLocation
from ftui.errors import DataError, DiskError
from ftui.profile.sections.model import FULL_COMMIT

from .parquet import BATCH, MEDIA_CELL, table_row
from .raw_rows import BadRow, RawRow
from .splits import choose_split

MEDIA = {"Image", "Audio", "Video", "Pdf", "Nifti", "Mesh"}  # features of `datasets` that decode a file


@dataclass(frozen=True)
class HubRows:
    """One split of a data set, on this disk at one commit. `table` is a `datasets.Dataset`, without the columns of
    pictures and sound, `media`."""

    name: str
    subset: str | None
    split: str
    commit: str
    table: Any
    media: tuple[str, ...] = ()

    @property
    def fingerprint(self) -> str:
        return f"{self.name}\n{self.subset}\n{self.split}\n{self.commit}"

    def __str__(self) -> str:
        return f"{self.name} ({self.split})"


def fetch_dataset(
    name: str, subset: str | None, split: str | None, revision: str | None, *, evaluation: bool = False
) -> HubRows:
    """Download and prepare a data set, or find it in the cache of `datasets`. Runs no code of the repository.

    Raises:
        DataError: it is missing, gated, or offline and not in the cache; no such subset, split or revision.
        DiskError: it cannot be stored.
    """
    import datasets  # 1 s with pandas, and few need it

    commit = _find_commit(name, revision)
    datasets.disable_progress_bars()
    datasets.config.HF_HUB_OFFLINE = commit is None  # or it would ask again and again, for half a minute
    try:
        # A folder of this name in the current folder is not meant: those were found before.
        builder = datasets.load_dataset_builder(f"hf://datasets/{name}", name=subset, revision=commit)
        builder.download_and_prepare()
    except (datasets.exceptions.DatasetsError, ConnectionError, ValueError, RuntimeError, FileNotFoundError) as error:
        raise _load_error(name, subset, commit, error) from error
    except OSError as error:
        raise DiskError(f"{name} could not be stored: {error}.", hint="Free space, or set HF_HOME.") from error
    there = str(builder.hash)
    if commit is None and revision is not None and FULL_COMMIT.fullmatch(revision) and revision != there:
        raise DataError(
            f"{name} is in the local cache at {there[:12]}, not at {revision[:12]}, and the hub cannot be reached.",
            hint="Check the connection (and HF_HUB_OFFLINE), or set revision to the one that is there.",
        )
    chosen = choose_split(name, split, [str(key) for key in builder.info.splits or {}], evaluation=evaluation)
    table = builder.as_dataset(split=chosen)
    return HubRows(name, str(builder.config.name), chosen, there, *_without_media(name, table))


def _without_media(name: str, table: Any) -> tuple[Any, tuple[str, ...]]:
    """The table without its columns of pictures and sound, and their names."""
    media = tuple(key for key, feature in table.features.items() if _is_media(feature))
    if media and len(media) == len(table.features):  # a table without columns has no rows
        raise DataError(f"{name} holds images, audio or video alone ({', '.join(media)}): only text can be trained on.")
    return table.remove_columns(list(media)), media


def _is_media(feature: Any) -> bool:
    """Whether a column is of pictures or sound, or of lists of them."""
    name = type(feature).__name__
    return name in MEDIA or (name in ("List", "LargeList") and _is_media(feature.feature))


def _find_commit(name: str, revision: str | None) -> str | None:
    """The commit of a revision; `None` where the hub cannot be reached.

    Raises:
        DataError: no such data set or revision, or gated.
    """
    try:
        return HfApi().dataset_info(name, revision=revision).sha
    except GatedRepoError as error:
        raise DataError(
            f"{name} is gated: its owner must let you in.",
            hint=f"Ask for access at https://huggingface.co/datasets/{name}, then set HF_TOKEN.",
        ) from error
    except RevisionNotFoundError as error:
        raise DataError(f"{name} has no revision {revision!r}.", hint="Check revision.") from error
    except (RepositoryNotFoundError, HFValidationError) as error:
        raise DataError(
            f"There is no data set {name!r}: no such file beside the profile, and none on the hub.",
            hint="Check the spelling. A private data set needs HF_TOKEN.",
        ) from error
    except (HTTPError, OfflineModeIsEnabled, OSError):
        return None


def _load_error(name: str, subset: str | None, commit: str | None, error: Exception) -> DataError:
    words = " ".join(str(error).split())
    if "onfig" in words and "vailable" in words:  # a ValueError whose words list the choices
        problem = "has several subsets" if subset is None else f"has no subset {subset!r}"
        return DataError(f"{name} {problem}: {words}", hint="Set subset to one of them.")
    if commit is None:
        return DataError(
            f"{name} is no file beside the profile, the hub cannot be reached, and the local cache does not have it.",
            hint="Check the connection (and HF_HUB_OFFLINE), or name a local file in data.train.",
        )
    return DataError(f"{name} cannot be read: {words}")


def hub_rows(rows: HubRows) -> Iterator[RawRow | BadRow]:
    number, media = 0, dict.fromkeys(rows.media, MEDIA_CELL)
    for batch in rows.table.iter(batch_size=BATCH):
        for values in zip(*batch.values(), strict=True):
            number += 1
            yield table_row(RowLocation(str(rows), number, "row"), dict(zip(batch, values, strict=True)) | media)
