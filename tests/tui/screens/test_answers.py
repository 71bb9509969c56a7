"""Prompts of a file with the answers of two sides: asked one after the other, stopped, gone on with, compared."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from textual.widgets import Input

from ftui.helper.chat_session import ChatSession
from ftui.launch import answering_sides
from ftui.launch.answering_sides import Addressee, AnsweringPlan
from ftui.launch.prompt_file import Question
from ftui.runs.run_folder import Run
from ftui.tui.drawing.answer_lines import answer_screen
from ftui.tui.render.glyphs import ASCII, UNICODE
from ftui.tui.render.spans import Frame, width_of
from ftui.tui.screens.answers import AnswersScreen
from ftui.tui.screens.chat import ChatScreen
from ftui.tui.state.answer_list import Asked, compare_words
from tests.support.shelf import finished
from tests.support.shown_app import ShownApp, shown_app
from tests.support.stand_in import stand_in
from tests.support.tiny import make_profile
from tests.tui.screens.test_chat import HELPER, SlowVoice

PROMPTS = [{"prompt": "first"}, {"prompt": "second", "system": "Be brief"}, {"prompt": "third"}]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    profile = make_profile(tmp_path, tmp_path, adapter={"method": "lora"})
    monkeypatch.setattr(answering_sides, "stored_profile", lambda run: profile)
    stand_in(monkeypatch, HELPER)
    return finished(tmp_path / "runs" / "mine")


def write(path: Path, lines: list[Any]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def watch(question: Question, act: Callable[[ShownApp], Awaitable[None]], size: tuple[int, int] = (80, 24)) -> None:
    async def main() -> None:
        async with shown_app(size=size) as shown:
            await shown.app.push_screen(AnswersScreen(question))
            await act(shown)

    asyncio.run(main())


@pytest.mark.parametrize("width", [80, 120])
def test_prompts_are_asked_and_two_answers_compared(run: Run, tmp_path: Path, width: int) -> None:
    out = tmp_path / "answers.jsonl"

    async def act(shown: ShownApp) -> None:
        await shown.until(lambda: "3 of 3 answered, 3 differ" in shown.text())
        lines = shown.lines()
        tuned = next(n for n, line in enumerate(lines) if "tuned heard first" in line)
        base = next(n for n, line in enumerate(lines) if "base heard first" in line)
        assert (base > tuned) if width < 100 else (base == tuned), shown.text()
        await shown.press("down")
        assert "system: Be brief" in shown.text() and "tuned heard second briefly" in shown.text()
        await shown.press("n")
        assert "tuned heard third" in shown.text()
        await shown.press("n")
        assert "tuned heard first" in shown.text(), "around"
        await shown.press("escape")
        assert not shown.shows(AnswersScreen)

    watch(Question(Addressee(run, against="base"), write(tmp_path / "p.jsonl", PROMPTS), out), act, (width, 24))
    assert [json.loads(line)["prompt"] for line in out.read_text().splitlines()] == ["first", "second", "third"]


@pytest.mark.slow
def test_what_is_stopped_is_gone_on_with_and_nothing_is_asked_twice(run: Run, tmp_path: Path) -> None:
    """An answer that is stopped in its middle is none; what `out` holds is shown again, of the same weights only."""
    out, prompts = tmp_path / "answers.jsonl", [PROMPTS[0], {"prompt": "on and on"}, PROMPTS[2]]
    question = Question(Addressee(run), write(tmp_path / "p.jsonl", prompts), out)

    async def stop(shown: ShownApp) -> None:
        await shown.until(lambda: "1 of 3 answered" in shown.text())
        await shown.press("down")
        await shown.until(lambda: "heard on and on" in shown.text())
        assert "esc stop" in shown.text()
        await shown.press("escape")
        await shown.until(lambda: "not asked yet" in shown.text() and "esc back" in shown.text())
        assert "1 of 3 answered" in shown.text() and "enter ask" in shown.text()

    watch(question, stop)
    assert len(out.read_text().splitlines()) == 1
    write(tmp_path / "p.jsonl", PROMPTS)

    async def go_on(shown: ShownApp) -> None:
        await shown.until(lambda: "3 of 3 answered" in shown.text())
        assert "enter ask" not in shown.text()

    watch(question, go_on)
    asked = [json.loads(line)["prompt"] for line in out.read_text().splitlines()]
    assert asked == ["first", "second", "third"]
    watch(Question(Addressee(run, against="base"), question.prompts, out), go_on)
    assert len(out.read_text().splitlines()) == 6, "of two sides nothing was there"

    async def read(shown: ShownApp) -> None:
        await shown.until(lambda: "6 of 6 answered, 3 differ" in shown.text())

    watch(Question(Addressee(run), out), read)


@pytest.mark.slow
def test_a_conversation_opens_a_file(run: Run, tmp_path: Path) -> None:
    path = write(tmp_path / "p.jsonl", PROMPTS)

    async def act(shown: ShownApp) -> None:
        await shown.app.push_screen(ChatScreen(run))
        await shown.app.workers.wait_for_complete()
        await shown.press("ctrl+f")
        shown.app.screen.query_one(Input).value = "nowhere.jsonl"
        await shown.press("enter")
        assert "There is no file nowhere.jsonl." in shown.text()
        shown.app.screen.query_one(Input).value = str(path)
        await shown.press("enter")
        await shown.until(lambda: "3 of 3 answered" in shown.text())
        await shown.press("escape")
        assert shown.shows(ChatScreen)
        shown.app.screen.query_one(Input).value = "hello"
        await shown.press("enter")
        await shown.until(lambda: "tuned heard hello" in shown.text())

    async def main() -> None:
        async with shown_app() as shown:
            await act(shown)

    asyncio.run(main())
    kept = [line for file in (run.folder / "chats").iterdir() for line in file.read_text().splitlines()]
    assert sorted(json.loads(line)["prompt"] for line in kept) == ["first", "hello", "second", "third"]


@pytest.mark.parametrize("key", [None, "escape"])
def test_training_does_not_stand_still_for_who_has_left(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str | None
) -> None:
    """A full disk takes no request to stop: that is said to whoever is there, and ends nothing."""
    voice = SlowVoice(is_full=True)
    monkeypatch.setattr(AnsweringPlan, "open", lambda *arguments: ChatSession(voice))

    async def act(shown: ShownApp) -> None:
        await asyncio.to_thread(voice.begun.wait, 20)
        assert not voice.ended.is_set()
        if key is not None:
            await shown.press(key)
            await shown.until(lambda: "no space left" in shown.text())

    out = tmp_path / "o.jsonl"
    watch(Question(Addressee(run), write(tmp_path / "p.jsonl", PROMPTS), out), act)
    assert voice.ended.is_set() and not out.exists(), "nothing is asked any more"


def test_a_file_that_is_none_of_prompts_says_where(run: Run, tmp_path: Path) -> None:
    async def act(shown: ShownApp) -> None:
        await shown.until(lambda: "p.jsonl, line 1" in " ".join(shown.text().split()))

    watch(Question(Addressee(run), write(tmp_path / "p.jsonl", [{"prompt": 3}])), act, (200, 24))


@pytest.mark.parametrize(
    ("first", "second", "marked"),
    [
        ("the cat sat", "the dog sat", (["cat"], ["dog"])),
        ("same", "same", ([], [])),
        ("a b", "a b c", ([], ["c"])),
        ("", "all of it", ([], ["all", "of", "it"])),
        ("one\ntwo", "one\n\ntwo", ([], ["\n"])),
        ("spaces   do", "spaces do", ([], [])),
    ],
)
def test_words_that_differ(first: str, second: str, marked: tuple[list[str], list[str]]) -> None:
    sides = compare_words(first, second)
    assert tuple([word for word, differs in side if differs] for side in sides) == marked


@pytest.mark.parametrize("width", [60, 80, 100, 120, 200])
@pytest.mark.parametrize("glyphs", [UNICODE, ASCII])
def test_every_line_fits(width: int, glyphs: Any) -> None:
    long = ["word " * 300, f"\x1b[31m {'x' * 500}\n\nend 漢字{'漢' * 200}"]
    asked = [Asked(f"prompt {n} " * 30, "system " * 40, ["final", "base"], long, [True, False]) for n in range(40)]
    for cursor, top in ((0, 0), (39, 10_000)):
        lines, last = answer_screen(Frame(width, 21, glyphs), asked, cursor, top)
        assert len(lines) <= 21 and all(width_of(line) <= width for line in lines) and (last > 0) == (top > 0)
