"""Whether a run's budget allows another attempt: asked by every command that starts, resumes or queues one."""

from msgspec.structs import replace

from ftui.errors import ProfileError
from ftui.hardware.detect import find_machine
from ftui.hardware.run_price import run_price, unknown_price
from ftui.launch.claim_cards import device_kind
from ftui.profile.schema import Profile
from ftui.runs.records.spending import Limit, Spent, limit_values, limit_words, seconds_left, with_more
from ftui.runs.run_folder import Run
from ftui.runs.status import read_status, spent_so_far
from ftui.text import shown


def check_budget(profile: Profile, run: Run | None = None) -> None:
    """Whether the price is known that a budget in money needs, and whether there is something left of the budget.

    Args:
        run: the one that would be resumed; without it nothing is spent yet.

    Raises:
        ProfileError: not so.
    """
    limits = profile.budget
    if limits.max_money is None and limits.max_hours is None:
        return
    machine = find_machine()
    card = machine.cpu.card if device_kind(profile, machine) == "cpu" else machine.card
    price = run_price(card, profile.hardware.num_processes, profile.hardware.price_per_hour)
    if limits.max_money is not None and price is None:
        raise unknown_price(card.title)
    if run is None or not run.facts.exists():
        return
    status = read_status(run)
    spending = replace(status.state.spending, max_money=limits.max_money, max_hours=limits.max_hours)
    so_far, rate = spent_so_far(status), None if price is None else price.dollars_per_hour
    if so_far.dollars is None and rate is not None:  # of attempts that nobody had named a price for
        so_far = Spent(so_far.seconds, so_far.seconds * rate / 3600)
    left = seconds_left(spending, so_far, rate)
    if left is not None and left[0] <= spending.reserve_seconds:
        allowed, amount = limit_values(spending, so_far, left[1])
        raise _is_spent(run, left[1], allowed, amount)


def _is_spent(run: Run, limit: Limit, allowed: float, amount: float) -> ProfileError:
    words, most = limit_words(limit, amount), limit_words(limit, allowed)
    return ProfileError(
        f"{run.profile}: budget.{limit}: {shown(run.name)} has cost {words} of {most}, and what is left only covers "
        "its last save.",
        hint=f'`{with_more(shown(run.name), limit, allowed)}` goes on with more; "none" takes the limit away.',
    )
