"""Columns that the form of their rows does not read, though something is said in them."""

from collections.abc import Iterable
from typing import Any

from ftui.errors import DataError
from ftui.profile.sections.row_forms import COLUMNS, OF_CHATS, OF_TURNS, SIGNS, TWO_ANSWERS, VERDICTS

from ..files.raw_rows import Row
from .column_names import ABOUT, STANDARD_NAMES, match_form
from .examples import Completion, Message, trained_part
from .formats import READERS
from .turns import ROLES

_PROMPTS = ("prompt", "conversations", "messages", "instruction", "question")


def unused_columns(rows: Iterable[Row], form: str) -> tuple[str, ...]:
    """Names of the columns of these rows (called as the forms call them) that nobody reads, in their order.

    Only those that hold text or more in one of the rows: numbers are no words. What is about a row (an id, its source,
    a date ...) is no news.
    """
    names: dict[str, None] = {}
    for row in rows:
        names |= {name: None for name, value in row.value.items() if _says(value) and not _is_read(row, name, form)}
    return tuple(name for name in names if not ABOUT.fullmatch(name))


def _says(value: Any) -> bool:
    return bool(value.strip() if isinstance(value, str) else value) and isinstance(value, str | list | dict)


def _is_read(row: Row, name: str, form: str) -> bool:
    value: Message = row.value
    if form == "prompt":  # whoever judges the answers gets them all
        return True
    if form == "kto":
        if name in VERDICTS:
            return True
        form = match_form(row, SIGNS) or "prompt_completion"
    if name not in COLUMNS[form] - OF_TURNS or (name in OF_CHATS and _is_text_alone(row, form)):
        return False
    if name in ("system", "system_prompt") and _has_system_turn(row, form):
        return False
    if name in ("context", "input") and form == "preference" and next(filter(value.get, _PROMPTS), "") == "prompt":
        return False
    if name == "history":
        is_question = any(names[0] in value for names in TWO_ANSWERS)  # SHP's
        return isinstance(value[name], list) or value[name].lstrip().startswith("[") or is_question
    if name == "input" and form == "preference" and isinstance(value[name], dict):
        return "messages" in value[name]  # OpenAI's
    return name not in ("context", "input") or isinstance(value[name], str)


def _has_system_turn(row: Row, form: str) -> bool:
    """Whether the turns say themselves what the system says: then no column beside them is read."""
    turns = row.value.get("conversations" if form == "sharegpt" else form)
    first = turns[0] if isinstance(turns, list) and turns and isinstance(turns[0], dict) else {}
    return ROLES.get(str(first.get("role", first.get("from"))).strip().lower()) == "system"


def _is_text_alone(row: Row, form: str) -> bool:
    """Whether it is trained on as it stands, without a template that would have a place for more."""
    try:
        return isinstance(trained_part(READERS[form](row, STANDARD_NAMES)), Completion)
    except DataError:  # of another form than most
        return False
