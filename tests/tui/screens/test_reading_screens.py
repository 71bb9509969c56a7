"""What does not fit is paged, and says that it goes on: the help, what differs, all that is known of a key."""

from pathlib import Path
from typing import Any

import pytest
from textual.binding import Binding

from ftui.profile.origins import ProfileFault
from ftui.tui.drawing.editor.form import MORE, details, fault_text
from ftui.tui.form.form_rows import FormRow, make_rows
from ftui.tui.form.profile_form import ProfileForm
from ftui.tui.form.snapshot import take_snapshot
from ftui.tui.render.glyphs import UNICODE
from ftui.tui.render.spans import Frame, Line, width_of
from ftui.tui.screens.diff import DiffScreen
from ftui.tui.screens.editor.key_info import InfoScreen
from ftui.tui.screens.help import HelpScreen
from ftui.tui.screens.log import LogScreen
from tests.tui.screens.editor.test_editor import PROFILE, WRONG, at_home, editor, person

__all__ = ["at_home"]  # the fixture
WIDTHS = (60, 80, 120)


@pytest.mark.parametrize("screen", [HelpScreen, InfoScreen, DiffScreen, LogScreen])
def test_every_text_is_paged(screen: Any) -> None:
    keys = {key.strip() for one in screen.BINDINGS if isinstance(one, Binding) for key in one.key.split(",")}
    assert keys >= {"up", "down", "pageup", "pagedown", "home", "end"}


@pytest.mark.parametrize("last", ["end", "G"])
@pytest.mark.parametrize("page", ["pagedown", "space"])
def test_the_help_is_read_to_its_end_and_back(at_home: Path, last: str, page: str) -> None:
    async def script() -> None:
        async with editor() as at:
            await at.press("question_mark")
            assert at.shows(HelpScreen)
            first = at.words("body")
            await at.press(last)
            end = at.words("body")
            assert "finds runs, checkpoints" in end and "more below" not in end and end != first
            await at.press("home")
            assert at.words("body") == first
            seen = first
            for _ in range(10):
                await at.press(page)
                seen += at.words("body")
            assert at.words("body") == end
            for binding in type(at.app.screen_stack[-2]).BINDINGS:
                assert isinstance(binding, Binding) and binding.tooltip.split()[0] in seen
            await at.press("pageup")
            assert at.words("body") != end
            await at.press("g")
            assert at.words("body") == first

    person(script)


def told(lines: list[Line]) -> str:
    return " ".join(" ".join("".join(part for part, _ in line) for line in lines).split())


@pytest.mark.parametrize("width", WIDTHS)
def test_what_is_cut_off_says_so(width: int) -> None:
    """Of every key, with and without a fault: all of its words, or a sign at the end and where to read them."""
    for text in (PROFILE, WRONG):
        for row in ProfileForm(Path("mine.toml"), text, None).rows:
            for height in (4, 5, 7):
                lines = details(Frame(width, height, UNICODE), row)
                assert len(lines) <= height and all(width_of(line) <= width for line in lines)
                whole = told(details(Frame(width, 500, UNICODE), row))
                faults = " ".join(f"{fault_text(fault, row)} {fault.fix}".strip() for fault in row.faults)
                is_whole = told(lines) == whole or (row.faults and faults in told(lines))
                assert is_whole or told(lines).count(MORE.strip()) == 1, (row.key, height)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("meaning", ["Short.", "A long help. " * 40])
def test_a_fault_is_seen_before_the_help(width: int, meaning: str) -> None:
    """The first line is the fault's and its fix is there, in three lines too; the help never stands above it."""
    (row,) = [row for row in make_rows(take_snapshot(PROFILE, Path("/p.toml"))) if row.key == ("train", "seed")]
    for message in ("is wrong", "is wrong for a reason that takes a while to be told " * 6):
        faulty = FormRow(
            "key", row.key, row.text, row.field, meaning=meaning,
            faults=(
                ProfileFault(row.key, None, message, "Write another."),
                ProfileFault(row.key, None, "and this", "So."),
            ),
        )  # fmt: skip
        for height in (4, 5, 7, 9):
            lines = details(Frame(width, height, UNICODE), faulty)
            styles = [line[0][1] for line in lines[2:]]
            assert styles[0] == "bad" and "good" in styles and "Write another." in told(lines)
            assert "text" not in styles or styles.index("text") > max(n for n, s in enumerate(styles) if s != "text")
            assert (
                told(lines) == told(details(Frame(width, 500, UNICODE), faulty))
                or MORE.strip() in told(lines)
                or ("text" not in styles and "and this So." in told(lines))
            )


def test_while_typing_no_key_is_named_that_would_be_typed(at_home: Path) -> None:
    async def script() -> None:
        async with editor(size=(60, 20)) as at:
            await at.find("chat_template")
            assert "i: more" in at.words("details")
            await at.press("enter")
            assert "i: more" not in at.words("details") and "..." in at.words("details")

    person(script)
