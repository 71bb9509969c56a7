"""A closer estimate: the rows counted and the model simulated by a process with the training libraries."""

import asyncio
from typing import TYPE_CHECKING

from ftui.cli.dry_run import DryRun
from ftui.cli.estimate import counted, simulated_by
from ftui.errors import FtuiError
from ftui.estimate.api import Known
from ftui.hardware.devices import Card
from ftui.helper.client import Helper
from ftui.launch.open_run import check_code
from ftui.profile.schema import Profile

from ...stage import stage

if TYPE_CHECKING:
    from .editor_screen import EditorScreen

DOING = "counting and simulating ..."


def look_closer(screen: "EditorScreen") -> None:
    """Seconds and more; the form goes on meanwhile, and leaving it ends the process."""
    profile, card = screen.editing.seen.profile, screen.card
    if profile is None or card is None:
        stage(screen).say("The profile has faults: mend them first." if card else "t chooses a card first.", "warn")
        return
    if screen.helper is not None:
        stage(screen).say("It is still counting and simulating.")
        return
    try:
        check_code(profile, ())  # the helper would run the model's own code
    except FtuiError as error:
        stage(screen).complain(error)
        return
    screen.helper = Helper()
    screen.run_worker(_look(screen, screen.helper, profile, card), group="closer")
    screen.draw()


async def _look(screen: "EditorScreen", helper: Helper, profile: Profile, card: Card) -> None:
    counts: DryRun | None = None
    try:
        counts = await asyncio.to_thread(counted, helper, profile)
        longest = counts.longest if counts.error is None else None
        simulated = await asyncio.to_thread(simulated_by, helper, profile, card, longest)
        screen.known = ((profile, card), Known(counts, simulated, screen.place.probes))
        problem = None
    except FtuiError as error:
        problem = error
    finally:
        await asyncio.to_thread(helper.close)
        screen.helper = None
    if not screen.is_attached:
        return
    screen.draw()
    if problem is not None:
        stage(screen).complain(problem)
    elif counts is not None and counts.error is not None:
        words = f"Simulated, but the rows could not be counted: {counts.error.message}"
        stage(screen).complain(FtuiError(words, hint=counts.error.hint))
    else:
        stage(screen).say("Counted and simulated.", "good")
