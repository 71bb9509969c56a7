"""Tiers: what a profile leaves open, for one kind of card. TOML files, each value with its reason beside it."""

from pathlib import Path

from ftui.errors import UsageError
from ftui.hardware.detect import find_machine
from ftui.hardware.devices import TIERS, nearest_names
from ftui.profile.layers import ProfileLayer, file_layer
from ftui.profile.origins import Key
from ftui.profile.toml_edit.statements import line_numbers

SHIPPED = Path(__file__).parents[1] / "profiles" / "tiers"
AUTO = "auto"


def tier_names() -> tuple[str, ...]:
    """The tiers there are, the usual ones first."""
    return TIERS


def choose_tier(name: str) -> str:
    """The tier that is meant: `auto` is the one that suits this machine.

    Raises:
        UsageError: there is none of that name; the nearest names are given.
    """
    if name == AUTO:
        return find_machine().proposed
    if name not in TIERS:
        raise UsageError(f"There is no tier {name!r}.", hint=nearest_names(name, (*TIERS, AUTO)))
    return name


def tier_layer(name: str) -> ProfileLayer:
    """The tier's values, for `resolve(path, below=[tier_layer(name)])`; the profile's own go before them.

    Raises:
        UsageError: there is no tier of that name.
    """
    name = choose_tier(name)
    path = SHIPPED / f"{name}.toml"
    return ProfileLayer(f"tier {name}", file_layer(path).values, path.parent, gives_way=True)


def tier_reasons(name: str) -> dict[Key, str]:
    """Why each of the tier's values: the comment on its line."""
    text = (SHIPPED / f"{choose_tier(name)}.toml").read_text(encoding="utf-8")
    lines, values = text.split("\n"), file_layer(SHIPPED / f"{choose_tier(name)}.toml").values
    return {
        key: lines[line - 1].partition("  # ")[2].strip() for key, line in line_numbers(text).items() if key in values
    }


def tier_description(name: str) -> str:
    """What the tier is for: the first line of its file."""
    return (SHIPPED / f"{choose_tier(name)}.toml").read_text(encoding="utf-8").split("\n")[0].removeprefix("# ")
