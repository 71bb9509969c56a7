"""What can be started: one list of profiles and of runs to go on with."""

from pathlib import Path
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen

from ftui.profile.presets import find_profile
from ftui.runs.run_folder import Run

from ..drawing.start_list import about, start_list, title
from ..render.canvas import Canvas
from ..stage import stage
from ..state.run_list import RunList
from ..state.start_choices import SHIPPED, StartChoice, matching, offers
from .dialogs import PromptScreen

PAGE = 10
PATH_QUESTION = "The path of a profile, or the name of one that comes with ftui."
FILTER_QUESTION = "Show only what has these words in it; nothing shows all."


class StartScreen(Screen[None]):
    """`chosen`: the shipped profile that the cursor is to stand on."""

    HEADING = "what can be started"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open", "open", tooltip="See every value and what would happen; start it there", id="open"),
        Binding("e", "edit", "edit", tooltip="Edit the profile; one that comes with ftui as a copy", id="edit"),
        Binding("r", "rows", "rows", tooltip="Its rows as the model sees them, and what is wrong with them", id="rows"),
        Binding("o", "other", "other file", tooltip="A profile anywhere, by its path", id="other"),
        Binding("slash", "filter", "filter", key_display="/", tooltip="Narrow the list by words", id="filter"),
        Binding("up,k", "move(-1)", "up", show=False, tooltip="A line up", id="up"),
        Binding("down,j", "move(1)", "down", show=False, tooltip="A line down", id="down"),
        Binding("pageup", f"move(-{PAGE})", "page up", show=False, tooltip=f"{PAGE} lines up", id="page-up"),
        Binding("pagedown", f"move({PAGE})", "page down", show=False, tooltip=f"{PAGE} lines down", id="page-down"),
        Binding("home", "move(-1000000)", "first", show=False, tooltip="The first line", id="first"),
        Binding("end", "move(1000000)", "last", show=False, tooltip="The last line", id="last"),
        Binding("escape,backspace,q", "app.pop_screen", "back", key_display="esc", tooltip="Back", id="back"),
    ]

    def __init__(self, chosen: str = "") -> None:
        super().__init__()
        self._chosen = chosen
        self._roster = RunList()
        self._found: list[StartChoice] = []
        self._filter = ""
        self.cursor = 0

    def compose(self) -> ComposeResult:
        look = stage(self).look
        for name in ("title", "body", "details", "keys"):
            yield Canvas(look, id=name)

    def on_mount(self) -> None:
        self._search()
        named = (n for n, o in enumerate(self.offers) if o.section == SHIPPED and o.name == self._chosen)
        self.cursor = next(named, 0)
        self._draw()
        stage(self).draw_keys()

    def on_screen_resume(self) -> None:
        self._search()
        self._draw()
        stage(self).draw_keys()

    def _search(self) -> None:
        """Look at the files and runs again; the cursor stays on its line while that is still there."""
        before = self.offer
        try:
            self._found = offers(Path.cwd(), self._roster)
        except OSError as error:  # somebody has removed the folder, or nobody may read it
            self._found = []
            stage(self).say(f"The current folder cannot be read: {error}.", "bad")
        self._stay_on(before)

    def _stay_on(self, before: StartChoice | None) -> None:
        same = [n for n, o in enumerate(self.offers) if before and (o.profile, o.run) == (before.profile, before.run)]
        self.cursor = same[0] if same else max(0, min(self.cursor, len(self.offers) - 1))

    @property
    def offers(self) -> list[StartChoice]:
        """What the filter lets through."""
        return matching(self._found, self._filter)

    @property
    def offer(self) -> StartChoice | None:
        """What is under the cursor."""
        shown = self.offers
        return shown[self.cursor] if self.cursor < len(shown) else None

    def _draw(self) -> None:
        shown, cursor, words, found = self.offers, self.cursor, self._filter, len(self._found)
        offer = self.offer
        self.query_one("#title", Canvas).show(lambda frame: title(frame, words, len(shown), found))
        self.query_one("#body", Canvas).show(lambda frame: start_list(frame, shown, cursor, words))
        self.query_one("#details", Canvas).show(lambda frame: about(frame, offer))

    def action_move(self, by: int) -> None:
        self.cursor = max(0, min(len(self.offers) - 1, self.cursor + by))
        self._draw()

    def action_open(self) -> None:
        if (offer := self.offer) is not None:
            self._show(offer.profile, offer.run)

    def _show(self, profile: Path | None, run: Run | None = None) -> None:
        from .resolved import ResolvedScreen  # with pydantic (0.1 s)

        self.app.push_screen(ResolvedScreen(profile=profile, run=run))

    def action_edit(self) -> None:
        if (offer := self.offer) is None:
            return
        if offer.profile is None:
            stage(self).say("A run keeps the profile it has; enter shows it, and starts another one with other values.")
            return
        from .editor.editor_screen import open_editor  # with pydantic (0.1 s)

        open_editor(self, offer.profile)

    def action_rows(self) -> None:
        if (offer := self.offer) is None:
            return
        from .rows.open_rows import open_rows_of  # with pydantic (0.1 s)

        path = offer.profile if offer.run is None else offer.run.profile
        if path is not None:
            open_rows_of(self, path, offer.name)

    def action_other(self) -> None:
        found: list[Path] = []

        def check(text: str) -> None:
            found[:] = [find_profile(text.strip())]

        def entered(answer: str | None) -> None:
            if answer is not None:
                self._show(found[0])

        self.app.push_screen(PromptScreen(stage(self).look, PATH_QUESTION, "", check), entered)

    def action_filter(self) -> None:
        def entered(answer: str | None) -> None:
            if answer is not None:
                before, self._filter = self.offer, answer.strip()
                self._stay_on(before)
                self._draw()

        self.app.push_screen(PromptScreen(stage(self).look, FILTER_QUESTION, self._filter, str.strip), entered)
