"""What the form shows beside the values: this machine's card, what the profile takes on a card, what to change.

No Textual; it loads the closed form of the estimate, never a training library.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ftui import units
from ftui.errors import FtuiError, ModelError
from ftui.estimate.api import Known, estimate
from ftui.estimate.estimate_text import BASES
from ftui.estimate.fit import Change
from ftui.estimate.measurements import ProbeRecord, read_probes
from ftui.estimate.simulation import find_changes
from ftui.hardware.detect import Machine, find_machine
from ftui.hardware.devices import Card, GiB, find_card
from ftui.helper.client import Helper
from ftui.profile.origins import Key
from ftui.profile.schema import Profile
from ftui.profile.serialize import flat_values
from ftui.profile.tiers import tier_description, tier_names

from ..drawing.editor.form_estimate import VERDICT_STYLES, VERDICT_WORDS, CardEstimate, verdict_words
from ..drawing.editor.form_pick import Choice
from .path_choices import FAULTS
from .text_values import NONE, format_value


@dataclass(frozen=True)
class MachineCards:
    """What an estimate may be for.

    Attributes:
        detected: the card of this machine; `cpu`: the same without its GPUs.
        proposed: the tier that suits this machine, and `reason` why.
        probes: what was measured here earlier.
        machine: this machine; `None` before it was looked at.
    """

    detected: Card | None = None
    cpu: Card | None = None
    proposed: str = ""
    reason: str = ""
    probes: Sequence[ProbeRecord] = ()
    machine: Machine | None = None

    def known_on(self, card: Card | None) -> Known:
        """What is known before a closer look: what was measured here, and what this machine has."""
        return Known(probes=self.probes, machine=None if self.machine is None else self.machine.room_for(card))

    def card_of(self, tier: str) -> Card:
        """The card a tier is for; this machine's own where it is of that kind."""
        return self.detected if self.detected is not None and self.detected.name == tier else find_card(tier)


def detect_cards() -> MachineCards:
    """Looks at the hardware (some 10 ms where there is a driver)."""
    machine = find_machine()
    return MachineCards(machine.card, machine.cpu.card, machine.proposed, machine.reason, read_probes(), machine)


def estimate_on(profile: Profile | None, card: Card | None, known: Known) -> CardEstimate:
    """The closed form on a card, and what `known` adds to it; a few milliseconds."""
    if card is None:
        return CardEstimate(None, None)
    if profile is None:
        return CardEstimate(card, None, "the profile has errors")
    try:
        return CardEstimate(card, estimate(profile, card, known))
    except FtuiError as error:
        return CardEstimate(card, None, f"{error.message} {error.hint}".strip())
    except FAULTS as error:  # a config.json may say anything
        return CardEstimate(card, None, f"it cannot be estimated: {type(error).__name__}: {error}")


def describe_fit(profile: Profile, tier: str | None) -> tuple[str, str]:
    """One line on the card of the tier, else on this machine's: memory and whether it fits; and the style it is in."""
    cards = detect_cards()
    card = cards.card_of(tier) if tier else cards.cpu if profile.hardware.device == "cpu" else cards.detected
    if card is None:
        return "", "muted"
    on_card = estimate_on(profile, card, cards.known_on(card))
    if on_card.estimate is None or on_card.estimate.memory is None:
        return f"On {card.title}: not estimated. {on_card.reason}".strip(), "muted"
    memory, style = on_card.estimate.memory, VERDICT_STYLES[on_card.estimate.verdict]
    size = f"~{memory.process / GiB:.1f} GiB ({memory.low / GiB:.1f} to {memory.high / GiB:.1f})"
    return f"On {card.title} ({units.size(card.memory)}): {verdict_words(on_card.estimate)}, {size}.", style


def card_choices(profile: Profile | None, cards: MachineCards, tier: str) -> list[Choice]:
    """Every tier with its verdict on this profile, the one that suits this machine first."""
    choices = []
    if cards.detected is not None:
        verdict = _verdict(profile, cards.detected, cards)
        words = f"{units.size(cards.detected.memory)}, this machine; the profile's own values and defaults{verdict}"
        choices.append(Choice("no tier", words, "", is_current=not tier))
    for name in sorted(tier_names(), key=lambda name: name != cards.proposed):
        card, is_proposed = cards.card_of(name), name == cards.proposed
        words = f"{units.size(card.memory)}, {card.title}{_verdict(profile, card, cards)}"
        suits = f" {cards.reason}." if is_proposed else ""
        facts = (tier_description(name), f"Below the profile lie the values of this tier.{suits}")
        tone = "good" if is_proposed else "muted"
        choices.append(Choice(name, words, name, facts, is_current=name == tier, tone=tone))
    return choices


def _verdict(profile: Profile | None, card: Card, cards: MachineCards) -> str:
    estimated = estimate_on(profile, card, cards.known_on(card)).estimate
    return f"; {verdict_words(estimated)} as it is" if estimated is not None and estimated.memory is not None else ""


def change_choices(helper: Helper | None, profile: Profile, card: Card, known: Known) -> list[Choice]:
    """What would make it fit, or use the card better; simulated by the helper, without one in closed form.

    Raises:
        FtuiError: the model cannot be estimated, or a run of the profile would be refused.
    """
    try:
        changes = find_changes(helper, profile, card, known)
    except FAULTS as error:
        raise ModelError(f"Nothing can be looked for: {type(error).__name__}: {error}.") from error
    now = flat_values(profile)
    return [
        _choice(change, {k: v for k, v in change.values.items() if now.get(k) != (None if v == NONE else v)})
        for change in changes
    ]


def _choice(change: Change, values: Mapping[Key, Any]) -> Choice:
    """`values`: what of the change the profile does not say already."""
    name = ", ".join(f"{key[-1]} {format_value(value)}" for key, value in values.items())
    speed = ""
    if change.slower is not None and abs(change.slower) >= 0.005:
        speed = f", {abs(change.slower):.0%} {'slower' if change.slower > 0 else 'faster'}"
    words = f"~{units.size(change.memory.process)} {VERDICT_WORDS[change.verdict]}{speed}"
    keys = ", ".join(f"{'.'.join(key)} = {format_value(value)}" for key, value in values.items())
    return Choice(name, words, dict(values), (f"memory {BASES[change.memory.basis]}", keys, *change.reasons))
