"""What a screen may ask of the application it stands in."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, cast

import msgspec
from textual.screen import Screen

from ftui.errors import FtuiError
from ftui.runs.run_folder import Run

from .render.terminal import Terminal
from .render.theme import Look

if TYPE_CHECKING:  # screens that only watch do without
    from ftui.dataset.report import Report
    from ftui.profile.schema import Profile


class RowReport(msgspec.Struct, frozen=True):
    """The report on the rows of a profile."""

    profile: "Profile"
    report: "Report"


class Stage(Protocol):
    """`clock` gives Unix seconds, `rows_seen` is what was found when rows were looked at last.

    `FtuiApp` is the one there is.
    """

    look: Look
    terminal: Terminal
    clock: Callable[[], float]
    row_report: RowReport | None

    def say(self, text: str, tone: str = "text") -> None:
        """Answer a key in place of the keys for a while; what does not fit there stays until it has been read."""

    def note(self, text: str, tone: str = "text") -> None:
        """Show in place of the keys what nobody asked for, as much as fits, at most until the next key."""

    def call(self, title: str, body: str) -> None:
        """Ring, or whatever else the terminal calls for its user with."""

    def complain(self, error: FtuiError) -> None:
        """Say what went wrong and what to do about it."""

    def draw_keys(self) -> None:
        """Draw the last line of the screen on top."""

    def open_run(self, run: Run) -> None:
        """Show the run's live view."""

    def leave(self, farewell: list[str]) -> None:
        """End the program; `farewell` is printed once the terminal is back."""


def stage(screen: Screen[Any]) -> Stage:
    return cast(Stage, screen.app)
