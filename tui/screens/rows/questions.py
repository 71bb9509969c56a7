"""What the X-ray asks the helper, and what it says of the answer."""

from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from ftui.dataset.report import RowLocation
from ftui.dataset.row import NOTHING_CUT, RowView

MORE = 10  # times as many tokens of a row that is cut


@dataclass(frozen=True)
class RowQuery:
    """About a row (`sample`, `search`), or for the report. `doing` says so in words.

    `stays`: the answer is the row that is shown already, and is shown from where the page stands.
    """

    ask: Literal["sample", "search", "report"]
    doing: str
    given: dict[str, Any] = field(default_factory=dict)
    stays: bool = False

    def given_at(self, sample: RowView | None) -> dict[str, Any]:
        """Steps and searches continue from the row that is shown when their turn comes."""
        if sample is not None and (self.given.get("jump") in ("next", "previous")):
            return self.given | {"number": sample.number, "part": sample.part}
        if self.ask == "search":
            number, part = (-1, 0) if sample is None else (sample.number, sample.part)
            return self.given | {"after": number, "part": part}
        return self.given


def report(doing: str) -> RowQuery:
    return RowQuery("report", doing)


def opening(doing: str, shown: RowView | None) -> RowQuery:
    """The first row, or the one that was shown before."""
    if shown is None:
        return RowQuery("sample", doing, {"jump": "number", "number": 0})
    return RowQuery("sample", doing, {"jump": "number", "number": shown.number, "part": shown.part}, stays=True)


def step(by: int) -> RowQuery:
    jump, doing = ("next", "the next row ...") if by > 0 else ("previous", "the row before ...")
    return RowQuery("sample", doing, {"jump": jump})


def jump_to(jump: str, rank: int, seed: int) -> RowQuery:
    given = {"jump": jump, "number": rank, "seed": seed}
    return RowQuery("sample", f"looking for it: {jump.replace('_', ' ')} ...", given)


def going_to(number: int, part: int) -> RowQuery:
    words = f"going to row {number + 1:,}" + (f", part {part + 1:,}" if part else "")
    return RowQuery("sample", f"{words} ...", {"jump": "number", "number": number, "part": part})


def at(where: RowLocation) -> RowQuery:
    return RowQuery("sample", f"going to {where} ...", {"jump": "number", "where": msgspec.to_builtins(where)})


def more_of(sample: RowView) -> RowQuery:
    given = {"jump": "number", "number": sample.number, "part": sample.part, "most_cut": MORE * len(sample.tokens)}
    return RowQuery("sample", "more of the row ...", given, stays=True)


def searching(text: str) -> RowQuery:
    return RowQuery("search", f"searching for {text!r} ...", {"text": text})


def said_of(question: RowQuery, before: RowView | None, sample: RowView) -> str:
    """What a person is told about the answer, beside the row itself; mostly nothing."""
    if before is None or question.stays:
        return ""
    here, there = (before.number, before.part), (sample.number, sample.part)
    if question.ask == "search":
        around = "" if there > here else "It is nowhere else. " if there == here else "From the start again. "
        return around + ("" if sample.hits else "It stands in the file, not in what the model sees: v shows the file.")
    if (wanted := question.given.get("part", 0)) > sample.part and "jump" in question.given:
        return f"Row {sample.number + 1:,} has {sample.num_parts:,} parts; this is the last."
    if here != there:
        return ""
    if any(note.startswith(NOTHING_CUT) for note in sample.notes):
        return f"{NOTHING_CUT}: this is the longest."
    words = {"next": "This is the last row.", "previous": "This is the first row.", "random": ""}
    return words.get(question.given.get("jump", ""), "It is this row already.") if not wanted else ""
