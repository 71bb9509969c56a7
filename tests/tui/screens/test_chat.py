"""The screen of a conversation: what is said and answered, the base beside it, how likely tokens were, every key."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from threading import Event

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from ftui.errors import DiskError
from ftui.helper.chat_facts import ChatAnswer, ModelFacts
from ftui.helper.chat_session import ChatSession, Messages, Side
from ftui.launch import answering_sides, transcript
from ftui.launch.answering_sides import AnsweringPlan
from ftui.launch.answering_way import Situation
from ftui.profile.schema import Profile
from ftui.runs.requests import SamplingKeys
from ftui.runs.run_folder import Run
from ftui.tui.app import FtuiApp
from ftui.tui.render.canvas import Canvas
from ftui.tui.render.glyphs import UNICODE
from ftui.tui.render.terminal import Terminal
from ftui.tui.screens import chat
from ftui.tui.screens.chat import ChatScreen
from tests.support.shelf import finished
from tests.support.stand_in import stand_in
from tests.support.tiny import make_profile

# Says each word of its answer by itself, and slowly where it is asked to talk on: until it is stopped.
HELPER = """
import json, sys, threading, time
stop, requests = threading.Event(), []
more = threading.Semaphore(0)
def read():
    for line in sys.stdin:
        if line == "stop\\n": stop.set()
        else: requests.append(json.loads(line)); more.release()
threading.Thread(target=read, daemon=True).start()
def send(**answer): print(json.dumps(answer), flush=True)
while more.acquire():
    request = requests.pop(0); number, given = request["id"], request["params"]; stop.clear()
    if request["method"] == "open_chat":
        sides = given["chosen"]["folders"]
        send(id=number, answer={"device": "a CPU", "precision": "fp32", "is_chat": True, "template_hash": "ab"})
        continue
    said = [c[-1]["content"] + (" briefly" if c[0]["role"] == "system" else "") for c in given["conversations"]]
    texts = [f"{'base' if side is None else 'tuned'} heard {text}" for side, text in zip(sides, said)]
    while "on and on" in said[0] and not stop.is_set():
        send(id=number, detail=json.dumps(texts)); time.sleep(0.01)
    send(id=number, detail=json.dumps(texts))
    likeliest = [["yes", 0.9], ["no", 0.05]]
    shares = {word: 0.04 if word == "heard" else 0.9 for word in texts[0].split()}
    tokens = [{"text": w + " ", "probability": p, "likeliest": likeliest} for w, p in shares.items()]
    complete = not stop.is_set()
    send(id=number, answer=[{"text": t, "is_complete": complete, "tokens": tokens} for t in texts])
"""


class Shown:
    """The screen under test, and what a person would do at it."""

    def __init__(self, pilot: Pilot[list[str]], run: Run) -> None:
        self.pilot, self.app, self.run = pilot, pilot.app, run

    async def say(self, text: str) -> None:
        self.app.screen.query_one(Input).value = text
        await self.press("enter")

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.settle()

    async def settle(self) -> None:
        await self.pilot.pause()
        await self.app.workers.wait_for_complete()
        await self.pilot.pause()

    def text(self, name: str = "body") -> str:
        canvas = self.app.screen.query_one(f"#{name}", Canvas)
        return "\n".join(canvas.render_line(y).text.rstrip() for y in range(canvas.size.height))

    def transcript(self) -> list[dict[str, object]]:
        files = sorted((self.run.folder / "chats").iterdir())
        return [json.loads(line) for file in files for line in file.read_text().splitlines()]


@pytest.fixture
def during(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    run, profile = finished(tmp_path / "runs" / "mine"), make_profile(tmp_path, tmp_path, adapter={"method": "lora"})
    monkeypatch.setattr(answering_sides, "stored_profile", lambda run: profile)
    stand_in(monkeypatch, HELPER)

    def go(act: Callable[[Shown], Awaitable[None]], size: tuple[int, int] = (80, 24)) -> None:
        async def main() -> None:
            app = FtuiApp(Terminal(True, UNICODE, 4.0))
            async with app.run_test(size=size) as pilot:
                await app.push_screen(ChatScreen(run))
                shown = Shown(pilot, run)
                await shown.settle()
                await act(shown)

        asyncio.run(main())

    return go


def test_what_is_said_is_answered_and_kept(during: Callable[..., None]) -> None:
    async def act(shown: Shown) -> None:
        assert "mine" in shown.text("title") and " final " in shown.text("title")
        await shown.say("hello [bold]you")
        await shown.press("ctrl+g")
        assert "mine is not running: it cannot answer itself." in shown.text("keys")
        assert "hello [bold]you" in shown.text() and "tuned heard hello [bold]you" in shown.text()
        await shown.say("/system Be brief")
        assert "Be brief" in shown.text("title") and "hello" not in shown.text()
        await shown.say("again")
        assert "tuned heard again briefly" in shown.text()
        assert [(one["prompt"], one["turn"], one["system"]) for one in shown.transcript()] == [
            ("hello [bold]you", 1, None), ("again", 1, "Be brief"),
        ]  # fmt: skip
        await shown.press("ctrl+n")
        assert "again" not in shown.text() and "Be brief" in shown.text("title")
        await shown.press("escape")
        assert not isinstance(shown.app.screen, ChatScreen)

    during(act)


@pytest.mark.parametrize("width", [80, 120])
def test_the_base_answers_beside_or_below(during: Callable[..., None], width: int) -> None:
    async def act(shown: Shown) -> None:
        await shown.press("ctrl+o")
        assert "final and base" in shown.text("title")
        await shown.say("hello")
        lines = shown.text().splitlines()
        tuned = next(n for n, line in enumerate(lines) if "tuned heard hello" in line)
        base = next(n for n, line in enumerate(lines) if "base heard hello" in line)
        assert (base > tuned) if width < 100 else (base == tuned)
        assert "A new conversation" not in shown.text("keys"), "nothing was said before"
        await shown.press("ctrl+o")
        assert "base" not in shown.text("title")
        assert "A new conversation begins, without the base." in shown.text("keys")

    during(act, size=(width, 24))


def test_an_answer_is_stopped_and_its_tokens_are_looked_at(during: Callable[..., None]) -> None:
    async def act(shown: Shown) -> None:
        shown.app.screen.query_one(Input).value = "on and on"
        await shown.pilot.press("enter")
        while "tuned heard" not in shown.text():
            await asyncio.sleep(0.01)
        assert "stop" in shown.text("keys")
        await shown.press("escape")
        assert "cut off" not in shown.text() and "back" in shown.text("keys"), "who stopped it knows"
        await shown.press("ctrl+t")
        assert "token 1 of 4: 90.0%" in shown.text()
        await shown.press("right")
        assert "token 2 of 4: 4.0%" in shown.text() and "'no'" in shown.text()
        await shown.press("escape")
        assert "tuned heard" in shown.text() and isinstance(shown.app.screen, ChatScreen)

    during(act)


def test_tokens_are_left_by_every_key_and_shown_where_the_cursor_is(during: Callable[..., None]) -> None:
    async def act(shown: Shown) -> None:
        await shown.say("hello")
        await shown.press("ctrl+t", "ctrl+o")
        assert "base" in shown.text("title") and not shown.app.screen.query_one(Input).disabled
        await shown.say("hello")
        await shown.press("ctrl+t", "ctrl+n")
        await shown.say(" ".join(f"word-{number:-<70}" for number in range(40)))  # a line each
        await shown.press("ctrl+t")
        for _ in range(41):
            await shown.pilot.press("right")
        assert "token 42 of 42" in shown.text() and "word-39-" in shown.text() and "word-0-" not in shown.text()

    during(act)


def test_a_disk_that_takes_nothing_ends_no_conversation(
    during: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, flags: int) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(transcript, "open_private", refuse)

    async def act(shown: Shown) -> None:
        await shown.say("hello")
        await shown.press("escape")  # what is said of the disk
        assert "tuned heard hello" in shown.text()

    during(act)


def test_a_reward_model_answers_nothing(
    during: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    profile: Profile = make_profile(tmp_path, tmp_path, run={"stage": "rm"}, adapter={"method": "lora"})
    monkeypatch.setattr(answering_sides, "stored_profile", lambda run: profile)

    async def act(shown: Shown) -> None:
        assert "has trained a reward model" in shown.text()

    during(act)


class SlowVoice:
    """Goes on until it is stopped; `is_full`: the disk takes no request to stop."""

    sides: tuple[Side, ...] = (Side("step 12"),)
    facts, cost = ModelFacts("a GPU", "bf16", True, "ab"), ""

    def __init__(self, *, is_full: bool) -> None:
        self.is_full, self.begun, self.ended = is_full, Event(), Event()

    def answer(self, conversations: list[Messages], sampling: SamplingKeys, on_texts: object) -> list[ChatAnswer]:
        self.begun.set()
        self.ended.wait(20)
        return [ChatAnswer("cut", False, [])]

    def stop(self) -> None:
        self.ended.set()
        if self.is_full:
            raise DiskError("The request could not be written: no space left.")


@pytest.mark.parametrize("is_full", [False, True])
def test_training_does_not_stand_still_for_who_has_left(
    during: Callable[..., None], monkeypatch: pytest.MonkeyPatch, is_full: bool
) -> None:
    voice = SlowVoice(is_full=is_full)
    monkeypatch.setattr(AnsweringPlan, "open", lambda *arguments: ChatSession(voice))

    async def act(shown: Shown) -> None:
        shown.app.screen.query_one(Input).value = "hello"
        await shown.pilot.press("enter")
        await asyncio.to_thread(voice.begun.wait, 20)
        assert not voice.ended.is_set()

    during(act)
    assert voice.ended.is_set()


def test_a_full_disk_takes_no_end_of_an_answer_and_that_is_said(
    during: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    voice = SlowVoice(is_full=True)
    monkeypatch.setattr(AnsweringPlan, "open", lambda *arguments: ChatSession(voice))

    async def act(shown: Shown) -> None:
        shown.app.screen.query_one(Input).value = "hello"
        await shown.pilot.press("enter")
        await asyncio.to_thread(voice.begun.wait, 20)
        await shown.press("escape")
        assert "no space left" in "".join(shown.text(name) for name in ("keys", "body", "title"))

    during(act)


def test_a_run_in_training_answers_itself_and_says_what_that_costs(
    during: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As ctrl+g asks it; the reason does not go, however long it is."""

    class EngineStandIn:
        sides, facts, cost = (Side("step 12"),), ModelFacts("a GPU", "bf16", True, "ab"), ""

        def __init__(self, run: Run, profile: Profile, **options: object) -> None:
            pass

        def answer(self, conversations: list[Messages], sampling: SamplingKeys, on_texts: object) -> list[ChatAnswer]:
            self.cost = "training stood still for 2.2 s ($0.0012)"
            return [ChatAnswer("as it is now", True, [])]

        def stop(self) -> None:
            pass

    still = "training stands still for at most 1m 00s ($0.05) an answer"
    at = Situation("mine", "cuda", needed=(1, 1), free=(9, 9), on_card=10, still=still)
    monkeypatch.setattr(answering_sides, "_look", lambda *arguments: at)
    monkeypatch.setattr(answering_sides, "EngineVoice", EngineStandIn)
    monkeypatch.setattr(chat, "is_running", lambda status: True)

    async def act(shown: Shown) -> None:
        assert " final " in shown.text("title") and "the run is slower meanwhile" in shown.text().replace("\n ", " ")
        await shown.press("ctrl+g")
        assert "step 12" in shown.text("title") and still in shown.text().replace("\n ", " ")
        await shown.say("hello")
        assert "as it is now" in shown.text() and "stood still for 2.2 s ($0.0012)" in shown.text("keys")
        assert shown.transcript()[0]["answers"][0]["of"] == "step 12"  # type: ignore[index]
        await shown.press("ctrl+g")
        assert " final " in shown.text("title")

    during(act)
