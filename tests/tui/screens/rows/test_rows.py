"""The X-ray on made-up rows: its pictures, every key, what it asks the helper, and what becomes of errors."""

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from textual.binding import Binding
from textual.color import Color

from ftui.dataset.report import Example, Finding, RowLocation
from ftui.dataset.row import NOTHING_CUT, RowView
from ftui.errors import DataError, UsageError
from ftui.profile.serialize import to_toml
from ftui.tui.drawing.rows.report_view import finding_lines, number_lines
from ftui.tui.drawing.rows.row_view import title
from ftui.tui.render.glyphs import ASCII, UNICODE
from ftui.tui.render.spans import Frame, clipped
from ftui.tui.screens.dialogs import ConfirmScreen, MessageScreen, PromptScreen
from ftui.tui.screens.editor import profile_file
from ftui.tui.screens.editor.editor_screen import EditorScreen
from ftui.tui.screens.help import HelpScreen
from ftui.tui.screens.pick import PickScreen
from ftui.tui.screens.resolved import ResolvedScreen
from ftui.tui.screens.rows import rows_screen
from ftui.tui.screens.rows.questions import place_in
from ftui.tui.screens.rows.rows_screen import RowsScreen
from ftui.tui.screens.start import StartScreen
from tests.support.rows_helper import FILE, FINDINGS, PAIR, PROFILE_OF_ROWS, REPORT, SAMPLES, StandIn
from tests.support.shown_app import PROFILE, ShownApp, picture, shown_app, strips_of

SIZES = {"40x12": (40, 12), "60x20": (60, 20), "80x24": (80, 24), "120x40": (120, 40), "200x60": (200, 60)}
SamePicture = Callable[[str, str], None]


@asynccontextmanager
async def xrayed(size: str = "80x24", **options: Any) -> AsyncIterator[ShownApp]:
    async with shown_app(size=SIZES[size], clock=lambda: 0.0, **options) as shown:
        shown.app.push_screen(RowsScreen("mine.toml", PROFILE_OF_ROWS))
        await shown.pilot.pause()
        await shown.app.workers.wait_for_complete()
        await shown.pilot.pause()
        yield shown


async def press(shown: ShownApp, *keys: str) -> None:
    for key in keys:
        await shown.press(key)
        await shown.app.workers.wait_for_complete()
        await shown.pilot.pause()


def person(script: Callable[[ShownApp], Awaitable[None]], size: str = "80x24", **options: Any) -> None:
    async def main() -> None:
        async with xrayed(size, **options) as shown:
            await script(shown)

    asyncio.run(main())


def asked(shown: ShownApp) -> list[tuple[str, dict[str, Any]]]:
    found: list[tuple[str, dict[str, Any]]] = shown.screen.helper.asked
    return found


# -- pictures

PAGES = {
    "row": (),
    "report": ("R", "n"),
    "cut": ("c", "pagedown"),
    "raw": ("v", "down"),
    "note": ("g", "4", "enter", "b"),
}


@pytest.mark.parametrize("size", ["80x24", "120x40"])
@pytest.mark.parametrize("page", PAGES)
def test_pages(page: str, size: str, same_picture: SamePicture) -> None:
    async def script(shown: ShownApp) -> None:
        await press(shown, *PAGES[page])
        same_picture(f"xray-{page}-{size}", picture(shown.app))

    person(script, size)


@pytest.mark.parametrize("page", ["row", "report"])
def test_a_large_screen(page: str, same_picture: SamePicture) -> None:
    async def script(shown: ShownApp) -> None:
        await press(shown, *PAGES[page])
        same_picture(f"xray-{page}-200x60", picture(shown.app))

    person(script, "200x60")


def test_in_ascii_and_256_colours(same_picture: SamePicture) -> None:
    async def script(shown: ShownApp) -> None:
        await press(shown, "c", "pagedown")
        same_picture("xray-cut-ascii-80x24", picture(shown.app))

    person(script, glyphs=ASCII, theme="light", truecolor=False)


@pytest.mark.parametrize("size", ["80x24", "200x60"])
def test_an_answer_of_a_pair(size: str, same_picture: SamePicture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both sides in numbers, what the reference says, and where they part; the next part is the other answer."""
    monkeypatch.setattr(StandIn, "samples", PAIR)

    async def script(shown: ShownApp) -> None:
        same_picture(f"xray-pair-{size}", picture(shown.app))
        assert "chosen" in shown.text().splitlines()[0]
        await press(shown, "g", "2", "enter")
        assert "rejected" in shown.text().splitlines()[0]

    person(script, size)


@pytest.mark.parametrize("size", ["80x24", "120x40"])
def test_while_it_is_opened(size: str, same_picture: SamePicture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but what is being done; a key more or less does no harm, and leaving ends the helper."""
    release = asyncio.Event()
    loop: Any = None

    class Slow(StandIn):
        def ask(self, question: str, *, on_detail: Any = None, **given: Any) -> Any:
            on_detail("tokenising 34% · 120 k rows · 12 s left")
            asyncio.run_coroutine_threadsafe(release.wait(), loop).result()
            return super().ask(question, **given)

    async def main() -> None:
        nonlocal loop
        loop = asyncio.get_running_loop()
        async with shown_app(size=SIZES[size], clock=lambda: 0.0) as shown:
            shown.app.push_screen(RowsScreen("mine.toml", PROFILE_OF_ROWS))
            await shown.until(lambda: "12 s left" in shown.text())
            await shown.press("n", "l", "slash", "g", "down", "b")
            same_picture(f"xray-opening-{size}", picture(shown.app))
            helper = shown.screen.helper
            await shown.press("R", "R", "escape")
            assert not shown.shows(RowsScreen) and helper.is_closed
            release.set()
            await shown.app.workers.wait_for_complete()

    monkeypatch.setattr(rows_screen, "Helper", Slow)
    asyncio.run(main())


def test_the_first_rows_are_shown_before_all_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """They can be paged through; what needs all rows waits, and the row stays that is looked at."""
    release = threading.Event()

    class Reading(StandIn):
        first = tuple(msgspec.structs.replace(one, num_rows=0, num_first=2) for one in SAMPLES[:2])

        def ask(self, question: str, *, on_detail: Any = None, **given: Any) -> Any:
            if question != "first_rows":
                on_detail("tokenising 34% \u00b7 120 k rows \u00b7 12 s left")
                release.wait()
            return super().ask(question, **given)

    async def main() -> None:
        async with shown_app(size=SIZES["80x24"], clock=lambda: 0.0) as shown:
            shown.app.push_screen(RowsScreen("mine.toml", PROFILE_OF_ROWS))
            await shown.until(lambda: "12 s left" in shown.text())
            assert "row 1 of the first 2; reading the rest" in shown.text()
            await shown.press("n")
            assert "row 2 of the first 2; reading the rest" in shown.text()
            for key in ("n", "l", "g", "slash"):
                await shown.press(key)
                assert "row 2 of the first 2" in shown.text() and "The rest is being read." in shown.text(), key
            release.set()
            await shown.until(lambda: "row 2 of 4" in shown.text())
            assert [given["number"] for question, given in asked(shown) if question == "sample"] == [0, 1]

    monkeypatch.setattr(rows_screen, "Helper", Reading)
    try:
        asyncio.run(main())
    finally:
        release.set()


@pytest.mark.parametrize("size", ["80x24", "120x40"])
def test_an_error_and_another_try(size: str, same_picture: SamePicture, monkeypatch: pytest.MonkeyPatch) -> None:
    error = DataError("/data/helpdesk.jsonl:7: the key 'output' is missing.", hint="Set data.columns, or mend the row.")
    monkeypatch.setattr(StandIn, "problem", error)

    async def script(shown: ShownApp) -> None:
        same_picture(f"xray-error-{size}", picture(shown.app))
        for key in ("n", "l", "R", "R"):
            await press(shown, key)
            assert "is missing" in shown.text()
        monkeypatch.setattr(StandIn, "problem", None)
        await press(shown, "a")
        assert "row 1 of 4" in shown.text() and "is missing" not in shown.text()

    person(script, size)


# -- keys


def test_rows_by_their_keys() -> None:
    async def script(shown: ShownApp) -> None:
        steps = [
            ("n", "row 2"), ("n", "row 3"), ("n", "row 4"), ("n", "row 4"), ("p", "row 3"), ("l", "row 3"),
            ("l", "row 1"), ("s", "row 4"), ("s", "row 2"), ("c", "row 3"),
        ]  # fmt: skip
        for key, row in steps:
            await press(shown, key)
            assert f"{row} of 4" in shown.text(), key
        await press(shown, "t", "r", "r")
        (least, first, second) = asked(shown)[-3:]
        assert least == ("sample", {"jump": "least_trained", "number": 0, "seed": least[1]["seed"]})
        assert first[1]["jump"] == second[1]["jump"] == "random" and first[1]["seed"] != second[1]["seed"]

    person(script)


def test_the_ends_are_told() -> None:
    async def script(shown: ShownApp) -> None:
        await press(shown, "p")
        assert "This is the first row." in shown.text()
        await press(shown, "n", "n", "n", "n")
        assert "This is the last row." in shown.text()

    person(script)


def test_keys_that_come_faster_than_answers_are_all_heeded() -> None:
    async def script(shown: ShownApp) -> None:
        await shown.pilot.press("n", "n", "n")
        await shown.app.workers.wait_for_complete()
        await shown.pilot.pause()
        assert "row 4 of 4" in shown.text()
        steps = [given for ask, given in asked(shown) if given.get("jump") == "next"]
        assert steps == [{"jump": "next", "number": n, "part": 0} for n in range(3)]

    person(script)


def test_a_row_by_its_number() -> None:
    async def script(shown: ShownApp) -> None:
        await press(shown, "g", "9")
        assert "A number from 1 to 4." in shown.text()
        await press(shown, "enter")
        assert shown.shows(PromptScreen)
        await press(shown, "backspace", "3", "enter")
        assert "row 3 of 4" in shown.text()
        await press(shown, "g", *"helpdesk.jsonl:2", "enter")
        assert asked(shown)[-1][1]["where"] == {"file": "helpdesk.jsonl", "number": 2, "unit": "line"}
        assert "row 2 of 4" in shown.text()

    person(script)


def test_searching_goes_on_behind_the_row() -> None:
    async def script(shown: ShownApp) -> None:
        await press(shown, "slash", *"kernel", "enter")
        assert "row 3 of 4" in shown.text()
        await press(shown, "slash", "enter")
        assert "row 1 of 4" in shown.text(), "from the top again"
        await press(shown, "slash", *"nowhere", "enter")  # in place of what was sought before
        assert "No row has 'nowhere' in it." in shown.text() and "row 1 of 4" in shown.text()
        await press(shown, "slash", "ctrl+u", "enter", "escape")
        assert "row 1 of 4" in shown.text()

    person(script)


def test_what_is_sought_is_on_the_page_and_marked() -> None:
    """Among the tokens, or in the row as it stands in its file; that it goes on from the top is said."""

    def marks(shown: ShownApp) -> list[tuple[int, str]]:
        amber = Color.parse(shown.app.look.palette["warn"]).rgb
        return [
            (y, segment.text)
            for y, strip in enumerate(strips_of(shown.app))
            for segment in strip
            if segment.style is not None and segment.style.bgcolor is not None
            if tuple(segment.style.bgcolor.triplet or ()) == amber
        ]

    async def script(shown: ShownApp) -> None:
        await press(shown, "slash", *"devices", "enter")
        (y, text), *others = marks(shown)
        assert "row 3 of 4" in shown.text() and text.strip() == "devices" and shown.lines()[y].startswith("▸ ")
        assert others and 3 <= y < 10, "the first one is seen with some lines above it"
        await press(shown, "n")
        assert marks(shown) == [], "only where it was searched"
        await press(shown, "slash", "enter")
        assert "From the start again." in shown.text() and "row 1 of 4" in shown.text() and marks(shown)
        await press(shown, "slash", "ctrl+u", *"whose", "enter")
        await press(shown, "slash", "enter")
        assert "From the start again." in shown.text()
        await press(shown, "slash", "ctrl+u", *"journalctl", "enter", "slash", "enter")
        assert "It is nowhere else." in shown.text() and "row 2 of 4" in shown.text()
        await press(shown, "slash", "ctrl+u", *'role": "sys', "enter")
        assert "not in what the model sees" in shown.text() and not marks(shown)
        await press(shown, "v", "slash", "enter")
        assert marks(shown)[0][1] == 'role": "sys'

    person(script)


def test_a_long_text_is_gone_to_by_its_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [msgspec.structs.replace(one, number=0, num_rows=1, part=n, num_parts=4) for n, one in enumerate(SAMPLES)]
    monkeypatch.setattr(StandIn, "samples", parts)

    async def script(shown: ShownApp) -> None:
        await press(shown, "g")
        assert "The number of a part, from 1 to 4" in shown.text()
        await press(shown, "9", "enter")
        assert shown.shows(PromptScreen)
        await press(shown, "backspace", "3", "enter")
        assert asked(shown)[-1] == ("sample", {"jump": "number", "number": 0, "part": 2})
        assert "part 3 of 4" in shown.text()
        await press(shown, "slash", *"kernel", "enter")
        assert asked(shown)[-1] == ("search", {"text": "kernel", "after": 0, "part": 2})

    person(script)


def test_numbers_of_rows_and_parts() -> None:
    one = msgspec.structs.replace(SAMPLES[0], num_rows=30, num_parts=9)
    assert place_in(" 1,0 ", one) == (9, 0) and place_in("2/7", one) == (1, 6)
    for text in ("0", "31", "x", "", "3/0", "/2", "1.5", "²"):
        with pytest.raises(UsageError):
            place_in(text, one)
    only = msgspec.structs.replace(one, num_rows=1)
    assert place_in("7", only) == place_in("1/7", only) == (0, 6)
    for text in ("0", "10", "2/1", "1/0"):
        with pytest.raises(UsageError):
            place_in(text, only)


def test_the_end_of_a_long_row_is_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where not all tokens are shown, the page says by which key more come, and stays where it is."""
    whole = SAMPLES[2]
    short = msgspec.structs.replace(whole, tokens=whole.tokens[:190])
    monkeypatch.setattr(StandIn, "samples", [short])

    async def script(shown: ShownApp) -> None:
        await press(shown, "end")
        assert "30 more tokens" in shown.lines()[22] and "m shows more" in shown.lines()[22]
        before = shown.lines()[3]
        monkeypatch.setattr(StandIn, "samples", [whole])
        await press(shown, "m")
        assert asked(shown)[-1][1]["most_cut"] == 1900 and shown.lines()[3] == before
        await press(shown, "end")
        assert "<|im_end|>" in shown.lines()[22] and "more tokens" not in shown.text()
        await press(shown, "m")
        assert "All its tokens are here." in shown.text()

    person(script)


def test_nothing_is_said_of_a_row_that_is_new() -> None:
    async def script(shown: ShownApp) -> None:
        await press(shown, "p")
        assert "This is the first row." in shown.text()
        await press(shown, "n")
        assert "This is" not in shown.text() and "n next" in shown.lines()[23], "the keys are back at once"
        await press(shown, "g", "2", "enter")
        assert "It is this row already." in shown.text()
        await press(shown, "l")
        assert "already" not in shown.text() and "row 3 of 4" in shown.text()

    person(script)


def test_what_is_said_is_gone_with_the_next_key_and_another_size() -> None:
    async def script(shown: ShownApp) -> None:
        for ending in (("R",), ("b",), ()):
            await press(shown, "p")
            assert "This is the first row." in shown.lines()[-1]
            await press(shown, *ending)
            if not ending:
                await shown.pilot.resize_terminal(90, 30)
                await shown.pilot.pause()
            assert "This is the first row." not in shown.text() and "? help" in shown.lines()[-1]
            if shown.screen.page == "report":
                await press(shown, "R")

    person(script)


def test_where_nothing_is_cut_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    note = f"{NOTHING_CUT}: none is longer than data.max_length = 4,096. This is the longest."
    monkeypatch.setattr(StandIn, "samples", [msgspec.structs.replace(SAMPLES[0], num_rows=1, notes=[note])])

    async def script(shown: ShownApp) -> None:
        await press(shown, "c")
        assert NOTHING_CUT in shown.lines()[-1] and "already" not in shown.text()

    person(script)


@pytest.mark.parametrize("size", ["60x20", "40x12"])
def test_a_report_without_findings_has_the_room_for_its_numbers(size: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def script(shown: ShownApp) -> None:
        await press(shown, "R")
        assert shown.lines()[-2].strip() and "go to row" not in shown.lines()[-1]

    monkeypatch.setattr(StandIn, "report", msgspec.structs.replace(REPORT, findings=[]))
    person(script, size)


def test_enter_is_offered_on_lines_that_are_about_a_row() -> None:
    async def script(shown: ShownApp) -> None:
        await press(shown, "R")
        assert "enter go to row" in shown.lines()[-1]
        await press(shown, "end")
        assert "go to row" not in shown.lines()[-1]
        await press(shown, "home")
        assert "enter go to row" in shown.lines()[-1]

    person(script)


def test_in_ascii_no_other_sign_goes_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor the ellipsis of what is cut, nor the dot between phases, which rooms write that know no set of signs."""
    one = msgspec.structs.replace(
        FINDINGS[0], message="preparing · reading", examples=[Example(RowLocation("x" * 99, 4))]
    )
    monkeypatch.setattr(StandIn, "report", msgspec.structs.replace(REPORT, findings=[one]))

    async def script(shown: ShownApp) -> None:
        await press(shown, "R")
        text = shown.text()
        assert "~" in text and "preparing | reading" in text and text.isascii()

    person(script, glyphs=ASCII)


def test_reading_again_keeps_the_place_and_the_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    async def script(shown: ShownApp) -> None:
        await press(shown, "n", "n", "down", "down")
        before = shown.lines()[3]
        await press(shown, "a")
        assert asked(shown)[0] == ("sample", {"jump": "number", "number": 2, "part": 0})
        assert "row 3 of 4" in shown.text() and shown.lines()[3] == before
        await shown.pilot.press("a", "n")
        await shown.app.workers.wait_for_complete()
        await shown.pilot.pause()
        assert "row 4 of 4" in shown.text()
        assert sorted(ask for ask, _ in asked(shown)) == ["check", "report", "sample", "sample"]
        await press(shown, "R", "a")
        assert "few_rows" in shown.text(), "the page stays too"
        monkeypatch.setattr(StandIn, "problem", DataError("The file is gone."))
        await press(shown, "a")
        assert "The file is gone." in shown.text() and "tries again" in shown.text()

    person(script)


def test_numbers_of_the_row_come_before_those_of_all_rows() -> None:
    """What was found in all rows is told as that, and never takes the room of the row's own numbers."""
    long = msgspec.structs.replace(SAMPLES[2], num_tokens=1_234_567, num_target_tokens=2_100, max_length=2_200)
    for width in (40, 60, 80, 120):
        line = "".join(text for text, _ in title(Frame(width, 3, UNICODE), "x", long, REPORT, range(0))[1])
        assert "1,232,367 cut" in line or width < 60
        assert ("1 error" in line) == ("all rows: 1 error" in line) == (width == 120)
    line = "".join(text for text, _ in title(Frame(80, 3, UNICODE), "x", SAMPLES[3], REPORT, range(0))[1])
    assert "all rows: 1 error  1 warning  1 note" in line


def test_evidence_names_the_line_it_is_like() -> None:
    """At any width; the file only where it is another one."""
    here, other = (
        RowLocation("/a/very/long/way/to/rows.jsonl", 12_345),
        RowLocation("/a/very/long/way/to/eval.jsonl", 217),
    )
    examples = [
        Example(here, "What is a kernel? " * 9, RowLocation(here.file, 217)), Example(other, "What is a kernel?", here),
    ]  # fmt: skip
    finding = Finding(
        "duplicate_rows", "warning", 3_451, 3_463, "rows say the same as another one " * 4, "", "rows", examples
    )
    report = msgspec.structs.replace(REPORT, findings=[finding])
    for width in (40, 80, 120):
        head, first, second = (
            "".join(text for text, _ in clipped(line.line, width))
            for line in finding_lines(Frame(width, 9, UNICODE), report)
        )
        assert "rows.jsonl:12345" in first and "/a/" not in first + second
        if width >= 80:
            assert "like line 217: What is a kernel?" in first and "like rows.jsonl:12345: What" in second
            assert "3,451 of 3,463 rows" in head and "…" not in head, "all of the message stands below"


def test_rows_that_are_not_trained_on_are_told_among_the_numbers() -> None:
    def lines(**told: int) -> str:
        report = msgspec.structs.replace(REPORT, **told)
        return "\n".join("".join(text for text, _ in line) for line in number_lines(Frame(120, 40, UNICODE), report))

    assert "4 to train on, 6 judged bad and not trained on" in lines(num_judged_bad=6)
    assert "3 to train on, 1 to evaluate on" in lines(num_train_rows=3, num_eval_rows=1)
    assert "to train on" not in lines(), "the title says it"


def test_scrolling_a_long_row() -> None:
    async def script(shown: ShownApp) -> None:
        await press(shown, "l")
        assert "<|im_start|>user" in shown.text()
        await press(shown, "down")
        assert shown.lines()[3].startswith("  <|im_start|>user")
        await press(shown, "end")
        last = shown.text()
        assert "<|im_end|>" in shown.lines()[22] and "cut here: data.max_length = 160" in last
        await press(shown, "down", "pagedown")
        assert shown.text() == last, "no further than the end"
        await press(shown, "pageup", "home", "up")
        assert shown.lines()[3].startswith(" user ")
        await press(shown, "j", "k", "space")
        assert not shown.lines()[3].startswith(" user ")

    person(script)


def test_the_map_tells_what_is_trained_and_what_is_seen() -> None:
    async def script(shown: ShownApp) -> None:
        await press(shown, "l")
        assert set(shown.lines()[2].strip()) == {"─", "━", "·"}
        share = shown.lines()[2].count("·") / 78
        assert share == pytest.approx(60 / 220, abs=0.02)

    person(script)


def test_the_row_in_its_file_beside_or_instead() -> None:
    async def narrow(shown: ShownApp) -> None:
        assert '"role": "system"' not in shown.text()
        await press(shown, "v")
        assert '"role": "system"' in shown.text() and "<|im_start|>" not in shown.text()
        await press(shown, "end")
        assert shown.lines()[22].strip() == "}"
        await press(shown, "R")
        assert "few_rows" in shown.text(), "the report is seen all the same"
        await press(shown, "R", "v")
        assert "<|im_start|>" in shown.text()

    async def wide(shown: ShownApp) -> None:
        assert '"role": "system"' in shown.text() and "<|im_start|>" in shown.text()
        await press(shown, "v")
        assert '"role": "system"' not in shown.text()
        await press(shown, "R")
        assert "max_length ─" in shown.text(), "the numbers stand beside the findings"

    person(narrow)
    person(wide, "120x40")


def test_token_boundaries() -> None:
    async def script(shown: ShownApp) -> None:
        def tints() -> set[str]:
            strip = strips_of(shown.app)[11]
            return {str(segment.style.bgcolor.name) for segment in strip if segment.style and segment.style.bgcolor}

        before = tints()
        await press(shown, "b")
        assert len(tints()) > len(before)
        await press(shown, "b")
        assert tints() == before

    person(script)


def test_the_report_leads_to_the_rows() -> None:
    async def script(shown: ShownApp) -> None:
        await press(shown, "R", "n")
        assert "data.max_length = 512 holds all of them." in shown.text()
        await press(shown, "down", "enter")
        assert asked(shown)[-1][1]["where"] == {"file": FILE, "number": 3, "unit": "line"}
        assert "row 3 of 4" in shown.text() and "60 cut" in shown.text()
        await press(shown, "R", "end", "enter")
        assert "This line is about no row." in shown.text()
        await press(shown, "p", "p", "p", "up", "enter")
        assert "row 4 of 4" in shown.text()
        await press(shown, "R", "escape")
        assert shown.shows(RowsScreen) and "row 4 of 4" in shown.text()
        await press(shown, "escape")
        assert not shown.shows(RowsScreen)

    person(script)


def test_a_row_that_cannot_be_shown_leaves_the_one_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    async def script(shown: ShownApp) -> None:
        monkeypatch.setattr(StandIn, "problem", DataError("The file has changed.", hint="a reads it again. " * 9))
        await press(shown, "n")
        assert shown.shows(MessageScreen)
        await press(shown, "enter")
        assert "row 1 of 4" in shown.text()

    person(script)


def test_every_key_is_in_the_help_and_the_footer_fits() -> None:
    async def script(shown: ShownApp) -> None:
        explained = {binding.tooltip for binding in RowsScreen.BINDINGS if isinstance(binding, Binding)}
        await press(shown, "question_mark")
        assert shown.shows(HelpScreen)
        text = shown.text()
        await press(shown, "end")
        both = text + shown.text()
        assert [words for words in explained if words not in both] == []
        assert all(f"  {key}  " not in text.partition(f"  {key}  ")[2] for key in "npR"), "each key once"
        assert "dots where it is cut" in both and "error: a run would not start" in both and "loss chart" not in both

    person(script, "120x40")


# -- where it is opened


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "mine.toml").write_text(PROFILE)
    return tmp_path


OPENINGS: dict[type, tuple[str, ...]] = {StartScreen: ("n",), ResolvedScreen: ("n", "enter"), EditorScreen: ("n", "e")}


@pytest.mark.parametrize("kind", OPENINGS)
def test_one_key_opens_it(kind: type, project: Path) -> None:
    async def main() -> None:
        async with shown_app() as shown:
            await press(shown, *OPENINGS[kind])
            assert shown.shows(kind)
            await press(shown, "r")
            assert shown.shows(RowsScreen) and "row 1 of 4" in shown.text()
            assert str(project / "rows.jsonl") in to_toml(shown.screen._profile)
            await press(shown, "escape")
            assert shown.shows(kind)

    asyncio.run(main())


@pytest.mark.parametrize("kind", OPENINGS)
def test_code_of_others_is_not_run_for_a_look(kind: type, project: Path) -> None:
    (project / "mine.toml").write_text(
        PROFILE.replace("[data]", f'trust_remote_code = true\nrevision = "{"0" * 40}"\n[data]')
    )

    async def main() -> None:
        async with shown_app() as shown:
            await press(shown, *OPENINGS[kind], "r")
            assert not shown.shows(RowsScreen) and "brings Python code" in " ".join(shown.text().split())

    asyncio.run(main())


def test_a_broken_profile_is_told(project: Path) -> None:
    (project / "mine.toml").write_text(PROFILE.replace("max_length", "max_lenght"))

    async def main() -> None:
        async with shown_app() as shown:
            await press(shown, "n", "r")
            assert not shown.shows(RowsScreen) and "max_lenght" in shown.text()

    asyncio.run(main())


# -- what is loaded


def test_the_screen_loads_no_training_library() -> None:
    code = (
        "import ftui.tui.screens.rows.rows_screen, ftui.tui.screens.rows.rows_views, sys;"
        "print({'torch', 'numpy', 'transformers', 'datasets', 'pyarrow'} & set(sys.modules))"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[4])}
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert ended.stdout == "set()\n", ended.stderr


def test_the_rows_made_up_here_are_as_the_helper_tells_them() -> None:
    """Token texts make up the text, turns follow one another, and the numbers are those of the tokens."""
    for one in SAMPLES:
        assert isinstance(one, RowView) and [turn.start for turn in one.turns][1:] == [t.end for t in one.turns][:-1]


def test_the_list_of_files_tells_their_forms(project: Path) -> None:
    (project / "rows.jsonl").write_text('{"messages": []}\n')

    async def main() -> None:
        async with shown_app() as shown:
            await press(shown, "n", "e", "slash", *"data.train", "enter", "enter")
            await shown.until(lambda: "messages 98%" in shown.text())
            assert "98% of the first 64 rows have that form" in shown.text()
            await press(shown, "escape", "escape", "escape")

    asyncio.run(main())


# -- what the editor makes of it


NOTHING_LEFT = Finding("no_target_tokens", "error", 9, 9, "9 rows have no token to train on", is_allowable=False)


def test_rows_without_a_trained_token_start_nothing(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "rows.jsonl").write_text('{"messages": []}\n')
    monkeypatch.setattr(profile_file, "blocking_findings", lambda last, profile: [NOTHING_LEFT])

    async def main() -> None:
        async with shown_app() as shown:
            await press(shown, "n", "e", "s")
            assert shown.shows(EditorScreen) and "Nothing would be trained on" in shown.text()

    asyncio.run(main())


def test_the_form_knows_what_was_seen_from_the_start_page(project: Path) -> None:
    (project / "rows.jsonl").write_text('{"messages": []}\n')

    async def main() -> None:
        async with shown_app() as shown:
            await press(shown, "n", "r")
            assert shown.shows(RowsScreen)
            await press(shown, "escape", "e")
            assert shown.shows(EditorScreen) and "rows: 1 error" in shown.lines()[0]

    asyncio.run(main())


def test_the_form_knows_what_was_found_and_lets_it_be_allowed(project: Path) -> None:
    """Red rows are told in place of `valid` and before a start; data.allow is a list to choose from."""
    (project / "rows.jsonl").write_text('{"messages": []}\n')

    async def main() -> None:
        async with shown_app() as shown:
            await press(shown, "n", "e")
            assert "valid" in shown.lines()[0]
            await press(shown, "r", "escape")
            assert shown.shows(EditorScreen) and "rows: 1 error" in shown.lines()[0]
            await press(shown, "s")
            assert shown.shows(ConfirmScreen) and "placeholders" in shown.text()
            await press(shown, "y")
            assert 'allow = ["placeholders"]' in (project / "mine.toml").read_text(), "a run of it starts"
            await press(shown, "escape", "u")
            assert shown.shows(EditorScreen) and "rows: 1 error" in shown.lines()[0]
            await press(shown, "slash", *"data.allow", "enter", "enter")
            assert shown.shows(PickScreen) and "error: 1 of 4 rows hold a placeholder" in shown.text()
            await press(shown, "enter", "down", "enter")
            assert shown.shows(PickScreen), "several may be chosen"
            await press(shown, "escape")
            text = shown.screen.form.draft.text
            assert shown.shows(EditorScreen) and 'allow = ["placeholders", ' in text and "valid" in shown.lines()[0]
            await press(shown, "enter", "enter", "tab")
            assert "rows: 1 error" in shown.lines()[0] and "placeholders" not in shown.screen.form.draft.text
            await press(shown, "slash", *"data.max_length", "enter", "enter", "ctrl+u", *"64", "enter")
            assert "valid" in shown.lines()[0], "other rows than those that were looked at"
            await press(shown, "slash", *"eval.sample_prompts", "enter", "enter", *"Hi", "enter")
            assert '"Hi"' in shown.screen.form.draft.text, "an empty list is typed into as if nothing stood there"

    asyncio.run(main())
