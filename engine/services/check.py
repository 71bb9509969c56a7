"""Whether a profile can be trained, on this machine's device or on a card: see engine/check_profile.py."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from ftui.hardware.devices import Card
from ftui.profile.schema import Profile
from ftui.system.user_folders import cache_folder

from ..check_profile import check_profile, find_config
from ..simulate.meta_model import card_hardware
from ..system.device import Hardware, find_hardware
from .profile_text import given_profile


def check(on_detail: Callable[[str], None], profile: str, card: dict[str, Any] | None = None) -> None:
    """Check a profile (TOML, every path absolute), for a card or for the device of this machine.

    Raises:
        FtuiError: a run of it would be refused.
    """
    check_given(given_profile(profile), card, on_detail)


def check_given(profile: Profile, card: dict[str, Any] | None, on_detail: Callable[[str], None]) -> None:
    """The same for a profile that was read already."""
    with tempfile.TemporaryDirectory() as fallback:
        config = find_config(profile, cache_folder(Path(fallback)), on_detail)
    check_profile(profile, config, hardware_for(profile, card))


def hardware_for(profile: Profile, card: dict[str, Any] | None) -> Hardware:
    """That of a machine with this card; of this machine where no card is named."""
    return find_hardware(profile) if card is None else card_hardware(profile, msgspec.convert(card, Card))
