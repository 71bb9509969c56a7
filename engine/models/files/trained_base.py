"""The base that a run was trained on, and no other: an adapter means nothing on other weights."""

from collections.abc import Callable
from pathlib import Path

from ftui.errors import ModelError
from ftui.profile.schema import Profile
from ftui.profile.sections.model import FULL_COMMIT

from .fingerprints import weights_fingerprint


def pin_base(profile: Profile, trained_on: str) -> Profile:
    """The profile whose base is that of `trained_on`, the run's fingerprint of it, where that is a commit of the hub.

    Others cannot be asked for: `check_base` sees whether they are still there.
    """
    if not FULL_COMMIT.fullmatch(trained_on):
        return profile
    return profile.model_copy(update={"model": profile.model.model_copy(update={"revision": trained_on})})


def check_base(folder: Path, commit: str | None, trained_on: str, cache: Path, report: Callable[[str], None]) -> None:
    """See that the base in a folder, of a commit of the hub if it is from there, is that of the run.

    Raises:
        ModelError: it is another one by now.
    """
    report("hashing the base")
    current = commit or weights_fingerprint(folder, cache, lambda: report("hashing the base"))
    if current != trained_on:
        raise ModelError(
            f"The base in {folder} is not the one that was trained on: its fingerprint is {current[:12]}, "
            f"that of the run {trained_on[:12]}.",
            hint="Put back the files that the run began with: an adapter means nothing on other weights.",
        )
