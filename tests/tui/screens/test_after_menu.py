"""What can be made of a run's weights: the menu over the list of runs and over that of checkpoints."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import get_args

import pytest
from textual.widgets import Input

from ftui.errors import FtuiError, UsageError
from ftui.helper.gguf_facts import Kind
from ftui.launch.long_job import LongJob
from ftui.runs.run_folder import Run
from ftui.tui.screens.checkpoints import CheckpointsScreen
from ftui.tui.screens.dialogs import PromptScreen
from ftui.tui.screens.job import JobScreen
from ftui.tui.screens.pick import PickScreen
from ftui.tui.screens.runs import RunsScreen
from ftui.tui.state import after_choices
from ftui.tui.state.after_choices import AfterChoice, Weights, choices_for
from tests.support.shelf import finished, folder_of
from tests.support.shown_app import ShownApp, shown_app


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("FTUI_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return finished(tmp_path / "runs" / "mine")


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, str]]:
    """What was to be planned: which choice, of which weights, with which text."""
    seen: list[tuple[str, str, str]] = []

    def choice(name: str, question: str = "", check: Callable[[str], str] = str.strip) -> AfterChoice:
        def plan(weights: Weights, text: str) -> LongJob:
            seen.append((name, weights.title, text))
            return LongJob(f"{name} it", [("writes", "exports/it")], lambda helper, on_detail: [("loss", "1")])

        return AfterChoice(name, name, f"words of {name}", plan, question, lambda weights: "hub:", check)

    def refuse(text: str) -> str:
        if text in ("", "hub:", "hub"):
            raise UsageError("No name.")
        return text

    monkeypatch.setattr(after_choices, "CHOICES", [choice("merge"), choice("push", "Where to", refuse)])
    return seen


def at_runs(act: Callable[[ShownApp], Awaitable[None]]) -> None:
    async def main() -> None:
        async with shown_app() as shown:
            await shown.until(lambda: "mine" in shown.text())
            await act(shown)

    asyncio.run(main())


def test_of_a_run_and_of_a_checkpoint(run: Run, planned: list[tuple[str, str, str]]) -> None:
    async def act(shown: ShownApp) -> None:
        assert "e export" in shown.text()
        await shown.press("e")
        assert "f1 help" in shown.text() and "? help" not in shown.text(), "a list that is narrowed takes letters"
        assert shown.shows(PickScreen) and "words of merge" in shown.text() and "words of push" in shown.text()
        await shown.press("enter")
        await shown.until(lambda: "exports/it" in shown.text() and "ready" in shown.text())
        await shown.press("enter")
        await shown.until(lambda: "done" in shown.text())
        await shown.press("escape")
        assert shown.shows(RunsScreen)
        await shown.press("c")
        await shown.until(lambda: shown.shows(CheckpointsScreen) and "final" in shown.text())
        await shown.press("down", "e", "enter")
        await shown.until(lambda: "ready" in shown.text())

    at_runs(act)
    assert [(name, text) for name, _, text in planned] == [("merge", ""), ("merge", "")]
    assert planned[0][1] == "mine" and planned[1][1].startswith("mine@checkpoint-")


def test_what_is_asked_is_checked_while_it_is_typed(run: Run, planned: list[tuple[str, str, str]]) -> None:
    async def act(shown: ShownApp) -> None:
        await shown.press("e", *"push", "enter")
        assert shown.shows(PromptScreen) and "Where to" in shown.text()
        assert "No name." not in shown.text(), "nobody has typed yet"
        await shown.press("backspace")
        assert "No name." in shown.text()
        await shown.press("enter")
        assert "No name." in shown.text() and planned == []
        shown.app.screen.query_one(Input).value = "hub:me/it"
        await shown.press("enter")
        await shown.until(lambda: "ready" in shown.text())
        assert shown.shows(JobScreen)

    at_runs(act)
    assert planned == [("push", "mine", "hub:me/it")]


def test_enter_twice_at_once_chooses_once(run: Run, planned: list[tuple[str, str, str]]) -> None:
    async def act(shown: ShownApp) -> None:
        await shown.press("e")
        menu = shown.app.screen
        assert isinstance(menu, PickScreen)
        menu.action_choose()
        menu.action_choose()
        await shown.until(lambda: "ready" in shown.text())
        await shown.press("escape")
        assert shown.shows(PickScreen) and "words of push" in shown.text(), (
            "nothing has begun: something else is chosen"
        )
        await shown.press("escape")
        assert shown.shows(RunsScreen)

    at_runs(act)
    assert len(planned) == 1


@pytest.mark.parametrize(
    ("adapter", "kinds"),
    [
        ('method = "lora"', {"merge", "GGUF of the adapter"}),
        ('method = "lora"\nload_in_8bit = true', {"merge", "merge into original", "GGUF of the adapter"}),
        ('method = "qlora"', {"merge", "merge into original", "GGUF of the adapter"}),
        ('method = "full"', set()),
        ("method = [", {"merge", "merge into original", "GGUF of the adapter"}),  # damaged: said when one is chosen
    ],
)
def test_what_means_nothing_for_a_run_is_not_offered(adapter: str, kinds: set[str], run: Run) -> None:
    run.profile.write_text(f"[adapter]\n{adapter}\n")
    names = {choice.name for choice in choices_for(Weights(run))}
    assert names & {"merge", "merge into original", "GGUF of the adapter"} == kinds
    assert {f"GGUF {kind}" for kind in get_args(Kind)} <= names


@pytest.mark.slow
def test_what_was_made_before_can_be_pushed(
    run: Run, planned: list[tuple[str, str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(after_choices, "_target_of", lambda weights: "hub:")
    folder_of(run, 12, target=run.exports / "final-bf16")
    (run.exports / "half").mkdir()
    target = str(tmp_path / "out")

    async def act(shown: ShownApp) -> None:
        await shown.press("e")
        assert "half" not in shown.text()
        await shown.press(*"final-bf16", "enter")
        shown.app.screen.query_one(Input).value = target
        await shown.press("enter")
        await shown.until(lambda: "sends" in shown.text() and f"push mine@final-bf16 to {target[:20]}" in shown.text())

    at_runs(act)


def test_a_profile_that_cannot_be_read_ends_nothing(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(weights: Weights) -> str:
        raise FtuiError("The profile is damaged.")

    def plan(weights: Weights, text: str) -> LongJob:
        raise AssertionError

    monkeypatch.setattr(after_choices, "CHOICES", [AfterChoice("evaluate", "evaluate", "", plan, "Rows", fail)])

    async def act(shown: ShownApp) -> None:
        await shown.press("e", "enter")
        assert "The profile is damaged." in shown.text()

    at_runs(act)
