"""In the list of files of rows: what each is taken for, and how surely, as the helper process finds out."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ftui.dataset import report_text
from ftui.errors import FtuiError
from ftui.helper.client import Helper

from ...drawing.editor.form_pick import Choice
from ...form.pickers import facts_of_data
from ...stage import stage
from ..pick import PickScreen

if TYPE_CHECKING:
    from .editor_screen import EditorScreen

MOST_FILES = 60


def recognise(screen: "EditorScreen", pick: PickScreen, choices: Sequence[Choice], folder: Path) -> None:
    """One file after the other, as long as the list is open."""
    files = [choice for choice in choices if (folder / Path(str(choice.value)).expanduser()).is_file()]
    if files:
        screen.run_worker(_look(screen, pick, files[:MOST_FILES], folder), group="recognise", exclusive=True)


async def _look(screen: "EditorScreen", pick: PickScreen, files: Sequence[Choice], folder: Path) -> None:
    helper = Helper()
    given = _given(screen)
    try:
        for choice in files:
            path = folder / Path(str(choice.value)).expanduser()
            answer = await asyncio.to_thread(helper.ask, "recognise", path=str(path), **given)
            if not pick.is_attached:
                return
            for told in answer[:1]:
                tone = "warn" if told.get("problem") else "muted"
                pick.learn(str(choice.value), f"{_words(told)}, {choice.words}", _facts(told, choice, folder), tone)
    except FtuiError as error:
        if pick.is_attached:
            stage(screen).say(f"The forms of the files are not known: {error.message}", "warn")
    finally:
        helper.close()


def _given(screen: "EditorScreen") -> dict[str, Any]:
    """How the draft says that rows are read, where it has no faults."""
    profile = screen.editing.seen.profile
    if profile is None:
        return {}
    section = profile.data
    return {"columns": dict(section.columns), "roles": dict(section.roles), "encoding": section.encoding}


def _words(told: dict[str, Any]) -> str:
    """`messages 100%`, or that it cannot be learned from."""
    if not told.get("form"):
        return "no known form" if "form" in told else "cannot be read"
    return f"{told['form']} {report_text.percent(told['confidence'])}"


def _facts(told: dict[str, Any], choice: Choice, folder: Path) -> tuple[str, ...]:
    plain = facts_of_data(str(choice.value), folder)
    if "form" not in told:
        return (str(told.get("problem", "")), *plain[1:])
    sure = f"{report_text.percent(told['confidence'])} of the first {told['num_looked']} rows have that form"
    known = f"{told['form'] or 'no known form'}: {told['why']}; {sure}" if told["form"] else "no known form"
    problem = (told["problem"],) if told.get("problem") else ()
    return (known, *problem, *plain)
