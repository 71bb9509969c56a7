"""What the screens share: canvases over a footer, a timer while they are on top, a cursor in a list, text to scroll."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.screen import ScreenResultType
from textual.timer import Timer

from ftui.errors import FtuiError

from ..render.canvas import Canvas
from ..render.spans import Frame, Line, Paint
from ..render.textual_patch import OnePaintScreen
from ..stage import stage


class CanvasScreen(OnePaintScreen[ScreenResultType]):
    """Canvases one below the other, the footer last.

    Textual calls `on_mount` and its like of each class, the subclass's first: a screen prepares itself there, and is
    drawn here. `refresh_seconds`: how often `tick` is called while the screen is on top, `None` for never.
    """

    CANVASES: ClassVar[Sequence[str]] = ("title", "body", "details")
    refresh_seconds: float | None = None
    _timer: Timer | None = None
    _is_looking = False

    def compose(self) -> ComposeResult:
        for name in (*self.CANVASES, "keys"):
            yield Canvas(stage(self).look, id=name)

    def on_mount(self) -> None:
        self.draw()
        stage(self).draw_keys()
        if self.refresh_seconds is not None:
            self._timer = self.set_interval(self.refresh_seconds, self.tick)

    def on_screen_suspend(self) -> None:
        if self._timer is not None:
            self._timer.pause()

    def on_screen_resume(self) -> None:
        if self._timer is not None:
            self._timer.resume()
            self.tick()
        stage(self).draw_keys()

    def tick(self) -> None:
        """Read again what is shown, and draw it."""
        self.draw()

    def look_again(self, look: Callable[[], Awaitable[None]]) -> None:
        """Look at the files, unless the last look is still waiting for the disk."""
        if not self._is_looking:
            self._is_looking = True
            self.run_worker(self._look_once(look), group="look")

    async def _look_once(self, look: Callable[[], Awaitable[None]]) -> None:
        try:
            await look()
        finally:
            self._is_looking = False

    def change(self, act: Callable[[], str]) -> None:
        """Change what is shown without holding up the keys, say what came of it, and look again."""
        self.run_worker(self._change_and_say(act), group="change")

    async def _change_and_say(self, act: Callable[[], str]) -> None:
        try:
            words = await asyncio.to_thread(act)
        except FtuiError as error:
            stage(self).complain(error)
        else:
            stage(self).say(words, "good")
        self.tick()

    def draw(self) -> None:
        """Give every canvas what it shows now."""
        raise NotImplementedError

    def action_leave(self) -> None:
        """To the screen below, and out of ftui where this one was opened first (`key_table.LEAVE`)."""
        if len(self.app.screen_stack) > 1:
            self.app.pop_screen()
        else:
            stage(self).leave([])

    def show(self, **paints: Paint) -> None:
        """Give the canvases of these names what they show; a canvas repaints only what has changed."""
        for name, paint in paints.items():
            self.query_one(f"#{name}", Canvas).show(paint)


class SplitScreen(OnePaintScreen[None]):
    """A title over a list with its details, another canvas beside or instead of them, the footer last."""

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (120, "-beside")]  # noqa: RUF012 (Textual declares it so)

    def compose(self) -> ComposeResult:
        look = stage(self).look
        yield Canvas(look, id="title")
        with Horizontal(id="middle"):
            with Vertical(id="form"):
                yield Canvas(look, id="body")
                yield Canvas(look, id="details")
            yield Canvas(look, id="aside")
        yield Canvas(look, id="keys")

    def on_screen_resume(self) -> None:
        stage(self).draw_keys()

    def on_resize(self) -> None:
        self.draw()

    def draw(self) -> None:
        """Give every canvas what it shows now."""
        raise NotImplementedError


class ListScreen(CanvasScreen[ScreenResultType]):
    """Lines with a cursor, which stays on its line while others come and go (`key_table.CURSOR_KEYS`)."""

    cursor = 0
    _cursor_id: object = None

    def line_ids(self) -> Sequence[object]:
        """What tells the lines apart, in the order they are shown."""
        raise NotImplementedError

    def set_cursor(self, at: int) -> None:
        """Put the cursor on that line, or on the nearest there is."""
        ids = self.line_ids()
        self.cursor = max(0, min(len(ids) - 1, at))
        self._cursor_id = ids[self.cursor] if ids else None

    def follow_cursor(self) -> None:
        """After the lines have changed: back to the line of before, or to the same place where it is gone."""
        ids = self.line_ids()
        self.set_cursor(ids.index(self._cursor_id) if self._cursor_id in ids else self.cursor)

    def action_move(self, by: int) -> None:
        self.set_cursor(self.cursor + by)
        self.draw()


class TextScreen(CanvasScreen[None]):
    """Text to be read up and down (`key_table.SCROLL_KEYS`). `top`: the first line shown."""

    CANVASES: ClassVar[Sequence[str]] = ("body",)
    top = 0

    def text_lines(self, frame: Frame) -> list[Line]:
        """All lines of the text."""
        raise NotImplementedError

    def draw(self) -> None:
        self.show(body=self.visible_lines)

    def visible_lines(self, frame: Frame) -> list[Line]:
        """The lines from `top` on, which is at most so far down that the frame is full."""
        lines = self.text_lines(frame)
        self.top = max(0, min(self.top, len(lines) - frame.height))
        return lines[self.top : self.top + frame.height]

    def action_scroll(self, by: int) -> None:
        self.top = max(0, self.top + by)
        self.draw()
