"""The forms rows come in, each turned into an example: a chat, a prompt with its completion, a text ..."""

from collections.abc import Callable

from ftui.errors import DataError
from ftui.text import toml_value

from ..files.raw_rows import Row
from . import conversations, preferences, prompts
from .column_names import STANDARD_NAMES, ColumnNames, is_media, missing_columns, rename_columns
from .examples import Chat, Completion, Example, JudgedAnswer, Message, Pair, Text, Tokens
from .tokenized import read_tokens

__all__ = [
    "READERS",
    "STANDARD_NAMES",
    "Chat",
    "ColumnNames",
    "Completion",
    "Example",
    "JudgedAnswer",
    "Message",
    "Pair",
    "Text",
    "Tokens",
    "to_example",
]  # fmt: skip
READERS: dict[str, Callable[[Row, ColumnNames], Example]] = {
    "messages": conversations.messages,
    "sharegpt": conversations.sharegpt,
    "alpaca": conversations.alpaca,
    "dolly": conversations.instruction_response,
    "instruction_response": conversations.instruction_response,
    "question_answer": conversations.question_answer,
    "prompt_completion": conversations.prompt_completion,
    "prompt": prompts.prompt,
    "preference": preferences.preference,
    "kto": preferences.kto,
    "text": conversations.text,
    "tokenized": read_tokens,
}


def to_example(row: Row, form: str, shape: ColumnNames = STANDARD_NAMES) -> Example:
    """The row as what `form` makes of it.

    Raises:
        DataError: the row does not have this form, or shows more than text; file and line are named.
    """
    named = rename_columns(row, shape)
    for key, cell in named.value.items():
        if cell and is_media(key, cell) and form not in ("text", "tokenized"):  # text is whole without a picture
            alone = f"To train on its text alone: data.columns = {toml_value({key: ''})}."
            raise row.error(f"it has {key}: only text can be trained on", hint=alone)
    try:
        return READERS[form](named, shape)
    except DataError as error:
        absent = missing_columns(row.value, shape)
        if error.hint or not absent:
            raise
        raise DataError(error.message, hint=absent[0]) from error
