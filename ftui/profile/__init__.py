"""The profile: what to train, on what, how, as one frozen value read from TOML."""

from ftui.profile.layers import Origin, Resolved, resolve
from ftui.profile.schema import Profile

__all__ = ["Origin", "Profile", "Resolved", "resolve"]
