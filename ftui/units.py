"""Numbers as people read them. Binary units only: GiB = 1024^3 bytes."""

MISSING = "n/a"


def size(num_bytes: float | None) -> str:
    """Bytes as `512 B`, `3.4 MiB`, `12.0 GiB`; `n/a` where unknown."""
    if num_bytes is None:
        return MISSING
    value = float(num_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def duration(seconds: float | None) -> str:
    """Seconds as `0.4 s`, `42 s`, `3m 05s`, `2h 07m`, `1d 04h`; `n/a` where unknown."""
    if seconds is None:
        return MISSING
    if seconds < 10:
        return f"{seconds:.1f} s"
    seconds_rounded = round(seconds)
    if seconds_rounded < 60:
        return f"{seconds_rounded} s"
    minutes, seconds_left = divmod(seconds_rounded, 60)
    if minutes < 60:
        return f"{minutes}m {seconds_left:02d}s"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours}h {minutes:02d}m"
    days, hours = divmod(hours, 24)
    return f"{days}d {hours:02d}h"


def count(number: float | None) -> str:
    """A count as `999`, `12.3 k`, `4.56 M`, `7.00 B`; `n/a` where unknown."""
    if number is None:
        return MISSING
    for limit, divisor, unit, digits in ((1e4, 1, "", 0), (1e6, 1e3, " k", 1), (1e9, 1e6, " M", 2)):
        if abs(number) < limit:
            return f"{number / divisor:.{digits}f}{unit}"
    return f"{number / 1e9:.2f} B"


def amount(number: int) -> str:
    """A count of things in a text: `9,999`, `12.3 k`."""
    return f"{number:,}" if abs(number) < 10_000 else count(number)


def quantity(value: float | None, digits: int = 4) -> str:
    """A measured float with fixed decimals; `n/a` where it was not measured or not finite."""
    return MISSING if value is None else f"{value:.{digits}f}"


def figure(value: float | None) -> str:
    """A measure in few digits: `0.92`, `-1.20`, `0.0012`; `n/a` where it was not measured or not finite."""
    if value is None:
        return MISSING
    return f"{value:.2g}" if 0 < abs(value) < 0.095 else f"{value:.2f}"


def rate(value: float | None) -> str:
    """A learning rate in scientific notation (`2.00e-04`)."""
    return MISSING if value is None else f"{value:.2e}"


def money(dollars: float | None) -> str:
    """US dollars as `$0.0021`, `$1.24`, `$1,200.00`; `n/a` where no price is known."""
    if dollars is None:
        return MISSING
    return f"${dollars:,.2f}" if dollars >= 0.095 or dollars == 0 else f"${dollars:.2g}"
