"""What ftui relies on inside Textual. When a new version breaks one of these, the message says what to do."""

import asyncio
from io import StringIO

import pytest
from rich.console import Console
from rich.segment import Segment
from textual import _compositor
from textual.app import App
from textual.constants import MAX_FPS
from textual.screen import Screen
from textual.strip import Strip

from ftui.tui.render.textual_patch import CHOPS_UPDATE, crop_updates, render_segments
from tests.support.shown_app import shown_app
from tests.tui.conftest import Recorded


def test_the_class_whose_method_is_replaced_is_the_known_one() -> None:
    parameters = _compositor.ChopsUpdate.__init__.__code__.co_varnames
    assert parameters == CHOPS_UPDATE, (
        "Textual changed ChopsUpdate: adapt render_segments in tui/render/textual_patch.py and then CHOPS_UPDATE, or "
        "delete crop_updates, which only saves half the bytes."
    )


def test_an_unhandled_exception_still_passes_the_method_that_saves_drafts() -> None:
    assert "_handle_exception" in vars(App), (
        "Textual renamed App._handle_exception: let FaultApp in tui/render/textual_patch.py override its successor, or "
        "a fault in a screen loses what is being edited."
    )


def test_only_the_changed_cells_are_sent() -> None:
    chops = [{0: Strip([Segment("0123456789")]), 10: Strip([Segment("abcdefghij")])}]
    update = _compositor.ChopsUpdate(chops, [(0, 3, 5), (0, 12, 14)], [[10, 20]])
    sent = render_segments(update, Console(file=StringIO()))
    assert sent == "\x1b[1;4H34\x1b[1;13Hcd"


def test_a_class_that_has_changed_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def other(self: object, changed: object) -> None: ...

    before = _compositor.ChopsUpdate.render_segments
    monkeypatch.setattr(_compositor.ChopsUpdate, "__init__", other)
    crop_updates()
    assert _compositor.ChopsUpdate.render_segments is before


@pytest.mark.parametrize(
    "keys",
    [(), ("escape",), ("question_mark",), ("x",), ("m",), ("L",), ("escape", "n")],
    ids=["live view", "runs", "help", "question", "prompt", "log", "start"],
)
def test_a_screen_that_appears_is_painted_once(
    keys: tuple[str, ...], recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted, not timed: Textual by itself paints each of them two or three times. At its own rate of frames."""
    monkeypatch.setattr("textual.screen.UPDATE_PERIOD", 1 / MAX_FPS)
    paints: list[Screen[object]] = []
    display = App._display

    def count(self: App[object], screen: Screen[object], update: object) -> None:
        if update is not None:
            paints.append(screen)
        display(self, screen, update)  # type: ignore[arg-type]

    monkeypatch.setattr(App, "_display", count)

    async def main() -> None:
        async with shown_app(run=recorded("wiki-style-lora", living=True)) as shown:
            for key in keys:
                paints.clear()
                await shown.press(key)
            assert [type(screen) for screen in paints] == [type(shown.screen)]

    asyncio.run(main())
