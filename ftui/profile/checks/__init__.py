"""What is wrong with a profile: each key by itself (validate.py), then what keys must agree on (model_checks.py ...).

Each check says which keys, why, and what to write instead. It runs on whatever is valid: a check that needs a value
which is faulty or absent is left out.
"""

from collections.abc import Iterator

from ftui.profile.checks import (
    data_checks,
    grpo_checks,
    hook_checks,
    model_checks,
    offload_checks,
    preference_checks,
    reward_checks,
    training_checks,
)
from ftui.profile.checks.known_values import KnownValues, UnknownError
from ftui.profile.origins import ProfileFault

CHECKS = (
    *model_checks.CHECKS, *data_checks.CHECKS, *training_checks.CHECKS, *offload_checks.CHECKS,
    *preference_checks.CHECKS, *grpo_checks.CHECKS, *reward_checks.CHECKS, *hook_checks.CHECKS,
)  # fmt: skip


def contradictions(values: KnownValues) -> Iterator[ProfileFault]:
    """All contradictions between keys, in the order of the checks, without origins."""
    for check in CHECKS:
        try:
            yield from check(values)
        except UnknownError:
            continue
