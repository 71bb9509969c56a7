"""What the row ledger of a run says: rows behind a step, and how rows were learned (engine/ledger/blame_run.py)."""

from typing import Literal

import msgspec

from ftui.dataset.report import RowLocation

Verdict = Literal["rows", "model", "no spike", "unclear"]
Course = Literal["never_learned", "forgotten", "learned_at_once"]

COURSES: dict[Course, str] = {
    "never_learned": "whose loss has fallen by less than a tenth since they were first seen, and is above the median",
    "forgotten": "whose loss had fallen, and has risen again by half of that or more",
    "learned_at_once": "whose loss was next to nothing when they were seen the second time, or the first",
}
"""What rows each of them has."""


class LedgerRow(msgspec.Struct, frozen=True):
    """One row of a step. Losses are means over what it counts (nats); `None` is a NaN or infinite one, or not known.

    Attributes:
        number: of its sequence among all of the data, from 0.
        where: its place; `None` where the data are not there, or others than those of the run. `part`: of a row that
            gave `num_parts` sequences.
        count: target tokens, or 1 in a stage that compares answers.
        share: its part (0..1) of the step's loss; `None` where that is not finite.
        before: its loss when it was seen last, in step `before_step`.
        base: its loss under the base model, where a curriculum has measured it.
    """

    number: int
    count: int
    loss: float | None
    share: float | None
    before: float | None = None
    before_step: int | None = None
    base: float | None = None
    where: RowLocation | None = None
    part: int = 1
    num_parts: int = 1


class StepBlame(msgspec.Struct, frozen=True):
    """The rows of a step, those that add most to its loss first, and what they say of it.

    Attributes:
        loss: of the step, put together from its rows; `None`: NaN or infinite.
        usual: its loss if it had gone on as in the steps before it. `noise`: their standard deviation from that course.
        lasts: how many steps after it are above usual, too.
        rows: the first ones of `num_rows`.
        counts_tokens: whether the loss is a mean over target tokens; else over examples.
        notes: why rows have no place, and what else is missing.
    """

    step: int
    loss: float | None
    usual: float | None
    noise: float
    lasts: int
    verdict: Verdict
    words: str
    num_rows: int
    counts_tokens: bool
    rows: list[LedgerRow]
    notes: list[str]


class CourseRow(msgspec.Struct, frozen=True):
    """How the mean loss of a row went: at its first sight, its second, its best but the last, its last (nats)."""

    number: int
    times: int
    first: float
    second: float | None
    best: float
    last: float
    where: RowLocation | None = None
    part: int = 1
    num_parts: int = 1


class RowCourses(msgspec.Struct, frozen=True):
    """The first `rows` of `num_found`, the plainest case first; `num_rows` rows were seen, up to `most_times` each."""

    course: Course
    num_found: int
    num_rows: int
    most_times: int
    rows: list[CourseRow]
    notes: list[str]
