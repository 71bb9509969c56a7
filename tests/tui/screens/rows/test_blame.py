"""Which rows did it, on a screen: the step that stands out, other steps, how rows were learned, a file of them."""

import asyncio
import csv
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest
from textual.widgets import Input

from ftui.dataset.report import RowLocation
from ftui.helper.blame_facts import CourseRow, LedgerRow, RowCourses, StepBlame
from ftui.runs.run_folder import Run
from ftui.tui.screens.rows import blame
from ftui.tui.screens.rows.blame import BlameScreen
from ftui.tui.screens.rows.rows_screen import RowsScreen
from tests.support.shown_app import ShownApp, picture, shown_app
from tests.support.stand_in import stand_in
from tests.support.tiny import make_profile
from tests.tui.conftest import Recorded

FILE = "/data/helpdesk/2026-answers-of-the-first-quarter.jsonl"


def ledger_row(number: int, **fields: object) -> LedgerRow:
    row = LedgerRow(number, 40 + number, 2.5 - number / 100, 0.08, 2.4, 12, 3.1, RowLocation(FILE, number + 1, "line"))
    return msgspec.structs.replace(row, **fields)


WORDS = "Without the first row its loss would be 2.131: it is the data, not the model."
WORST = ledger_row(16, loss=41.2, share=0.78, before=None, before_step=None)
NOTES = ["2 damaged blocks of the ledger were left out"]
SPIKE = StepBlame(
    1240, 9.3117, 2.1042, 0.0613, 2, "rows", WORDS, 250, True, [WORST, *map(ledger_row, range(12))], NOTES
)
BY_MODEL = msgspec.structs.replace(
    SPIKE, step=1241, verdict="model", words="It is the model.", rows=[ledger_row(3, where=None)]
)
LEARNED = RowCourses(
    "never_learned", 3, 6400, 3,
    [CourseRow(n, 3, 4.1, 4.0, 3.95, 4.2, RowLocation(FILE, n + 1, "line")) for n in range(3)], [],
)  # fmt: skip
HELPER = f"""
import json, sys
answers = {{"spike": {json.loads(msgspec.json.encode(SPIKE))!r}, "model": {json.loads(msgspec.json.encode(BY_MODEL))!r},
            "course": {json.loads(msgspec.json.encode(LEARNED))!r}}}
for line in sys.stdin:
    request = json.loads(line); given = request["params"]
    if request["method"] == "list_courses" and given["course"] == "forgotten":
        problem = {{"name": "UsageError", "message": "It has seen each row at most 2 times.", "exit_code": 2}}
        print(json.dumps({{"id": request["id"], "problem": problem}}), flush=True)
        continue
    name = "course" if "course" in given else "model" if given["step"] == 1241 else "spike"
    answer = dict(answers[name]); answer["rows"] = answer["rows"][:given["most"]]
    print(json.dumps({{"id": request["id"], "answer": answer}}), flush=True)
"""


@pytest.fixture
def run(recorded: Recorded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    profile = make_profile(tmp_path, tmp_path)
    monkeypatch.setattr(blame, "stored_profile", lambda run: profile)
    monkeypatch.chdir(tmp_path)
    stand_in(monkeypatch, HELPER)
    return recorded("wiki-style-finished")


def watch(run: Run, act: Callable[[ShownApp], Awaitable[None]], size: tuple[int, int] = (80, 24)) -> None:
    async def main() -> None:
        async with shown_app(run=run, size=size) as shown:
            await shown.press("b")
            await shown.until(lambda: "step 1,240" in shown.text())
            await act(shown)

    asyncio.run(main())


def test_the_rows_behind_a_step_and_of_another(run: Run) -> None:
    async def act(shown: ShownApp) -> None:
        text = shown.text()
        assert "the data" in text and "loss 9.3117, usual 2.1042" in text.lower() and ":17" in text
        assert "Loss 41.200; seen for the first time; 3.100 under the base model." in text
        await shown.press("n")
        await shown.until(lambda: "step 1,241" in shown.text())
        assert "the model" in shown.text() and "sequence 4" in shown.text()
        await shown.press("enter")
        assert "Where this row stands is not known" in shown.text()
        await shown.press("s", "1", "2", "4", "0", "enter")
        await shown.until(lambda: "step 1,240" in shown.text())
        await shown.press("escape")
        assert not shown.shows(BlameScreen)

    watch(run, act)


def test_rows_by_how_they_were_learned_and_what_cannot_be_told(run: Run) -> None:
    async def act(shown: ShownApp) -> None:
        await shown.press("v")
        await shown.until(lambda: "never learned" in shown.text() and "3 of 6,400 rows" in shown.text())
        assert "4.200 now" in shown.text()
        await shown.press("v")
        await shown.until(lambda: "at most 2 times" in shown.text())
        await shown.press("w")  # means nothing without rows
        assert shown.shows(BlameScreen)
        await shown.press("v", "v")
        await shown.until(lambda: "step 1,240" in shown.text())

    watch(run, act)


def test_all_rows_go_into_a_file_that_is_not_there_yet(run: Run, tmp_path: Path) -> None:
    (tmp_path / f"{run.name}-step-1240.csv").write_text("mine")

    async def act(shown: ShownApp) -> None:
        await shown.press("w", "enter")
        assert "exists already" in shown.text()
        shown.app.screen.query_one(Input).value = "rows.csv"
        await shown.press("enter")
        await shown.until(lambda: "13 rows are in rows.csv" in shown.text())

    watch(run, act)
    rows = list(csv.DictReader((tmp_path / "rows.csv").read_text().splitlines()))
    assert [row["place"] for row in rows][:2] == ["17", "1"] and rows[0]["file"] == FILE
    assert (tmp_path / f"{run.name}-step-1240.csv").read_text() == "mine"


def test_enter_opens_the_row_among_the_rows_of_the_profile(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    monkeypatch.setattr(RowsScreen, "go", lambda screen, query: asked.append(query.given["where"]))

    async def act(shown: ShownApp) -> None:
        await shown.press("enter")
        await shown.until(lambda: bool(asked))
        assert shown.shows(RowsScreen)

    watch(run, act)
    assert asked == [{"file": FILE, "number": 17, "unit": "line"}]


@pytest.mark.parametrize("size", ["60x20", "80x24", "120x40"])
@pytest.mark.parametrize("page", ["step", "course"])
def test_picture(page: str, size: str, run: Run, same_picture: Callable[[str, str], None]) -> None:
    found: list[str] = []

    async def act(shown: ShownApp) -> None:
        if page == "course":
            await shown.press("v")
            await shown.until(lambda: "never learned" in shown.text())
        await shown.press("down")
        found.append(picture(shown.app))

    width, height = map(int, size.split("x"))
    watch(run, act, (width, height))
    same_picture(f"blame-{page}-{size}", found[0])
