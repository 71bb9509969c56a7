"""An estimate in lines of text."""

import shutil
import textwrap
from collections.abc import Sequence

from ftui import units
from ftui.estimate.fit import Change
from ftui.estimate.result import IN_WORDS, PHASES, Basis, Duration, Estimate, Measuring, Memory
from ftui.hardware.devices import Card, GiB
from ftui.text import toml_value

LABEL = 11  # columns of the labels
NARROWEST, WIDEST = 60, 120
MOST_WARNINGS = 5


def width() -> int:
    """Columns that lines may have: the terminal's, within reason."""
    return max(NARROWEST, min(WIDEST, shutil.get_terminal_size().columns))


def estimate_lines(estimate: Estimate, card: Card, price: float | None) -> list[str]:
    """All of one estimate, a fact a line. `price`: US dollars an hour for one card."""
    number = f"{estimate.num_cards} x " if estimate.num_cards > 1 else ""
    why = estimate.impossible or IN_WORDS[estimate.verdict]
    words = f" ({why})" if why else ""
    has = units.size(card.memory) if card.memory else "memory hidden"
    lines = wrapped(f"{number}{card.title}, {has}: {estimate.verdict}{words}", width())
    if estimate.memory is not None:
        lines += memory_lines(estimate.memory, estimate.rows)
    facts = [
        ("parameters", parameter_words(estimate)),
        ("RAM", "" if estimate.ram is None else units.size(estimate.ram)),
        (
            "disk",
            "" if estimate.disk is None else f"{units.size(estimate.disk)} at most, for checkpoints and the result",
        ),
        ("time", duration_words(estimate.duration, price, estimate.rows, number)),
        *([] if estimate.measuring is None else [(estimate.measuring.what, measuring_words(estimate.measuring))]),
        *(("note", note) for note in estimate.notes),
        *(("warning", warning) for warning in _first(estimate.warnings)),
    ]
    return [*lines, *(line for label, text in facts if text for line in _line(label, text))]


def _first(warnings: Sequence[str]) -> list[str]:
    """The first few; how many there are beside them, and which command names all."""
    left_out = len(warnings) - MOST_WARNINGS
    more = [f"{left_out} more; `ftui run PROFILE --dry-run` shows all"] if left_out > 0 else []
    return [*warnings[:MOST_WARNINGS], *more]


def first_line(estimate: Estimate, card: Card) -> str:
    """What the closed form says at once, on one line; the whole answer, from the rows and the model, comes after it."""
    if estimate.memory is None:
        return f"{card.title}: counting the rows and simulating the model ..."
    range_ = f"{gib(estimate.memory.process)} GiB ({gib(estimate.memory.low)} to {gib(estimate.memory.high)})"
    return f"At first, {BASES[estimate.memory.basis]}: {estimate.verdict}, {range_}; counting and simulating ..."


def memory_lines(memory: Memory, rows: str = "") -> list[str]:
    """The peak of one device: its range, its parts, and what of it was never measured. `rows`: see Estimate."""
    parts = [(part, name) for name, part in memory.breakdown.items() if part > 0]
    where = ", ".join(f"{name} {units.size(part)}" for part, name in sorted(parts, reverse=True))
    range_ = f"{gib(memory.process)} GiB ({gib(memory.low)} to {gib(memory.high)}), highest {PHASES[memory.phase]}"
    lines = [
        *_line("memory", "; ".join(filter(None, (range_, BASES[memory.basis], rows)))),
        *_line("", f"allocated {gib(memory.allocated)}, reserved {gib(memory.reserved)}"),
        *_line("made of", where),
    ]
    if memory.unvalidated:
        lines += _line("unproven", f"never compared with a measurement: {', '.join(memory.unvalidated)}")
    return lines


BASES: dict[Basis, str] = {
    "closed form": "in closed form",
    "simulated": "simulated",
    "measured here": "measured here",
    "corrected here": "in closed form, corrected by a probe of another setting",
}


def gib(num_bytes: int) -> str:
    """GiB in three digits: `0.98`, `9.81`, `24.0`."""
    value = num_bytes / GiB
    return f"{value:.2f}" if value < 10 else f"{value:.1f}"


def duration_words(duration: Duration, price: float | None, rows: str = "", cards: str = "") -> str:
    """Steps, speed, time, money; "" where nothing is known. `rows`: see Estimate. `cards`: "4 x ", of several."""
    parts = []
    if duration.num_steps is not None:
        parts.append(f"{duration.num_steps:,} steps")
    if duration.tokens_per_second is not None:
        parts.append(f"{duration.tokens_per_second:,.0f} tokens/s (give or take {duration.spread:.0%})")
    if duration.total_seconds is not None:
        low, high = (units.duration(duration.total_seconds * (1 + sign * duration.spread)) for sign in (-1, 1))
        parts.append(f"{units.duration(duration.total_seconds)} ({low} to {high})")
    if duration.dollars is not None and price is not None:
        parts.append(f"{_dollars(duration.dollars)} at {cards}${price:,.2f} an hour")
    basis = "from a probe of another setting" if duration.basis == "corrected here" else BASES[duration.basis]
    where = (basis if duration.tokens_per_second is not None else "", rows if parts else "")
    return "; ".join(filter(None, (", ".join(parts), *where)))


def measuring_words(measuring: Measuring) -> str:
    """How much of the time goes by before the first step, what it costs, and how large the file of it is."""
    parts = []
    if measuring.seconds is not None:
        cost = "" if measuring.dollars is None else f", {_dollars(measuring.dollars)}"
        again = ", nothing where another run has measured the same" if measuring.what == "reference" else ""
        parts.append(f"{units.duration(measuring.seconds)} of it before the first step{cost}{again}")
    if measuring.num_bytes is not None:
        parts.append(f"{units.size(measuring.num_bytes)} on the disk")
    return "; ".join(parts)


def _dollars(value: float) -> str:
    return f"${value:,.2f}" if value >= 0.005 else "less than a cent"


def change_lines(changes: Sequence[Change]) -> list[str]:
    """Suggestions, the best first, each with its keys as `--set` takes them and its reasons."""
    lines = []
    for number, change in enumerate(changes, start=1):
        basis, doubt = BASES[change.memory.basis], f" ({IN_WORDS['tight']})" if change.verdict == "tight" else ""
        lines.append(f"{number:>3}  {gib(change.memory.process)} GiB, {change.verdict}{doubt}{_speed(change)}; {basis}")
        lines += [f"     {'.'.join(key)} = {toml_value(value)}" for key, value in change.values.items()]
        lines += [f"     {line}" for reason in change.reasons for line in wrapped(reason, width() - 5)]
    return lines


def _speed(change: Change) -> str:
    if change.slower is None or abs(change.slower) < 0.005:
        return ""
    return f", {abs(change.slower):.0%} {'slower' if change.slower > 0 else 'faster'}"


def parameter_words(estimate: Estimate) -> str:
    """All and the trained parameters; "" where they are not known."""
    if estimate.num_parameters is None or estimate.num_trainable is None:
        return ""
    share = estimate.num_trainable / (estimate.num_parameters or 1)
    return f"{units.count(estimate.num_parameters)}, trained {units.count(estimate.num_trainable)} ({share:.2%})"


def _line(label: str, text: str) -> list[str]:
    first, *rest = wrapped(text, width() - LABEL - 2) or [""]
    return [f"  {label:<{LABEL}}{first}", *(" " * (LABEL + 2) + line for line in rest)]


def wrapped(text: str, columns: int) -> list[str]:
    """Lines of at most so many columns, broken between words."""
    return textwrap.wrap(text, columns, break_long_words=False, break_on_hyphens=False)
