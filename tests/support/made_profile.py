"""What the tests of importers ask of a profile that was made of another tool's file."""

import tomllib
from pathlib import Path
from typing import Any

from ftui.importers import Imported
from ftui.profile.layers import resolve


def checked(made: Imported, folder: Path) -> dict[str, Any]:
    """The values of the profile, whose keys go together."""
    assert not made.refused and not made.missing
    profile = folder / "made.toml"
    profile.write_text(made.text)
    resolve(profile)
    return tomllib.loads(made.text)


def lost(made: Imported) -> set[str]:
    """The keys that were not carried although they matter."""
    return {one.foreign for one in made.dropped if one.matters}
