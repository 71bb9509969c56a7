"""Prompts without an answer: the model gives it. All other columns of such rows are for whoever judges it."""

from ..files.raw_rows import Row
from .column_names import ColumnNames
from .conversations import conversation_turns, make_chat, question_turns, read_string, system_text, untrained_turns
from .examples import Chat, Text
from .turns import turns_or_text

ASKED = "prompt"


def prompt(row: Row, shape: ColumnNames) -> Chat | Text:
    """Text, which is continued as it stands, or turns, which are answered by the assistant."""
    if turns_or_text(row, ASKED, shape) is not None:
        turns = conversation_turns(row, ASKED, shape)
    elif system_text(row):
        turns = question_turns(row, ASKED)
    else:
        return Text(read_string(row, ASKED))
    if turns[-1][0]["role"] == "assistant":
        raise row.error(
            "the assistant has the last word in 'prompt': there is nothing to answer",
            hint="Leave its last turn out; a reference answer belongs in a column of its own.",
        )
    return make_chat(row, untrained_turns(turns))
