"""The memory of a run, from its real model on the meta device."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from ftui.estimate.result import Memory
from ftui.hardware.devices import Card
from ftui.system.user_folders import cache_folder

from ..check_profile import find_config
from ..simulate import profile_memory
from .profile_text import given_profile


def simulate(
    on_detail: Callable[[str], None], profile: str, card: dict[str, Any], longest: int | None,
    longest_example: int | None = None,
) -> Memory:  # fmt: skip
    """The memory of a profile (TOML, every path absolute) on a card. `longest`, `longest_example`: see `RowCounts`.

    Raises:
        FtuiError: the profile or its model's files are wrong.
    """
    parsed = given_profile(profile)
    card_facts = msgspec.convert(card, Card)
    with tempfile.TemporaryDirectory() as fallback:
        config = find_config(parsed, cache_folder(Path(fallback)), on_detail)
        return profile_memory.simulate(parsed, config, card_facts, longest=longest, longest_example=longest_example)
