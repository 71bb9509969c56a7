"""Conversations, completions and texts out of rows of the common forms."""

import re
from typing import Any

from ..files.raw_rows import Row, kind_of_value
from ..files.streams import kind_of
from .column_names import ColumnNames, nearest_name_hint
from .examples import Chat, Completion, Message, Text
from .line_wrapping import unwrap_lines
from .turns import read_list, read_tools, read_turns, turns_or_text

NOT_TEXT = {
    "NaN": 'It is what pandas writes for an empty cell: frame.fillna("") before it is written.',
    "number": 'Write it as text: "42", not 42.',
    "boolean": 'Write it as text: "yes", not true.',
    "list": "Write it as one text, its parts joined as the model shall say them.",
    "object": "Write the text in it into a column of its own.",
}
"""What to do about a cell of this kind where text is read."""
BELOW = ("context", "input")  # columns that may hold more of what is asked
Turns = list[tuple[Message, bool]]  # turns, each with whether it is trained on if the assistant says it


def read_string(row: Row, key: str, *, default: str | None = None) -> str:
    value = default if row.value.get(key) is None else row.value[key]
    if value is None:
        meant = nearest_name_hint(key, [name for name in row.value if name != key])
        null = "It is null: write its text, or delete the row." if key in row.value else ""
        raise row.error(f"{key!r} is missing", hint=meant or null)
    if not isinstance(value, str):
        kind = kind_of_value(value)
        raise row.error(f"{key!r} is not a string{row.unlike(key) or f' ({kind})'}", hint=NOT_TEXT[kind])
    return value


def system_text(row: Row) -> str:
    """What the row says of the system, beside its turns; empty where nothing is said."""
    return read_string(row, "system", default="") or read_string(row, "system_prompt", default="")


def system_turn(row: Row) -> Turns:
    content = system_text(row)
    return [({"role": "system", "content": content}, True)] if content else []


def question_turns(row: Row, question: str, own: str | None = None) -> Turns:
    """Alpaca and its kin: perhaps turns before, then a question; below it what more is asked, first the form's `own`.

    Columns that the form does not name itself may hold something else than text: then they are not read.
    """
    more = [read_string(row, own, default="")] if own else []
    if question != "prompt":  # which is whole as it is
        more += [text for name in BELOW if name not in (own, question) and isinstance(text := row.value.get(name), str)]
    user: Message = {"role": "user", "content": "\n\n".join([read_string(row, question), *filter(None, more)])}
    return [*system_turn(row), *_history(row), (user, True)]


def _history(row: Row) -> Turns:
    """Earlier turns of the alpaca form: a list of [question, answer]. They are trained on too."""
    said: Turns = []
    for number, pair in enumerate(read_list(row, "history") or [], start=1):
        if not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(text, str) for text in pair):
            raise row.error(f"turn {number} of 'history' is no [question, answer]")
        said += [({"role": "user", "content": pair[0]}, True), ({"role": "assistant", "content": pair[1]}, True)]
    return said


def _with_answer(row: Row, before: Turns, answer: str) -> Chat:
    return make_chat(row, [*before, ({"role": "assistant", "content": read_string(row, answer)}, True)])


def make_chat(row: Row, said: Turns) -> Chat:
    """The turns and the row's tools."""
    tools = read_tools(row)
    if tools and said and _names_all(tools, said[0][0]):
        tools = None  # as hermes-function-calling has it: the template would write them once more
    untrained = {n for n, (message, trained) in enumerate(said) if message["role"] == "assistant" and not trained}
    return Chat([message for message, _ in said], tools, frozenset(untrained))


def _names_all(tools: list[Any], first: Message) -> bool:
    """Whether the system turn names each of the tools already, in quotation marks as code does."""
    text = first.get("content") if first["role"] in ("system", "developer") else None
    functions = [tool.get("function") if isinstance(tool, dict) else None for tool in tools]
    names = [function.get("name") if isinstance(function, dict) else None for function in functions]
    return isinstance(text, str) and all(
        name and re.search(rf"([\"'`]){re.escape(str(name))}\1", text) for name in names
    )


def untrained_turns(said: Turns) -> Turns:
    """The same turns, none of them trained on."""
    return [(message, False) for message, _ in said]


def conversation_turns(row: Row, key: str, shape: ColumnNames) -> Turns:
    """The turns under a key, and before them what the row says of the system."""
    said = read_turns(row, key, shape)
    return said if said[0][0]["role"] == "system" else [*system_turn(row), *said]


def alpaca(row: Row, shape: ColumnNames) -> Chat:
    return _with_answer(row, question_turns(row, "instruction", "input"), "output")


def instruction_response(row: Row, shape: ColumnNames) -> Chat:
    return _with_answer(row, question_turns(row, "instruction", "context"), "response")


def question_answer(row: Row, shape: ColumnNames) -> Chat:
    return _with_answer(row, question_turns(row, "question"), "answer")


def messages(row: Row, shape: ColumnNames) -> Chat:
    return make_chat(row, conversation_turns(row, "messages", shape))


def sharegpt(row: Row, shape: ColumnNames) -> Chat:
    return make_chat(row, conversation_turns(row, "conversations", shape))


def prompt_completion(row: Row, shape: ColumnNames) -> Chat | Completion:
    prompt, completion = turns_or_text(row, "prompt", shape), turns_or_text(row, "completion", shape)
    if prompt is not None or completion is not None or system_text(row):  # only a conversation has a place for it
        before = question_turns(row, "prompt") if prompt is None else conversation_turns(row, "prompt", shape)
        if completion is None:
            return _with_answer(row, untrained_turns(before), "completion")  # answers in the prompt are not trained on
        return make_chat(row, untrained_turns(before) + read_turns(row, "completion", shape))
    return Completion(read_string(row, "prompt"), read_string(row, "completion"))


def text(row: Row, shape: ColumnNames) -> Text:
    read = read_string(row, "text")
    return Text(*unwrap_lines(read)) if kind_of(row.path) == ".txt" else Text(read)
