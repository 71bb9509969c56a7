"""The screen of long work: its plan, how far it is, its result, how it is stopped, and what it says of a failure."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from ftui.errors import DiskFullError
from ftui.helper.client import Helper, OnDetail
from ftui.launch.long_job import LongJob, Rows
from ftui.tui.drawing.job_lines import job_lines
from ftui.tui.render.glyphs import ASCII, UNICODE
from ftui.tui.render.spans import Frame, width_of
from ftui.tui.screens.dialogs import ConfirmScreen
from ftui.tui.screens.job import JobScreen
from ftui.tui.state.job_course import JobCourse
from tests.support.shown_app import ShownApp, shown_app
from tests.support.stand_in import stand_in

PLAN: Rows = [("writes", "exports/merged"), ("disk", "2.3 GiB needed, 40.0 GiB free")]
RESULT: Rows = [("measure", "base", "tuned"), ("loss", "2.31", "1.87")]
# Tells of two parts of its work, then answers; or works until its input ends, and removes what is half written.
HELPER = """
import json, os, sys
request = json.loads(sys.stdin.readline())
def send(**words): print(json.dumps({"id": request["id"], **words}), flush=True)
for n in range(3): send(detail=f"reading the base: {n} of 2 files")
send(detail="merging: 120 of 272 tensors, 40 s left")
half = request["params"].get("half")
if half:
    open(half, "w").close(); sys.stdin.read(); os.unlink(half)
else:
    send(answer={"loss": 1.87}); sys.stdin.read()
"""


def merge(half: str | None = None) -> LongJob:
    def run(helper: Helper, on_detail: OnDetail) -> Rows:
        assert helper.ask("merge", on_detail=on_detail, half=half) == {"loss": 1.87}
        return RESULT

    return LongJob("merge mine@final", PLAN, run)


def watch(make: Callable[[], LongJob], act: Callable[[ShownApp], Awaitable[None]]) -> None:
    async def main() -> None:
        async with shown_app() as shown:
            await shown.app.push_screen(JobScreen("merge", "merge mine", make))
            await act(shown)

    asyncio.run(main())


def test_work_is_planned_done_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, HELPER)

    async def act(shown: ShownApp) -> None:
        await shown.until(lambda: "ready" in shown.text())
        text = shown.text()
        assert all(word in text for row in PLAN for word in row) and "enter start" in text and "progress" not in text
        await shown.press("enter")
        await shown.until(lambda: "done" in shown.text())
        lines = shown.lines()
        assert [line.split() for line in lines if "1.87" in line] == [["loss", "2.31", "1.87"]]
        assert next(n for n, line in enumerate(lines) if "reading the base" in line) < next(
            n for n, line in enumerate(lines) if "merging" in line
        )
        assert shown.text().index(" result ") < shown.text().index(" progress "), "seen without scrolling"
        assert "enter" not in lines[-1]
        await shown.press("escape")
        assert not shown.shows(JobScreen)

    watch(merge, act)


def test_a_long_result_is_read_to_its_end() -> None:
    rows = [(f"measure {number}", "1") for number in range(40)]

    async def act(shown: ShownApp) -> None:
        await shown.until(lambda: "ready" in shown.text())
        await shown.press("enter")
        await shown.until(lambda: "measure 0" in shown.text())
        lines = shown.lines()
        assert "more lines (pgdn)" in lines[-2] and "measure 39" not in shown.text()
        await shown.press("end")
        assert "measure 39" in shown.lines()[-2] and "more line" not in shown.text()

    watch(lambda: LongJob("evaluate mine", PLAN, lambda helper, on_detail: rows), act)


def test_work_that_keeps_what_it_has_says_so() -> None:
    course = JobCourse("evaluate", "evaluate mine")
    assert course.when_stopped.endswith("is removed.")
    course.take(LongJob("evaluate mine@final", PLAN, lambda helper, on_detail: [], "What is measured is kept."))
    assert course.title == "evaluate mine@final"
    course.phase = "stopped"
    text = [text for line in job_lines(Frame(80, 24, UNICODE), course, 0.0) for text, _ in line]
    assert any("Stopped. What is measured is kept." in part for part in text)


@pytest.mark.slow
def test_it_is_stopped_after_a_question_and_leaves_nothing_half_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(monkeypatch, HELPER)
    half = tmp_path / "half"

    async def act(shown: ShownApp) -> None:
        await shown.until(lambda: "ready" in shown.text())
        await shown.press("enter")
        await shown.until(lambda: "40 s left" in shown.text() and "44%" in shown.text() and half.exists())
        await shown.press("q")
        assert shown.shows(ConfirmScreen)
        await shown.press("n")
        assert shown.shows(JobScreen) and half.exists()
        await shown.press("ctrl+q")  # leaving ftui asks the same
        assert shown.shows(ConfirmScreen)
        await shown.press("escape", "escape")
        await shown.press("y")
        await shown.until(lambda: "Stopped. What was half written is removed." in shown.text())
        assert not half.exists() and "enter again" in shown.text()

    watch(lambda: merge(str(half)), act)


def test_a_full_disk_is_said_before_anything_is_written_and_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    is_full = [True]

    def make() -> LongJob:
        if is_full[0]:
            raise DiskFullError("exports cannot take 2.3 GiB: the disk is full.", hint="Free some space there.")
        return merge()

    async def act(shown: ShownApp) -> None:
        await shown.until(lambda: "Free some space there." in shown.text())
        assert "the disk is full" in shown.text() and "not done" in shown.text()
        is_full[0] = False
        await shown.press("enter")
        await shown.until(lambda: "ready" in shown.text())
        assert "disk is full" not in shown.text()

    watch(make, act)


@pytest.mark.parametrize("width", [60, 80, 120, 200])
@pytest.mark.parametrize("glyphs", [UNICODE, ASCII])
def test_every_line_fits(width: int, glyphs: object) -> None:
    table = [
        ("what " * 9, "base", "tuned", "rows", "difference", ""),
        ("loss", "2.31", "1.87", "40", "-0.44 " * 9, "better"),
    ]
    course = JobCourse("merge", "merge mine", plan=[("writes", "a path " * 40), ("disk", "1")])
    course.begin()
    course.result = table
    for detail in ("loading " * 40, "reading: 1 of 2", "reading: 2 of 2", "merging: 1 of 3 tensors, 2m 00s left"):
        course.hear(detail, time.time())
    frame = Frame(width, 50, glyphs)  # type: ignore[arg-type]
    lines = job_lines(frame, course, time.time())
    assert [part.name for part in course.parts] == ["loading " * 40, "reading", "merging"]
    text = " ".join(span[0].strip() for line in lines for span in line)
    assert "better" in text and "-0.44 -0.44" in text, "what does not fit stands below"
    assert all(width_of(line) <= width for line in lines) and any("33%" in span[0] for line in lines for span in line)
