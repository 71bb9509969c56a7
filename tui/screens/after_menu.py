"""The menu of what can be made of what a run has trained; what is chosen opens the screen of its work."""

from functools import partial
from typing import Any

from textual.screen import Screen

from ftui.errors import FtuiError

from ..drawing.editor.form_pick import Choice
from ..stage import stage
from ..state.after_choices import AfterChoice, Weights, choices_for
from .dialogs import prompt
from .job import JobScreen
from .pick import PickScreen, pick


def open_menu(screen: Screen[Any], weights: Weights) -> None:
    """Over `screen`. Nothing is written before the next screen has said what, where, and with how much room."""

    def choose(choice: Choice) -> None:
        chosen: AfterChoice = choice.value
        if not chosen.question:
            begin(chosen, "")
            return
        try:
            text = chosen.suggest(weights)
        except FtuiError as error:
            stage(screen).complain(error)
        else:
            prompt(screen, chosen.question, text, chosen.check, lambda text: begin(chosen, text))

    def begin(chosen: AfterChoice, text: str) -> None:
        title = f"{chosen.name}: {weights.title}"
        plan = partial(chosen.plan, weights, text)
        screen.app.push_screen(JobScreen(chosen.what, title, plan, lambda: open_menu(screen, weights)))

    choices = [Choice(choice.name, choice.words, choice) for choice in choices_for(weights)]
    pick(screen, PickScreen(f"what to make of {weights.title}", choices), choose)
