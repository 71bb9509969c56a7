"""What the X-ray asks a person for: the number of a row or a part, and a text to look for."""

import re
from typing import TYPE_CHECKING

from ftui.dataset.locations import parse_location
from ftui.dataset.row import RowView
from ftui.errors import UsageError

from ...stage import stage
from ..dialogs import PromptScreen
from .questions import RowQuery, at, going_to, searching

if TYPE_CHECKING:
    from .rows_screen import RowsScreen

FIND_QUESTION = "A text of a row as it stands in its file; the search goes on behind what is shown."
_PLACE = re.compile(r"(\d+)(?:/(\d+))?")


def ask_number(screen: "RowsScreen", sample: RowView) -> None:
    """Goes there; where there is but one row, a long text, the number is that of a part."""

    def question(answer: str) -> RowQuery:
        where = parse_location(answer)
        return going_to(*place_in(answer, sample)) if where is None else at(where)

    def entered(answer: str | None) -> None:
        if answer is not None:
            screen.go(question(answer))

    prompt = PromptScreen(stage(screen).look, _number_question(sample), "", question, enter="go there")
    screen.app.push_screen(prompt, entered)


def _number_question(sample: RowView) -> str:
    if _is_one_text(sample):
        return f"The number of a part, from 1 to {sample.num_parts:,}: there is but one row."
    words = f"The number of a row, from 1 to {sample.num_rows:,}"
    part = f"; a part of it behind a slash: {sample.number + 1}/2" if sample.num_parts > 1 else ""
    return f"{words}{part}; or its place, FILE:LINE."


def _is_one_text(sample: RowView) -> bool:
    return sample.num_rows == 1 and sample.num_parts > 1


def place_in(text: str, sample: RowView) -> tuple[int, int]:
    """The row and its part, from 0, that somebody means who looks at `sample`.

    Raises:
        UsageError: it is no number, or there is no such row.
    """
    found = _PLACE.fullmatch(text.replace(",", "").replace(" ", ""))
    number, part = (int(found[1][:18]), int((found[2] or "1")[:18])) if found else (0, 0)
    if _is_one_text(sample):
        number, part = (number, part) if found and found[2] else (1, number)
        if number != 1 or not 1 <= part <= sample.num_parts:
            raise UsageError(f"A number from 1 to {sample.num_parts:,}.")
    elif not 1 <= number <= sample.num_rows or part < 1:
        raise UsageError(f"A number from 1 to {sample.num_rows:,}.")
    return number - 1, part - 1


def ask_text(screen: "RowsScreen") -> None:
    """Looks for it."""

    def check(text: str) -> None:
        if not text:
            raise UsageError("Type some text.")

    def entered(answer: str | None) -> None:
        if answer:
            screen.sought = answer
            screen.go(searching(answer))

    prompt = PromptScreen(stage(screen).look, FIND_QUESTION, screen.sought, check, enter="find", replaced=True)
    screen.app.push_screen(prompt, entered)
