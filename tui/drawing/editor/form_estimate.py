"""What a profile takes on a card: one line above the form, and a panel with where the memory goes.

Every figure here is an estimate: it is marked with ~, has its range beside it and its basis below it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ftui import units
from ftui.estimate.estimate_text import parameter_words
from ftui.estimate.result import PARTS, PHASES, Duration, Estimate, Memory
from ftui.hardware.devices import Card, GiB, MiB

from ...render.glyphs import Glyphs
from ...render.spans import Frame, Line, Span, heading, labelled, left, paragraph, right, spread, width_of
from ..wording import clock

VERDICT_STYLES = {"fits": "good", "likely": "good", "tight": "warn", "no": "bad", "unknown": "muted"}
VERDICT_WORDS = {"fits": "fits", "likely": "likely fits", "tight": "tight", "no": "does not fit", "unknown": "unknown"}
PART_STYLES = {
    "weights": "loss", "gathered": "loss", "quantisation": "loss", "adapters": "violet", "gradients": "eval",
    "optimizer": "eval", "activations": "good", "logits": "good", "workspace": "pink", "fragmentation": "muted",
    "context": "muted",
}  # fmt: skip
NARROW_BAR, WIDE_BAR = 10, 24
LABEL = 13


@dataclass(frozen=True)
class CardEstimate:
    """An estimate on `card`, or the reason why there is none. `is_old`: it is of the values before a fault."""

    card: Card | None
    estimate: Estimate | None
    reason: str = ""
    is_old: bool = False


def estimate_line(frame: Frame, on_card: CardEstimate) -> Line:
    """Card, bar, memory with its range, verdict, time and money, as many of them as there is room for."""
    if on_card.card is None:
        return [(" no card is known to estimate for; t chooses one", "faint")]
    card: list[Span] = [(f" {on_card.card.name} ", "muted"), (f"{_size(on_card.card.memory)} ", "faint")]
    estimate = on_card.estimate
    if estimate is None or estimate.memory is None:
        reason = on_card.reason or (estimate.notes[0] if estimate and estimate.notes else "not estimated")
        return [*card, (" unknown ", "muted"), (f" {reason}", "faint")]
    memory, style = estimate.memory, VERDICT_STYLES[estimate.verdict]
    if on_card.is_old:
        was = f"  before the error: ~{_size(memory.process)}, {verdict_words(estimate)}"
        return [*card, (" unknown ", "muted"), (was, "faint")]
    figures: list[Span] = [
        (f" ~{_size(memory.process)}", "number"),
        (f" ({_number(memory.low)}{frame.glyphs.dash}{_number(memory.high)})", "faint"),
        (f"  {verdict_words(estimate)}", style),
    ]
    times = _time_and_money(estimate.duration)
    room = frame.width - width_of([*card, *figures, *times]) - 2
    if room < NARROW_BAR:
        times = times[:1]
        room = frame.width - width_of([*card, *figures, *times]) - 2
    mark = "" if not estimate.rows else "  rows by bytes" if "tokenizer" in estimate.rows else "  rows not read"
    if mark and room - len(mark) >= NARROW_BAR:
        times, room = [*times, (mark, "faint")], room - len(mark)
    size = max(0, min(WIDE_BAR, room))
    return [*card, *_bar(frame.glyphs, memory, on_card.card.memory, size, style), *figures, *times]


def verdict_words(estimate: Estimate) -> str:
    """Whether it fits, in a word or two."""
    return "cannot run there" if estimate.impossible else VERDICT_WORDS[estimate.verdict]


def _time_and_money(duration: Duration) -> list[Span]:
    spans: list[Span] = []
    if duration.total_seconds is not None:
        spans.append((f"  ~{clock(duration.total_seconds)}", "text"))
    elif duration.tokens_per_second is not None:
        spans.append((f"  ~{duration.tokens_per_second:,.0f} tok/s", "text"))
    if duration.dollars is not None:
        spans.append((f"  ${duration.dollars:,.2f}", "text"))
    return spans


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


def breakdown(frame: Frame, on_card: CardEstimate) -> list[Line]:
    """Where the memory goes at the peak, part by part, then everything else that is known, then what is not."""
    head = heading(frame, "estimate")
    estimate, card = on_card.estimate, on_card.card
    if estimate is None or card is None:
        reason = on_card.reason or "t chooses a card to estimate for"
        return [head, *paragraph(reason, frame.width, "muted")][: frame.height]
    lines: list[Line] = [head, _verdict_line(frame, card, estimate, is_old=on_card.is_old)]
    if estimate.memory is not None:
        lines += [*_parts(frame, estimate.memory), *_memory_facts(frame, estimate.memory)]
    facts = [(label, text) for label, text in (("rows", estimate.rows), *_facts(estimate)) if text]
    facts += [("unproven", text) for text in (estimate.memory.unvalidated if estimate.memory else ())]
    lines += [line for label, text in facts for line in _fact(frame, label, text)]
    for note in filter(None, (estimate.impossible, *estimate.notes)):
        lines += paragraph(note, frame.width, "faint")
    return lines[: frame.height]


def _verdict_line(frame: Frame, card: Card, estimate: Estimate, *, is_old: bool) -> Line:
    number = f"{estimate.num_cards} x " if estimate.num_cards > 1 else ""
    words = f"{'before the error: ' if is_old else ''}{verdict_words(estimate)} "
    verdict: list[Span] = [(words, "faint" if is_old else VERDICT_STYLES[estimate.verdict])]
    return spread(frame.width, [(f" {number}{card.title}", "text"), (f"  {_size(card.memory)}", "faint")], verdict)


def _parts(frame: Frame, memory: Memory) -> list[Line]:
    lines: list[Line] = []
    width = max(4, frame.width - LABEL - 14)
    largest = max([*memory.breakdown.values(), 1])
    for name in PARTS:
        if (size := memory.breakdown.get(name, 0)) > 0:
            bar = frame.glyphs.full * max(1, round(width * size / largest))
            figures: Line = [(" " + left(name, LABEL), "muted"), (right(_fine(size), 9) + "  ", "bright")]
            lines.append([*figures, (bar, PART_STYLES[name])])
    return lines


def _memory_facts(frame: Frame, memory: Memory) -> list[Line]:
    total = f"~{_size(memory.process)}, {_number(memory.low)}{frame.glyphs.dash}{_size(memory.high)}"
    return [
        *_fact(frame, "total", total),
        *_fact(frame, "allocated", f"~{_size(memory.allocated)}, reserved ~{_size(memory.reserved)}"),
        *_fact(frame, "peak", f"{PHASES[memory.phase]}; {memory.basis}"),
    ]


def _facts(estimate: Estimate) -> Sequence[tuple[str, str]]:
    """Labels and texts; a text is empty where its fact is not known."""
    duration, speed = estimate.duration, ""
    if duration.tokens_per_second is not None:
        speed = f"~{duration.tokens_per_second:,.0f} tokens/s, give or take {duration.spread:.0%}; {duration.basis}"
    steps = "" if duration.num_steps is None else f"{duration.num_steps:,} steps"
    total = "" if duration.total_seconds is None else f"~{units.duration(duration.total_seconds)}"
    sizes = ("RAM", estimate.ram), ("disk", estimate.disk)
    money = "" if duration.dollars is None else f"${duration.dollars:,.2f}"
    return [
        ("parameters", parameter_words(estimate)),
        ("speed", speed),
        ("run", ", ".join(part for part in (steps, total, money) if part)),
        *((label, "" if size is None else f"~{_size(size)}") for label, size in sizes),
    ]


def _fact(frame: Frame, label: str, text: str) -> list[Line]:
    return labelled([(" " + left(label, LABEL), "muted")], text, frame.width, "text")


def _size(size: float) -> str:
    """`24 GiB`, `17.2 GiB`: no more digits than an estimate has."""
    value = size / GiB
    is_whole = value >= 99.5 or (abs(value - round(value)) < 0.05 and value >= 1)
    return f"{value:.0f} GiB" if is_whole else f"{value:.1f} GiB"


def _number(size: float) -> str:
    return f"{size / GiB:.1f}"


def _fine(size: float) -> str:
    if size < GiB / 10:
        return f"{size / MiB:.0f} MiB"
    value = size / GiB
    return f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f} GiB"  # 8 columns, with a space before them
