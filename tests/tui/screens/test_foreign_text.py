"""Names, values, records, log lines and rows that would steer a terminal, on every screen: seen, and nothing more."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from textual.events import Paste
from textual.screen import Screen
from textual.widgets import Input

from ftui.errors import ProfileError, UsageError
from ftui.profile.layers import resolve
from ftui.profile.presets import find_profile
from ftui.runs.run_folder import Run, runs_root
from ftui.text import cells
from ftui.tui.palette import Commands
from ftui.tui.render.canvas import Canvas
from ftui.tui.render.glyphs import UNICODE
from ftui.tui.render.spans import Frame, clipped, harmless, left, right, spread, width_of, wrapped
from ftui.tui.render.theme import choose
from ftui.tui.screens.checkpoints import CheckpointsScreen
from ftui.tui.screens.dialogs import ConfirmScreen, MessageScreen, PromptScreen
from ftui.tui.screens.log import LogScreen
from ftui.tui.screens.problem import ProblemScreen
from ftui.tui.screens.resolved import ResolvedScreen
from ftui.tui.screens.rows.rows_screen import RowsScreen
from ftui.tui.screens.runs import RunsScreen
from ftui.tui.screens.start import StartScreen
from tests.support.evil import TOGETHER, evil_name, evil_profile, evil_run, steers
from tests.support.examples import examples
from tests.support.rows_helper import PROFILE_OF_ROWS, StandIn, evil
from tests.support.shown_app import ShownApp, shown_app, strips_of

SIZES = [(80, 24), (60, 20)]
SEEN = 8  # characters of a text that must be seen


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


class Visit:
    """A walk over the screens; at each of them the picture is looked at, and each of its canvases in another size."""

    def __init__(self, shown: ShownApp, text: str) -> None:
        self.shown = shown
        self.text = text.encode(errors="replace").decode()

    async def look(self, kind: type | None = None, *, seen: bool = False, ours: bool = True) -> None:
        if kind is not None:
            await self.shown.until(lambda: isinstance(self.shown.screen, kind) and bool(self.shown.text().strip()))
            await self.shown.pilot.pause()  # it is there, and now it has drawn itself
        rows = ["".join(segment.text for segment in strip) for strip in strips_of(self.shown.app)]
        size = self.shown.app.size
        assert len(rows) == size.height
        for row in rows:
            assert cell_len(row) == size.width and (not ours or cells(row) == size.width), ascii(row)
            assert not steers(row), ascii(row)
        for canvas in self.shown.screen.query(Canvas):
            self.paint(canvas)
        if seen:
            part = harmless(self.text.split("\n")[0])[:SEEN].strip()
            assert part in "\n".join(rows), f"{part!r} is not on:\n" + "\n".join(rows)

    def paint(self, canvas: Canvas) -> None:
        """As it would be in the other sizes."""
        for width, height in ({*SIZES} - {self.shown.app.size}) | {(160, 50)}:
            assert canvas._paint is not None
            for line in canvas._paint(Frame(width, height, UNICODE))[:height]:
                row = canvas._strip(line, width).text
                assert cells(row) == cell_len(row) == width, ascii(row)
                assert not steers(row), ascii(row)

    async def show(self, screen: Screen[Any]) -> None:
        self.shown.app.push_screen(screen)
        await self.shown.pilot.pause()

    async def press(self, *keys: str) -> None:
        """Without the waits between keys that a pilot makes."""
        await self.shown.pilot.press(*keys)


def walk(run: Run | None, text: str, play: Callable[[Visit], object], size: tuple[int, int] = SIZES[0]) -> None:
    async def main() -> None:
        async with shown_app(run=run, size=size) as shown:
            await play(Visit(shown, text))  # type: ignore[misc]

    asyncio.run(main())


@pytest.mark.parametrize("name", TOGETHER)
def test_screens_of_a_run_show_foreign_text(name: str) -> None:
    """It is opened by its path, so that even its folder may be called anything."""
    text = TOGETHER[name]
    run = evil_run(runs_root() / evil_name(text), text)

    async def play(visit: Visit) -> None:
        await visit.look(ProblemScreen, seen=True)
        await visit.press("end", "pagedown", "pagedown")
        await visit.look()
        await visit.press("escape")
        await visit.look(seen=True)
        await visit.press("v")
        await visit.look()
        await visit.press("L")
        await visit.look(LogScreen)
        await visit.press("q", "s")
        await visit.look(MessageScreen)
        await visit.press("escape", "x")
        await visit.look(ConfirmScreen)
        await visit.press("n", "c")
        await visit.shown.until(lambda: "checkpoint-4" in visit.shown.text())
        await visit.look(CheckpointsScreen)
        await visit.press("y", "end")
        await visit.look()
        await visit.press("q", "question_mark")
        await visit.look()

    walk(run, text, play, SIZES[len(name) % 2])


@pytest.mark.parametrize("name", TOGETHER)
def test_lists_pages_and_dialogs_show_foreign_text(name: str) -> None:
    text = TOGETHER[name]
    evil_run(runs_root() / "evil", text, ended="stopped")
    evil_run(runs_root() / "evil-lost", text, ended="lost")
    evil_run(runs_root() / evil_name(text), text)
    Path(evil_name(text, ".toml")).write_text(evil_profile(text))
    Path("\U0010ffff.toml").write_text(f"[{text}\n", errors="replace")

    async def play(visit: Visit) -> None:
        await visit.look(RunsScreen, seen=True)
        assert "2 runs" in visit.shown.text()
        await visit.press("n")
        await visit.look(StartScreen)
        await visit.press("enter")
        await visit.look(ResolvedScreen)
        await visit.press(*["down"] * 4, "e")
        await visit.look(PromptScreen, ours=False)
        await visit.show(PromptScreen(text, text, str.strip))
        await visit.look(PromptScreen, ours=False)
        await visit.show(MessageScreen(text, text))
        await visit.look(MessageScreen, seen=True)
        await visit.show(ConfirmScreen(text, text))
        await visit.look(ConfirmScreen, seen=True)
        visit.shown.app.complain(UsageError(text, hint=text))
        await visit.shown.pilot.pause()
        await visit.look()
        while not isinstance(visit.shown.screen, ResolvedScreen):
            await visit.press("escape")
        await visit.press("enter")
        await visit.look(ResolvedScreen)  # there are no such files: it says so and starts nothing

    walk(None, text, play, SIZES[len(name) % 2])


@pytest.mark.parametrize("name", TOGETHER)
def test_the_palette_and_messages_show_foreign_text(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = TOGETHER[name]
    entry = (f"evil {text}", text, lambda: None)
    monkeypatch.setattr(Commands, "_entries", lambda self: iter([entry]))

    async def play(visit: Visit) -> None:
        visit.shown.app.note(text)
        await visit.look(RunsScreen, seen=True)
        await visit.press("ctrl+p")
        await visit.shown.until(lambda: "evil" in visit.shown.text())
        await visit.look()
        await visit.press(*"evil")
        await visit.shown.pilot.pause(0.2)
        await visit.look()
        visit.shown.app.post_message(Paste(text))
        await visit.shown.until(lambda: visit.shown.screen.query_one(Input).value != "evil")
        await visit.look(ours=False)  # an Input counts as its library does
        assert not steers(visit.shown.screen.query_one(Input).value)

    walk(None, text, play, SIZES[len(name) % 2])


@pytest.mark.parametrize("name", TOGETHER)
def test_the_xray_shows_foreign_text(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = TOGETHER[name]
    rows, report = evil(text)
    monkeypatch.setattr(StandIn, "samples", rows)
    monkeypatch.setattr(StandIn, "report", report)

    async def play(visit: Visit) -> None:
        await visit.show(RowsScreen(text, PROFILE_OF_ROWS))
        await visit.shown.until(lambda: "row 1" in visit.shown.text())
        for keys in ((), ("b", "end"), ("v",), ("end",), ("R",), ("down",), ("end",)):
            await visit.press(*keys)
            await visit.look(RowsScreen)
        monkeypatch.setattr(StandIn, "problem", UsageError(text, hint=text))
        await visit.show(RowsScreen(text, PROFILE_OF_ROWS))
        await visit.shown.until(lambda: "tries again" in visit.shown.text() or len(text) > 500)
        await visit.look(RowsScreen)

    walk(None, text, play, SIZES[len(name) % 2])


def test_a_path_with_controls_in_it_is_not_copied() -> None:
    run = evil_run(runs_root() / "a\nrm -rf x\udcff", "fine")

    async def play(visit: Visit) -> None:
        await visit.press("escape", "c")
        await visit.shown.until(lambda: "checkpoint-4" in visit.shown.text())
        await visit.press("y")
        assert "not copied" in visit.shown.text() and visit.shown.app.clipboard == ""

    walk(run, "fine", play)


def test_what_is_pasted_comes_in_visible() -> None:
    async def play(visit: Visit) -> None:
        await visit.show(PromptScreen("?", "", str.strip))
        await visit.look(PromptScreen)
        visit.shown.app.post_message(Paste("a\x1b]52;c;eA==\x07\u202eb\rsecond line"))
        await visit.shown.until(lambda: visit.shown.screen.query_one(Input).value != "")
        assert visit.shown.screen.query_one(Input).value == "a\u241b]52;c;eA==\u2407\\u202eb"

    walk(None, "", play)


@pytest.mark.parametrize("text", ["x" * 5000, "a\0b", "~nobody-of-this-name/x"], ids=["long", "NUL", "nobody"])
def test_what_cannot_be_a_path_is_refused(text: str) -> None:
    Path("odd.toml").write_text(evil_profile(text))
    with pytest.raises(ProfileError, match="is not a path"):
        resolve(Path("odd.toml"))
    with pytest.raises(ProfileError, match="There is no profile"):
        find_profile(text)


# -- the rooms that draw

anything = st.text(st.characters() | st.sampled_from("日🔥\u0301\u200d\ufe0f\U0001f3fd\x1b\x9b\u202e …"), max_size=60)
lines = st.lists(st.tuples(anything, st.just("text")), max_size=5)


@given(anything, st.integers(2, 40))
def test_texts_fill_or_fit_their_columns(text: str, width: int) -> None:
    assert cells(left(text, width)) == width == cells(right(text, width))
    assert all(cells(line) <= width and not steers(line.replace("\n", "")) for line in wrapped(text, width))


@given(lines, lines, st.integers(0, 40))
def test_lines_fit_their_columns(start: list[tuple[str, str]], end: list[tuple[str, str]], width: int) -> None:
    assert width_of(clipped(start, width)) <= width
    assert width_of(spread(width, start, end)) <= width
    assert not steers("".join(text for text, _ in spread(width, start, end)))


@settings(max_examples=examples(50))
@given(lines, st.integers(1, 40))
def test_every_strip_is_as_wide_as_the_canvas(line: list[tuple[str, str]], width: int) -> None:
    strip = Canvas(choose("dark", truecolor=True, glyphs=UNICODE), id="x")._strip(line, width)
    assert cells(strip.text) == width and not steers(strip.text)


@given(anything)
def test_wrapping_loses_nothing(text: str) -> None:
    assert "".join(wrapped(text, 7)).replace(" ", "") == "".join(wrapped(text, 1000)).replace(" ", "")


def test_a_narrow_terminal_does_not_hang_on_wide_signs() -> None:
    assert wrapped("日本 x", 1) == ["日", "本", "x"]
    assert wrapped("abcdefghijk", 10) == ["abcdefghij", "k"]
