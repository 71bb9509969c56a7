"""Everything that reaches into Textual's internals or changes what it does. Tried with Textual 8.2.8.

tests/tui/render/test_textual_patch.py fails when a new version changes what this file relies on, and says what to do.
"""

from rich.console import Console
from textual import _compositor
from textual.app import App, ReturnType
from textual.await_complete import AwaitComplete
from textual.driver import Driver
from textual.events import Idle
from textual.screen import Screen, ScreenResultType

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


class OnePaintScreen(Screen[ScreenResultType]):
    """A screen that is painted once when it appears.

    Textual paints it when it comes to the top, again when it hears of its size, and again a moment later (measured at
    120x40: 48 kB and 25 ms of a processor more). Here the first paint waits until all that is known.
    """

    _has_appeared = False

    def dismiss(self, result: ScreenResultType | None = None) -> AwaitComplete:
        """Once: of two presses of enter in a row the second came to a screen that had gone, and took the next one away;
        with the last of them ftui ended.
        """
        return super().dismiss(result) if self.app.screen is self else AwaitComplete()

    def _post_register(self, app: App[object]) -> None:
        """Give it the classes of its size now: with those that Textual gives it later all is laid out a second time."""
        super()._post_register(app)
        for size, own, of_app in (
            (app.size.width, self.HORIZONTAL_BREAKPOINTS, app.HORIZONTAL_BREAKPOINTS),
            (app.size.height, self.VERTICAL_BREAKPOINTS, app.VERTICAL_BREAKPOINTS),
        ):
            self._classes.update(self._get_breakpoint_classes(size, (of_app if own is None else own) or []))

    def _compositor_refresh(self) -> None:
        if self._has_appeared or self is not self.app.screen:
            super()._compositor_refresh()

    async def _on_idle(self, event: Idle) -> None:  # Textual calls the one of Screen after it
        if not self._has_appeared and self._size and self.is_current:
            self.app.call_next(self._appear)  # where it waits for what is mounted, and then asks for a layout

    def _appear(self) -> None:
        if self._has_appeared or not self.is_current:
            return
        if self._layout_required:
            self._refresh_layout()
            self._layout_required = False
        self._has_appeared = self._repaint_required = True
        self._on_timer_update()


class FaultApp(App[ReturnType]):
    """An application that hears of an exception before Textual ends the program because of it."""

    def __init__(self) -> None:
        super().__init__(ansi_color=False)
        self._disable_tooltips = self._disable_notifications = True  # two widgets more a screen; ftui shows neither

    def on_fault(self) -> None:
        """Called once for each exception that nothing caught."""

    def _handle_exception(self, error: Exception) -> None:
        self.on_fault()
        super()._handle_exception(error)
