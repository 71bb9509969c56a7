"""What an hour of a run costs, all its cards together, and who says so."""

from typing import NamedTuple

from ftui.errors import ProfileError
from ftui.hardware.devices import Card, card_for, own_prices, price_of

PROFILE, TABLE, SHIPPED = "hardware.price_per_hour", "your table of prices", "ftui's table of prices"


class RunPrice(NamedTuple):
    """Dollars an hour of all cards of a run, and where that comes from, in words."""

    dollars_per_hour: float
    basis: str


def run_price(card: Card, num_cards: int, from_profile: float | None) -> RunPrice | None:
    """The price of a run on so many of that card; `None` where nobody has said it, as of a machine of one's own.

    `from_profile`: hardware.price_per_hour, for one card; or for the machine, where a run trains on its CPU.

    Raises:
        ProfileError: the user's table of prices is wrong.
    """
    each = price_of(card, from_profile) if card.kind == "cuda" else from_profile
    if each is None:
        return None
    basis = PROFILE if from_profile is not None else TABLE if card.name in own_prices() else SHIPPED
    return RunPrice(each * num_cards, basis)


def device_price(device: str, num_cards: int, from_profile: float | None) -> RunPrice | None:
    """The price where an engine has said what it is on: `cuda: NVIDIA A100-SXM4-40GB`, `cpu: ...`."""
    kind, _, title = device.partition(": ")
    if kind != "cuda":
        return None if from_profile is None else RunPrice(from_profile * num_cards, PROFILE)
    return run_price(card_for(title, None, 0), num_cards, from_profile)


def unknown_price(title: str) -> ProfileError:
    """The complaint where a budget in money has no price to go by."""
    return ProfileError(
        f"budget.max_money is set, and what an hour of {title or 'this machine'} costs is not known.",
        hint="Set hardware.price_per_hour (dollars for one card), or budget.max_hours instead of budget.max_money.",
    )
