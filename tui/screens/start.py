"""What can be started: one list of profiles and of runs to resume."""

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from textual.binding import Binding, BindingType

from ftui.profile.presets import find_profile
from ftui.runs.run_folder import Run

from ..drawing.start_list import about, start_list, title
from ..key_table import BACK, CURSOR_KEYS
from ..stage import stage
from ..state.run_list import RunList
from ..state.start_choices import SHIPPED, StartChoice, filter_choices, find_choices
from .canvas_screen import ListScreen
from .dialogs import prompt

PATH_QUESTION = "The path of a profile, or the name of one that comes with ftui."
FILTER_QUESTION = "Show only what has these words in it; nothing shows all."


class StartScreen(ListScreen[None]):
    """`chosen`: the shipped profile that the cursor is to stand on."""

    HEADING = "what can be started"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open", "open", tooltip="See every value and what would happen; start it there", id="open"),
        Binding("e", "edit", "edit", tooltip="Edit the profile; one that comes with ftui as a copy", id="edit"),
        Binding("r", "rows", "rows", tooltip="Its rows as the model sees them, and what is wrong with them", id="rows"),
        Binding("o", "other", "other file", tooltip="A profile anywhere, by its path", id="other"),
        Binding("slash", "filter", "filter", key_display="/", tooltip="Narrow the list by words", id="filter"),
        *CURSOR_KEYS,
        BACK,
    ]

    def __init__(self, chosen: str = "") -> None:
        super().__init__()
        self._preset = chosen
        self._run_list = RunList()
        self._choices: list[StartChoice] = []
        self._filter = ""

    def on_mount(self) -> None:
        self._search()
        named = (n for n, c in enumerate(self.choices) if c.section == SHIPPED and c.name == self._preset)
        self.set_cursor(next(named, 0))

    def on_screen_resume(self) -> None:
        self._search()
        self.draw()

    def _search(self) -> None:
        """Look at the files and runs again; the cursor stays on its line while that is still there."""
        try:
            self._choices = find_choices(Path.cwd(), self._run_list)
        except OSError as error:  # somebody has removed the folder, or nobody may read it
            self._choices = []
            stage(self).note(f"The current folder cannot be read: {error}.", "bad")
        self.follow_cursor()

    @property
    def choices(self) -> list[StartChoice]:
        """What the filter lets through."""
        return filter_choices(self._choices, self._filter)

    @property
    def choice(self) -> StartChoice | None:
        """What is under the cursor."""
        choices = self.choices
        return choices[self.cursor] if self.cursor < len(choices) else None

    def line_ids(self) -> Sequence[object]:
        return [(choice.profile, choice.run) for choice in self.choices]

    def draw(self) -> None:
        choices, choice, cursor, words, total = self.choices, self.choice, self.cursor, self._filter, len(self._choices)
        self.show(
            title=lambda frame: title(frame, words, len(choices), total),
            body=lambda frame: start_list(frame, choices, cursor, words),
            details=lambda frame: about(frame, choice),
        )

    def action_open(self) -> None:
        if (choice := self.choice) is not None:
            self._show(choice.profile, choice.run)

    def _show(self, profile: Path | None, run: Run | None = None) -> None:
        from .resolved import ResolvedScreen  # with pydantic (0.1 s)

        self.app.push_screen(ResolvedScreen(profile=profile, run=run))

    def action_edit(self) -> None:
        if (choice := self.choice) is None:
            return
        if choice.profile is None:
            stage(self).say("A run keeps the profile it has; enter shows it, and starts another one with other values.")
            return
        from .editor.editor_screen import open_editor  # with pydantic (0.1 s)

        open_editor(self, choice.profile)

    def action_rows(self) -> None:
        if (choice := self.choice) is None:
            return
        from .rows.rows_screen import open_rows_of  # with pydantic (0.1 s)

        path = choice.profile if choice.run is None else choice.run.profile
        if path is not None:
            open_rows_of(self, path, choice.name)

    def action_other(self) -> None:
        prompt(self, PATH_QUESTION, "", lambda text: find_profile(text.strip()), self._show)

    def action_filter(self) -> None:
        def narrow(words: str) -> None:
            self._filter = words
            self.follow_cursor()
            self.draw()

        prompt(self, FILTER_QUESTION, self._filter, str.strip, narrow)
