"""What the checks of a profile read: its sections, of which some keys may be unknown since they are faulty."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel

from ftui.profile.origins import Key, ProfileFault

EVAL_ROWS = ("data.eval", "data.eval_fraction", "data.eval_num_rows")
"""Keys that each give a run rows to evaluate on."""


class UnknownError(Exception):
    """A check asks for a value that is faulty or absent."""


@dataclass(frozen=True)
class KnownValues:
    """Sections of a profile by name. `faulty` keys are unknown, `wished` ones were written by a person or a tier."""

    sections: Mapping[str, BaseModel]
    faulty: Collection[Key] = ()
    wished: Collection[Key] = field(default_factory=frozenset)

    def __call__(self, dotted: str) -> Any:
        """The value of `section.key`.

        Raises:
            UnknownError: what is written there is wrong.
        """
        key = tuple(dotted.split("."))
        if not self.is_known(dotted):
            raise UnknownError(dotted)
        value: Any = self.sections[key[0]]
        for name in key[1:]:
            value = getattr(value, name)
        return value

    def is_known(self, dotted: str) -> bool:
        """Whether the section exists and neither the key nor a table around it is faulty."""
        key = tuple(dotted.split("."))
        return key[0] in self.sections and not any(key[: len(wrong)] == wrong for wrong in self.faulty)

    def is_wished(self, dotted: str) -> bool:
        """Whether a person or a tier wrote the key."""
        return tuple(dotted.split(".")) in self.wished


def contradiction(keys: str, message: str, fix: str) -> ProfileFault:
    """Keys (dotted, with spaces between them) that do not go together; the error names the place of the first."""
    key, *others = (tuple(key.split(".")) for key in keys.split())
    return ProfileFault(key, None, message, fix, tuple(others))
