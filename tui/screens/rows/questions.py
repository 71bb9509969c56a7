"""What the X-ray asks a person and the helper, and what it says of the answer."""

import re
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from ftui.dataset.locations import parse_location
from ftui.dataset.report import RowLocation
from ftui.dataset.row import NOTHING_CUT, RowView
from ftui.errors import UsageError

_PLACE = re.compile(r"(\d+)(?:/(\d+))?")
FIRST = 20  # rows that are shown before all are read
MORE = 10  # times as many tokens of a row that is cut


@dataclass(frozen=True)
class RowQuery:
    """About rows (`first_rows`, `sample`, `search`), for the report, or whether it can be trained here (`check`).

    `doing` says so in words.

    `stays`: the answer is the row that is shown already, and is shown from where the page stands.
    """

    ask: Literal["first_rows", "sample", "search", "report", "check"]
    doing: str
    given: dict[str, Any] = field(default_factory=dict)
    stays: bool = False

    def given_at(self, sample: RowView | None) -> dict[str, Any]:
        """Steps and searches continue from the row that is shown when their turn comes."""
        is_step = self.given.get("jump") in ("next", "previous")
        if sample is not None and (is_step or (self.stays and self.ask == "sample")):
            return self.given | {"number": sample.number, "part": sample.part}
        if self.ask == "search":
            number, part = (-1, 0) if sample is None else (sample.number, sample.part)
            return self.given | {"after": number, "part": part}
        return self.given


CHECK = RowQuery("check", "checking whether it can be trained here ...")
LATER = {"report": 1, "check": 2}  # they may take a while: questions about rows come before them


def report(doing: str) -> RowQuery:
    return RowQuery("report", doing)


def open_row(doing: str, shown: RowView | None) -> RowQuery:
    """The first row, or the one that was shown before."""
    if shown is None:
        return RowQuery("sample", doing, {"jump": "number", "number": 0}, stays=True)
    return RowQuery("sample", doing, {"jump": "number", "number": shown.number, "part": shown.part}, stays=True)


def first_rows(doing: str) -> RowQuery:
    """What can be shown before all rows are read."""
    return RowQuery("first_rows", doing, {"number": FIRST})


def step(by: int) -> RowQuery:
    jump, doing = ("next", "the next row ...") if by > 0 else ("previous", "the row before ...")
    return RowQuery("sample", doing, {"jump": jump})


def jump_to(jump: str, rank: int, seed: int) -> RowQuery:
    given = {"jump": jump, "number": rank, "seed": seed}
    return RowQuery("sample", f"looking for it: {jump.replace('_', ' ')} ...", given)


def go_to_row(number: int, part: int) -> RowQuery:
    words = f"going to row {number + 1:,}" + (f", part {part + 1:,}" if part else "")
    return RowQuery("sample", f"{words} ...", {"jump": "number", "number": number, "part": part})


def at(where: RowLocation) -> RowQuery:
    return RowQuery("sample", f"going to {where} ...", {"jump": "number", "where": msgspec.to_builtins(where)})


def more_of(sample: RowView) -> RowQuery:
    given = {"jump": "number", "number": sample.number, "part": sample.part, "most_cut": MORE * len(sample.tokens)}
    return RowQuery("sample", "more of the row ...", given, stays=True)


def search_for(text: str) -> RowQuery:
    return RowQuery("search", f"searching for {text!r} ...", {"text": text})


def describe_answer(question: RowQuery, before: RowView | None, sample: RowView) -> str:
    """What a person is told about the answer, beside the row itself; mostly nothing."""
    if before is None or question.stays:
        return ""
    here, there = (before.number, before.part), (sample.number, sample.part)
    if question.ask == "search":
        around = "" if there > here else "It is nowhere else. " if there == here else "From the start again. "
        return around + ("" if sample.hits else "It is in the file (v), not in what the model sees.")
    if (part := question.given.get("part", 0)) > sample.part and "jump" in question.given:
        return f"Row {sample.number + 1:,} has {sample.num_parts:,} parts; this is the last."
    if here != there:
        return ""
    if any(note.startswith(NOTHING_CUT) for note in sample.notes):
        return f"{NOTHING_CUT}: this is the longest."
    words = {"next": "This is the last row.", "previous": "This is the first row.", "random": ""}
    return words.get(question.given.get("jump", ""), "It is this row already.") if not part else ""


def ask_number(sample: RowView) -> str:
    """The question for a row; where there is but one row, a long text, for a part of it."""
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
    match = _PLACE.fullmatch(text.replace(",", "").replace(" ", ""))
    number, part = (int(match[1][:18]), int((match[2] or "1")[:18])) if match else (0, 0)
    if _is_one_text(sample):
        number, part = (number, part) if match and match[2] else (1, number)
        if number != 1 or not 1 <= part <= sample.num_parts:
            raise UsageError(f"A number from 1 to {sample.num_parts:,}.")
    elif not 1 <= number <= sample.num_rows or part < 1:
        raise UsageError(f"A number from 1 to {sample.num_rows:,}.")
    return number - 1, part - 1


def parse_place(answer: str, sample: RowView) -> RowQuery:
    """The query that leads to the row, or the part of it, that somebody means who looks at `sample`.

    Raises:
        UsageError: it is neither a number nor a place, or there is no such row.
    """
    where = parse_location(answer)
    return go_to_row(*place_in(answer, sample)) if where is None else at(where)
