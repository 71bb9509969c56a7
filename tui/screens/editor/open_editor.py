"""Opening the editor on a profile; on one that comes with ftui, on a copy under a name that is asked for first."""

from pathlib import Path
from typing import Any

from textual.screen import Screen

from ftui.errors import FtuiError, UsageError

from ...drawing.wording import place
from ...form.editor import Editing
from ...stage import stage
from ...state.profile_paths import current_folder, free_name, is_shipped
from ..ask import PromptScreen
from .editor_screen import EditorScreen
from .file_actions import checked

COPY_QUESTION = "A profile that comes with ftui stays as it is. The name of your copy, which w writes:"


def open_editor(screen: Screen[Any], path: Path) -> None:
    """Over `screen`."""
    if not is_shipped(path):
        _open(screen, lambda: Editing.of(path))
        return

    def free(text: str) -> Path:
        chosen = checked(text)
        if chosen.exists():
            raise UsageError(f"There is a file {place(chosen)}.", hint="Give another name.")
        return chosen

    def entered(answer: str | None) -> None:
        if answer is not None:
            _open(screen, lambda: Editing.copy_of(path, free(answer)))

    here = current_folder()
    name = free_name(here, path.stem).name if here is not None else str(free_name(Path.home(), path.stem))
    screen.app.push_screen(PromptScreen(stage(screen).look, COPY_QUESTION, name, free, enter="edit it"), entered)


def _open(screen: Screen[Any], make: Any) -> None:
    try:
        editing = make()
    except FtuiError as error:
        stage(screen).complain(error)
        return
    screen.app.push_screen(EditorScreen(editing))
