"""The screens of sweeps: pictures of each view, every key, and what is said where something cannot be read."""

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from ftui.runs.run_folder import runs_root
from ftui.sweep import wake_sweeps
from ftui.sweep.results.importance import Importance, KeyImportance
from ftui.sweep.results.sweep_results import view_sweep
from ftui.sweep.sweep_files import SweepFiles
from ftui.tui.app import FtuiApp
from ftui.tui.drawing.sweeps.parallel_coordinates import coordinates_view
from ftui.tui.drawing.sweeps.rungs_view import rungs_view
from ftui.tui.drawing.sweeps.trial_table import VIEWS, sweep_title, trial_details, trial_table
from ftui.tui.render.glyphs import ASCII, UNICODE, Glyphs
from ftui.tui.render.spans import Frame, width_of
from ftui.tui.render.terminal import Terminal
from ftui.tui.screens.many import sweep
from ftui.tui.screens.many.compare import CompareScreen
from ftui.tui.screens.many.sweep import SweepScreen
from ftui.tui.screens.many.sweeps import SweepsScreen
from ftui.tui.screens.monitor import MonitorScreen
from ftui.tui.screens.runs import RunsScreen
from tests.support.played_sweep import make_sweep, play
from tests.support.shown_app import ShownApp, picture, shown_app

PLAN = """
profile = "quickstart"
[search]
"train.learning_rate" = { low = 1e-5, high = 1e-3, log = true }
"adapter.r" = [8, 16, 32]
"train.weight_decay" = { low = 0.0, high = 0.1 }
[search.derived]
"adapter.lora_alpha" = "2 * adapter.r"
[method]
sampler = "random"
scheduler = "asha"
rungs = [10, 30, 90]
[budget]
trials = 12
[repeat]
top = 2
seeds = 3
"""
SIZES = {"80x24": (80, 24), "120x40": (120, 40)}
FOUND = Importance(
    10, 24, (KeyImportance("train.learning_rate", 0.9, False), KeyImportance("adapter.r", 0.1, True))
)  # fmt: skip


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> SweepFiles:
    """A sweep that has ended, with the runs of its trials; nothing is started."""
    monkeypatch.setattr(wake_sweeps, "start_holding", lambda lock, *arguments: lock.close())
    monkeypatch.setattr(sweep, "ask_importance", lambda view: FOUND)
    made = make_sweep(runs_root(), PLAN, "lr")
    play(made, runs=True)
    return made


async def opened(shown: ShownApp) -> None:
    await shown.press("s")
    assert shown.shows(SweepsScreen)
    await shown.until(lambda: "all 12 trials are done" in shown.text())
    await shown.press("enter")
    await shown.until(lambda: "lr-0" in shown.text())


@pytest.mark.parametrize("size", [pytest.param("120x40", marks=pytest.mark.slow), "80x24"])
def test_pictures(size: str, files: SweepFiles, same_picture: Callable[[str, str], None]) -> None:
    async def main() -> dict[str, str]:
        drawn = {}
        async with shown_app(size=SIZES[size], clock=lambda: 0.0) as shown:
            await opened(shown)
            await shown.press("down")
            for number, name in enumerate(VIEWS, 1):
                await shown.press(str(number))
                await shown.app.workers.wait_for_complete()
                await shown.pilot.pause()
                drawn[name] = picture(shown.app)
        return drawn

    for name, drawn in asyncio.run(main()).items():
        same_picture(f"sweep-{name}-{size}", drawn)


@pytest.mark.slow
def test_every_key_of_a_sweep(files: SweepFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    waiting = make_sweep(runs_root(), PLAN.replace("trials = 12", "trials = 99"), "open")
    play(waiting, lambda state: len(state.trials) > 11, runs=True)
    broken = make_sweep(runs_root(), PLAN, "broken")
    broken.plan_file.write_text("profile = 3")
    best = tmp_path / "best.toml"  # a short path: a long one is told in a dialog

    async def play_keys(shown: ShownApp) -> None:
        await shown.press("s")
        await shown.until(lambda: "cannot be read" in shown.text())
        await shown.press("home", "enter")
        await shown.until(lambda: "profile" in shown.text() and shown.shows(SweepsScreen) is False)
        await shown.press("enter", "end", "enter")
        await shown.until(lambda: "open-000" in shown.text())
        assert shown.shows(SweepScreen)
        await shown.press("p")
        await shown.until(lambda: waiting.read().is_paused and "p go on" in shown.text())
        await shown.press("p")
        await shown.until(lambda: not waiting.read().is_paused and "p pause" in shown.text())
        await shown.press("x", "y")
        await shown.until(lambda: waiting.read().ended == "stopped by hand" and "p go on" in shown.text())
        await shown.press("b", *["backspace"] * 30, *best.name, "enter")
        await shown.until(best.exists)
        for words in ("went on from", "leaders by step", "at step 10", "apart, by their loss", "standing"):
            await shown.press("v")
            await shown.until(partial(_says, shown, words))
            if words == "at step 10":
                await shown.press("r")
                assert "at step 30" in shown.text()
        await shown.press("c")
        assert shown.shows(CompareScreen)
        await shown.press("escape", "enter")
        assert shown.shows(MonitorScreen)
        await shown.press("escape", "escape", "escape")
        assert shown.shows(RunsScreen)

    async def main() -> None:
        async with shown_app(size=(100, 30)) as shown:
            await play_keys(shown)

    asyncio.run(main())
    assert "searched by random: trial" in best.read_text()


def test_a_sweep_that_was_opened_first_is_left(files: SweepFiles) -> None:
    """As `ftui sweep show lr` opens it."""

    async def main() -> None:
        app = FtuiApp(Terminal(True, UNICODE, 10.0), first=lambda: SweepScreen(files))
        async with app.run_test() as pilot:
            await pilot.pause()
            await pilot.press("q")
        assert app.return_code == 0

    asyncio.run(main())


def _says(shown: ShownApp, words: str) -> bool:
    return words in shown.text()


@pytest.mark.parametrize("glyphs", [UNICODE, ASCII])
def test_every_line_fits(glyphs: Glyphs, files: SweepFiles) -> None:
    view = view_sweep(files)
    for size in [(30, 8), (60, 20), (80, 24), (200, 60)]:
        frame = Frame(*size, glyphs)
        for row in (view.rows[0], view.rows[-1]):
            number = row.trial.number
            drawn = [trial_table(frame, view, number), rungs_view(frame, view, number)]
            drawn += [coordinates_view(frame, view, 0, number), coordinates_view(frame, view, 2, None)]
            drawn += [trial_details(frame, view, row), sweep_title(frame, "lr", view, 1)]
            assert all(len(lines) <= frame.height for lines in drawn)
            assert max(width_of(line) for lines in drawn for line in lines) <= frame.width
