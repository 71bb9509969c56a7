"""What the files and folders of an open list hold, as the helper process finds out, one after the other."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from textual.screen import Screen

from ftui.dataset import report_text
from ftui.errors import FtuiError
from ftui.helper.client import Helper

from ...drawing.editor.form_pick import Choice
from ...form.path_choices import describe_data
from ..pick import PickScreen


class PathLookup:
    """Tells `opened` what is found. `folder`: what paths are relative to; `options`: how rows are read."""

    def __init__(self, screen: Screen[Any], opened: PickScreen, folder: Path, options: dict[str, Any]) -> None:
        self._screen, self._opened, self._folder, self._options = screen, opened, folder, options
        self._waiting: list[Choice] = []
        self._is_looking = False

    def add(self, choices: Sequence[Choice]) -> None:
        """Looks at these too; names that are neither a file nor a folder here are passed over."""
        self._waiting += [choice for choice in choices if self._is_here(choice)]
        if self._waiting and not self._is_looking:
            self._is_looking = True
            self._screen.run_worker(self._look(), group="lookup", exclusive=True)

    def _path(self, choice: Choice) -> Path:
        return self._folder / Path(str(choice.value)).expanduser()

    def _is_here(self, choice: Choice) -> bool:
        try:
            return self._path(choice).exists()
        except (OSError, RuntimeError, ValueError):  # no file can have this name
            return False

    async def _look(self) -> None:
        helper = Helper()
        try:
            while self._waiting and self._opened.is_attached:
                await self._look_at(helper, self._waiting.pop(0))
        finally:
            self._is_looking = False
            helper.close()

    async def _look_at(self, helper: Helper, choice: Choice) -> None:
        path, value = self._path(choice), str(choice.value)
        try:
            if path.is_dir():
                facts, words, tone = await asyncio.to_thread(helper.ask, "describe_folder", path=str(path)), "", "muted"
            else:
                (form,) = await asyncio.to_thread(helper.ask, "recognise", path=str(path), **self._options)
                facts, words = describe_form(form, describe_data(value, self._folder)), f"{name_form(form)}, "
                tone = "warn" if form.get("problem") else "muted"
        except FtuiError as error:
            facts, words, tone = [f"{error.message} {error.hint}".strip()], "", "warn"
        if self._opened.is_attached:
            self._opened.learn(value, words + choice.words, tuple(facts), tone)


def name_form(form: dict[str, Any]) -> str:
    """`messages 100%`, or that it cannot be trained on."""
    if not form.get("form"):
        return "no known form" if "form" in form else "cannot be read"
    return f"{form['form']} {report_text.percent(form['confidence'])}"


def describe_form(form: dict[str, Any], plain: Sequence[str]) -> list[str]:
    """What the helper says of a file, before what could be seen without it."""
    problem = form.get("problem")
    if "form" not in form:
        return [str(problem or ""), *plain[1:]]
    words = "no known form"
    if form["form"]:
        share = f"{report_text.percent(form['confidence'])} of the first {form['num_looked']} rows have that form"
        words = f"{form['form']}: {form['why']}; {share}"
    return [words, *([str(problem)] if problem else []), *plain]
