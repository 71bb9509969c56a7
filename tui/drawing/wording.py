"""Words and numbers as the screens write them: short, aligned, with the style that goes with their meaning."""

from pathlib import Path

from ftui import units
from ftui.reports.ticks import exponential
from ftui.runs.state import RunState, disk_trouble, phase_word
from ftui.runs.status import Status

PHASE_STYLES = {
    "training": "good", "generating": "good", "scoring": "good", "evaluating": "eval", "saving": "loss",
    "loading": "loss", "preparing": "loss", "starting": "loss", "queued": "muted", "held": "warn", "parked": "violet",
    "finished": "good", "stopped": "muted", "failed": "bad", "lost": "bad",
}  # fmt: skip


def phase_style(status: Status) -> str:
    if status.unreadable:
        return "bad"
    return "warn" if status.frozen or status.unwatched else PHASE_STYLES[status.state.phase]


def status_word(status: Status) -> str:
    """The phase, and what is odd about it."""
    state = status.state
    if status.unreadable:
        return "unreadable"
    if status.frozen:
        return f"{phase_word(state.phase)}, frozen"
    if state.restarting and state.phase == "starting":
        return "restarting"
    if trouble := disk_trouble(state):
        return f"parked, {trouble}"
    return f"{phase_word(state.phase)}, unwatched" if status.unwatched else phase_word(state.phase)


def clock(seconds: float | None) -> str:
    """A time to go in at most six columns: `42s`, `3m05`, `2h07`, `1d04h`; `-` where it is not known."""
    if seconds is None:
        return "-"
    whole = max(0, round(seconds))
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days}d{hours:02d}h" if days < 1000 else f"{days}d"
    if hours:
        return f"{hours}h{minutes:02d}"
    return f"{minutes}m{rest:02d}" if minutes else f"{rest}s"


def short(number: float | None) -> str:
    """A count in at most six columns: `938`, `9,380`, `18.4k`, `1.20M`, `3.1B`; `-` where it is not known."""
    if number is None:
        return "-"
    size = abs(number)
    if size < 9999.5:
        return f"{number:,.0f}"
    for limit, divisor, unit in ((999_950, 1e3, "k"), (999_950_000, 1e6, "M"), (999_950_000_000, 1e9, "B")):
        if size < limit:
            value = number / divisor
            return f"{value:.2f}{unit}" if abs(value) < 9.995 else f"{value:.1f}{unit}"
    return f"{number:.1e}"


def rate(value: float | None) -> str:
    """A learning rate: `4.6e-5`; `-` where it is not known."""
    if value is None:
        return "-"
    return exponential(value)


def loss(value: float | None, *, finite: bool = True) -> str:
    """A loss in at most seven columns; `-` where it was not measured, `nan` where it was not finite."""
    if value is None:
        return "-" if finite else "nan"
    return f"{value:.4f}" if abs(value) < 100 else f"{value:.1f}" if abs(value) < 10_000 else f"{value:.1e}"


def norm(value: float | None) -> str:
    """A gradient norm."""
    if value is None:
        return "-"
    return f"{value:.2f}" if abs(value) < 1000 else f"{value:.1e}"


def figure(value: float | None) -> str:
    """A measure of a stage: `0.92`, `0.0012`; `-` where it was not measured."""
    return "-" if value is None else units.figure(value)


def gib(num_bytes: float | None) -> str:
    """GiB with one decimal, without the unit; `-` where it is not known."""
    return "-" if num_bytes is None else f"{num_bytes / 2**30:.1f}"


def count_words(number: int, noun: str) -> str:
    """`1 error`, `3 errors`."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def steps(state: RunState) -> str:
    """`120/400`; `120` while the plan is not known."""
    return f"{state.step:,}" if state.max_steps is None else f"{state.step:,}/{state.max_steps:,}"


def share_done(state: RunState) -> float | None:
    """Fraction of the plan that is done."""
    return None if not state.max_steps else min(1.0, state.step / state.max_steps)


def model_name(name: str) -> str:
    """The last part of a path or hub id."""
    return name.rstrip("/").rpartition("/")[2] or name


def place(path: Path) -> str:
    """A path as people write it: from their home, where it is in there."""
    home = Path.home()
    return f"~/{path.relative_to(home)}" if path != home and path.is_relative_to(home) else str(path)
