"""One row as the model sees it: plain values, made by the engine, shown by `ftui preview` and its screen."""

from typing import Literal

import msgspec

from ftui.dataset.report import RowLocation

Jump = Literal["longest", "shortest", "most_truncated", "least_trained", "random", "next", "previous", "number"]


NOTHING_CUT = "No row is cut"
"""How the note begins that a row has which the jump to the one cut most leads to where none is."""


class Token(msgspec.Struct, frozen=True, array_like=True):
    """A token of a row. `text`: its characters in the sequence (none for a byte of a character in several tokens).

    `is_cut` = beyond data.max_length: the model does not see it.
    """

    id: int
    text: str
    is_target: bool = False
    is_special: bool = False
    is_cut: bool = False


class Turn(msgspec.Struct, frozen=True):
    """Who says the tokens from `start` to before `end`; what a template puts between turns belongs to the next one."""

    role: str
    start: int
    end: int


class AnswerSide(msgspec.Struct, frozen=True):
    """One of the answers of a row, as far as data.max_length reaches. `label`: as in `RowView`.

    `log_prob` (in nats) is that of its trained tokens together under the reference; `None` where it is not measured.
    """

    label: int
    num_tokens: int
    num_target_tokens: int
    log_prob: float | None = None


class ComparedAnswers(msgspec.Struct, frozen=True):
    """The answers of a row that is compared: the chosen and the rejected one, or one with a verdict.

    `parting` is the first token (from 0) in which the two of a pair differ; `None` where they do not, as far as
    data.max_length reaches, or there is but one. `has_reference`: the stage compares with one.
    """

    sides: list[AnswerSide]
    parting: int | None = None
    has_reference: bool = False


class RowView(msgspec.Struct, frozen=True, kw_only=True):
    """Sequence `part` of `num_parts` of a row. `number` counts the rows of the training data from 0, of `num_rows`.

    `raw` is the row as it stands in the file, as JSON with one key a line; of plain text it is what this part was made
    of, from line `raw_line` of the file on. `notes` say what is odd about it. `hits` are the tokens of a text that was
    sought: (the first, behind the last). `num_row_tokens` are those of all parts of the row together.

    `label`: 1 for a chosen answer or one judged good, -1 for a rejected or bad one, 0 where nothing is compared.
    `compared` has both answers in numbers, where they are compared.
    `is_halved` = it is one answer of a pair, and judged alone (stage kto). `margin` is that of a pair where it counts.
    `num_first`: it is one of so many that are shown before all rows are read, and `num_rows` is not known yet (0).
    """

    number: int
    num_rows: int
    where: RowLocation
    source: str
    form: str
    part: int
    num_parts: int
    tokens: list[Token]
    turns: list[Turn]
    num_tokens: int
    num_target_tokens: int
    max_length: int
    raw: str
    raw_line: int | None = None
    notes: list[str] = []
    hits: list[tuple[int, int]] = []
    num_row_tokens: int = 0
    num_first: int = 0
    label: int = 0
    compared: ComparedAnswers | None = None
    is_halved: bool = False
    margin: float = 0.0

    @property
    def verdict(self) -> str:
        """What was said of the answer, in words; "" where nothing is compared."""
        if not self.label:
            return ""
        side = "chosen" if self.label > 0 else "rejected"
        judged = "judged good" if self.label > 0 else "judged bad"
        if self.is_halved:
            return f"{judged}: the {side} answer of a pair"
        return judged if self.num_parts == 1 else f"{side}, margin {self.margin:g}" if self.margin else side
