"""How many examples a property is tried with."""

from hypothesis import settings

USUAL = 100


def examples(number: int) -> int:
    """`number` in the whole suite; in its fast part as much less as the profile in tests/conftest.py says."""
    assert settings.default is not None
    return max(1, number * settings.default.max_examples // USUAL)
