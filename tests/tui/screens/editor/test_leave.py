"""The editor and the world around it: leaving, being ended, foreign names, folders that are gone, long answers."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from ftui.errors import FtuiError
from ftui.system.user_folders import state_folder
from ftui.tui.form.profile_form import ProfileForm
from ftui.tui.screens.dialogs import ConfirmScreen
from ftui.tui.screens.editor import estimate_panel
from ftui.tui.screens.editor.editor_screen import EditorScreen
from ftui.tui.screens.editor.profile_file import LeaveScreen
from ftui.tui.state.autosave import Autosave, find_draft
from tests.support.shown_app import shown_app
from tests.tui.screens.editor.test_editor import PROFILE, Person, at_home, editor, person

__all__ = ["at_home"]  # the fixture


async def change(at: Person) -> None:
    await at.find("data.packing")
    await at.press("space")


def test_ctrl_q_asks_first(at_home: Path) -> None:
    async def script() -> None:
        async with editor() as at:
            await change(at)
            await at.press("d", "ctrl+q")
            assert at.shows(LeaveScreen), "a list lay over the editor"
            await at.press("n")
            assert at.shows(EditorScreen) and "packing = true" in at.text
            await at.press("ctrl+q", "s")
            assert "packing = true" in Path("mine.toml").read_text() and at.app._exit
        async with editor() as at:
            await at.press("ctrl+q")
            assert at.app._exit, "nothing to ask about"

    person(script)


def test_what_was_not_saved_is_offered_again(at_home: Path) -> None:
    async def script() -> None:
        async with editor() as at:
            await change(at)
            await at.press("slash", *"seed", "enter", "enter")
            await at.fill("7")
            at.app._leave_at_once()  # SIGTERM, SIGHUP
        assert Path("mine.toml").read_text() == PROFILE
        async with editor() as at:
            assert at.shows(ConfirmScreen)
            await at.press("y")
            assert "packing = true" in at.text and "seed = 7" in at.text and at.form.is_changed
            await at.press("w")
        async with editor() as at:
            assert at.shows(EditorScreen), "saved: nothing to offer"

    person(script)


def test_a_fault_of_the_program_takes_no_draft_with_it(at_home: Path) -> None:
    async def script() -> None:
        with pytest.raises(ZeroDivisionError):
            async with editor() as at:
                await change(at)
                at.app.call_later(lambda: 1 // 0)
                await at.settle()
        async with editor() as at:
            assert at.shows(ConfirmScreen)

    person(script)


@pytest.mark.parametrize("name", ["~nosuch/x", "org/" + "x" * 300])
@pytest.mark.parametrize("key", ["model.name_or_path", "data.train"])
def test_no_name_ends_the_editor(key: str, name: str) -> None:
    async def script() -> None:
        async with editor() as at:
            await at.find(key)
            await at.press("enter")
            await at.fill(name)
            await at.press("enter", "down", "w")
            assert at.shows(EditorScreen)

    person(script)


def test_a_name_that_is_no_text_is_refused(at_home: Path) -> None:
    Path(os.fsdecode(b"a\xff.jsonl")).write_text('{"text": "a"}\n')

    async def script() -> None:
        async with editor() as at:
            await at.find("data.train")
            await at.press("enter", "up", "enter")
            await at.settle()
            assert at.text == PROFILE and "not valid text" in at.words()

    person(script)


def test_files_that_are_gone_or_lead_nowhere_are_told(at_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDITOR", "vim '")
    monkeypatch.delenv("VISUAL", raising=False)

    async def script() -> None:
        async with editor() as at:
            await change(at)
            await at.press("E")
            assert "Set $EDITOR" in at.words("keys")
            Path("mine.toml").unlink()
            Path("mine.toml").symlink_to("mine.toml")
            await at.press("w", "y")
            await at.settle()
            assert "cannot be written" in at.words()
            await at.press("enter")
            shutil.rmtree(at_home)
            await at.press("w", "y", "enter", "W", "escape", "v", "d", "escape")
            await at.settle()
            assert "packing = true" in at.text

    person(script)


def test_an_untouched_draft_of_a_file_that_changed_is_read_again(at_home: Path) -> None:
    async def script() -> None:
        async with editor() as at:
            Path("mine.toml").write_text(PROFILE + "seed = 3\n")
            await at.press("w", "y")
            assert at.text.endswith("seed = 3\n") and not at.form.is_changed

    person(script)


class SlowHelper:
    """Answers nothing until it is closed."""

    made = 0

    def __init__(self) -> None:
        type(self).made += 1
        self._ended = threading.Event()

    def ask(self, question: str, **given: Any) -> Any:
        self._ended.wait(20)
        raise FtuiError("Nobody waits for the answer any more.")

    def close(self) -> None:
        self._ended.set()


def test_a_closer_look_ends_with_the_editor(at_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimate_panel, "Helper", SlowHelper)
    monkeypatch.setattr(SlowHelper, "made", 0)

    async def script() -> None:
        Path("mine.toml").write_text(PROFILE)
        async with shown_app() as shown:
            shown.app.push_screen(EditorScreen(ProfileForm.load(Path("mine.toml"))))
            at = Person(shown)
            await shown.pilot.pause()
            await at.screen.workers.wait_for_complete()
            await at.press("c", "c")
            assert SlowHelper.made == 1 and "still" in at.words("keys") and "counting and" in at.words("title")
            await at.press("escape")
            assert not at.shows(EditorScreen)

    asyncio.run(asyncio.wait_for(script(), 60))


def test_a_models_own_code_is_not_run_for_an_estimate(at_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimate_panel, "Helper", SlowHelper)
    monkeypatch.setattr(SlowHelper, "made", 0)

    async def script() -> None:
        async with editor(
            PROFILE.replace("[data]", f'trust_remote_code = true\nrevision = "{"a" * 40}"\n\n[data]')
        ) as at:
            await at.press("c")
            assert SlowHelper.made == 0 and "--allow remote-code" in at.words()

    person(script)


@pytest.mark.parametrize("key", ["escape", "q"])
def test_not_now_keeps_what_was_not_saved(at_home: Path, key: str) -> None:
    """Through any number of openings, leavings and changes, until somebody says yes or no."""

    async def script() -> None:
        async with editor() as at:
            await change(at)
            at.app._leave_at_once()
        async with editor() as at:
            assert at.shows(ConfirmScreen) and "not now" in at.words("question")
            await at.press(key)
            assert at.shows(EditorScreen) and at.text == PROFILE
            await at.press("escape")
            assert not at.shows(EditorScreen)
        async with editor() as at:
            await at.press(key, "slash", *"seed", "enter", "enter")
            await at.fill("7")
            await at.press("enter", "w")
            assert "seed = 7" in Path("mine.toml").read_text()
        async with editor() as at:
            assert at.shows(ConfirmScreen), "other changes were saved meanwhile; these were not"
            await at.press("y")
            assert "packing = true" in at.text
            await at.press("escape", "y")
        async with editor() as at:
            assert at.shows(EditorScreen), "taken up, and left without them"

    person(script)


def test_no_forgets_what_was_not_saved(at_home: Path) -> None:
    async def script() -> None:
        async with editor() as at:
            await change(at)
            at.app._leave_at_once()
        async with editor() as at:
            await at.press("n")
        async with editor() as at:
            assert at.shows(EditorScreen)

    person(script)


KILLED = """
import asyncio, os, signal
from pathlib import Path
from ftui.tui.state import autosave
from ftui.tui.form.profile_form import ProfileForm
from ftui.tui.screens.editor.editor_screen import EditorScreen
from tests.support.shown_app import shown_app

async def main():
    async with shown_app() as shown:
        shown.app.push_screen(EditorScreen(ProfileForm.load(Path("mine.toml"))))
        await shown.press("slash", *"data.packing", "enter", "space", "slash", *"seed", "enter", "enter", "7")
        await shown.until(lambda: any("seed = 427" in file.read_text() for file in autosave._folder().glob("*.toml")))
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


def test_a_draft_outlives_sigkill(at_home: Path) -> None:
    """It is kept a moment after each change, what is being typed too; the leavings of the dead process go."""
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[4])}
    ended = subprocess.run([sys.executable, "-c", KILLED], env=environment, check=False)
    assert ended.returncode == -signal.SIGKILL and Path("mine.toml").read_text() == PROFILE

    async def script() -> None:
        async with editor() as at:
            assert at.shows(ConfirmScreen)
            await at.press("y")
            assert "packing = true" in at.text and "seed = 427" in at.text
            at.screen.keep_draft()
            assert len(list((state_folder() / "unsaved").iterdir())) == 2, "its own draft, and its own lock"

    person(script)


def test_what_a_living_editor_keeps_is_offered_to_no_other(at_home: Path) -> None:
    """Two terminals with the same profile: neither takes the other for ended, nor loses its own draft to it."""
    path = at_home / "mine.toml"
    one, other = Autosave(), Autosave()
    one.look(path, "one")
    other.look(path, "other")
    assert find_draft(path) is None
    one.release()
    found = find_draft(path)
    assert found is not None and found.text == "one"
    other.release()
    found = find_draft(path)
    assert found is not None and found.text == "other", "the newest first"
    found.forget()
    found = find_draft(path)
    assert found is not None and found.text == "one"


def test_nothing_is_kept_of_what_is_saved_undone_or_dropped(at_home: Path) -> None:
    folder = state_folder() / "unsaved"

    def drafts() -> list[str]:
        return [file.read_text() for file in folder.glob("*.toml")]

    async def script() -> None:
        async with editor() as at:
            await change(at)
            at.screen.keep_draft()
            assert ["packing = true" in text for text in drafts()] == [True]
            await at.press("u")
            at.screen.keep_draft()
            assert drafts() == []
            await at.press("U", "W")
            at.app.keep_drafts()
            assert len(drafts()) == 1
            await at.fill("other.toml")
            await at.press("enter")
            assert drafts() == [], "saved under another name"
            await at.press("space")
            at.screen.keep_draft()
            await at.press("escape", "y")
            assert drafts() == []
        assert list(folder.iterdir()) == []

    person(script)
