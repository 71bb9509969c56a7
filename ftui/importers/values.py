"""Values of other tools' files as the profile writes them."""

import json
from collections.abc import Callable, Mapping
from typing import Any, get_args

from ftui.profile.aliases import OTHER_OPTIMIZERS, OTHER_SCHEDULERS
from ftui.profile.sections.optimizers import Optimizer
from ftui.profile.sections.schedulers import Scheduler

Convert = Callable[[Any], Any]


LARGEST = 1 << 62  # no key has a larger number, and TOML's integers and floats hold it


class Unfit(Exception):
    """A value that the profile has no place for. The text is the reason, as a part of a sentence; `ours` the key of the
    profile that would have said it."""

    def __init__(self, reason: str, ours: str = "") -> None:
        super().__init__(reason)
        self.ours = ours


def converted(ours: str, convert: Convert, value: Any) -> Any:
    """Raises `Unfit` that knows whose value it would have been."""
    try:
        return convert(value)
    except Unfit as unfit:
        raise Unfit(str(unfit), ours) from unfit


def number(value: Any) -> float | int:
    if isinstance(value, str):
        try:
            value = float(value) if not value.strip().lstrip("+-").isdigit() else int(value)
        except ValueError as error:
            raise Unfit("not a number") from error
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Unfit("not a number")
    if not -LARGEST <= value <= LARGEST:
        raise Unfit("not a number" if value != value else "too large a number")
    return value


def real(value: Any) -> float:
    return float(number(value))


def whole(value: Any) -> int:
    found = number(value)
    if found != int(found):
        raise Unfit("not a whole number")
    return int(found)


def wholes(value: Any) -> list[int]:
    """Whole numbers, of which one may stand alone."""
    return [whole(one) for one in (value if isinstance(value, list) else [value])]


def above_zero(value: Any) -> int:
    found = whole(value)
    if found < 1:
        raise Unfit("not above 0")
    return found


def period(value: Any) -> float | int:
    """Steps between two things: a whole number, or below 1 a share of all."""
    found = number(value)
    if found <= 0:
        raise Unfit("not above 0")
    return int(found) if found >= 1 and found == int(found) else found


def flag(value: Any) -> bool:
    """true or false, also as the words and numbers that argument parsers take for them."""
    if isinstance(value, bool):
        return value
    word = str(value).strip().lower()
    if word in ("true", "yes", "y", "t", "1", "on"):
        return True
    if word in ("false", "no", "n", "f", "0", "off", "none", "null", ""):
        return False
    raise Unfit("neither true nor false")


def is_on(value: Any) -> bool:
    """Whether a key that may be absent, or hold more than a flag, turns something on."""
    try:
        return flag(value)
    except Unfit:
        return True


def text(value: Any) -> str:
    if isinstance(value, bool | list | dict) or value is None:
        raise Unfit("not a text")
    return str(value)


def texts(value: Any) -> list[str]:
    """A list, or one text with commas."""
    each = value if isinstance(value, list) else text(value).split(",")
    return [part for one in each if (part := text(one).strip())]


def word(value: Any) -> str:
    """A name such as `No` or `Cosine`; YAML 1.1 reads `no` as false."""
    return {False: "no", True: "true"}[value] if isinstance(value, bool) else text(value).strip().lower()


def beside(value: Any, usual: str) -> str:
    """What another key says that this one is read by; what is no name is told where it stands."""
    return usual if value is None or isinstance(value, list | dict) or not str(value).strip() else word(value)


def one_of(names: Mapping[str, Any], what: str) -> Convert:
    """Translate a name; another one is unfit."""

    def convert(value: Any) -> Any:
        name = word(value)
        if name not in names:
            raise Unfit(f"ftui has no such {what}")
        return names[name]

    return convert


_OPTIMIZERS = {name: name for name in get_args(Optimizer)} | OTHER_OPTIMIZERS
_SCHEDULERS = {name: name for name in get_args(Scheduler)} | OTHER_SCHEDULERS
optimizer = one_of(_OPTIMIZERS, "optimizer")
scheduler = one_of(_SCHEDULERS, "scheduler")


def details(value: Any) -> dict[str, Any]:
    """Details written as one text: JSON, or `a=1,b=2`."""
    written = text(value).strip()
    try:
        pairs = json.loads(written) if written.startswith("{") else dict(x.split("=") for x in written.split(","))
        return {str(name).strip(): _plain(one) for name, one in pairs.items()}
    except (ValueError, AttributeError) as error:
        raise Unfit("neither JSON nor name=value pairs") from error


def _plain(value: Any) -> Any:
    try:
        return number(value)
    except Unfit:
        return flag(value) if str(value).lower() in ("true", "false") else value
