"""How the screens are opened: a first picture appears, the terminal is asked what it can show, Textual is loaded."""

import contextlib
import gc
import os
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from ftui.runs.run_folder import Run
from ftui.text import shown

from .render.terminal import look_around

if TYPE_CHECKING:  # loaded below the first picture, or by nobody
    from textual.screen import Screen

    from ftui.launch.prompt_file import Question
    from ftui.sweep.sweep_files import SweepFiles

ENTER, LEAVE = "\x1b[?1049h\x1b[2J\x1b[H", "\x1b[?1049l"


def open_screens(run: Run | None = None, *, first: "Callable[[], Screen[None]] | None" = None) -> int:
    """Show the list of runs, one run, or the screen that `first` makes, until the person leaves; returns the exit code.

    FTUI_THEME (dark, light), FTUI_GLYPHS (braille, block, ascii), FTUI_HZ and FTUI_MOUSE=0 are heeded.
    """
    gc.disable()  # nothing made during the start is garbage; the application turns it on again after its first frame
    with _splash():
        terminal = look_around()
        if terminal.truecolor:
            os.environ["COLORTERM"] = "truecolor"
        else:
            os.environ.pop("COLORTERM", None)
        os.environ.setdefault("TEXTUAL_SMOOTH_SCROLL", "0")  # pixel mouse reports go astray in multiplexers
        with _no_ssl():
            from .app import FtuiApp
            from .render import textual_patch
    textual_patch.crop_updates()
    theme = "light" if os.environ.get("FTUI_THEME") == "light" else "dark"
    app = FtuiApp(terminal, run=run, first=first, theme=theme)
    app.driver_class = textual_patch.clearing(app.driver_class)
    farewell = app.run(mouse=os.environ.get("FTUI_MOUSE", "1") != "0")
    for line in farewell or []:
        print(shown(line))
    return app.return_code or 0


def open_answers(question: "Question") -> int:
    """Show the prompts of a file with their answers, and ask what is not answered; returns the exit code."""

    def first() -> "Screen[None]":
        from .screens.answers import AnswersScreen

        return AnswersScreen(question)

    return open_screens(first=first)


def open_sweep(files: "SweepFiles | None") -> int:
    """Show one sweep, or the list of all; returns the exit code."""

    def first() -> "Screen[None]":
        from .screens.many.sweep import SweepScreen
        from .screens.many.sweeps import SweepsScreen

        return SweepsScreen() if files is None else SweepScreen(files)

    return open_screens(first=first)


@contextlib.contextmanager
def _no_ssl() -> Iterator[None]:
    """Have asyncio do without TLS, as it does where Python was built so: no screen opens a connection (4 ms, 4 MiB)."""
    if "ssl" in sys.modules:
        yield
        return
    sys.modules["ssl"] = None  # type: ignore[assignment]  # "there is none"
    try:
        yield
    finally:
        del sys.modules["ssl"]


@contextlib.contextmanager
def _splash() -> Iterator[None]:
    """Enter the other screen and say the name while Textual is being loaded (0.2 s); no number is known yet."""
    sys.stdout.write(f"{ENTER}\x1b[2m ftui\x1b[0m")
    sys.stdout.flush()
    is_loaded = False
    try:
        yield
        is_loaded = True
    finally:
        if not is_loaded:
            sys.stdout.write(LEAVE)
            sys.stdout.flush()
