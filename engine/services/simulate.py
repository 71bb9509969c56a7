"""The memory of a run, from its real model on the meta device."""

from collections.abc import Callable
from typing import Any

import msgspec

from ftui.estimate.result import Memory
from ftui.hardware.devices import Card

from ..simulate import profile_memory
from .models import find_config
from .profile_text import given_profile


def simulate(
    on_detail: Callable[[str], None], profile: str, card: dict[str, Any], longest: int | None, full_depth: bool
) -> Memory:
    """The memory of a profile (TOML, every path absolute) on a card. `longest`: tokens of the longest row, if known.

    Raises:
        FtuiError: the profile or its model's files are wrong.
    """
    parsed = given_profile(profile)
    card_facts = msgspec.convert(card, Card)
    return profile_memory.simulate(parsed, find_config(parsed), card_facts, longest=longest, full_depth=full_depth)
