"""Parks a run in time: while what is left of its budget still covers a save."""

import time
from collections.abc import Callable, Collection

from ftui.errors import ProfileError
from ftui.hardware.run_price import RunPrice, device_price, unknown_price
from ftui.profile.schema import BudgetSection, Profile
from ftui.runs.events import CheckpointSaved
from ftui.runs.journal import Tail
from ftui.runs.records.spending import (
    WARN_SHARE,
    BudgetUsed,
    Limit,
    Spending,
    Spent,
    limit_values,
    limit_words,
    seconds_left,
)
from ftui.runs.run_folder import Run
from ftui.runs.status import read_status, spent_so_far

from .event_writer import EventWriter

SAVES_KEPT = 2  # times the last save: one may be under way when the rest becomes scarce
SPARE_SECONDS = 2.0  # for the last records, and for the process to end


class BudgetWatch:
    """What all attempts of a run may cost, looked at between two units of work."""

    def __init__(
        self,
        limits: BudgetSection,
        dollars_per_hour: float | None,
        so_far: Spent,
        warned: Collection[tuple[Limit, float]],
        events: EventWriter,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`so_far`: what this and all earlier attempts have cost until now. `warned`: limits that were warned of."""
        self._spending = Spending(max_money=limits.max_money, max_hours=limits.max_hours)
        self._dollars_per_hour = dollars_per_hour
        self._so_far = so_far
        self._warned = set(warned)
        self._events = events
        self._clock = clock
        self._begin = clock()
        self._is_reached = False

    @property
    def reserve_seconds(self) -> float:
        """What has to be left when the run is parked."""
        return SAVES_KEPT * self._events.save_seconds + self._events.step_seconds + SPARE_SECONDS

    def spent(self) -> Spent:
        """What the run has cost until now."""
        seconds = self._clock() - self._begin
        rate, dollars = self._dollars_per_hour, self._so_far.dollars
        return Spent(
            self._so_far.seconds + seconds,
            None if rate is None else (dollars or 0.0) + seconds * rate / 3600,
        )

    def look(self) -> str:
        """Warn where that is due; returns why the run is to be parked now, once, and nothing while it may go on."""
        if self._is_reached:
            return ""  # who leaves the run looks here again
        so_far = self.spent()
        left = seconds_left(self._spending, so_far, self._dollars_per_hour)
        if left is None:
            return ""
        seconds, limit = left
        if seconds <= self.reserve_seconds:
            self._is_reached = True
            message = f"{self._words(limit, so_far)}: the run is parked while the rest covers a save"
            self._record(limit, so_far, message, parks=True)
            return message
        self._warn_of("max_money", so_far)
        self._warn_of("max_hours", so_far)
        return ""

    def _warn_of(self, limit: Limit, so_far: Spent) -> None:
        allowed, amount = limit_values(self._spending, so_far, limit)
        if allowed and amount >= WARN_SHARE * allowed and (limit, allowed) not in self._warned:
            self._warned.add((limit, allowed))
            self._record(limit, so_far, f"{self._words(limit, so_far)}; at all of it the run is parked", parks=False)

    def _words(self, limit: Limit, so_far: Spent) -> str:
        allowed, amount = limit_values(self._spending, so_far, limit)
        most = limit_words(limit, allowed)
        return f"{limit_words(limit, amount)} of budget.{limit} = {most} are spent ({int(100 * amount / allowed)}%)"

    def _record(self, limit: Limit, so_far: Spent, message: str, *, parks: bool) -> None:
        allowed, amount = limit_values(self._spending, so_far, limit)
        self._events.write(
            BudgetUsed(
                limit=limit, allowed=allowed, spent=amount, message=message, parks=parks,
                reserve_seconds=self.reserve_seconds,
            ),
            durable=True,
        )  # fmt: skip


def find_price(profile: Profile, device: str, num_cards: int, events: EventWriter) -> RunPrice | None:
    """What an hour of the run costs on `device`, as run_opened names it.

    Raises:
        ProfileError: a budget in money needs a price, and there is none.
    """
    try:
        price = device_price(device, num_cards, profile.hardware.price_per_hour)
    except ProfileError as error:  # a table of prices that is wrong is no reason to train nothing
        if profile.budget.max_money is not None:
            raise
        events.warn(f"What the run costs is not counted: {error.message}")
        return None
    if price is None and profile.budget.max_money is not None:
        raise unknown_price(device.partition(": ")[2])
    return price


def watch_budget(run: Run, limits: BudgetSection, price: RunPrice | None, events: EventWriter) -> BudgetWatch:
    """The watch over a run's budget, once the attempt is recorded that begins."""
    status = read_status(run)
    saves = (record.seconds for record in Tail(run.journal).records() if isinstance(record, CheckpointSaved))
    events.save_seconds = max(events.save_seconds, *list(saves)[-1:], 0.0)
    return BudgetWatch(
        limits,
        None if price is None else price.dollars_per_hour,
        spent_so_far(status),
        status.state.spending.warned.items(),
        events,
    )
