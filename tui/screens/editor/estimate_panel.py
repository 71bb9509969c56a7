"""The editor's estimate: the card it is for, what the profile takes there, a closer look, and changes that fit."""

import asyncio
from collections.abc import Callable
from typing import Any

from textual.screen import Screen

from ftui.errors import FtuiError
from ftui.estimate.api import Known
from ftui.estimate.result import Estimate
from ftui.estimate.simulation import with_libraries
from ftui.hardware.devices import Card
from ftui.helper.client import Helper
from ftui.profile import recent
from ftui.profile.consent import check_remote_code
from ftui.profile.schema import Profile
from ftui.profile.tiers import tier_layer, tier_names, tier_reasons

from ...drawing.editor.form_estimate import CardEstimate
from ...drawing.editor.form_pick import Choice
from ...form.edits import removed_keys, with_values
from ...form.estimates import MachineCards, card_choices, change_choices, detect_cards, estimate_on
from ...form.profile_form import ProfileForm
from ..dialogs import MessageScreen
from ..pick import PickScreen, pick
from .component import Component

STILL = "It is still counting and simulating."
NOT_COUNTED = "It fits as it is. c counts the rows: if some are cut, f may find room for longer ones."


class EstimatePanel(Component):
    """`card`: the one that is estimated for; `on_card`: the estimate of the values as they are, also of those typed."""

    def __init__(self, screen: Screen[Any], form: ProfileForm, redraw: Callable[[], None]) -> None:
        super().__init__(screen, form, redraw)
        self.cards = MachineCards()
        self.card: Card | None = None
        self.on_card = CardEstimate(None, None)
        self._estimated_for: tuple[object, ...] = ()
        self._measured: tuple[object, Known] | None = None  # by a closer look, and of which profile and card
        self._helper: Helper | None = None

    @property
    def is_measuring(self) -> bool:
        """Whether a closer look is under way."""
        return self._helper is not None

    def close(self) -> None:
        """Ends a closer look; whoever waits for its answer waits no longer."""
        if self._helper is not None:
            self._helper.close()

    async def detect(self) -> None:
        """Looks at this machine, then lays the tier below the profile that was chosen for it last."""
        self.cards = await asyncio.to_thread(detect_cards)
        name = recent.last_tier(str(self.form.path))
        if self.card is None and name in tier_names() and self.form.input_text is None and self.form.query is None:
            self._set_tier(name)
        else:
            self.card = self.card or self.cards.detected
            self.redraw()

    def refresh(self) -> None:
        """Estimates the values as they are; where they have faults, the estimate before them stays, marked as old."""
        profile = self.form.snapshot.profile
        values = (profile, self.card, self._measured)
        if values == self._estimated_for:
            return
        self._estimated_for = values
        before = self.on_card
        if profile is None and before.estimate is not None and before.card == self.card:
            self.on_card = CardEstimate(before.card, before.estimate, is_old=True)
        else:
            self.on_card = estimate_on(profile, self.card, self._known(profile))

    def _known(self, profile: Profile | None) -> Known:
        """What is known beside the profile: the probes of this machine, and a closer look at just this profile."""
        is_measured = self._measured is not None and self._measured[0] == (profile, self.card)
        return self._measured[1] if self._measured is not None and is_measured else self.cards.known_on(self.card)

    # -- the card and its tier

    def choose_card(self) -> None:
        """A list of cards; the tier of the one that is chosen goes below the profile."""

        def choose(choice: Choice) -> None:
            recent.remember_tier(str(self.form.path), choice.value)
            self._set_tier(choice.value)

        choices = card_choices(self.form.snapshot.profile, self.cards, self.form.tier_name)
        title = "the card to estimate for, and its tier below the profile"
        pick(self.screen, PickScreen(title, choices), choose)

    def _set_tier(self, name: str) -> None:
        """`name` is empty for no tier."""
        self.card = self.cards.card_of(name) if name else self.cards.detected
        self.form.set_tier(tier_layer(name) if name else None, tier_reasons(name) if name else {})
        self.redraw()

    # -- changes that fit

    def choose_change(self) -> None:
        """A list of changes that make it fit, or use the card better, each simulated; seconds and more."""
        subject = self._profile_and_card()
        if subject is None:
            return
        if self._helper is not None:
            self.stage.say(STILL)
            return
        trusts_code = subject[0].model.trust_remote_code  # which is run for no simulation
        self._helper = None if trusts_code else Helper()
        self.screen.run_worker(self._choose_change(self._helper, *subject), group="fit", exclusive=True)
        self.redraw()

    async def _choose_change(self, helper: Helper | None, profile: Profile, card: Card) -> None:
        draft, known, estimate = self.form.draft, self._known(profile), self.on_card.estimate

        def change(choice: Choice) -> None:
            values = choice.value
            if self.form.draft.text == draft.text and self.edit(lambda draft: with_values(draft, values)):
                changed = list(map(".".join, values))
                gone = [name for name in removed_keys(draft, self.form.draft, ()) if name not in changed]
                without = f", without {', '.join(gone)}" if gone else ""
                self._answer(f"Changed: {choice.name}{without}.\nu takes it back.")

        try:
            choices = await asyncio.to_thread(change_choices, helper, profile, card, known)
        except FtuiError as error:
            if self.screen.is_attached:
                self.stage.complain(error)
            return
        finally:
            if helper is not None:
                await asyncio.to_thread(helper.close)
                self._helper = None
            if self.screen.is_attached:
                self.redraw()
        if not self.screen.is_attached:
            return
        is_too_large = estimate is not None and estimate.verdict in ("tight", "no")
        if choices:
            title = "what would make it fit" if is_too_large else "what would use the card better"
            pick(self.screen, PickScreen(f"{title}: {card.title}", choices), change)
        else:
            self._answer(_explain_no_change(estimate, is_counted=known.counts is not None))

    def _answer(self, text: str) -> None:
        """Shows it until it has been read: a line at the bottom would be cut, and vanish."""
        self.screen.app.push_screen(MessageScreen("", text))

    def _profile_and_card(self) -> tuple[Profile, Card] | None:
        """What can be estimated; says what is missing."""
        profile, card = self.form.snapshot.profile, self.card
        if profile is None or card is None:
            self.stage.say("The profile has errors: fix them first." if card else "t chooses a card first.", "warn")
            return None
        return profile, card

    # -- a closer look

    def look_closer(self) -> None:
        """Counts the rows and simulates the model in a process with the training libraries; seconds and more.

        The form goes on meanwhile, and leaving it ends the process.
        """
        subject = self._profile_and_card()
        if subject is None:
            return
        if self._helper is not None:
            self.stage.say(STILL)
            return
        try:
            check_remote_code(subject[0], ())  # the helper would run the model's own code
        except FtuiError as error:
            self.stage.complain(error)
            return
        self._helper = Helper()
        self.screen.run_worker(self._measure(self._helper, *subject), group="closer")
        self.redraw()

    async def _measure(self, helper: Helper, profile: Profile, card: Card) -> None:
        known, problem = self.cards.known_on(card), None
        try:
            known = await asyncio.to_thread(with_libraries, helper, profile, card, known)
            problem = known.simulation_problem
        except FtuiError as error:
            problem = error
        finally:
            await asyncio.to_thread(helper.close)
            self._helper = None
        if problem is None:
            self._measured = ((profile, card), known)
        if not self.screen.is_attached:
            return
        self.redraw()
        if problem is None and known.counting_problem is not None:
            how = "" if known.counts is None else " with the tokenizer"
            words = f"Simulated, but the rows could not be counted{how}: {known.counting_problem.message}"
            problem = FtuiError(words, hint=known.counting_problem.hint)
        if problem is not None:
            self.stage.complain(problem)
        else:
            self.stage.say("Counted and simulated.", "good")


def _explain_no_change(estimate: Estimate | None, *, is_counted: bool) -> str:
    """Why nothing is offered. Longer rows would help only where some are known to be cut."""
    if estimate is None or not estimate.memory:
        return "The model is not known."
    if estimate.verdict in ("tight", "no"):
        return "Nothing is known that would make it fit."
    return "It fits as it is, and nothing larger is known to help." if is_counted else NOT_COUNTED
