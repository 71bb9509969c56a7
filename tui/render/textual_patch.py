"""Everything that reaches into Textual's internals or changes what it does. Tried with Textual 8.2.8.

tests/tui/render/test_textual_patch.py fails when a new version changes what this file relies on, and says what to do.
"""

from rich.console import Console
from textual import _compositor
from textual.app import App, ReturnType
from textual.driver import Driver

CLEAR = "\x1b[H\x1b[2J"
CHOPS_UPDATE = ("self", "chops", "spans", "chop_ends")
"""The parameters of `ChopsUpdate` in every version that `crop_updates` was tried with."""


def crop_updates() -> None:
    """Send only the changed cells: Textual repaints a changed span from the left edge of its widget.

    Measured on the live view at 120x40 and 4 Hz: half the bytes. Where the class has changed, nothing is replaced and
    the screens work as they are. (Asking for Textual's version would cost 15 ms.)
    """
    if _compositor.ChopsUpdate.__init__.__code__.co_varnames == CHOPS_UPDATE:
        _compositor.ChopsUpdate.render_segments = render_segments  # type: ignore[method-assign]


def render_segments(self: _compositor.ChopsUpdate, console: Console) -> str:
    """What the terminal is sent for the changed spans: a cursor move and the cells, for each."""
    out = []
    for y, x1, x2 in self.spans:
        for end, (x, strip) in zip(self.chop_ends[y], self.chops[y].items(), strict=False):
            if strip is None or x >= x2 or end <= x1:
                continue
            first, last = max(x, x1), min(end, x2)
            if first > x or last < end:
                strip = strip.crop(first - x, last - x)
            out.append(f"\x1b[{y + 1};{first + 1}H{strip.render(console)}")
    return "".join(out)


def clearing(driver: type[Driver]) -> type[Driver]:
    """The driver, but one that clears the alternate screen before it leaves.

    tmux 3.3 mixes full lines of it into the first screen when the window was enlarged in the meantime.
    """

    class Clearing(driver):  # type: ignore[misc, valid-type]
        def stop_application_mode(self) -> None:
            self.write(CLEAR)
            super().stop_application_mode()

    return Clearing


class FaultApp(App[ReturnType]):
    """An application that hears of an exception before Textual ends the program because of it."""

    def on_fault(self) -> None:
        """Called once for each exception that nothing caught."""

    def _handle_exception(self, error: Exception) -> None:
        self.on_fault()
        super()._handle_exception(error)
