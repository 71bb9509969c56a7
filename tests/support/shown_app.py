"""The screens without a terminal: the application on a made-up one, what stands on it, and a person's keys."""

import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from textual.app import App
from textual.pilot import Pilot
from textual.strip import Strip

from ftui.runs.run_folder import Run
from ftui.tui.app import FtuiApp
from ftui.tui.render.glyphs import UNICODE, Glyphs
from ftui.tui.render.terminal import Terminal

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

PROFILE = """
[run]
stage = "sft"
[model]
name_or_path = "Qwen/Qwen3-0.6B"
[data]
train = "rows.jsonl"
eval_fraction = 0.02
max_length = 2048
[adapter]
r = 16
[train]
learning_rate = 2e-4
num_train_epochs = 2
"""
"""A profile as somebody might write it."""


@dataclass
class ShownApp:
    """The application, its pilot, and what it has put on the screen."""

    app: FtuiApp
    pilot: Pilot[list[str]]

    async def press(self, *keys: str) -> None:
        for key in keys:
            await self.pilot.press(key)
            await self.pilot.pause()

    def lines(self) -> list[str]:
        return lines_of(self.app)

    def text(self) -> str:
        return "\n".join(self.lines())

    async def until(self, condition: Callable[[], bool], seconds: float = 60.0) -> None:
        """Wait for it, as long as the screens need to look at their files again."""
        for _ in range(int(seconds / 0.05)):
            if condition():
                return
            await self.pilot.pause(0.05)
        raise AssertionError("it did not happen; the screen shows:\n" + self.text())

    def shows(self, kind: type) -> bool:
        """Whether such a screen is on top."""
        return isinstance(self.app.screen, kind)

    @property
    def screen(self) -> Any:
        return self.app.screen


@asynccontextmanager
async def shown_app(
    *,
    run: Run | None = None,
    size: tuple[int, int] = (80, 24),
    glyphs: Glyphs = UNICODE,
    truecolor: bool = True,
    theme: str = "dark",
    clock: Callable[[], float] | None = None,
) -> AsyncIterator[ShownApp]:
    """`clock`: the time of day it is shown; otherwise now."""
    app = FtuiApp(Terminal(truecolor, glyphs, 10.0), run=run, theme=theme, clock=clock or time.time)
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        yield ShownApp(app, pilot)


def strips_of(app: App[Any]) -> list[Strip]:
    """What the compositor would put on the terminal, row by row."""
    return app.screen._compositor.render_strips()


def lines_of(app: App[Any]) -> list[str]:
    return ["".join(segment.text for segment in strip).rstrip() for strip in strips_of(app)]


def picture(app: App[Any]) -> str:
    """The screen as text to keep: its lines, then for each line the letters of its styles, and what they are."""
    rows = [[(segment.text, _style(segment.style)) for segment in strip] for strip in strips_of(app)]
    counts = Counter(style for row in rows for text, style in row for _ in text)
    names = {style: LETTERS[i % len(LETTERS)] for i, (style, _) in enumerate(counts.most_common())}
    lines = ["".join(text for text, _ in row).rstrip() for row in rows]
    usual = next(iter(names.values()))
    styles = ["".join(names.get(style, "") * len(text) for text, style in row).rstrip(usual) for row in rows]
    legend = [f"{letter} {style}" for style, letter in names.items()]
    return "\n".join([*lines, "-- styles", *styles, "-- legend", *legend]) + "\n"


def _style(style: Any) -> str:
    if style is None:
        return "none"
    parts = [style.color.name if style.color else "-", style.bgcolor.name if style.bgcolor else "-"]
    return " on ".join(parts) + (" bold" if style.bold else "")
