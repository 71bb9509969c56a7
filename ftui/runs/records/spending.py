"""What a run has cost so far, from the times of its records, and what it may cost.

An attempt costs from its first record to its last sign of life, pauses and repeated steps included: a paused run
occupies the rented machine, too. Between two attempts nothing is counted, but for the pause before a restart, in which
the supervisor keeps the cards.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import msgspec

from ftui import units
from ftui.runs.records.record import Record

WARN_SHARE = 0.8
Limit = Literal["max_money", "max_hours"]


class BudgetUsed(Record, frozen=True, tag="budget_used"):
    """So much of a limit is used: the share that is warned of, or (`parks`) what is left only covers the last save.

    `allowed` and `spent` are dollars for `max_money`, hours for `max_hours`. `reserve_seconds` are kept for that save.
    """

    limit: Limit
    allowed: float
    spent: float
    message: str
    parks: bool = False
    reserve_seconds: float = 0.0


class AttemptSpan(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """An attempt from its first record to its last sign of life (Unix seconds), and what an hour of it costs.

    `pause_seconds`: how long its supervisor waits before the restart that follows it.
    """

    number: int
    begin: float
    end: float
    dollars_per_hour: float | None = None
    pause_seconds: float = 0.0


class Spending(msgspec.Struct, frozen=True, omit_defaults=True):
    """The attempts of a run, by number; the limits and the origin of the price are those of the newest.

    `reached`: the limit that parked the run; `reserve_seconds` were left for its last save.
    """

    spans: list[AttemptSpan] = []
    price_basis: str = ""
    max_money: float | None = None
    max_hours: float | None = None
    reached: Limit | None = None
    reserve_seconds: float = 0.0
    warned: dict[Limit, float] = {}
    """The limits that were warned of, as they were then."""


class Spent(NamedTuple):
    """Seconds of all attempts and what they cost in dollars; `None` where no attempt has a price."""

    seconds: float
    dollars: float | None


def add_sign(spending: Spending, number: int, *times: float | None) -> Spending:
    """The spending once attempt `number` was seen alive at these times."""
    known = [time for time in times if time is not None]
    if not known or number < 1:
        return spending
    spans = list(spending.spans)
    place = next((at for at in range(len(spans) - 1, -1, -1) if spans[at].number <= number), -1)
    if place >= 0 and spans[place].number == number:
        span = spans[place]
        begin, end = min(span.begin, *known), max(span.end, *known)
        if (begin, end) == (span.begin, span.end):
            return spending
        spans[place] = msgspec.structs.replace(span, begin=begin, end=end)
    else:
        spans.insert(place + 1, AttemptSpan(number, min(known), max(known)))
    return msgspec.structs.replace(spending, spans=spans)


def change_span(spending: Spending, number: int, **changes: float | None) -> Spending:
    """The spending with other values of an attempt that has a span."""
    spans = [msgspec.structs.replace(one, **changes) if one.number == number else one for one in spending.spans]
    return msgspec.structs.replace(spending, spans=spans)


def with_budget(spending: Spending, record: BudgetUsed) -> Spending:
    """The spending once a limit was warned of, or has parked the run."""
    if record.parks:
        return msgspec.structs.replace(spending, reached=record.limit, reserve_seconds=record.reserve_seconds)
    return msgspec.structs.replace(spending, warned={**spending.warned, record.limit: record.allowed})


def spent(spans: Sequence[AttemptSpan], now: float | None = None, *, before: int | None = None) -> Spent:
    """What the attempts (those `before` a number only) took and cost until `now` (Unix seconds), which matters in the
    pause before a restart.

    An attempt that ended before it knew its machine has no price: it counts at that of the next one which has, else of
    the one before.
    """
    seconds, dollars = 0.0, 0.0
    rate = next((one.dollars_per_hour for one in reversed(spans) if one.dollars_per_hour is not None), None)
    for span, length in zip(reversed(spans), reversed(span_seconds(spans, now)), strict=True):
        rate = rate if span.dollars_per_hour is None else span.dollars_per_hour
        if before is None or span.number < before:
            seconds += length
            dollars += length * (rate or 0.0) / 3600
    return Spent(seconds, None if rate is None else dollars)


def span_seconds(spans: Sequence[AttemptSpan], now: float | None = None) -> list[float]:
    """How long each attempt took until `now`, with the pause before the restart that follows it."""
    lengths = []
    for number, span in enumerate(spans):
        after = spans[number + 1].begin if number + 1 < len(spans) else None
        until = after if after is not None else now if now is not None else span.end
        end = max(span.end, min(span.end + span.pause_seconds, until))
        lengths.append(max(0.0, (end if after is None else min(end, after)) - span.begin))
    return lengths


def seconds_left(spending: Spending, so_far: Spent, dollars_per_hour: float | None) -> tuple[float, Limit] | None:
    """Seconds until the first limit is reached at this price, and which one; `None` without a limit."""
    left: list[tuple[float, Limit]] = []
    if spending.max_money is not None and dollars_per_hour and so_far.dollars is not None:
        left.append(((spending.max_money - so_far.dollars) / dollars_per_hour * 3600, "max_money"))
    if spending.max_hours is not None:
        left.append((spending.max_hours * 3600 - so_far.seconds, "max_hours"))
    return min(left, default=None)


def limit_values(spending: Spending, so_far: Spent, limit: Limit) -> tuple[float, float]:
    """What is allowed and what is spent, in the limit's unit."""
    if limit == "max_money":
        return spending.max_money or 0.0, so_far.dollars or 0.0
    return spending.max_hours or 0.0, so_far.seconds / 3600


def limit_words(limit: Limit, amount: float) -> str:
    """An amount in a limit's unit: `$1.24`, `2h 07m`."""
    return units.money(amount) if limit == "max_money" else units.duration(amount * 3600)


def meter_words(spending: Spending, so_far: Spent) -> str:
    """`$1.24`, `$1.24 of $25.00`, `2h 07m of 10h 00m`; nothing where there is neither a price nor a limit."""
    parts = []
    if so_far.dollars is not None:
        most = "" if spending.max_money is None else f" of {units.money(spending.max_money)}"
        parts.append(units.money(so_far.dollars) + most)
    if spending.max_hours is not None:
        parts.append(f"{units.duration(so_far.seconds)} of {units.duration(spending.max_hours * 3600)}")
    return ", ".join(parts)


def basis_words(spending: Spending) -> str:
    """`at $0.44 an hour (hardware.price_per_hour)`; nothing where there is no price."""
    prices = sorted({one.dollars_per_hour for one in spending.spans if one.dollars_per_hour is not None})
    if not prices:
        return ""
    basis = f" ({spending.price_basis})" if spending.price_basis else ""
    return f"at {' and '.join(units.money(price) for price in prices)} an hour{basis}"


def with_more(name: str, limit: Limit, allowed: float) -> str:
    """The command that goes on with a run whose limit is reached."""
    return f"ftui resume {name} --set budget.{limit}={allowed * 2:g}"


def continue_command(name: str, spending: Spending) -> str | None:
    """The same, where the budget has parked the run; else `None`."""
    limit = spending.reached
    return None if limit is None else with_more(name, limit, limit_values(spending, Spent(0.0, 0.0), limit)[0])
