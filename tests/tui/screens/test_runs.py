"""The list of runs: what it tells apart from files alone, and every key."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from textual.widgets import Input

from ftui.runs.run_folder import Run, runs_root
from ftui.runs.state import Push, RunState
from ftui.runs.status import Status, Watch, judge
from ftui.system.process_id import this_process
from ftui.tui.drawing.run_table import details, explain_status, run_table
from ftui.tui.render.glyphs import ASCII, UNICODE
from ftui.tui.render.spans import Frame, width_of
from ftui.tui.screens.checkpoints import CheckpointsScreen
from ftui.tui.screens.help import HelpScreen
from ftui.tui.screens.monitor import MonitorScreen
from ftui.tui.screens.problem import ProblemScreen
from ftui.tui.screens.runs import RunsScreen
from ftui.tui.screens.start import StartScreen
from ftui.tui.state.run_list import RunList, RunRow
from tests.support import shelf
from tests.support.replayed import list_recordings
from tests.support.shown_app import ShownApp, shown_app
from tests.tui.conftest import Recorded

Play = Callable[[ShownApp], Awaitable[None]]


def look_at(play: Play, **options: Any) -> Any:
    async def main() -> Any:
        async with shown_app(**options) as shown:
            await play(shown)
        return shown.app.return_value

    return asyncio.run(main())


def name_under_cursor(shown: ShownApp) -> str:
    row = shown.screen.row
    return "" if row is None else str(row.run.name)


def test_no_runs_is_one_sentence_and_one_key() -> None:
    async def play(shown: ShownApp) -> None:
        assert "No runs yet." in shown.text() and "Press n to start one." in shown.text()
        await shown.press("enter", "c", "down", "end")
        assert shown.shows(RunsScreen)
        await shown.press("n")
        assert shown.shows(StartScreen)

    look_at(play)


def test_every_state_is_told_from_its_files(recorded: Recorded) -> None:
    for name in list_recordings():
        recorded(name, living=name in ("wiki-style-lora", "wiki-style-held"))
    phases = {
        "wiki-style-lora": "training", "wiki-style-held": "paused", "wiki-style-finished": "finished",
        "full-parked": "parked", "stopped-early": "stopped", "killed-by-host": "lost", "exploded": "failed",
        "no-such-rows": "failed", "out-of-memory": "failed",
    }  # fmt: skip

    async def play(shown: ShownApp) -> None:
        lines = shown.lines()
        for name, phase in phases.items():
            (line,) = (line for line in lines if line[1:2] in "●○" and f" {name} " in line)
            assert phase in line.split()
        assert "2 running" in lines[0] and f"{len(phases)} runs" in lines[0]
        living = [line.split()[1] for line in lines if line[1:2] == "●"]
        assert living == sorted(living) and len(living) == 2, "the living ones come first"
        assert lines[3][1:2] == "●"

    look_at(play, size=(120, 40))


@pytest.mark.parametrize(("name", "words"), [
    ("no-such-rows", "line 57"), ("exploded", "Lower the learning rate"),
    ("killed-by-host", "ended without writing why"),
    ("full-parked", "on request"), ("stopped-early", "stopped"),
])  # fmt: skip
def test_why_a_run_stands_where_it_stands_is_said_in_words(name: str, words: str, recorded: Recorded) -> None:
    recorded(name)

    async def play(shown: ShownApp) -> None:
        assert words in " ".join(shown.text().split())

    look_at(play)


def test_the_cursor_moves_and_opens(recorded: Recorded) -> None:
    for name in ("full-parked", "stopped-early", "wiki-style-finished"):
        recorded(name)

    async def play(shown: ShownApp) -> None:
        names = [row.run.name for row in shown.screen.run_list.rows]
        assert name_under_cursor(shown) == names[0]
        for key, index in (("down", 1), ("j", 2), ("down", 2), ("up", 1), ("k", 0), ("end", 2), ("home", 0)):
            await shown.press(key)
            assert name_under_cursor(shown) == names[index], key
        await shown.press("pagedown")
        assert name_under_cursor(shown) == names[2]
        await shown.press("pageup", "down", "enter")
        assert shown.shows(MonitorScreen)
        assert names[1] in shown.lines()[0]

    look_at(play)


def test_the_cursor_stays_on_its_run_when_the_order_changes(recorded: Recorded) -> None:
    recorded("full-parked")
    recorded("stopped-early")

    async def play(shown: ShownApp) -> None:
        await shown.press("end")
        chosen = name_under_cursor(shown)
        recorded("wiki-style-lora", living=True)
        shown.screen.run_list._next_find = 0.0
        shown.screen.tick()
        assert len(shown.screen.run_list.rows) == 3
        assert name_under_cursor(shown) == chosen

    look_at(play)


@pytest.mark.parametrize(("key", "kind"), [
    ("n", StartScreen), ("c", CheckpointsScreen), ("question_mark", HelpScreen), ("f1", HelpScreen),
])  # fmt: skip
def test_other_screens_come_and_go(key: str, kind: type, recorded: Recorded) -> None:
    recorded("full-parked")

    async def play(shown: ShownApp) -> None:
        await shown.press(key)
        assert shown.shows(kind)
        await shown.press("escape")
        assert shown.shows(RunsScreen)

    look_at(play)


@pytest.mark.parametrize("key", ["q", "ctrl+q"])
def test_leaving(key: str, recorded: Recorded) -> None:
    recorded("wiki-style-lora", living=True)

    async def play(shown: ShownApp) -> None:
        await shown.press(key)

    assert look_at(play) == []


def test_a_failed_run_opens_on_its_ending(recorded: Recorded) -> None:
    recorded("exploded")

    async def play(shown: ShownApp) -> None:
        await shown.press("enter")
        assert shown.shows(ProblemScreen)
        await shown.press("down", "up", "pagedown", "pageup", "escape")
        assert shown.shows(MonitorScreen)

    look_at(play)


def test_the_theme_changes_everything_at_once(recorded: Recorded) -> None:
    recorded("full-parked")

    async def play(shown: ShownApp) -> None:
        dark = shown.app.look.palette["background"]
        await shown.press("T")
        assert shown.app.look.palette["background"] != dark
        assert not shown.app.current_theme.dark
        await shown.press("enter")
        assert shown.screen.query("#chart").first().look is shown.app.look

    look_at(play)


@pytest.mark.slow
def test_the_palette_finds_runs_checkpoints_profiles_and_keys(recorded: Recorded) -> None:
    recorded("full-parked")

    async def play(shown: ShownApp) -> None:
        for typed, expected in (
            ("full-par", "run full-parked"), ("checkpoints of", "checkpoints of full-parked"),
            ("quickstart", "start quickstart"), ("theme", "theme (T)"),
        ):  # fmt: skip
            await shown.press("ctrl+p")
            shown.screen.query_one(Input).value = typed
            await shown.until(lambda expected=expected: expected in shown.text())  # type: ignore[misc]
            await shown.press("escape", "escape")
        await shown.press("ctrl+p", *"run ", *"full-p")
        await shown.until(lambda: "watch it" in shown.text())
        await shown.press("down", "enter")
        await shown.until(lambda: shown.shows(MonitorScreen))

    look_at(play)


def row_of(run: Run, **state: Any) -> RunRow:
    found = RunList(lambda: [run])
    found.look()
    (row,) = found.rows
    row.status = Status(state=msgspec.structs.replace(row.status.state, **state)) if state else row.status
    return row


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 200])
@pytest.mark.parametrize("glyphs", [UNICODE, ASCII])
def test_no_line_is_wider_than_the_screen(width: int, glyphs: Any, recorded: Recorded) -> None:
    rows = [row_of(recorded(name)) for name in list_recordings()]
    rows[0].status = Status(state=RunState(phase="training", step=10**9, max_steps=10**10, loss=1e9, memory=10**12))
    frame = Frame(width, 30, glyphs)
    for line in [*run_table(frame, rows, 2, now=2e9), *details(frame, rows[0], 2e9)]:
        assert width_of(line) <= max(width, 62), "below 62 columns the right end is cut by the canvas"


def test_many_runs_scroll_with_the_cursor(tmp_path: Path, recorded: Recorded) -> None:
    row = row_of(recorded("full-parked"))
    rows = [row] * 100
    for cursor in (0, 50, 99):
        lines = run_table(Frame(80, 11, UNICODE), rows, cursor, now=2e9)
        assert len(lines) == 11
        assert sum("@cursor" in style for line in lines for _, style in line[:1]) == 1


def test_a_run_that_comes_into_the_list_is_judged_once(recorded: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    run = recorded("wiki-style-lora", living=True)
    judged: list[Run] = []

    def count(run: Run, watch: Watch) -> Status:
        judged.append(run)
        return judge(run, watch)

    monkeypatch.setattr("ftui.tui.state.run_list.judge", count)
    run_list = RunList(lambda: [run])
    for number in (1, 2):
        run_list.look()
        assert len(judged) == number


def test_ended_runs_are_not_read_again(recorded: Recorded) -> None:
    run = recorded("full-parked")
    run_list = RunList(lambda: [run])
    run_list.look()
    status = run_list.rows[0].status
    run_list.look()
    assert run_list.rows[0].status is status
    with run.journal.open("ab") as file:
        file.write(b"\n")
    run_list.look()
    assert run_list.rows[0].status is not status


def test_words_for_a_frozen_engine(recorded: Recorded) -> None:
    row = row_of(recorded("full-parked"))
    row.status = msgspec.structs.replace(row.status, frozen=True)
    assert "SIGSTOP" in explain_status(row)[0]


def test_words_for_a_push(recorded: Recorded) -> None:
    """That of a process that was killed can go on, and says how."""
    row = row_of(recorded("wiki-style-finished"))
    for process, words in (
        (this_process(), "finished: pushing: final to /x"),
        (None, f"finished: push cut short: final to /x. `ftui push {row.run.name}` goes on"),
    ):
        state = msgspec.structs.replace(row.status.state, pushes=[Push("/x", "final", process=process)])
        row.status = msgspec.structs.replace(row.status, state=state)
        assert explain_status(row)[0] == words


def test_runs_are_removed_archived_and_renamed_by_keys() -> None:
    for name in ("a", "b", "c"):
        shelf.finished(runs_root() / name).profile.write_text('[run]\nstage = "sft"\n')
    shelf.living(runs_root() / "living")

    def folders() -> list[str]:
        return sorted(path.name for path in runs_root().iterdir())

    async def play(shown: ShownApp) -> None:
        await shown.press("d")
        await shown.until(lambda: "living is running" in shown.text())
        await shown.press("escape", "down")
        chosen = name_under_cursor(shown)
        await shown.press("d")
        await shown.until(lambda: "Frees" in shown.text() and "cannot be brought back" in shown.text())
        await shown.press("enter", "d")  # Enter is no yes
        await shown.until(lambda: "Frees" in shown.text())
        assert chosen in folders()
        await shown.press("y")
        await shown.until(lambda: chosen not in folders() and name_under_cursor(shown) not in ("", chosen))

        archived = name_under_cursor(shown)
        await shown.press("a", "y")
        await shown.until(lambda: Run(runs_root() / archived).archived.exists())
        await shown.until(lambda: name_under_cursor(shown) not in (archived, "living"))
        old = name_under_cursor(shown)
        await shown.press("R", "2", "enter")
        await shown.until(lambda: f"{old}2" in folders() and old not in folders())

    look_at(play)
