"""The screen of rollouts: its pictures, its keys, and that it follows a run which makes more."""

import asyncio
from collections.abc import Callable

import msgspec
import pytest

from ftui.rollouts.read_rollouts import SeenGroup
from ftui.rollouts.rollout_lines import AnswerLine, GroupLine, rollout_name
from ftui.runs.run_folder import Run
from ftui.tui.drawing.rollouts.group_view import group_screen, rollouts_title
from ftui.tui.render.glyphs import ASCII, UNICODE, Glyphs
from ftui.tui.render.spans import Frame, width_of
from ftui.tui.screens.monitor import MonitorScreen
from ftui.tui.screens.rollouts.rollout_screen import RolloutsScreen
from tests.support.evil import EVIL
from tests.support.shown_app import picture, shown_app
from tests.tui.conftest import Recorded

SIZES = {"80x24": (80, 24), "120x40": (120, 40)}
TEXTS = ("It is <answer>61</answer>.", "61", "Seventeen and forty-four: I count on my fingers, " * 6, "")


def group(row: int, rewards: tuple[float | None, ...], texts: tuple[str, ...] = TEXTS) -> GroupLine:
    mean = sum(reward or 0.0 for reward in rewards) / len(rewards)
    answers = [
        AnswerLine(text, 4 + len(text) // 4, len(text) < 100, {"exact_answer": reward, "format": 0.5}, reward,
                   None if reward is None else reward - mean)
        for text, reward in zip(texts, rewards, strict=True)
    ]  # fmt: skip
    return GroupLine(row, f"What is {row} + {row + 27}? Give the number alone.", answers)


def write(run: Run, number: int, *groups: GroupLine) -> None:
    run.rollouts.mkdir(exist_ok=True)
    lines = b"".join(msgspec.json.encode(one) + b"\n" for one in groups)
    (run.rollouts / f"{rollout_name(number)}.jsonl").write_bytes(lines)


@pytest.fixture
def run(recorded: Recorded) -> Run:
    run = recorded("wiki-style-finished")
    write(run, 0, group(3, (0.0, 0.0, 0.0, 0.0)), group(4, (0.25, 0.0, 0.5, None)))
    write(run, 1, group(17, (1.5, 1.0, 0.5, 0.0)), group(18, (0.5, 0.5, 0.5, 0.5)), group(5, (0.0, 1.0, 0.0, 0.0)))
    return run


@pytest.mark.parametrize("size", SIZES)
def test_the_picture(size: str, run: Run, same_picture: Callable[[str, str], None]) -> None:
    async def main() -> str:
        async with shown_app(size=SIZES[size]) as shown:
            await shown.app.push_screen(RolloutsScreen(run))
            await shown.until(lambda: "3 prompts" in shown.text())
            return picture(shown.app)

    same_picture(f"rollouts-{size}", asyncio.run(main()))


def test_it_is_read_by_keys(run: Run) -> None:
    async def main() -> None:
        async with shown_app(run=run, size=(80, 24)) as shown:
            assert shown.shows(MonitorScreen)
            await shown.press("a")
            await shown.until(lambda: "rollout 1, the newest" in shown.text())
            assert "reward 1.5 · advantage +0.75" in shown.text() and "1 of 3 prompts teach nothing" in shown.text()
            await shown.press("down")
            assert "all 4 the same" in shown.text()
            await shown.press("left")
            await shown.until(lambda: "rollout 0 of 1" in shown.text())
            await shown.press("n", "o")
            await shown.until(lambda: "best first" in shown.text() and "5 prompts" in shown.text())
            assert "rollout 1, prompt 1" in shown.text()
            await shown.press("o")
            await shown.until(lambda: "worst first" in shown.text())
            await shown.press("o")
            await shown.until(lambda: "longest first" in shown.text())
            await shown.press("n")
            await shown.until(lambda: "rollout 1, the newest" in shown.text())
            write(run, 2, group(40, (1.0, 0.0, 0.0, 0.0)))
            screen = shown.app.screen
            assert isinstance(screen, RolloutsScreen)
            screen.tick()
            await shown.until(lambda: "rollout 2, the newest" in shown.text())
            (run.rollouts / "000002.jsonl").write_text("{}\n")
            await shown.press("n")
            await shown.until(lambda: "cannot be read" in shown.text())
            await shown.press("escape")
            assert shown.shows(MonitorScreen)

    asyncio.run(main())


def test_a_run_without_any_says_so(recorded: Recorded) -> None:
    async def main() -> None:
        async with shown_app(size=(80, 24)) as shown:
            await shown.app.push_screen(RolloutsScreen(recorded("stopped-early")))
            await shown.until(lambda: "No rollouts yet" in shown.text())
            await shown.press("left", "down", "pagedown", "o")

    asyncio.run(main())


@pytest.mark.parametrize("glyphs", [UNICODE, ASCII])
@pytest.mark.parametrize("size", [(30, 8), (60, 20), (80, 24), (200, 60)])
def test_every_line_fits(size: tuple[int, int], glyphs: Glyphs) -> None:
    texts = tuple((list(EVIL.values()) * 4)[:4])
    groups = [SeenGroup(0, place, group(place, (1e9, -1.0, None, 0.0), texts)) for place in range(1, 40)]
    frame = Frame(*size, glyphs)
    for cursor, top in ((0, 0), (38, 10_000)):
        lines, top = group_screen(frame, groups, cursor, top)
        assert len(lines) <= frame.height
        assert all(width_of(line) <= frame.width for line in lines)
    assert all(width_of(line) <= frame.width for line in rollouts_title(frame, "run", groups, "best", "rollout 0"))
