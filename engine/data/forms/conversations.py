"""Conversations, completions and texts out of rows of the common forms."""

import re
from typing import Any

from ..files.raw_rows import Row
from ..files.streams import kind_of
from .column_names import Shape
from .examples import Chat, Completion, Message, Text
from .line_wrapping import unwrapped
from .turns import listed, tools_of, turns_in, turns_under

BELOW = ("context", "input")  # columns that may hold more of what is asked
Said = list[tuple[Message, bool]]  # turns, each with whether it is learned if the assistant says it


def string(row: Row, key: str, *, default: str | None = None) -> str:
    value = default if row.value.get(key) is None else row.value[key]
    if not isinstance(value, str):
        raise row.error(f"{key!r} is {'missing' if value is None else 'not a string' + row.unlike(key)}")
    return value


def system_of(row: Row) -> str:
    """What the row says of the system, beside its turns; empty where nothing is said."""
    return string(row, "system", default="") or string(row, "system_prompt", default="")


def system_turn(row: Row) -> Said:
    content = system_of(row)
    return [({"role": "system", "content": content}, True)] if content else []


def asked(row: Row, question: str, own: str | None = None) -> Said:
    """Alpaca and its kin: perhaps turns before, then a question; below it what more is asked, first the form's `own`.

    Columns that the form does not name itself may hold something else than text: then they are not read.
    """
    more = [string(row, own, default="")] if own else []
    if question != "prompt":  # which is whole as it is
        more += [text for name in BELOW if name != own and isinstance(text := row.value.get(name), str)]
    user: Message = {"role": "user", "content": "\n\n".join([string(row, question), *filter(None, more)])}
    return [*system_turn(row), *_history(row), (user, True)]


def _history(row: Row) -> Said:
    """Earlier turns of the alpaca form: a list of [question, answer]. They are learned too."""
    said: Said = []
    for number, pair in enumerate(listed(row, "history") or [], start=1):
        if not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(text, str) for text in pair):
            raise row.error(f"turn {number} of 'history' is no [question, answer]")
        said += [({"role": "user", "content": pair[0]}, True), ({"role": "assistant", "content": pair[1]}, True)]
    return said


def _answered(row: Row, before: Said, answer: str) -> Chat:
    return chat(row, [*before, ({"role": "assistant", "content": string(row, answer)}, True)])


def chat(row: Row, said: Said) -> Chat:
    """The turns and the row's tools."""
    tools = tools_of(row)
    if tools and said and _are_told(tools, said[0][0]):
        tools = None  # as hermes-function-calling has it: the template would write them once more
    unlearned = {n for n, (message, learned) in enumerate(said) if message["role"] == "assistant" and not learned}
    return Chat([message for message, _ in said], tools, frozenset(unlearned))


def _are_told(tools: list[Any], first: Message) -> bool:
    """Whether the system turn names each of the tools already, in quotation marks as code does."""
    text = first.get("content") if first["role"] in ("system", "developer") else None
    functions = [tool.get("function") if isinstance(tool, dict) else None for tool in tools]
    names = [function.get("name") if isinstance(function, dict) else None for function in functions]
    return isinstance(text, str) and all(
        name and re.search(rf"([\"'`]){re.escape(str(name))}\1", text) for name in names
    )


def given(said: Said) -> Said:
    """The same turns, none of them learned."""
    return [(message, False) for message, _ in said]


def conversation(row: Row, key: str, shape: Shape) -> Said:
    """The turns under a key, and before them what the row says of the system."""
    said = turns_in(row, key, shape)
    return said if said[0][0]["role"] == "system" else [*system_turn(row), *said]


def alpaca(row: Row, shape: Shape) -> Chat:
    return _answered(row, asked(row, "instruction", "input"), "output")


def instruction_response(row: Row, shape: Shape) -> Chat:
    return _answered(row, asked(row, "instruction", "context"), "response")


def question_answer(row: Row, shape: Shape) -> Chat:
    return _answered(row, asked(row, "question"), "answer")


def messages(row: Row, shape: Shape) -> Chat:
    return chat(row, conversation(row, "messages", shape))


def sharegpt(row: Row, shape: Shape) -> Chat:
    return chat(row, conversation(row, "conversations", shape))


def prompt_completion(row: Row, shape: Shape) -> Chat | Completion:
    prompt, completion = turns_under(row, "prompt", shape), turns_under(row, "completion", shape)
    if prompt is not None and completion is not None:  # the answers in the prompt are given, not learned
        return chat(row, given(conversation(row, "prompt", shape)) + turns_in(row, "completion", shape))
    if prompt is None and completion is None and system_of(row):  # only a conversation has a place for it
        return _answered(row, asked(row, "prompt"), "completion")
    return Completion(string(row, "prompt"), string(row, "completion"))


def text(row: Row, shape: Shape) -> Text:
    read = string(row, "text")
    return Text(*unwrapped(read)) if kind_of(row.path) == ".txt" else Text(read)
