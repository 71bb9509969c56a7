"""The list of what can be started and the page of what would happen: every key, and what it leaves on the disk."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.screen import Screen
from textual.widgets import Input

from ftui.errors import UsageError
from ftui.launch import open_run
from ftui.launch.open_run import stored_profile, with_run_name
from ftui.profile.layers import resolve
from ftui.profile.presets import shipped_presets
from ftui.profile.serialize import flat_values, to_toml
from ftui.runs.events import RunStopped
from ftui.runs.run_folder import Run, runs_root
from ftui.supervisor import spawn
from ftui.tui.app import FtuiApp
from ftui.tui.drawing.resolved_table import ResolvedPage, count_spans, resolved_page, rows
from ftui.tui.drawing.start_list import about, start_list
from ftui.tui.render.canvas import Canvas
from ftui.tui.render.glyphs import ASCII, UNICODE
from ftui.tui.render.spans import Frame, width_of
from ftui.tui.render.terminal import Terminal
from ftui.tui.screens import resolved as resolved_screen
from ftui.tui.screens.help import HelpScreen
from ftui.tui.screens.monitor import MonitorScreen
from ftui.tui.screens.resolved import ResolvedScreen
from ftui.tui.screens.runs import RunsScreen
from ftui.tui.screens.start import StartScreen
from ftui.tui.state import launch_plan
from ftui.tui.state.launch_plan import LaunchOptions, LaunchPlan, plan_launch
from ftui.tui.state.run_list import RunList
from ftui.tui.state.start_choices import HERE, RUNS, SHIPPED, StartChoice, filter_choices, find_choices
from tests.support import shelf
from tests.support.stand_in import answer_with, stand_in

PROFILE = '[run]\nstage = "sft"\n[model]\nname_or_path = "hub/model"\n[data]\ntrain = "rows.jsonl"\n'
COUNTS = {"answer": {"num_train_rows": 1713, "max_steps": 30, "warnings": ["3 rows were cut"]}}
REFUSED = {"problem": {"message": "rows.jsonl:3: no [/answer]", "hint": "Mend it.", "exit_code": 31}}


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nobody's own runs, a current folder of the test's own, and no supervisor."""
    monkeypatch.setenv("FTUI_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for room in (open_run, spawn):
        monkeypatch.setattr(room, "launch", lambda run, lock=None, cards=(): None)
    monkeypatch.setattr(launch_plan, "kills_on_logout", lambda: None)
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture
def path() -> Path:
    path = Path.cwd() / "mine.toml"
    path.write_text(PROFILE)
    path.with_name("rows.jsonl").touch()
    return path


@pytest.fixture
def parked(path: Path) -> Run:
    run = shelf.trained(runs_root() / "old")
    run.profile.write_text(to_toml(with_run_name(resolve(path).profile, run.name)))
    shelf.tell(run.journal, RunStopped(step=12, reason="on [/request]", exit_code=11))
    return run


class Shown:
    """The program, and what a person would do at it."""

    def __init__(self, pilot: Pilot[list[str]]) -> None:
        self.pilot, self.app = pilot, pilot.app

    @property
    def screen(self) -> Screen[Any]:
        return self.app.screen

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.settle()

    async def type(self, text: str) -> None:
        """Into the prompt that stands open, and enter."""
        await self.settle()
        self.screen.query_one(Input).value = text
        await self.press("enter")

    async def settle(self) -> None:
        await self.pilot.pause()
        await self.app.workers.wait_for_complete()
        await self.pilot.pause()

    def text(self, name: str = "body") -> str:
        canvas = self.screen.query_one(f"#{name}", Canvas)
        return "\n".join(canvas.render_line(y).text.rstrip() for y in range(canvas.size.height))

    def words(self) -> str:
        """All of the body in one line, one blank between two words."""
        return " ".join(self.text().split())

    async def until(self, holds: Callable[[], object]) -> None:
        for _ in range(3000):
            if holds():
                return
            await asyncio.sleep(0.02)
        raise AssertionError(self.text())

    @property
    def cursor(self) -> str:
        """The line under the cursor of the list."""
        assert isinstance(self.screen, StartScreen) and self.screen.choice is not None
        return self.screen.choice.name


@asynccontextmanager
async def at(screen: Screen[None] | None = None) -> AsyncIterator[Shown]:
    app = FtuiApp(Terminal(True, UNICODE, 4.0))
    async with app.run_test(size=(80, 24)) as pilot:
        shown = Shown(pilot)
        await shown.settle()
        if screen is not None:
            app.push_screen(screen)
            await shown.settle()
        yield shown


def person(script: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(script())  # type: ignore[arg-type]


# -- the list


def test_the_list_has_profiles_and_runs_to_go_on_with(path: Path, parked: Run) -> None:
    Path("torn.toml").write_text("[x\n")
    Path("pyproject.toml").write_text("[project]\nname = 'x'\n")
    Path("huge.toml").write_text("#" * 300_000)
    shelf.living(runs_root() / "living")
    shelf.finished(runs_root() / "finished")
    found = {(choice.section, choice.name): choice.words for choice in find_choices(Path.cwd(), RunList())}
    assert found[HERE, "mine.toml"] == "sft, hub/model, rows.jsonl"
    assert found[HERE, "torn.toml"].startswith("cannot be read: Expected ']'")
    assert found[HERE, "huge.toml"] == "cannot be read: it is too long for a profile"
    assert found[SHIPPED, "quickstart"].startswith("LoRA on a 2.8 M parameter model")
    assert [name for section, name in found if section == RUNS] == ["old"]
    assert found[RUNS, "old"] == "parked at step 0/40: on [/request]"
    assert not any(name == "pyproject.toml" for _, name in found)


def test_profiles_of_one_model_are_told_apart_by_their_rows() -> None:
    """Of long paths the last part is listed; all of them stand below, and are found by words."""
    for name in ("law", "tales"):
        text = PROFILE.replace("hub/model", "/data/models/smol/SmolLM2").replace(
            "rows.jsonl", f"../rows/2026/{name}.jsonl"
        )
        Path(f"{name}.toml").write_text(text)
    found = [choice for choice in find_choices(Path.cwd(), RunList()) if choice.section == HERE]
    assert [choice.words for choice in found] == ["sft, SmolLM2, law.jsonl", "sft, SmolLM2, tales.jsonl"]
    (law,) = filter_choices(found, "2026/law")
    below = "".join(text for line in about(Frame(80, 6, ASCII), law) for text, _ in line)
    assert "/data/models/smol/SmolLM2, ../rows/2026/law.jsonl" in below


def test_entries_of_one_file_are_told_apart() -> None:
    text = PROFILE.replace('"rows.jsonl"', '{ path = "../dataset_info.json", subset = "alpaca_en" }')
    Path("entry.toml").write_text(text)
    (found,) = [choice.words for choice in find_choices(Path.cwd(), RunList()) if choice.section == HERE]
    assert found == "sft, hub/model, dataset_info.json (alpaca_en)"


def test_what_a_profile_says_of_itself_may_be_anything() -> None:
    Path("odd.toml").write_text('run = 3\n[model]\nfrom_scratch = {}\nname_or_path = ""\n[data]\ntrain = ["a", 1]\n')
    Path("new.toml").write_text("[model.from_scratch]\nhidden_size = 8\n")
    words = {choice.name: choice.words for choice in find_choices(Path.cwd(), RunList())}
    assert words["odd.toml"] == "from scratch, a 1" and words["new.toml"] == "from scratch"


def test_empty_sections_say_so() -> None:
    lines = start_list(Frame(80, 20, ASCII), [], 0, "")
    text = "\n".join("".join(part for part, _ in line) for line in lines)
    assert "none: a profile is a .toml file" in text and "none: no run is parked" in text


@pytest.mark.parametrize("size", [(40, 8), (80, 18), (200, 60)])
def test_the_list_fits_and_shows_the_cursor(size: tuple[int, int]) -> None:
    many = [StartChoice(SHIPPED, f"profile-{number}" + "x" * number, "[/] 說明 " * 20) for number in range(40)]
    for cursor in (0, 20, 39):
        lines = start_list(Frame(*size, UNICODE), many, cursor, "")
        assert len(lines) <= size[1] and all(width_of(line) <= size[0] for line in lines)
        assert sum(any(style.endswith("@cursor") for _, style in line) for line in lines) == 1
    assert about(Frame(80, 5, UNICODE), None) == []


def test_the_cursor_moves_and_opens_what_it_stands_on(path: Path, parked: Run) -> None:
    async def script() -> None:
        async with at() as shown:
            await shown.press("n")
            assert shown.cursor == "mine.toml"
            await shown.press("down", "j")
            assert shown.cursor == "quickstart"
            await shown.press("up")
            assert shown.cursor == "old"
            await shown.press("k", "k", "k")
            assert shown.cursor == "mine.toml"
            await shown.press("end")
            assert shown.cursor == shipped_presets()[-1].name
            await shown.press("home", "down")
            assert "parked at step 0/40: on [/request]" in shown.text("details")
            await shown.press("enter")
            assert isinstance(shown.screen, ResolvedScreen) and shown.screen.options == LaunchOptions(run=parked)
            await shown.press("q")
            assert shown.cursor == "old"
            await shown.press("home", "enter")
            assert isinstance(shown.screen, ResolvedScreen) and shown.screen.options == LaunchOptions(path)
            await shown.press("escape", "escape")
            assert isinstance(shown.screen, RunsScreen)

    person(script)


def test_a_shipped_profile_may_be_chosen_beforehand(parked: Run) -> None:
    async def script() -> None:
        async with at(StartScreen("quickstart")) as shown:
            assert shown.cursor == "quickstart"

    person(script)


def test_the_list_is_narrowed_by_words(path: Path, parked: Run) -> None:
    async def script() -> None:
        async with at(StartScreen()) as shown:
            await shown.press("end", "slash")
            await shown.type("Parked 0/40")
            assert shown.cursor == "old" and f"1 of {len(shipped_presets()) + 2} with 'Parked 0/40'" in shown.text(
                "title"
            )
            await shown.press("slash")
            await shown.type("nothing is like this")
            assert "Nothing here has 'nothing is like this'" in shown.text()
            await shown.press("enter", "down")
            assert isinstance(shown.screen, StartScreen)
            await shown.press("slash", "escape", "slash")
            await shown.type("")
            assert "quickstart" in shown.text()

    person(script)


def test_a_profile_anywhere_is_opened_by_its_path(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere.toml"
    elsewhere.write_text(PROFILE)

    async def script() -> None:
        async with at(StartScreen()) as shown:
            await shown.press("o")
            await shown.type("quikstart")
            assert "Did you mean quickstart?" in shown.text("problem")
            await shown.type(str(elsewhere))
            assert isinstance(shown.screen, ResolvedScreen) and shown.screen.options.profile == elsewhere
            await shown.press("q", "o", "escape")
            assert isinstance(shown.screen, StartScreen)

    person(script)


def test_the_list_notices_a_profile_that_was_written_meanwhile(path: Path) -> None:
    async def script() -> None:
        async with at(StartScreen()) as shown:
            await shown.press("enter")
            Path("a-new-one.toml").write_text(PROFILE)
            await shown.press("q")
            assert shown.cursor == "mine.toml" and "a-new-one.toml" in shown.text()

    person(script)


# -- the page


def test_enter_starts_and_lands_on_the_live_view(path: Path) -> None:
    async def script() -> None:
        async with at() as shown:
            await shown.press("n", "enter")
            assert "Starts a new run mine in" in shown.words()
            await shown.press("enter")
            await shown.until(lambda: isinstance(shown.screen, MonitorScreen))
            assert [type(screen) for screen in shown.app.screen_stack] == [RunsScreen, MonitorScreen]
            assert Run(runs_root() / "mine").read_facts().profile_name == "mine"

    person(script)


def test_it_lands_with_the_list_behind_it_wherever_it_came_from(path: Path, parked: Run) -> None:
    async def script() -> None:
        app = FtuiApp(Terminal(True, UNICODE, 4.0), run=parked)
        async with app.run_test(size=(80, 24)) as pilot:
            shown = Shown(pilot)
            app.push_screen(ResolvedScreen(run=parked, checkpoint=8))
            await shown.settle()
            assert "A child run old-2 continues from checkpoint-8 of old" in shown.text()
            await shown.press("s")
            await shown.until(lambda: isinstance(shown.screen, MonitorScreen))
            await shown.settle()
            assert [type(screen) for screen in app.screen_stack[1:]] == [RunsScreen, MonitorScreen]
            assert Run(runs_root() / "old-2").read_facts().parent_checkpoint == "checkpoint-8"

    person(script)


def test_values_are_changed_and_taken_back(path: Path) -> None:
    async def script() -> None:
        async with at(ResolvedScreen(profile=path)) as shown:
            await shown.press("u", "e")
            await shown.type("train.lr=1")
            assert "Use train.learning_rate" in shown.text("problem")
            await shown.type('train.learning_rate=1e-3 adapter.target_modules=["q [/]"]')
            assert "* 2 differ" in shown.text()
            assert '* target_modules ["q [/]"] was "all-linear" --set' in shown.words()
            await shown.press("e")
            assert shown.screen.query_one(Input).value == 'adapter.target_modules=["q [/]"]'
            assert "Layers that get an adapter" in shown.text("question")
            await shown.type("train.max_steps=30")
            assert "* 3 differ" in shown.text()
            await shown.press("u")
            assert "* 2 differ" in shown.text()
            await shown.press("enter")
            await shown.until(lambda: isinstance(shown.screen, MonitorScreen))

    person(script)
    made = stored_profile(Run(runs_root() / "mine"))
    assert (made.train.learning_rate, made.train.max_steps) == (1e-3, None)


def test_other_weights_of_a_run_are_told_to_make_a_child(parked: Run) -> None:
    async def script() -> None:
        async with at(ResolvedScreen(run=parked)) as shown:
            assert "old was parked at step 0/40: it continues from checkpoint-12." in shown.text()
            await shown.press("e")
            await shown.type("train.seed=7")
            assert "A child run old-2 continues from checkpoint-12 of old" in shown.text()
            await shown.press("enter")
            await shown.until(lambda: isinstance(shown.screen, MonitorScreen))

    person(script)
    assert Run(runs_root() / "old-2").read_facts().fork and stored_profile(parked).train.seed == 42


def test_a_name_is_given(path: Path, parked: Run) -> None:
    async def script() -> None:
        async with at(ResolvedScreen(profile=path)) as shown:
            await shown.press("n")
            assert shown.screen.query_one(Input).value == "mine"
            await shown.type("old")
            assert "There is a run old: it was parked at step 0/40." in shown.text("problem")
            await shown.type("other")
            assert "Starts a new run other in" in shown.text()
            await shown.press("u")
            assert "Starts a new run mine in" in shown.words()
            await shown.press("n", "escape")
            assert "Starts a new run mine in" in shown.words()

    person(script)


def test_a_wrong_profile_says_where_and_is_read_again(path: Path) -> None:
    path.write_text(PROFILE + "[train]\nlr = 3\n")

    async def script() -> None:
        async with at(ResolvedScreen(profile=path)) as shown:
            assert "8:train.lr:thereisnosuchkey" in "".join(shown.words().split())  # a long path wraps anywhere
            assert "Use train.learning_rate." in shown.text() and "R reads it again" in shown.text()
            await shown.press("enter")
            assert "cannot be started" in shown.text("keys")
            await shown.press("d")
            assert "no whole profile" in shown.text("keys")
            await shown.press("n", "escape", "e", "escape", "down")
            path.write_text(PROFILE)
            await shown.press("R")
            assert "Starts a new run mine in" in shown.words()

    person(script)


def unbroken(text: str) -> str:
    """Without its spaces: a long path is broken anywhere, wherever the temporary folder puts its end."""
    return "".join(text.split())


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (UsageError("It cannot be [/opened].", hint="Free some room."), "It cannot be [/opened]. Free some room."),
        (PermissionError(13, "Permission denied"), "mine cannot be opened: [Errno 13] Permission denied."),
    ],
)
def test_what_keeps_it_from_starting_stays_on_the_screen(
    path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, words: str
) -> None:
    def refuse(options: LaunchOptions, shown: object) -> Run:
        raise error

    monkeypatch.setattr(resolved_screen, "carry_out", refuse)

    async def script() -> None:
        async with at(ResolvedScreen(profile=path)) as shown:
            await shown.press("enter")
            await shown.until(lambda: unbroken(words) in unbroken(shown.words()))
            assert "Starts a new run mine" in shown.words()
            await shown.press("R")
            assert unbroken(words) not in unbroken(shown.words())

    person(script)


def test_enter_twice_starts_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def carry_out(options: LaunchOptions, shown: LaunchPlan) -> Run:
        calls.append(shown.act)
        return launch_plan.carry_out(options, shown)

    monkeypatch.setattr(resolved_screen, "carry_out", carry_out)

    async def script() -> None:
        async with at(ResolvedScreen(profile=path)) as shown:
            await shown.pilot.press("enter", "enter")
            await shown.until(lambda: isinstance(shown.screen, MonitorScreen))

    person(script)
    assert calls == ["start"]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (COUNTS, ["rows to train on                1,713", "steps                              30", "3 rows were cut"]),
        (REFUSED, ["rows.jsonl:3: no [/answer]", "Mend it."]),
        (None, ["The helper process ended", "boom"]),
    ],
)
def test_rows_are_counted(
    path: Path, monkeypatch: pytest.MonkeyPatch, answer: dict[str, Any] | None, words: list[str]
) -> None:
    if answer is None:
        stand_in(monkeypatch, "raise SystemExit('boom')")
    else:
        answer_with(monkeypatch, answer)

    async def script() -> None:
        async with at(ResolvedScreen(profile=path)) as shown:
            await shown.press("end", "d")
            await shown.until(lambda: words[0] in shown.text())
            assert all(word in shown.text() for word in words)
            await shown.press("R")
            assert words[0] not in shown.text()

    person(script)


def test_a_run_that_was_allowed_its_models_code_is_counted(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The consent that the run was started with holds for its resume, and for what is shown before it."""
    commit = "0123456789abcdef0123456789abcdef01234567"
    path.write_text(PROFILE.replace("[data]", f'revision = "{commit}"\ntrust_remote_code = true\n[data]'))
    opened = open_run.open_run(runs_root() / "mine", resolve(path), allow=["remote-code"])
    answer_with(monkeypatch, COUNTS)

    async def script() -> None:
        async with at(ResolvedScreen(run=opened.run)) as shown:
            await shown.press("end", "d")
            await shown.until(lambda: "1,713" in shown.text())

    person(script)


def test_leaving_ends_the_count(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    note = tmp_path / "pid"
    stand_in(monkeypatch, f"import os, time; open({str(note)!r}, 'w').write(str(os.getpid())); time.sleep(60)")

    async def script() -> None:
        async with at(ResolvedScreen(profile=path)) as shown:
            await shown.pilot.press("d")
            await shown.until(lambda: "counting rows" in shown.text() and note.exists() and note.read_text())
            await shown.pilot.press("escape")
            await shown.until(lambda: not Path(f"/proc/{note.read_text()}").exists())
            assert isinstance(shown.screen, RunsScreen)

    person(script)


def test_the_cursor_moves_over_the_values(path: Path) -> None:
    async def script() -> None:
        async with at(ResolvedScreen(profile=path)) as shown:
            assert isinstance(shown.screen, ResolvedScreen)
            screen = shown.screen
            await shown.press("down", "j", "up", "k")
            assert screen.cursor == 0
            await shown.press("end")
            assert list(flat_values(resolve(path).profile))[-1][-1] in shown.text()
            await shown.press("pageup", "home", "pagedown")
            assert screen.cursor == 10
            await shown.press("question_mark")
            assert isinstance(shown.screen, HelpScreen) and "read again" in shown.text()

    person(script)


@pytest.mark.parametrize("size", [(40, 10), (80, 22), (120, 39), (200, 59)])
def test_the_page_fits(path: Path, size: tuple[int, int]) -> None:
    plan = plan_launch(LaunchOptions(path, overrides=("model.name_or_path=模型/" + "x" * 90,)))
    frame = Frame(*size, ASCII)
    told = [("[/] a very long sentence " * 30, "title")]
    page = ResolvedPage("profile [/]", told, [("1\x1b[2J " * 50, "bad")], plan.values)
    found = rows(frame, page)
    for cursor in (0, len(found) // 2, len(found) - 1):
        lines = resolved_page(frame, page, found, cursor)
        assert len(lines) <= size[1]
        assert any(style.endswith("@cursor") for line in lines for _, style in line)


def test_counts_stand_beside_each_other_where_there_is_room() -> None:
    lines = ["a  1", "b  2", "c  3", "warning: w"]
    assert count_spans(lines, 80) == [("a  1    c  3", "text"), ("b  2", "text"), ("warning: w", "warn")]
    assert [text for text, _ in count_spans(lines, 10)] == lines


def test_the_list_does_without_pydantic() -> None:
    code = "import ftui.tui.screens.start, ftui.tui.screens.runs, sys; print('pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"
