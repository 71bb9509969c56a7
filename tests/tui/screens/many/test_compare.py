"""Marking runs in the list, and the screen that sets them beside each other."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from ftui.runs.run_folder import Run, runs_root
from ftui.tui.drawing.charts.axes import Scale
from ftui.tui.drawing.many.comparison_view import CompareSettings, comparison_view
from ftui.tui.render.glyphs import ASCII, UNICODE, Glyphs
from ftui.tui.render.spans import Frame, width_of
from ftui.tui.screens.many.compare import CompareScreen, read_compared
from ftui.tui.screens.runs import RunsScreen
from tests.support.evil import EVIL, evil_run, steers
from tests.support.replayed import replay
from tests.support.shown_app import ShownApp, picture, shown_app
from tests.tui.conftest import Recorded

NAMES = ("wiki-style-finished", "stopped-early", "wiki-style-held")
SIZES = {"80x24": (80, 24), "120x40": (120, 40), "200x60": (200, 60)}


async def opened(shown: ShownApp, *, marks: int = 3) -> None:
    await shown.press("home", *"m" * marks, "v")
    await shown.until(lambda: "differs" in shown.text() or "results" in shown.text())


@pytest.mark.parametrize("size", SIZES)
def test_the_picture(
    size: str, recorded: Recorded, clock: Callable[[], float], same_picture: Callable[[str, str], None]
) -> None:
    for name in NAMES:
        recorded(name)

    async def main() -> str:
        async with shown_app(size=SIZES[size], clock=clock) as shown:
            await opened(shown)
            await shown.press("x", "x")
            return picture(shown.app)

    same_picture(f"compare-{size}", asyncio.run(main()))


def test_runs_are_marked_and_compared_by_keys(recorded: Recorded) -> None:
    for name in NAMES:
        recorded(name)

    async def main() -> None:
        async with shown_app(size=(100, 30)) as shown:
            await shown.press("v")
            assert shown.shows(RunsScreen) and "Mark two to 6 runs with m" in shown.text()
            await shown.press("home", "m")
            assert "1 marked" in shown.text()
            await shown.press("home", "m")
            assert "marked" not in shown.text().splitlines()[0]
            await shown.press("home", "m", "v")  # the marked one with the one under the cursor
            assert shown.shows(CompareScreen)
            await shown.until(lambda: "results" in shown.text())
            assert "loss by steps" in shown.text()
            for words in ("epochs", "target tokens", "time", "steps"):  # nobody has said what a CPU costs
                await shown.press("x")
                assert f"loss by {words}" in shown.text()
            await shown.press("X")
            assert "loss by time" in shown.text()
            await shown.press("y")
            assert "learning rate by time" in shown.text()
            await shown.press("Y", "l")
            assert "log, average over" in shown.text()
            for _ in range(6):
                await shown.press("left_square_bracket")
            assert "every step" in shown.text()
            before = shown.text()
            await shown.press("end")
            assert "values of profiles, rows, machines and versions are the same" in shown.text()
            await shown.press("home")
            assert shown.text() == before
            await shown.press("escape")
            assert shown.shows(RunsScreen) and "1 marked" in shown.text()

    asyncio.run(main())


@pytest.mark.parametrize("glyphs", [UNICODE, ASCII])
@pytest.mark.parametrize("size", [(30, 8), (60, 20), (80, 24), (200, 60)])
def test_every_line_fits(size: tuple[int, int], glyphs: Glyphs, tmp_path: Path) -> None:
    runs = [replay(name, tmp_path) for name in (*NAMES, "exploded", "no-such-rows")]
    compared = read_compared([*runs, evil_run(tmp_path / "evil", EVIL["wide"] + EVIL["colour"])])
    frame = Frame(*size, glyphs)
    for measure in ("loss", "memory", "nothing of that name"):
        for log in (False, True):
            lines = comparison_view(frame, compared, CompareSettings(measure=measure, log=log), Scale())
            assert len(lines) <= frame.height
            assert all(width_of(line) <= frame.width for line in lines)


def test_the_lines_are_told_apart_without_colours(tmp_path: Path) -> None:
    compared = read_compared([replay(name, tmp_path) for name in NAMES])
    for glyphs in (UNICODE, ASCII):
        lines = comparison_view(Frame(100, 40, glyphs), compared, CompareSettings(), Scale())
        plot = "\n".join("".join(text for text, _ in line)[8:] for line in lines[1:18])
        assert all(letter in plot for letter in "ABC")
    assert all(letter in plot for letter in "abc"), "in ASCII each line is made of its letter"


def test_foreign_names_steer_nothing() -> None:
    for name, text in (("one", "bidi"), ("two", "colour")):
        evil_run(runs_root() / name, EVIL[text])

    async def main() -> str:
        async with shown_app(size=(120, 40)) as shown:
            await opened(shown, marks=2)
            return shown.text()

    assert steers(asyncio.run(main()).replace("\n", "")) == []


def test_a_run_that_goes_is_said(recorded: Recorded) -> None:
    runs = [recorded(name) for name in NAMES[:2]]

    async def main() -> None:
        async with shown_app(size=(100, 30)) as shown:
            shown.app.push_screen(CompareScreen([Run(runs[0].folder), Run(runs_root() / "gone")]))
            await shown.until(lambda: "not a readable run" in shown.text())

    asyncio.run(main())
