"""A profile that another process hands over as text."""

from collections.abc import Sequence
from pathlib import Path

from ftui.profile.checks.messages import profile_error
from ftui.profile.layers import examine, override_layer, text_layer
from ftui.profile.schema import Profile


def given_profile(text: str, overrides: Sequence[str] = ()) -> Profile:
    """The profile in a TOML text with whole paths.

    Raises:
        ProfileError: something is wrong with it.
    """
    place = Path("profile.toml").absolute()
    examined = examine([text_layer(text, place), override_layer(overrides)], place)
    if examined.profile is None or examined.problems:
        raise profile_error(examined.problems, place)
    return examined.profile
