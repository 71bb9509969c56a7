"""Which form the rows of a file have, judged from its first rows, and how sure that is."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ftui.errors import DataError
from ftui.profile.sections.row_forms import SIGNS, VERDICTS

from ..files.raw_rows import Row
from .column_names import (
    STANDARD_NAMES,
    ColumnNames,
    column_list,
    match_form,
    missing_columns,
    naming_hint,
    rename_columns,
)
from .formats import to_example
from .preferences import is_verdict
from .turns import ROLES
from .unused_columns import unused_columns

MOST_ROWS = 64
EXPLICIT_FORMS = {
    "preference": 'To train on the chosen answers, set data.format = "preference".',
    "kto": 'To train on the rows whose verdict is true, set data.format = "kto".',
}

_STAGES = {"preference": "dpo, orpo, simpo, cpo or rm", "kto": "kto", "text": "pretrain"}
_SINGLE = "a single turn of a conversation (it says who speaks beside its text), and questions would be trained on too"
_TOGETHER = (
    "Put the turns of a conversation in one row: messages = [{role, content}, ...]. To train on all of it as plain "
    'text, set data.format = "text".'
)


@dataclass(frozen=True)
class Detection:
    """`confidence` (0..1) is the share of the `num_looked` rows that have `form`; `why` says what it is known by.

    `problem` says why a run cannot train on such rows as the profile stands, `hint` what to do about it. `form` is
    empty where no known one fits. `unused` names columns that the form does not read.
    """

    form: str
    confidence: float
    num_looked: int
    why: str
    problem: str = ""
    hint: str = ""
    unused: tuple[str, ...] = ()

    def checked(self) -> "Detection":
        """Raises `DataError` where there is a problem."""
        if self.problem:
            raise DataError(self.problem, hint=self.hint)
        return self


def detect_form(rows: Sequence[Row], shape: ColumnNames = STANDARD_NAMES, form: str = "auto") -> Detection:
    """The form of a file from its first rows (at most 64 are looked at); `form` = the one that the profile names.

    Rows may differ in the columns that a form can do without. The form that most of them have is taken; among equals
    the first of `SIGNS`.
    """
    rows = rows[:MOST_ROWS]
    if not rows:
        return Detection("" if form == "auto" else form, 0.0, 0, "there are no rows")
    known = Counter(form_of_row(rename_columns(row, shape)) for row in rows)
    if form != "auto":
        return _judge_form(rows, shape, form, "the profile says so")
    forms = [one for one in known if one]
    if not forms:
        return Detection("", 0.0, len(rows), "no known keys", *_unknown(rows, shape))
    best = max(forms, key=lambda one: (_share(rows, shape, one), known[one]))
    detected = _judge_form(rows, shape, best, _why(best))
    turns = [row for row in rows if best == "text" and _is_single_turn(rename_columns(row, shape))]
    if 2 * len(turns) > len(rows):  # a few may be of people who work as assistants
        return replace(detected, problem=turns[0].error(_SINGLE).message, hint=_TOGETHER)
    if best not in EXPLICIT_FORMS or detected.problem:
        return detected
    first = next(row for row in rows if form_of_row(rename_columns(row, shape)) == best)
    return Detection(
        best, detected.confidence, len(rows), detected.why, first.error(_why_not_default(best)).message,
        EXPLICIT_FORMS[best], detected.unused,
    )  # fmt: skip


def detect(row: Row, shape: ColumnNames = STANDARD_NAMES) -> str:
    """The form of one row, from its keys.

    Raises:
        DataError: no known form has these keys, or one that has to be asked for (pairs to choose from, verdicts).
    """
    form = form_of_row(rename_columns(row, shape))
    if form is None:
        message, hint = _unknown([row], shape)
        raise DataError(message, hint=hint)
    if form == "text" and _is_single_turn(rename_columns(row, shape)):
        raise row.error(_SINGLE, hint=_TOGETHER)
    if form in EXPLICIT_FORMS:
        raise row.error(_why_not_default(form), hint=EXPLICIT_FORMS[form])
    return form


def form_of_row(row: Row) -> str | None:
    """The form whose keys this row has, `kto` where its verdict is one; `None` for no known form."""
    form = match_form(row, SIGNS)
    judged = any(is_verdict(row.value.get(key)) and form in forms for key, forms in VERDICTS.items())
    return "kto" if judged else form


def _is_single_turn(row: Row) -> bool:
    """Whether its text is one of a conversation, as OpenAssistant's trees have them."""
    speaker = row.value.get("role")
    return isinstance(speaker, str) and speaker.strip().lower() in ROLES


def _judge_form(rows: Sequence[Row], shape: ColumnNames, form: str, why: str) -> Detection:
    share = _share(rows, shape, form)
    there = {name: None for row in rows for name in row.value}
    absent = missing_columns(there, shape)
    if absent:
        problem = f"{rows[0].path}: none of the first {len(rows)} rows has a column that the profile names."
        return Detection(form, share, len(rows), why, problem, " ".join(absent))
    if share:
        columns = unused_columns([rename_columns(row, shape) for row in rows], form)
        return Detection(form, share, len(rows), why, unused=columns)
    first = _fault(rows[0], form, shape)
    assert first is not None, "no row has this form"
    other = form_of_row(rename_columns(rows[0], shape)) if form in EXPLICIT_FORMS else None
    trained = "" if other in (None, form) else f"Rows of the form {other} are for stage {_STAGES.get(other, 'sft')}."
    return Detection(form, 0.0, len(rows), why, first.message, f"{trained} {first.hint}".strip())


def _share(rows: Sequence[Row], shape: ColumnNames, form: str) -> float:
    return sum(_fault(row, form, shape) is None for row in rows) / len(rows)


def _fault(row: Row, form: str, shape: ColumnNames) -> DataError | None:
    try:
        to_example(row, form, shape)
    except DataError as error:
        return error
    return None


def _why(form: str) -> str:
    if form == "kto":
        return "an answer with a verdict"
    return f"the keys {', '.join(sorted(SIGNS[form]))}"


def _why_not_default(form: str) -> str:
    if form == "kto":
        return "an answer with a verdict, as KTO has them, and sft would train on the bad ones too"
    return "a preference pair (chosen, rejected), and sft trains on one answer"


def _unknown(rows: Sequence[Row], shape: ColumnNames) -> tuple[str, str]:
    """Message and hint for rows of no known form."""
    return rows[0].error(f"no known form has the keys {column_list(rows[0])}").message, naming_hint(rows, shape)
