"""How far a long answer is, as its process writes it and screens read it: `merging: 120 of 272 tensors, 40 s left`."""

import re

from ftui.units import amount, duration, size

BYTES = "bytes"
_NUMBER = r"([\d.,]+)(?: (k|M|B|KiB|MiB|GiB|TiB)\b)?"
_COUNT = re.compile(rf"\b{_NUMBER} of {_NUMBER}")
_UNITS = {"k": 1e3, "M": 1e6, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


def progress_text(what: str, done: int, total: int, unit: str, seconds_left: float | None) -> str:
    """What is being done, how much of how much (`unit` bytes as `1.2 GiB of 3.4 GiB`), and the time left if known."""
    write = size if unit == BYTES else amount
    count = f"{what}: {write(done)} of {write(total)}"
    text = count if unit in ("", BYTES) else f"{count} {unit}"
    return text if seconds_left is None or done >= total else f"{text}, {duration(seconds_left)} left"


def share_of(text: str) -> float | None:
    """How much of all (0..1) such a text says is done, `None` where it says nothing of it."""
    if (match := _COUNT.search(text)) is None:
        return None
    done, total = _value(match[1], match[2]), _value(match[3], match[4])
    return min(1.0, done / total) if total else None


def _value(number: str, unit: str | None) -> float:
    bytes_or_billions = 1e9 if unit == "B" and "." in number else 1.0
    return float(number.replace(",", "").rstrip(".")) * _UNITS.get(unit or "", bytes_or_billions)
