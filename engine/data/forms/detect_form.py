"""Which form the rows of a file have, judged from its first rows, and how sure that is."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ftui.errors import DataError
from ftui.profile.sections.row_forms import SIGNS, VERDICTS

from ..files.raw_rows import Row
from .column_hints import how_to_name, keys_told
from .column_names import PLAIN, Shape, known_by, missing_columns, with_our_names
from .formats import to_example
from .preferences import verdict_of
from .turns import ROLES
from .unused_columns import unused

MOST_ROWS = 64
TO_BE_ASKED_FOR = {
    "preference": 'To learn the chosen answers, set data.format = "preference".',
    "kto": 'To learn the rows whose verdict is true, set data.format = "kto".',
}

_SINGLE = "a single turn of a conversation (it says who speaks beside its text), and questions would be learned too"
_TOGETHER = (
    "Put the turns of a conversation in one row: messages = [{role, content}, ...]. To learn all of it as plain text, "
    'set data.format = "text".'
)


@dataclass(frozen=True)
class Detected:
    """`confidence` (0..1) is the share of the `num_looked` rows that have `form`; `why` says what it is known by.

    `problem` = why rows as these cannot be learned as the profile stands, with a `hint` what to do about it. `form` is
    empty where no known one fits. `unused` names columns that it does not read (see there).
    """

    form: str
    confidence: float
    num_looked: int
    why: str
    problem: str = ""
    hint: str = ""
    unused: tuple[str, ...] = ()

    def checked(self) -> "Detected":
        """Raises `DataError` where there is a problem."""
        if self.problem:
            raise DataError(self.problem, hint=self.hint)
        return self


def detect_rows(rows: Sequence[Row], shape: Shape = PLAIN, form: str = "auto") -> Detected:
    """The form of a file from its first rows (at most 64 are looked at); `form` = the one that the profile names.

    Rows may differ in the columns that a form can do without. The form that most of them have is taken; among equals
    the first of `SIGNS`.
    """
    rows = rows[:MOST_ROWS]
    if not rows:
        return Detected("" if form == "auto" else form, 0.0, 0, "there are no rows")
    known = Counter(by_keys(with_our_names(row, shape)) for row in rows)
    if form != "auto":
        return _judged(rows, shape, form, "the profile says so")
    found = [one for one in known if one]
    if not found:
        return Detected("", 0.0, len(rows), "no known keys", *_unknown(rows[0], shape))
    best = max(found, key=lambda one: (_share(rows, shape, one), known[one]))
    detected = _judged(rows, shape, best, _why(best))
    turns = [row for row in rows if best == "text" and _is_single_turn(with_our_names(row, shape))]
    if 2 * len(turns) > len(rows):  # a few may be of people who work as assistants
        return replace(detected, problem=turns[0].error(_SINGLE).message, hint=_TOGETHER)
    if best not in TO_BE_ASKED_FOR or detected.problem:
        return detected
    first = next(row for row in rows if by_keys(with_our_names(row, shape)) == best)
    return Detected(
        best, detected.confidence, len(rows), detected.why, first.error(_told(best)).message, TO_BE_ASKED_FOR[best],
        detected.unused,
    )  # fmt: skip


def detect(row: Row, shape: Shape = PLAIN) -> str:
    """The form of one row, from its keys.

    Raises:
        DataError: no known form has these keys, or one that has to be asked for (pairs to choose from, verdicts).
    """
    form = by_keys(with_our_names(row, shape))
    if form is None:
        message, hint = _unknown(row, shape)
        raise DataError(message, hint=hint)
    if form == "text" and _is_single_turn(with_our_names(row, shape)):
        raise row.error(_SINGLE, hint=_TOGETHER)
    if form in TO_BE_ASKED_FOR:
        raise row.error(_told(form), hint=TO_BE_ASKED_FOR[form])
    return form


def by_keys(row: Row) -> str | None:
    """The form whose keys this row has, `kto` where its verdict is one; `None` for no known form."""
    form = known_by(row, SIGNS)
    judged = any(key in row.value and form in forms for key, forms in VERDICTS.items())
    return "kto" if judged and verdict_of(row) is not None else form


def _is_single_turn(row: Row) -> bool:
    """Whether its text is one of a conversation, as OpenAssistant's trees have them."""
    speaker = row.value.get("role")
    return isinstance(speaker, str) and speaker.strip().lower() in ROLES


def _judged(rows: Sequence[Row], shape: Shape, form: str, why: str) -> Detected:
    share = _share(rows, shape, form)
    there = {name: None for row in rows for name in row.value}
    absent = missing_columns(there, shape)
    if absent:
        problem = f"{rows[0].path}: none of the first {len(rows)} rows has a column that the profile names."
        return Detected(form, share, len(rows), why, problem, " ".join(absent))
    if share:
        columns = unused([with_our_names(row, shape) for row in rows], form)
        return Detected(form, share, len(rows), why, unused=columns)
    first = _fault(rows[0], form, shape)
    assert first is not None, "no row has this form"
    return Detected(form, 0.0, len(rows), why, first.message, first.hint)


def _share(rows: Sequence[Row], shape: Shape, form: str) -> float:
    return sum(_fault(row, form, shape) is None for row in rows) / len(rows)


def _fault(row: Row, form: str, shape: Shape) -> DataError | None:
    try:
        to_example(row, form, shape)
    except DataError as error:
        return error
    return None


def _why(form: str) -> str:
    if form == "kto":
        return "an answer with a verdict"
    return f"the keys {', '.join(sorted(SIGNS[form]))}"


def _told(form: str) -> str:
    if form == "kto":
        return "an answer with a verdict, as KTO has them, and sft would learn the bad ones too"
    return "a preference pair (chosen, rejected), and sft learns from one answer"


def _unknown(row: Row, shape: Shape) -> tuple[str, str]:
    """Message and hint for a row of no known form."""
    return row.error(f"no known form has the keys {keys_told(row)}").message, how_to_name(row, shape)
