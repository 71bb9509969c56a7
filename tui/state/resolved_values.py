"""Every value of a resolved profile as a screen shows it: what it is, where it comes from, what it was before."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ftui.text import toml_value

if TYPE_CHECKING:
    from ftui.profile.layers import ResolvedProfile
    from ftui.profile.schema import Profile


@dataclass(frozen=True)
class Value:
    """One key. `text` is spelt as in a profile (which may begin a path with `~`).

    `before` is what would stand there otherwise, where that differs.
    """

    section: str
    key: str
    text: str
    origin: str
    before: str | None = None
    meaning: str = ""

    @property
    def name(self) -> str:
        """`section.key`, as an override spells it."""
        return self.key if self.section == self.key else f"{self.section}.{self.key}"


def values_of(resolved: "ResolvedProfile", before: "Profile") -> list[Value]:
    """All of them, section by section. `before`: the profile without what was changed."""
    from ftui.profile.serialize import flat_values  # with pydantic, which the list of runs and the live view do without

    sections: dict[str, list[Value]] = {}
    old = flat_values(before)
    for key, setting in flat_values(resolved.profile).items():
        if not key[:-1] and not setting:  # a list of tables that is empty stands nowhere
            continue
        text, was = (toml_value(value).replace(f'"{Path.home()}/', '"~/') for value in (setting, old.get(key)))
        origin = str(resolved.origin(key)).replace(str(resolved.path), resolved.path.name)
        section = ".".join(key[:-1]) or key[-1]
        value = Value(section, key[-1], text, origin, None if was == text else was, _meaning(resolved.profile, key))
        sections.setdefault(section, []).append(value)
    return [value for values in sections.values() for value in values]


def _meaning(section: Any, key: Sequence[str]) -> str:
    """The help text of a key: the docstring under its field."""
    for name in key[:-1]:
        section = getattr(section, name)
    return str(type(section).model_fields[key[-1]].description or "")
