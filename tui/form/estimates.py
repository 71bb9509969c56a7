"""What the form tells beside the values: the card of this machine, what the profile would take on one, what to change.

No Textual; it loads the closed form of the estimate, never a training library.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ftui import units
from ftui.errors import FtuiError, ModelError
from ftui.estimate.api import Known, estimate, setup_for, suggestions
from ftui.estimate.fit import Change
from ftui.estimate.measurements import Measured, recall
from ftui.estimate.setup import Setup
from ftui.hardware.detect import find_machine
from ftui.hardware.devices import Card, card_named
from ftui.profile.origins import Key
from ftui.profile.schema import Profile
from ftui.profile.serialize import flat
from ftui.profile.tiers import description, tier_names

from ..drawing.editor.form_estimate import VERDICT_STYLES, VERDICT_WORDS, Forecast, GiB, verdict_words
from ..drawing.editor.form_pick import Choice
from .pickers import FAULTS
from .text_values import NONE, spelt


@dataclass(frozen=True)
class Place:
    """What it is estimated for.

    `detected`: the card of this machine (`cpu`: without its GPUs), and `proposed` the tier that suits it.
    """

    detected: Card | None = None
    cpu: Card | None = None
    proposed: str = ""
    reason: str = ""
    probes: Sequence[Measured] = ()


def look_around() -> Place:
    """A look at the hardware (some 10 ms where there is a driver)."""
    machine = find_machine()
    return Place(machine.card, machine.cpu.card, machine.proposed, machine.reason, recall())


def forecast(profile: Profile | None, card: Card | None, place: Place, known: Known | None = None) -> Forecast:
    """Closed form, and what `known` adds to it; a few milliseconds."""
    if card is None:
        return Forecast(None, None)
    if profile is None:
        return Forecast(card, None, "the profile has faults")
    try:
        return Forecast(card, estimate(profile, card, known or Known(probes=place.probes)))
    except FtuiError as error:
        return Forecast(card, None, f"{error.message} {error.hint}".strip())
    except FAULTS as error:  # a config.json may say anything
        return Forecast(card, None, f"it cannot be estimated: {type(error).__name__}: {error}")


def verdict_on(profile: Profile, tier: str | None) -> tuple[str, str]:
    """One line on the card of the tier, else on this machine's: memory and whether it fits; and the style it is in."""
    around = look_around()
    card = card_of(tier, around) if tier else around.cpu if profile.hardware.device == "cpu" else around.detected
    if card is None:
        return "", "muted"
    told = forecast(profile, card, around)
    if told.told is None or told.told.memory is None:
        return f"On {card.title}: not estimated. {told.reason}".strip(), "muted"
    memory, verdict = told.told.memory, told.told.verdict
    size = f"~{memory.process / GiB:.1f} GiB ({memory.low / GiB:.1f} to {memory.high / GiB:.1f})"
    return f"On {card.title} ({units.size(card.memory)}): {verdict_words(told.told)}, {size}.", VERDICT_STYLES[verdict]


def cards(profile: Profile | None, place: Place, tier: str) -> list[Choice]:
    """Every tier with its verdict on this profile, the one that suits this machine first."""
    found = []
    detected = place.detected
    if detected is not None:
        told = _verdict(profile, detected, place)
        words = f"{units.size(detected.memory)}, this machine; the profile's own values and defaults{told}"
        found.append(Choice("no tier", words, "", is_current=not tier))
    for name in sorted(tier_names(), key=lambda name: name != place.proposed):
        card = card_of(name, place)
        suits = f" {place.reason}." if name == place.proposed else ""
        words = f"{units.size(card.memory)}, {card.title}{_verdict(profile, card, place)}"
        facts = (description(name), f"Below the profile lie the values of this tier.{suits}")
        tone = "good" if name == place.proposed else "muted"
        found.append(Choice(name, words, name, facts, is_current=name == tier, tone=tone))
    return found


def _verdict(profile: Profile | None, card: Card, place: Place) -> str:
    told = forecast(profile, card, place).told if profile is not None else None
    return f"; {verdict_words(told)} as it is" if told is not None and told.memory is not None else ""


def card_of(tier: str, place: Place) -> Card:
    """The card a tier is for; this machine's own where it is of that kind."""
    if place.detected is not None and place.detected.name == tier:
        return place.detected
    return card_named(tier)


def changes(profile: Profile, card: Card, place: Place, known: Known | None = None) -> list[Choice]:
    """What would make it fit, or use the card better. `known`: what was counted of the rows of this profile.

    Raises:
        FtuiError: the model cannot be estimated.
    """
    known = known or Known(probes=place.probes)
    try:
        setup = setup_for(profile, card, known)
        found = suggestions(setup, known) if isinstance(setup, Setup) else []
    except FAULTS as error:
        raise ModelError(f"Nothing can be looked for: {type(error).__name__}: {error}.") from error
    now = flat(profile)
    return [_choice(change, {k: v for k, v in change.values.items() if now.get(k) != _meant(v)}) for change in found]


def _meant(value: Any) -> Any:
    return None if value == NONE else value


def _choice(change: Change, values: Mapping[Key, Any]) -> Choice:
    """`values`: what of the change the profile does not say already."""
    name = ", ".join(f"{key[-1]} {spelt(value)}" for key, value in values.items())
    speed = ""
    if change.slower is not None and abs(change.slower) >= 0.005:
        speed = f", {abs(change.slower):.0%} {'slower' if change.slower > 0 else 'faster'}"
    words = f"~{units.size(change.memory.process)} {VERDICT_WORDS[change.verdict]}{speed}"
    facts = (", ".join(f"{'.'.join(key)} = {spelt(value)}" for key, value in values.items()), *change.reasons)
    return Choice(name, words, dict(values), facts)
