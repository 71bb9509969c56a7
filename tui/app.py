"""The application: which screens there are, how they look, and what every one of them can do."""

import asyncio
import gc
import os
import signal
import sys
import termios
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.command import Provider
from textual.events import Event, Key, Paste, Resize
from textual.screen import Screen
from textual.theme import Theme
from textual.timer import Timer

from ftui.errors import FtuiError
from ftui.runs.run_folder import Run
from ftui.text import cells, shown

from .key_table import draw_footer
from .render.canvas import Canvas
from .render.spans import harmless
from .render.terminal import Terminal
from .render.terminal_call import attention_sequence
from .render.textual_patch import FaultApp
from .render.theme import Look, choose
from .stage import RowReport

SAID_SECONDS = 3.0  # how long a message stands in place of the keys, where no key comes before
TERMINAL_SECONDS = 0.25  # between two looks at whether the terminal is still there
LEAVE_SECONDS = 1.5  # for leaving in order when asked by a signal; then the process ends


def commands() -> type[Provider]:
    """What the palette finds; loaded when it is first opened."""
    from .palette import Commands

    return Commands


class FtuiApp(FaultApp[list[str]]):
    """Opens on the list of runs, on one run, or on what `first` makes. Its value is what to print afterwards."""

    CSS_PATH = "app.tcss"
    COMMANDS: ClassVar[set[type[Provider] | Callable[[], type[Provider]]]] = {commands}
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-wide")]  # noqa: RUF012 (Textual declares it so)
    VERTICAL_BREAKPOINTS = [(0, "-short"), (30, "-tall"), (50, "-high")]  # noqa: RUF012
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("question_mark,f1", "help", "help", key_display="?", tooltip="The keys of this screen", id="help"),
        Binding("T", "other_theme", "theme", tooltip="Light or dark", id="theme", show=False),
        Binding("ctrl+q", "app.leave", "leave", tooltip="Leave ftui; runs keep running", id="leave", show=False),
    ]

    def __init__(
        self,
        terminal: Terminal,
        *,
        run: Run | None = None,
        first: Callable[[], Screen[None]] | None = None,
        theme: str = "dark",
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__()
        self.terminal = terminal
        self.clock = clock
        self.look = choose(theme, truecolor=terminal.truecolor, glyphs=terminal.glyphs)
        self.row_report: RowReport | None = None
        self._first_run, self._first = run, first
        self._said = ("", "text")
        self._unsay: Timer | None = None
        for name in ("dark", "light"):
            look = choose(name, truecolor=terminal.truecolor, glyphs=terminal.glyphs)
            self.register_theme(theme_of(look))
        self.set_reactive(FtuiApp.theme, self.look.name)  # before the style sheet is read: a change reads it again
        self.stylesheet.set_variables(self.get_css_variables())

    def get_default_screen(self) -> Screen[None]:
        """The first screen is the one at the bottom: no empty one is drawn before it."""
        if self._first is not None:
            return self._first()
        if self._first_run is not None:
            return monitor_screen(self._first_run)
        from .screens.runs import RunsScreen

        return RunsScreen()

    def on_mount(self) -> None:
        if not self.is_headless:
            self._mind_the_terminal()
        self.call_after_refresh(self._settled)

    def _settled(self) -> None:
        """The first frame is out: what was made for it is never looked through by the collector (20 ms each time)."""
        gc.freeze()
        gc.enable()

    def _mind_the_terminal(self) -> None:
        """Leave in order when asked to, and at once when the terminal is gone.

        Neither waits for the event loop: writing to a terminal that is gone blocks it for good, as Textual's thread
        that empties the queue of what is to be written has ended.
        """
        loop = asyncio.get_running_loop()

        def leave(number: int, frame: FrameType | None) -> None:
            threading.Thread(target=_end_soon, daemon=True).start()
            self.keep_drafts()
            if is_abandoned():
                os._exit(0)
            loop.call_soon_threadsafe(self._leave_at_once)

        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, leave)
        threading.Thread(target=_hang_up_if_abandoned, daemon=True).start()

    def _leave_at_once(self) -> None:
        self.keep_drafts()
        self.exit()

    def keep_drafts(self) -> None:
        """Put away what is being edited on any screen."""
        for screen in self.screen_stack:
            if (keep := getattr(screen, "keep_draft", None)) is not None:
                keep()

    def on_fault(self) -> None:
        """A fault of the program takes nobody's work with it."""
        self.keep_drafts()

    async def on_event(self, event: Event) -> None:
        """What is pasted is as foreign as any text: it comes in with nothing in it that could steer the terminal.

        A key or another size of the terminal ends what was said: it was about what was there before.
        """
        if self._said[0] and (isinstance(event, Resize) or (isinstance(event, Key) and not event.is_forwarded)):
            self._be_silent()
        if isinstance(event, Paste):
            event.text = "\n".join(shown(line) for line in event.text.splitlines())
        await super().on_event(event)

    # -- what every screen can do

    def say(self, text: str, tone: str = "text") -> None:
        """Answer a key in place of the keys for a while; what does not fit there stays until it has been read."""
        if cells(harmless(text)) <= self.size.width - 2:
            self.note(text, tone)
            return
        from .screens.dialogs import MessageScreen

        self.push_screen(MessageScreen(text, "") if tone == "bad" else MessageScreen("", text))

    def note(self, text: str, tone: str = "text") -> None:
        """Show in place of the keys what nobody asked for, as much as fits, at most until the next key."""
        self._said = (text, tone)
        if self._unsay is not None:
            self._unsay.stop()
        self._unsay = self.set_timer(SAID_SECONDS, self._be_silent)
        self.draw_keys()

    def call(self, title: str, body: str) -> None:
        """Ring, or whatever else the terminal calls for its user with."""
        how, in_tmux = self.terminal.attention, self.terminal.in_tmux
        if self._driver is not None:
            self._driver.write(attention_sequence(how, title, body, in_tmux=in_tmux))

    def _be_silent(self) -> None:
        self._said = ("", "text")
        if self.screen_stack:  # the time may be up when all screens are gone
            self.draw_keys()

    def complain(self, error: FtuiError) -> None:
        """Say what went wrong and what to do about it."""
        text = f"{error.message} {error.hint}".strip()
        if "\n" not in text and cells(harmless(text)) <= self.size.width - 2:
            self.note(text, "bad")
            return
        from .screens.dialogs import MessageScreen

        self.push_screen(MessageScreen(error.message, error.hint))

    def draw_keys(self, screen: Screen[object] | None = None) -> None:
        draw_footer(screen or self.screen, *self._said)

    def action_help(self) -> None:
        from .screens.help import HelpScreen

        if not isinstance(self.screen, HelpScreen):
            self.push_screen(HelpScreen(self.screen))

    def action_other_theme(self) -> None:
        self.wear("light" if self.look.dark else "dark")

    def wear(self, name: str) -> None:
        """Change to the `dark` or the `light` look."""
        self.look = choose(name, truecolor=self.terminal.truecolor, glyphs=self.terminal.glyphs)
        self.theme = self.look.name
        for screen in self.screen_stack:
            for canvas in screen.query(Canvas):
                canvas.wear(self.look)

    def on_key(self, event: Key) -> None:
        """What was typed ahead, before a line of input was there to take it, is meant for that line.

        Without this `m1500` at a slow link's pace could become 500.
        """
        if event.character and event.is_printable and hasattr(self.screen, "type_ahead"):
            self.screen.type_ahead(event.character)

    def action_help_quit(self) -> None:
        """Ctrl-C: no run ever ends because of it."""
        self.say("q leaves; every run keeps running. x on a run's screen ends it.")

    def action_leave(self) -> None:
        """Ends the program, unless a screen has something unsaved and asks first."""
        for screen in reversed(self.screen_stack):
            ask = getattr(screen, "ask_before_leaving", None)
            if ask is not None and ask(lambda: self.leave([])):
                return
        self.leave([])

    def leave(self, farewell: list[str]) -> None:
        """End the program; `farewell` is printed once the terminal is back."""
        self.exit(farewell)

    def open_run(self, run: Run) -> None:
        self.push_screen(monitor_screen(run))


def monitor_screen(run: Run) -> Screen[None]:
    """A run's live view; loaded when there is one to show (14 ms), as every screen is."""
    from .screens.monitor import MonitorScreen

    return MonitorScreen(run)


def theme_of(look: Look) -> Theme:
    """The look as Textual wants it, for the few widgets that are its own (inputs, the palette)."""
    palette = look.palette
    return Theme(
        name=look.name, dark=look.dark, primary=palette["loss"], secondary=palette["violet"], accent=palette["eval"],
        warning=palette["warn"], error=palette["bad"], success=palette["good"], foreground=palette["text"],
        background=palette["background"], surface=palette["panel"], panel=palette["panel"],
        variables={name: palette[name] for name in ("cursor", "muted")},
    )  # fmt: skip


def _hang_up_if_abandoned() -> None:
    """Send SIGHUP to this process once its terminal has gone, and end it even if that is of no avail."""
    while not is_abandoned():
        time.sleep(TERMINAL_SECONDS)
    os.kill(os.getpid(), signal.SIGHUP)
    _end_soon()


def _end_soon() -> None:
    time.sleep(LEAVE_SECONDS)
    os._exit(0)


def is_abandoned() -> bool:
    """Whether the terminal has gone."""
    try:
        termios.tcgetattr(sys.__stdin__.fileno() if sys.__stdin__ else 0)
    except (termios.error, OSError, ValueError):
        return True
    return False
