"""What was used lately (models, data, profiles), so that it need not be typed again: a small file, the newest first."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import msgspec

from ftui.system.files import make_private_folder, replace_file, wait_lock
from ftui.system.user_folders import state_folder

Kind = Literal["model", "data", "profile"]
MOST = 20  # of each kind
LONGEST = 4096  # characters of one name
LARGEST = 1 << 20  # bytes of the file


class Recent(msgspec.Struct, frozen=True):
    """Names as they stand in profiles, paths absolute. `tiers`: of profiles, by their paths, the oldest first."""

    model: list[str] = []
    data: list[str] = []
    profile: list[str] = []
    tiers: dict[str, str] = {}


def _file() -> Path:
    return state_folder() / "recent.json"


def recent_names(kind: Kind) -> list[str]:
    """The newest first. A file that is missing or damaged knows of nothing."""
    return list(getattr(_read(), kind))


def _read() -> Recent:
    try:
        if _file().stat().st_size > LARGEST:
            return Recent()
        return msgspec.json.decode(_file().read_bytes(), type=Recent)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return Recent()


def remember(kind: Kind, name: str) -> None:
    """Remember that it was used now. A read-only home is no reason to fail."""
    if name and len(name) <= LONGEST:
        _change(lambda recent: {kind: [name, *(other for other in getattr(recent, kind) if other != name)][:MOST]})


def last_tier(profile: str) -> str:
    """The tier that was laid below this profile last; empty for none."""
    return _read().tiers.get(profile, "")


def remember_tier(profile: str, tier: str) -> None:
    """Remember it; empty for none."""

    def add_tier(recent: Recent) -> dict[str, Any]:
        others = [(path, name) for path, name in recent.tiers.items() if path != profile][-MOST + 1 :]
        return {"tiers": dict([*others, (profile, tier)] if tier else others)}

    _change(add_tier)


def _change(new_fields: Callable[[Recent], dict[str, Any]]) -> None:
    path = _file()
    try:
        make_private_folder(path.parent)
        with wait_lock(path.with_suffix(".lock")):
            recent = _read()
            replace_file(path, msgspec.json.encode(msgspec.structs.replace(recent, **new_fields(recent))))
    except (OSError, UnicodeEncodeError):
        return
