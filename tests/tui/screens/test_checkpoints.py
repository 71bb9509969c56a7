"""The screen of a run's checkpoints: every key, on runs that live and runs that do not, and how it looks."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.screen import Screen

from ftui.runs import checkpoint_index
from ftui.runs.checkpoint_index import CheckpointEntry
from ftui.runs.events import ControlApplied, ControlRefused
from ftui.runs.pins import read_pins, write_pins
from ftui.runs.requests import Delete, Pin, Unpin, read_requests
from ftui.runs.run_folder import Run
from ftui.supervisor import spawn
from ftui.text import cells
from ftui.tui.app import FtuiApp
from ftui.tui.drawing.checkpoint_table import checkpoint_table, details
from ftui.tui.render.canvas import Canvas
from ftui.tui.render.glyphs import ASCII, UNICODE
from ftui.tui.render.spans import Frame, width_of
from ftui.tui.render.terminal import Terminal
from ftui.tui.screens.checkpoints import CheckpointsScreen
from ftui.tui.screens.dialogs import ConfirmScreen, MessageScreen
from ftui.tui.screens.runs import RunsScreen
from ftui.tui.state.launch_plan import LaunchOptions
from tests.support.shelf import CONTENT, finished, folder_of, living, opened, tell, trained
from tests.support.stand_in import stand_in


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nobody's own runs are shown, and no supervisor is started for an engine that is this process."""
    monkeypatch.setenv("FTUI_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(spawn, "launch", lambda run, lock=None, cards=(): None)
    before = os.umask(0o022)
    yield
    os.umask(before)


class Shown:
    """The screen under test, and what a person would do at it."""

    def __init__(self, pilot: Pilot[list[str]], screen: CheckpointsScreen) -> None:
        self.pilot = pilot
        self.app = pilot.app
        self.screen = screen

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.settle()

    async def settle(self) -> None:
        """Until nothing is being looked at, changed or read back."""
        await self.pilot.pause()
        await self.app.workers.wait_for_complete()
        await self.pilot.pause()

    async def until(self, holds: Callable[[], object]) -> None:
        for _ in range(3000):
            if holds():
                return
            await asyncio.sleep(0.02)
        raise AssertionError(self.text("body") + self.text("keys"))

    def text(self, name: str) -> str:
        canvas = self.app.screen.query_one(f"#{name}", Canvas)
        return "\n".join(canvas.render_line(y).text.rstrip() for y in range(canvas.size.height))

    async def answer(self) -> str:
        """What is too long for the line of the keys, and stays until it has been read."""
        assert isinstance(self.app.screen, MessageScreen)
        words = " ".join(self.text("question").split())
        await self.press("enter")
        return words

    def row(self) -> str:
        return next(line for line in self.text("body").splitlines() if line.startswith(f" {UNICODE.cursor}"))


@asynccontextmanager
async def on_screen(run: Run, size: tuple[int, int] = (80, 24)) -> AsyncIterator[Shown]:
    app = FtuiApp(Terminal(True, UNICODE, 4.0))
    async with app.run_test(size=size) as pilot:
        screen = CheckpointsScreen(run)
        await app.push_screen(screen)
        shown = Shown(pilot, screen)
        await shown.settle()
        yield shown


def during(run: Run, act: Callable[[Shown], Awaitable[None]], size: tuple[int, int] = (80, 24)) -> None:
    async def main() -> None:
        async with on_screen(run, size) as shown:
            await act(shown)

    asyncio.run(main())


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """In the current folder: how long the paths are that are shown is up to no temporary folder."""
    finished(tmp_path / "runs" / "mine")
    monkeypatch.chdir(tmp_path)
    return Run(Path("runs/mine"))


@pytest.fixture
def wishes(monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[LaunchOptions]]:
    """What the next screens were asked for."""
    pushed: list[Any] = []

    class ResolvedScreen(Screen[None]):
        def __init__(self, *, run: Run, checkpoint: int | None) -> None:
            super().__init__()
            self.options = LaunchOptions(run=run, checkpoint=checkpoint)
            pushed.append(self)

    module = ModuleType("ftui.tui.screens.resolved")
    module.ResolvedScreen = ResolvedScreen  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return lambda: [screen.options for screen in pushed]


def test_every_checkpoint_has_a_row_and_the_chosen_one_its_details(run: Run) -> None:
    async def act(shown: Shown) -> None:
        assert "checkpoints of mine" in shown.text("header") and "3 checkpoints" in shown.text("header")
        heading, *rows = shown.text("body").rstrip().splitlines()
        assert heading.split() == ["step", "kind", "eval", "loss", "size", "age", "state"]
        assert [row.replace(UNICODE.cursor, "").split()[0] for row in rows] == ["8", "12", "8", "4"]
        assert shown.row().split()[2:4] == ["final", "2.2500"]
        assert "ready to be used" in shown.text("details")
        await shown.press("down")
        assert shown.row().split()[1:4] == ["12", "periodic", "2.5000"] and shown.row().endswith("valid")
        assert "resumes from here" in shown.text("details") and "tags: periodic" in shown.text("details")
        await shown.press("end")
        assert shown.row().split()[1] == "4" and shown.row().endswith("verified")
        await shown.press("pageup", "j", "k", "pagedown", "up", "home", "up")
        assert "final" in shown.row()
        assert str(run.final) in "".join(line.strip() for line in shown.text("details").splitlines())

    during(run, act)


def test_what_is_wrong_is_told_in_words(run: Run) -> None:
    (run.checkpoints / "checkpoint-8" / "weights.bin").unlink()

    async def act(shown: Shown) -> None:
        await shown.press("down", "down")
        assert "damaged: weights.bin" in shown.row()
        assert "damaged: weights.bin: missing" in shown.text("details")

    during(run, act)


def test_a_run_that_has_saved_nothing_says_so(tmp_path: Path) -> None:
    run = opened(tmp_path / "runs" / "mine")

    async def act(shown: Shown) -> None:
        assert "mine has saved no checkpoint yet" in shown.text("body")
        await shown.press("enter", "f", "v", "p", "d", "y", "down", "end")
        assert shown.app.screen is shown.screen
        folder_of(run, 4)
        shown.screen.tick()
        await shown.settle()
        assert shown.row().split()[1] == "4"

    during(run, act)


def test_the_cursor_stays_on_its_checkpoint(tmp_path: Path) -> None:
    run = trained(tmp_path / "runs" / "mine")

    async def act(shown: Shown) -> None:
        await shown.press("down")
        assert shown.row().split()[1] == "8"
        folder_of(run, 16)
        shown.screen.tick()
        await shown.settle()
        assert shown.row().split()[1] == "8"
        assert len(shown.text("body").rstrip().splitlines()) == 5

    during(run, act)


@pytest.mark.parametrize("key", ["escape", "backspace", "q"])
def test_back(run: Run, key: str) -> None:
    async def act(shown: Shown) -> None:
        await shown.press(key)
        assert isinstance(shown.app.screen, RunsScreen)

    during(run, act)


@pytest.mark.parametrize(("key", "name"), [("enter", None), ("r", None), ("f", "mine-2")])
def test_going_on_from_a_checkpoint(run: Run, key: str, name: str | None, wishes: Any) -> None:
    """From the newest only f means a run of its own, and gives it a name; from any other both mean one."""

    async def act(shown: Shown) -> None:
        await shown.press(key)
        assert wishes() == [] and "Nobody can continue from final" in await shown.answer()
        await shown.press("down", key)
        assert wishes() == [LaunchOptions(run=run, checkpoint=12, name=name)]
        shown.app.pop_screen()
        await shown.press("down", key)
        assert wishes()[1:] == [LaunchOptions(run=run, checkpoint=8)]

    during(run, act)


def test_nobody_goes_on_from_what_is_damaged(run: Run, wishes: Any) -> None:
    (run.checkpoints / "checkpoint-12" / "weights.bin").unlink()

    async def act(shown: Shown) -> None:
        await shown.press("down", "r")
        assert wishes() == [] and "weights.bin: missing" in shown.text("keys")

    during(run, act)


def test_the_newest_of_a_living_run_is_not_resumed_but_forked(tmp_path: Path, wishes: Any) -> None:
    run = living(tmp_path / "runs" / "mine")

    async def act(shown: Shown) -> None:
        await shown.press("r")
        assert wishes() == [] and "is running; f starts another run" in shown.text("keys")
        await shown.press("f")
        assert wishes() == [LaunchOptions(run=run, checkpoint=12, name="mine-2")]

    during(run, act)


def test_reading_back(run: Run) -> None:
    (run.checkpoints / "checkpoint-8" / "weights.bin").write_bytes(CONTENT + b"\xff")

    async def act(shown: Shown) -> None:
        await shown.press("down")
        assert shown.row().endswith(" valid")
        await shown.press("v")
        assert shown.row().endswith("verified")
        assert "every byte is what it was" in shown.text("keys")
        await shown.press("down")
        assert shown.row().endswith("verified"), "nobody has looked since it was saved"
        await shown.press("v")
        assert "does not match its SHA-256" in shown.text("details")
        assert "checkpoint-8: damaged" in shown.text("keys")

    during(run, act)


def test_reading_back_ends_with_the_screen(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The helper that hangs on a volume is killed when nobody waits for it any more."""
    pid = tmp_path / "pid"
    stand_in(
        monkeypatch,
        f"import os, time; open('{pid}.new', 'w').write(str(os.getpid()));"
        f" os.rename('{pid}.new', '{pid}'); time.sleep(600)",
    )

    async def act(shown: Shown) -> None:
        await shown.pilot.press("v")
        await shown.until(pid.exists)
        assert "verifying" in shown.row()
        await shown.pilot.press("escape")
        await shown.until(lambda: not Path(f"/proc/{int(pid.read_text())}").exists())

    during(run, act)


def test_a_helper_that_fails_is_no_verdict(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, "raise SystemExit('error: [/tmp] no \x1b memory')")

    async def act(shown: Shown) -> None:
        await shown.press("v")
        words = "final could not be verified. The helper process ended: error: [/tmp] no \u241b memory"
        assert words in await shown.answer()
        assert shown.row().endswith(" valid")

    during(run, act)


def test_keeping_and_letting_go_of_a_run_that_does_not_live(run: Run) -> None:
    async def act(shown: Shown) -> None:
        await shown.press("p")
        assert "final cannot be pinned" in await shown.answer()
        await shown.press("end", "p")
        assert "checkpoint-4 is pinned" in shown.text("keys")
        assert read_pins(run) == {4}
        assert shown.row().endswith("verified, pinned")
        await shown.press("end")  # what was said stands in place of the keys until one is pressed
        assert "p unpin" in shown.text("keys")
        await shown.press("p")
        assert read_pins(run) == frozenset() and shown.row().endswith("verified")

    during(run, act)


def test_deleting_asks_first(run: Run) -> None:
    async def act(shown: Shown) -> None:
        await shown.press("end", "d")
        assert isinstance(shown.app.screen, ConfirmScreen)
        assert "Delete checkpoint-4 of mine" in shown.text("question")
        await shown.press("n")
        assert (run.checkpoints / "checkpoint-4").exists()
        await shown.press("d", "y")
        assert "checkpoint-4 is deleted" in shown.text("keys")
        assert not (run.checkpoints / "checkpoint-4").exists()
        assert shown.row().split()[1] == "8", "the cursor stays in its place"

    during(run, act)


def test_what_must_stay_is_not_even_asked(tmp_path: Path) -> None:
    run = trained(tmp_path / "runs" / "mine")  # lost: it would go on from 12, and final/ would be made of 8
    write_pins(run, [4])
    reasons = ["it is the newest", "it has the best evaluation", "it is pinned"]

    async def act(shown: Shown) -> None:
        for reason in reasons:
            await shown.press("d")
            assert shown.app.screen is shown.screen and reason in shown.text("keys")
            await shown.press("down")

    during(run, act)


def test_a_running_run_gets_a_request_and_its_answer_is_shown(tmp_path: Path) -> None:
    run = living(tmp_path / "runs" / "mine")

    async def act(shown: Shown) -> None:
        await shown.press("end", "p")
        (found,) = read_requests(run)
        assert isinstance(found.request, Pin) and found.request.step == 4
        assert "pin at step 4: sent" in shown.text("details")
        write_pins(run, [4])
        tell(run.journal, ControlApplied(request=found.id, verb="pin", step=13, detail="checkpoint-4"))
        await shown.until(lambda: "pinned at step 13: checkpoint-4" in shown.text("details"))
        assert shown.row().endswith("pinned")
        await shown.press("p")
        assert isinstance([*read_requests(run)][-1].request, Unpin)
        await shown.press("up", "d")
        assert "it has the best evaluation" in shown.text("keys")

    during(run, act)


def test_a_request_may_be_refused_or_come_too_late(tmp_path: Path) -> None:
    run = living(tmp_path / "runs" / "mine")

    async def act(shown: Shown) -> None:
        await shown.press("end", "d", "y")
        (found,) = read_requests(run)
        assert isinstance(found.request, Delete) and (run.checkpoints / "checkpoint-4").exists()
        tell(run.journal, ControlRefused(request=found.id, verb="delete_checkpoint", step=13, reason="no"))
        await shown.until(lambda: "refused at step 13: no" in shown.text("details"))
        await shown.press("p")
        run.supervisor_log.write_bytes(b"")
        run.status.unlink(missing_ok=True)
        shown.screen._browsed._watch = None  # as if its process had ended
        await shown.until(lambda: "the run ended before it answered" in shown.text("details"))

    during(run, act)


def test_the_path_is_copied_and_said(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[str] = []
    monkeypatch.setattr(FtuiApp, "copy_to_clipboard", lambda self, text: copied.append(text))

    async def act(shown: Shown) -> None:
        await shown.press("down", "y")
        assert copied == [str(run.checkpoints / "checkpoint-12")]
        assert "copied: " in shown.text("keys")

    during(run, act, (200, 24))


def test_a_volume_that_does_not_answer_is_said(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(root: Path) -> list[Path]:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(checkpoint_index, "checkpoints_in", refuse)

    async def act(shown: Shown) -> None:
        assert "Input/output error" in shown.text("keys")
        assert "Looking" in shown.text("body")

    during(run, act)


# -- what is drawn

ENTRIES = [
    CheckpointEntry(step=8, name="final", path="final", place="final", kinds=["final"], eval_loss=2.25, size=5 << 30),
    CheckpointEntry(
        step=123_456_789, name="checkpoint-123456789", path="checkpoints/checkpoint-123456789", place="checkpoints",
        kinds=["best", "manual", "periodic"], eval_finite=False, size=1023 << 20, problem="[/red] \x1b[2J " * 9,
        pinned=True,
    ),
    CheckpointEntry(
        step=4, name="superseded/checkpoint-4-0a1b2c3d", path="checkpoints/superseded/c", place="superseded"
    ),
    CheckpointEntry(
        step=2, name="quarantine/checkpoint-2", path="checkpoints/quarantine/c", place="quarantine",
        problem="日本" * 40, created=0.0,
    ),
]  # fmt: skip


@pytest.mark.parametrize("glyphs", [UNICODE, ASCII])
@pytest.mark.parametrize("width", [60, 72, 80, 99, 100, 120, 200])
def test_rows_fit_every_width(width: int, glyphs: Any) -> None:
    frame = Frame(width, 8, glyphs)
    for reading in (None, "final"):
        lines = checkpoint_table(frame, "mine", ENTRIES, 1, reading, now=1e6)
        assert len(lines) == 5 and all(width_of(line) <= width for line in lines)
        text = "".join(span for span, _ in lines[2])
        assert "damaged" in text and text.rstrip().endswith("pin" if width < 72 else "pinned") and "nan" in text
        assert ("age" in "".join(span for span, _ in lines[0])) == (width >= 100)
    for entry in ENTRIES:
        shown = details(frame, Path("/runs/mine"), entry, None, now=1e6)
        assert 1 < len(shown) <= 8 and all(width_of(line) <= width for line in shown)


def test_the_chosen_row_is_in_sight_and_marked_by_a_sign() -> None:
    many = [
        CheckpointEntry(step=n, name=f"checkpoint-{n}", path=f"c/{n}", place="checkpoints") for n in range(100, 0, -1)
    ]
    for cursor in (0, 50, 99):
        lines = checkpoint_table(Frame(60, 10, ASCII), "mine", many, cursor, None, now=0.0)
        (chosen,) = [line for line in lines if line[0][0] == " > "]
        assert len(lines) == 10 and str(100 - cursor) in chosen[1][0]


def test_a_stump_of_a_reason_is_left_out() -> None:
    narrow = "".join(span for span, _ in checkpoint_table(Frame(60, 9, UNICODE), "mine", ENTRIES, 0, None, 0.0)[2])
    assert "damaged pin" in narrow and cells(narrow) <= 60
