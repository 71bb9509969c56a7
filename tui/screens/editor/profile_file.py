"""The editor's file: saving without losing anybody's changes, starting a run, another editor, leaving."""

import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

from textual.binding import Binding, BindingType
from textual.screen import Screen

from ftui.dataset.report import Finding
from ftui.errors import FtuiError, UsageError
from ftui.profile import recent

from ...drawing.wording import place
from ...form.edits import with_value
from ...form.form_fields import field_at
from ...form.profile_form import ProfileForm
from ...form.text_values import format_list
from ...state import autosave
from ...state.profile_paths import current_folder, is_shipped
from ..dialogs import ConfirmScreen, prompt
from .component import ALLOW, Component, blocking_findings

Then = Callable[[], object]
ERRORS_QUESTION = "A run would not start with these rows: {} (r shows them). Allow that in data.allow, and continue?"
NAME_QUESTION = "Where it is saved; a path from the current folder."
UNSAVED_QUESTION = "ftui was ended while this profile had changes that were not saved. Take them up again?"


class LeaveScreen(ConfirmScreen, inherit_bindings=False):
    """What becomes of changes that are not saved: `True` saves them, `False` drops them, no answer stays."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("s,enter", "answer(True)", "save and leave", id="save"),
        Binding("y", "answer(False)", "leave without them", id="drop"),
        Binding("n,escape,q", "dismiss(None)", "stay", id="stay"),
    ]

    def __init__(self, question: str) -> None:
        super().__init__(question, "")
        self._keys = [("s", "save and leave"), ("y", "leave without them"), ("n", "stay")]


class ProfileFile(Component):
    """Writes the draft to its file, and keeps a copy of what is not saved (`autosave`)."""

    def __init__(self, screen: Screen[Any], form: ProfileForm, redraw: Callable[[], None]) -> None:
        super().__init__(screen, form, redraw)
        self._autosave = autosave.Autosave()

    # -- saving

    def save(self, then: Then | None = None) -> None:
        """Writes it to its file; asks where somebody else has written there since, and a shipped profile's new name."""
        form = self.form
        if is_shipped(form.path):
            self.save_as(then)
        elif form.is_changed:
            self._write_or_ask(form.path, then)
        else:
            is_changed = self.attempt(lambda: form.is_changed_on_disk(form.path))
            if is_changed:
                words = f"{place(form.path)} was changed by somebody else since it was opened, and here nothing was."
                self.ask(f"{words} Read it again?", "read it again", self._reload)
            elif is_changed is not None:
                self.stage.say(f"{form.path.name} says the same already.")
                if then is not None:
                    then()

    def _reload(self) -> None:
        self.attempt(self.form.reload)
        self.redraw()

    def save_as(self, then: Then | None = None) -> None:
        """Asks for another file and writes it there; paths in it stay right."""
        folder, path = current_folder(), self.form.path
        if is_shipped(path) and folder is not None:
            path = folder / path.name
        name = str(path.relative_to(folder)) if folder is not None and path.is_relative_to(folder) else str(path)

        prompt(self.screen, NAME_QUESTION, name, check_path, lambda path: self._write_or_ask(path, then), enter="save")

    def _write_or_ask(self, path: Path, then: Then | None) -> None:
        is_changed = self.attempt(lambda: self.form.is_changed_on_disk(path))
        if is_changed:
            is_same = path.absolute() == self.form.path and not self.form.is_new
            what = "was changed by somebody else since it was opened" if is_same else "exists already"
            self.ask(f"{place(path.absolute())} {what}. Replace it?", "replace", lambda: self._write(path, then))
        elif is_changed is not None:
            self._write(path, then)

    def _write(self, path: Path, then: Then | None) -> None:
        if self.attempt(lambda: self.form.save(path)) is not None:
            recent.remember("profile", str(path.absolute()))
            self.keep_draft()
            self.stage.note(f"Saved as {place(path.absolute())}.", "good")
            self.redraw()
            if then is not None:
                then()

    # -- starting

    def start(self) -> None:
        """Saves it, then shows the page of what would be started; asks about errors in the rows first."""
        snapshot = self.form.snapshot
        if snapshot.profile is None or snapshot.missing_files:
            number = len(snapshot.faults) or 1
            words = f"{number} error{'s keep' if number > 1 else ' keeps'} it from starting; n goes to the next."
            self.stage.say(words, "warn")
            return
        findings = blocking_findings(self.stage.row_report, snapshot.profile)
        if not all(finding.is_allowable for finding in findings):
            self.stage.say("Nothing would be trained on in these rows: r shows why.", "warn")
        elif findings:
            question = ERRORS_QUESTION.format(", ".join(finding.name for finding in findings))
            self.ask(question, "allow it, continue", lambda: self._allow_and_start(findings))
        else:
            self._save_and_start()

    def _allow_and_start(self, findings: Sequence[Finding]) -> None:
        """Puts the names of these findings into data.allow, as one step, then starts."""
        profile, field = self.form.snapshot.profile, field_at(ALLOW)
        assert profile is not None and field is not None, "they were found in the rows of a valid draft"
        names = [*profile.data.allow, *dict.fromkeys(finding.name for finding in findings)]
        if self.edit(lambda draft: with_value(draft, field, ALLOW, format_list(names))):
            self._save_and_start()

    def _save_and_start(self) -> None:
        def start() -> None:
            from ..resolved import ResolvedScreen

            self.screen.app.push_screen(ResolvedScreen(profile=self.form.path, tier=self.form.tier_name or None))

        if self.form.is_changed:
            self.save(start)
        else:
            start()

    # -- another editor

    def edit_outside(self) -> None:
        """Opens the text in $VISUAL or $EDITOR; what comes back is one step, which u takes back."""
        try:
            command = shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi")
        except ValueError:  # a quote that is not closed
            command = []
        if not command or shutil.which(command[0]) is None:
            self.stage.say("Set $EDITOR to an editor that is installed.", "warn")
            return
        text = self.attempt(lambda: self._edit_outside(command))
        if text is not None:
            self.form.set_draft(self.form.draft.to(text))
        self.redraw()
        self.screen.app.refresh()

    def _edit_outside(self, command: list[str]) -> str:
        with tempfile.TemporaryDirectory(prefix="ftui-") as folder:
            path = Path(folder) / self.form.path.name
            path.write_bytes(self.form.draft.text.encode())
            problem: OSError | None = None
            with self.screen.app.suspend():
                try:
                    subprocess.run([*command, str(path)], check=False)
                except OSError as error:  # raised below: through `suspend` it would leave the terminal suspended
                    problem = error
            if problem is not None:
                hint = "Set $EDITOR to another editor."
                raise FtuiError(f"{command[0]} cannot be started: {problem}.", hint=hint) from problem
            try:
                return path.read_bytes().decode()
            except (OSError, UnicodeDecodeError) as error:
                raise FtuiError(f"What the editor left cannot be read: {error}.") from error

    # -- leaving

    def leave(self, then: Then | None = None) -> None:
        """Goes back, or on with `then` (such as out of ftui); asks where something would be lost."""

        def leave() -> None:
            self._autosave.end()
            (then or self.screen.app.pop_screen)()

        def on_answer(is_saved: bool | None) -> None:
            if is_saved:
                self.save(leave)
            elif is_saved is not None:
                leave()

        if self.form.has_unsaved_work:
            question = f"{self.form.path.name} has changes that are not saved."
            self.screen.app.push_screen(LeaveScreen(question), on_answer)
        else:
            leave()

    def keep_draft(self) -> None:
        """Keeps a copy of what is not saved: ftui may be ended from outside at any time."""
        self._autosave.look(self.form.path, self.form.text if self.form.has_unsaved_work else None)

    def release(self) -> None:
        """Lets other editors offer the copy: this one is closed."""
        self._autosave.release()

    def offer_unsaved(self) -> None:
        """Offers what was not saved when ftui was ended from outside, as one step that u takes back."""
        copy = autosave.find_draft(self.form.path)
        if copy is None:
            return
        if copy.text == self.form.draft.text:
            copy.forget()
            return

        def on_answer(answer: bool | None) -> None:
            if answer:
                self.form.set_draft(self.form.draft.to(copy.text))
                self.redraw()
                self.keep_draft()
            if answer is not None:  # no answer: it is asked again the next time
                copy.forget()

        question = ConfirmScreen(UNSAVED_QUESTION, "take them up", no="drop them", later="not now")
        self.screen.app.push_screen(question, on_answer)


def check_path(text: str) -> Path:
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
