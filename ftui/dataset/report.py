"""What the report on the rows of a profile says: plain values, made by the engine, shown by commands and screens."""

from typing import Literal

import msgspec

Severity = Literal["error", "warning", "note"]


class RowLocation(msgspec.Struct, frozen=True):
    """The place of a row: a line of a file (from 1) or, where a file has no lines, the number of the row."""

    file: str
    number: int
    unit: Literal["line", "row"] = "line"

    def __str__(self) -> str:
        return f"{self.file}:{self.number}" if self.unit == "line" else f"{self.file}, row {self.number}"


class Example(msgspec.Struct, frozen=True):
    """A row that has what was found; `like` is the row that it is too much like, where that is the finding."""

    where: RowLocation
    excerpt: str = ""
    like: RowLocation | None = None


class Finding(msgspec.Struct, frozen=True):
    """Something to know about the rows. `name` is what data.allow calls it; errors stop a run that does not allow it.

    `count` rows (or what `unit` says) of `total` have it; the first few are `examples`. Not `is_allowable` is an error
    that leaves a run nothing to train on.
    """

    name: str
    severity: Severity
    count: int
    total: int
    message: str
    fix: str = ""
    unit: str = "rows"
    examples: list[Example] = []
    allowed: bool = False
    is_allowable: bool = True


class SourceFacts(msgspec.Struct, frozen=True):
    """One source of rows. `confidence` (0..1) is the share of the rows looked at that have `form`.

    `share` (0..1) is its part of the sequences of an epoch, where several sources are mixed otherwise than by size.
    """

    name: str
    form: str
    confidence: float
    num_rows: int
    num_skipped: int
    num_tokens: int
    num_target_tokens: int
    is_eval: bool = False
    weight: float = 1.0
    share: float | None = None


class OtherLength(msgspec.Struct, frozen=True):
    """What another data.max_length would lose: rows cut, and the tokens (all, trained) that would not be seen."""

    max_length: int
    num_cut: int
    num_lost_tokens: int
    num_lost_target_tokens: int


class Padding(msgspec.Struct, frozen=True):
    """Shares (0..1) of the places in the micro-batches of an epoch that hold no token."""

    as_set: float
    without_packing: float
    with_packing: float


class AnswerFacts(msgspec.Struct, frozen=True):
    """Answers that are compared: how many are chosen (or judged good) and rejected (or bad), and half of which have no
    more trained tokens than these. Of pairs, in how many the chosen one is the longer one, and both are as long.
    """

    num_chosen: int
    num_rejected: int
    median_chosen: int
    median_rejected: int
    are_pairs: bool = True
    num_longer: int = 0
    num_same: int = 0


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The figures and findings about the rows of a profile.

    `num_train_rows` are those a run trains on: `num_sequences`, `num_tokens` and `num_target_tokens` are theirs, at
    `max_length`, and so are the padding and the shares of an epoch. All other numbers are of the `num_rows` rows to
    train on before any is set aside. Where no whole rows were set aside but parts of them (of a long text),
    `num_eval_parts` are those. `num_judged_bad` rows have an answer that is not trained on, for it was judged bad.

    `lengths` and `target_shares` are [percentile (0..100), value]; `histogram` is [longest length of the bar, rows].
    `scripts` are shares (0..1) of the letters, the most first. `special` says in words how rows begin and end and what
    pads them. `answers` are there where answers are compared.
    """

    sources: list[SourceFacts]
    num_rows: int
    num_train_rows: int
    num_skipped: int
    num_sequences: int
    num_eval_rows: int
    num_tokens: int
    num_target_tokens: int
    max_length: int
    lengths: list[tuple[float, float]]
    histogram: list[tuple[int, int]]
    target_shares: list[tuple[float, float]]
    other_lengths: list[OtherLength]
    padding: Padding | None
    scripts: list[tuple[str, float]]
    special: list[str]
    findings: list[Finding]
    num_eval_parts: int = 0
    num_judged_bad: int = 0
    answers: AnswerFacts | None = None

    @property
    def stopping(self) -> list[Finding]:
        """The findings for which a run would not start."""
        return [finding for finding in self.findings if finding.severity == "error" and not finding.allowed]
