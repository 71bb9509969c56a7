"""What a profile would take: one line above the form, and a panel with where the memory goes.

Every figure here is an estimate: it is marked with ~, has its range beside it and its basis below it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ftui import units
from ftui.estimate.result import PARTS, Duration, Estimate, Memory
from ftui.hardware.devices import Card

from ...render.glyphs import Glyphs
from ...render.spans import Frame, Line, Span, left, right, spread, width_of, wrapped
from ..wording import clock

VERDICT_STYLES = {"fits": "good", "likely": "good", "tight": "warn", "no": "bad", "unknown": "muted"}
VERDICT_WORDS = {"fits": "fits", "likely": "likely fits", "tight": "tight", "no": "does not fit", "unknown": "unknown"}
PART_STYLES = {
    "weights": "loss", "quantisation": "loss", "adapters": "violet", "gradients": "eval", "optimizer": "eval",
    "activations": "good", "logits": "good", "workspace": "pink", "fragmentation": "muted", "context": "muted",
}  # fmt: skip
PHASES = {
    "loading": "while loading", "forward": "in a forward pass", "backward": "in a backward pass",
    "optimizer": "in an update", "evaluation": "in an evaluation",
}  # fmt: skip
GiB = 1 << 30
NARROW_BAR, WIDE_BAR = 10, 24
LABEL = 13


@dataclass(frozen=True)
class Forecast:
    """What there is to tell: an estimate of `card`, or why there is none. `is_old`: of values before a fault."""

    card: Card | None
    told: Estimate | None
    reason: str = ""
    is_old: bool = False


def estimate_line(frame: Frame, forecast: Forecast) -> Line:
    """Card, bar, memory with its range, verdict, time and money, as many of them as there is room for."""
    if forecast.card is None:
        return [(" no card is known to estimate for; t chooses one", "faint")]
    card: list[Span] = [(f" {forecast.card.name} ", "muted"), (f"{_size(forecast.card.memory)} ", "faint")]
    told = forecast.told
    if told is None or told.memory is None:
        reason = forecast.reason or (told.notes[0] if told and told.notes else "not estimated")
        return [*card, (" unknown ", "muted"), (f" {reason}", "faint")]
    memory, style = told.memory, VERDICT_STYLES[told.verdict]
    if forecast.is_old:
        was = f"  before the fault: ~{_size(memory.process)}, {verdict_words(told)}"
        return [*card, (" unknown ", "muted"), (was, "faint")]
    figures: list[Span] = [
        (f" ~{_size(memory.process)}", "number"),
        (f" ({_number(memory.low)}{frame.glyphs.dash}{_number(memory.high)})", "faint"),
        (f"  {verdict_words(told)}", style),
    ]
    later = _later(told.duration)
    room = frame.width - width_of([*card, *figures, *later]) - 2
    if room < NARROW_BAR:
        later = later[:1]
        room = frame.width - width_of([*card, *figures, *later]) - 2
    size = max(0, min(WIDE_BAR, room))
    return [*card, *_bar(frame.glyphs, memory, forecast.card.memory, size, style), *figures, *later]


def verdict_words(told: Estimate) -> str:
    return "cannot run there" if told.impossible else VERDICT_WORDS[told.verdict]


def _later(told: Duration) -> list[Span]:
    found: list[Span] = []
    if told.total_seconds is not None:
        found.append((f"  ~{clock(told.total_seconds)}", "text"))
    elif told.tokens_per_second is not None:
        found.append((f"  ~{told.tokens_per_second:,.0f} tok/s", "text"))
    if told.dollars is not None:
        found.append((f"  ${told.dollars:,.2f}", "text"))
    return found


def _bar(glyphs: Glyphs, memory: Memory, room: int, width: int, style: str) -> list[Span]:
    """The memory in a card: the low end full, up to the high end dim, the rest empty."""
    if width < 4 or not room:
        return []
    low, high = (min(width, max(0, round(width * size / room))) for size in (memory.low, memory.high))
    low = max(low, 1)
    dim = {"good": "good_dim", "warn": "eval_dim", "bad": "eval_dim"}.get(style, "rule")
    return [
        (" ", "text"),
        (glyphs.full * low, style),
        (glyphs.half * max(0, high - low), dim),
        (glyphs.rule * max(0, width - max(low, high)), "rule"),  # thinner, for those who see no colours
    ]


def breakdown(frame: Frame, forecast: Forecast) -> list[Line]:
    """Where the memory goes at the peak, part by part, then everything else that is known, then what is not."""
    head: Line = [(" estimate ", "title")]
    head.append((frame.glyphs.rule * max(0, frame.width - width_of(head) - 1), "rule"))
    told, card = forecast.told, forecast.card
    if told is None or card is None:
        reason = forecast.reason or "t chooses a card to estimate for"
        return [head, *([(" " + line, "muted")] for line in wrapped(reason, frame.width - 2))][: frame.height]
    lines: list[Line] = [head, _verdict_line(frame, forecast)]
    if told.memory is not None:
        lines += _parts(frame, told.memory)
        lines += _facts_of(frame, told.memory)
    lines += [_fact(label, text) for label, text in _facts(told) if text]
    lines += [_fact("unproven", text) for text in (told.memory.unvalidated if told.memory else ())]
    for note in filter(None, (told.impossible, *told.notes)):
        lines += [[(" " + line, "faint")] for line in wrapped(note, frame.width - 2)]
    return lines[: frame.height]


def _verdict_line(frame: Frame, forecast: Forecast) -> Line:
    told, card = forecast.told, forecast.card
    assert told is not None and card is not None, "the caller has looked"
    number = f"{told.num_cards} x " if told.num_cards > 1 else ""
    words = f"{'before the fault: ' if forecast.is_old else ''}{verdict_words(told)} "
    right_side: list[Span] = [(words, "faint" if forecast.is_old else VERDICT_STYLES[told.verdict])]
    return spread(frame.width, [(f" {number}{card.title}", "text"), (f"  {_size(card.memory)}", "faint")], right_side)


def _parts(frame: Frame, memory: Memory) -> list[Line]:
    lines: list[Line] = []
    width = max(4, frame.width - LABEL - 14)
    largest = max([*memory.breakdown.values(), 1])
    for name in PARTS:
        size = memory.breakdown.get(name, 0)
        if size <= 0:
            continue
        full = max(1, round(width * size / largest))
        lines.append(
            [
                (" " + left(name, LABEL), "muted"),
                (right(_fine(size), 9) + "  ", "bright"),
                (frame.glyphs.full * full, PART_STYLES[name]),
            ]
        )
    return lines


def _facts_of(frame: Frame, memory: Memory) -> list[Line]:
    total = f"~{_size(memory.process)}, {_number(memory.low)}{frame.glyphs.dash}{_size(memory.high)}"
    return [
        _fact("in all", total),
        _fact("allocated", f"~{_size(memory.allocated)}, reserved ~{_size(memory.reserved)}"),
        _fact("peak", f"{PHASES[memory.phase]}; {memory.basis}"),
    ]


def _facts(told: Estimate) -> Sequence[tuple[str, str]]:
    parameters = ""
    if told.num_parameters is not None and told.num_trainable is not None:
        share = told.num_trainable / told.num_parameters if told.num_parameters else 0
        parameters = f"{units.count(told.num_parameters)}, trained {units.count(told.num_trainable)} ({share:.2%})"
    return [
        ("parameters", parameters),
        *_times(told.duration),
        ("RAM", _optional(told.ram)),
        ("disk", _optional(told.disk)),
    ]


def _times(told: Duration) -> list[tuple[str, str]]:
    speed = (
        ""
        if told.tokens_per_second is None
        else f"~{told.tokens_per_second:,.0f} tokens/s, give or take {told.spread:.0%}"
    )
    steps = "" if told.num_steps is None else f"{told.num_steps:,} steps"
    total = "" if told.total_seconds is None else f"~{units.duration(told.total_seconds)}"
    money = "" if told.dollars is None else f"${told.dollars:,.2f}"
    whole = ", ".join(part for part in (steps, total, money) if part)
    return [("speed", f"{speed}; {told.basis}" if speed else ""), ("run", whole)]


def _fact(label: str, text: str) -> Line:
    return [(" " + left(label, LABEL), "muted"), (text, "text")]


def _optional(size: int | None) -> str:
    return "" if size is None else f"~{_size(size)}"


def _size(size: float) -> str:
    """`24 GiB`, `17.2 GiB`: no more digits than an estimate has."""
    value = size / GiB
    return (
        f"{value:.0f} GiB" if value >= 99.5 or (abs(value - round(value)) < 0.05 and value >= 1) else f"{value:.1f} GiB"
    )


def _number(size: float) -> str:
    return f"{size / GiB:.1f}"


def _fine(size: float) -> str:
    return f"{size / GiB:.2f} GiB" if size >= GiB / 10 else f"{size / (1 << 20):.0f} MiB"
