"""The editor's files: saving without losing anybody's changes, starting, leaving, and another editor."""

import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ftui.errors import FtuiError, UsageError
from ftui.profile import recent

from ...drawing.wording import place
from ...stage import stage
from ...state.profile_paths import current_folder, is_shipped
from ..ask import AskScreen, PromptScreen
from .row_check import allow, red_rows

if TYPE_CHECKING:
    from .editor_screen import EditorScreen

RED_QUESTION = "A run would not start with these rows: {} (r shows them). Allow that in data.allow, and go on?"
NAME_QUESTION = "Where it is saved; a path from the current folder."


def save(screen: "EditorScreen", then: Callable[[], object] | None = None) -> None:
    """To its file; asks where somebody else has written there since, and for a name where it comes with ftui."""
    editing = screen.editing
    if is_shipped(editing.path):
        save_as(screen, then)
        return
    if not editing.is_changed:
        changed = screen.tried(lambda: editing.changed_meanwhile(editing.path))
        if changed:
            _ask_and_read(screen)
        elif changed is not None:
            stage(screen).say(f"{editing.path.name} says the same already.")
            if then is not None:
                then()
        return
    _ask_and_write(screen, editing.path, then)


def _ask_and_read(screen: "EditorScreen") -> None:
    """Where somebody else has written and the draft says nothing of its own."""

    def answered(yes: bool | None) -> None:
        if yes:
            screen.tried(screen.editing.read_again)
            screen.draw()

    words = f"{place(screen.editing.path)} was changed by somebody else since it was opened, and here nothing was."
    screen.app.push_screen(AskScreen(stage(screen).look, f"{words} Read it again?", "read it again"), answered)


def save_as(screen: "EditorScreen", then: Callable[[], object] | None = None) -> None:
    """To another file; paths in it stay right."""
    editing = screen.editing
    here, path = current_folder(), editing.path
    if is_shipped(path) and here is not None:
        path = here / path.name
    told = str(path.relative_to(here)) if here is not None and path.is_relative_to(here) else str(path)

    def entered(answer: str | None) -> None:
        if answer is not None:
            _ask_and_write(screen, checked(answer), then)

    screen.app.push_screen(PromptScreen(stage(screen).look, NAME_QUESTION, told, checked, enter="save"), entered)


def checked(text: str) -> Path:
    """The path that was typed.

    Raises:
        UsageError: no profile can be written there.
    """
    if not text.strip() or "\0" in text:
        raise UsageError("Type a path.")
    try:
        path = Path(text.strip()).expanduser().absolute()
        path.exists()  # raises for a name that no file can have
    except (OSError, RuntimeError) as error:
        raise UsageError(f"No file can be written there: {error}.") from error
    if path.suffix != ".toml":
        raise UsageError(f"{path.name} does not end in .toml.", hint="Profiles are found by that.")
    if is_shipped(path):
        raise UsageError("The profiles that come with ftui stay as they are.", hint="Save it in a folder of yours.")
    if not path.parent.is_dir():
        raise UsageError(f"There is no folder {place(path.parent)}.")
    if path.is_dir():
        raise UsageError(f"{place(path)} is a folder.")
    return path


def _ask_and_write(screen: "EditorScreen", path: Path, then: Callable[[], object] | None) -> None:
    def write() -> None:
        def act() -> bool:
            screen.editing.save(path)
            return True

        if screen.tried(act):
            recent.note("profile", str(path.absolute()))
            screen.keep_draft()
            stage(screen).say(f"Saved as {place(path.absolute())}.", "good")
            screen.draw()
            if then is not None:
                then()

    def answered(yes: bool | None) -> None:
        if yes:
            write()

    changed = screen.tried(lambda: screen.editing.changed_meanwhile(path))
    if changed is None:
        return
    if not changed:
        write()
        return
    same = path.absolute() == screen.editing.path.absolute() and not screen.editing.is_new
    what = "was changed by somebody else since it was opened" if same else "exists already"
    screen.app.push_screen(
        AskScreen(stage(screen).look, f"{place(path.absolute())} {what}. Replace it?", "replace"), answered
    )


def start(screen: "EditorScreen") -> None:
    """Save it, then the page of what would be started."""
    editing = screen.editing
    if editing.seen.profile is None or editing.seen.absent:
        number = len(editing.seen.told) or 1
        stage(screen).say(
            f"{number} fault{'s keep' if number > 1 else ' keeps'} it from starting; n goes to the next.", "warn"
        )
        return

    def go_on() -> None:
        from ..resolved import ResolvedScreen

        tier = editing.tier.name.removeprefix("tier ") if editing.tier else None
        screen.app.push_screen(ResolvedScreen(profile=editing.path, tier=tier))

    def answered(yes: bool | None) -> None:
        if yes and red and not screen.tried(lambda: allow(screen, red)):
            return
        if yes and editing.is_changed:
            save(screen, go_on)
        elif yes:
            go_on()

    red = red_rows(screen)
    if not all(one.is_allowable for one in red):
        stage(screen).say("Nothing would be learned of these rows: r shows why.", "warn")
    elif red:
        question = RED_QUESTION.format(", ".join(one.name for one in red))
        screen.app.push_screen(AskScreen(stage(screen).look, question, "allow it, go on"), answered)
    else:
        answered(True)


def edit_outside(screen: "EditorScreen") -> None:
    """The text in $VISUAL or $EDITOR; what comes back is one step, which u takes back."""
    try:
        words = shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi")
    except ValueError:  # a quote that is not closed
        words = []
    if not words or shutil.which(words[0]) is None:
        stage(screen).say("Set $EDITOR to an editor that is installed.", "warn")
        return
    with tempfile.TemporaryDirectory(prefix="ftui-") as folder:
        path = Path(folder) / screen.editing.path.name
        path.write_bytes(screen.editing.draft.text.encode())
        problem = None
        with screen.app.suspend():
            try:
                subprocess.run([*words, str(path)], check=False)
            except OSError as error:
                problem = FtuiError(f"{words[0]} cannot be started: {error}.", hint="Set $EDITOR to another editor.")
        if problem is not None:
            stage(screen).complain(problem)
        else:
            screen.tried(lambda: _take_back(screen, path))
    screen.app.refresh()


def _take_back(screen: "EditorScreen", path: Path) -> None:
    try:
        text = path.read_bytes().decode()
    except (OSError, UnicodeDecodeError) as error:
        raise FtuiError(f"What the editor left cannot be read: {error}.") from error
    screen.take(screen.editing.draft.to(text))
