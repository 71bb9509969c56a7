"""The lower part of the live view: what happened, what the engine printed, and what became of the last request."""

import time
from collections.abc import Callable, Iterable, Sequence
from itertools import zip_longest
from typing import Literal

from msgspec.structs import replace

from ..render.spans import Frame, Line, clipped, spread, width_of
from ..state.history import Event
from ..state.sent_requests import OUTCOME_STYLES, SentRequest
from .columns import GAP, Column, share_width

SIDE_BY_SIDE = 150  # columns from which both panes are shown at once
SIDE = 60  # columns: the least of each then


Shows = Literal["events", "log", "ranks"]


def next_pane(shows: Shows, *, with_ranks: bool, width: int) -> Shows:
    """What comes after it; the log has no turn of its own where it stands beside the events."""
    order: list[Shows] = ["events"] if width >= SIDE_BY_SIDE else ["events", "log"]
    order += ["ranks"] if with_ranks else []
    return order[(order.index(shows) + 1) % len(order)] if shows in order else "events"


def rule(frame: Frame, title: str, request: SentRequest | None) -> Line:
    """A title, a thin line and, at its right end, what became of the last request."""
    left: Line = [(f" {title} ", "title")]
    right: Line = []
    if request is not None:
        words = clipped([(request.words, OUTCOME_STYLES[request.outcome])], frame.width - width_of(left) - 6)
        right = [(" ", "text"), *words, (" ", "text")]
    line = frame.glyphs.rule * max(0, frame.width - width_of(left) - width_of(right) - 1)
    return spread(frame.width, [*left, (line, "rule")], right)


def events(frame: Frame, history: Sequence[Event], height: int) -> list[Line]:
    """The newest events, with their time of day."""
    return [[(f" {time_of_day(event.time)} ", "faint"), (event.text, event.tone)] for event in list(history)[-height:]]


def time_of_day(seconds: float) -> str:
    """Hours, minutes and seconds here; nothing for a time that no calendar has (a damaged record)."""
    try:
        return time.strftime("%H:%M:%S", time.localtime(seconds))
    except (OverflowError, ValueError, OSError):
        return "        "


def log(lines: Sequence[str], height: int) -> list[Line]:
    """The newest lines the engine printed."""
    return [[(" ", "text"), (line, "muted")] for line in list(lines)[-height:]]


def pane(
    frame: Frame,
    history: Sequence[Event],
    lines: Sequence[str],
    request: SentRequest | None,
    ranks: Callable[[Frame], list[Line]],
    *,
    shows: Shows,
) -> list[Line]:
    """Events, log or ranks under a rule; events and log side by side, where there is room."""
    height = frame.height - 1
    if shows == "ranks":
        return [rule(frame, "ranks", request), *ranks(replace(frame, height=height))]
    if frame.width < SIDE_BY_SIDE:
        body = log(lines, height) if shows == "log" else events(frame, history, height)
        return [rule(frame, shows, request), *body]
    left, right = events(frame, history, height), log(lines, height)
    sides = [Column(SIDE, max(map(width_of, side), default=0)) for side in (left, right)]
    width, _ = share_width(sides, frame.width - GAP)
    both: Iterable[tuple[Line, Line]] = zip_longest(left, right, fillvalue=[])
    drawn = [
        [*spread(width + GAP, clipped(start, width)), *clipped(end, frame.width - width - GAP)] for start, end in both
    ]
    return [rule(frame, "events and log", request), *drawn]
