"""The forms rows come in, each turned into one of three examples: a chat, a prompt with its completion, or a text."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ftui.engine.data.sources import Row

Message = dict[str, Any]


@dataclass(frozen=True)
class Chat:
    """A conversation; the assistant's turns are learned. `tools` goes to the chat template as it is."""

    messages: list[Message]
    tools: list[Any] | None = None


@dataclass(frozen=True)
class Completion:
    """A prompt and what follows it; the completion is learned."""

    prompt: str
    completion: str


@dataclass(frozen=True)
class Text:
    """Plain text; every token is learned."""

    text: str


Example = Chat | Completion | Text

SHAREGPT_ROLES = {
    "system": "system",
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "assistant": "assistant",
    "chatgpt": "assistant",
    "bing": "assistant",
    "tool": "tool",
    "observation": "tool",
}
ROLES = {"system", "developer", "user", "assistant", "tool"}


def _string(row: Row, key: str, *, default: str | None = None) -> str:
    value = default if row.value.get(key) is None else row.value[key]
    if not isinstance(value, str):
        raise row.error(f"{key!r} is {'missing' if value is None else 'not a string'}")
    return value


def _system(row: Row) -> list[Message]:
    content = _string(row, "system", default="")
    return [{"role": "system", "content": content}] if content else []


def _alpaca(row: Row) -> Example:
    instruction, extra = _string(row, "instruction"), _string(row, "input", default="")
    messages = _system(row)
    messages.append({"role": "user", "content": f"{instruction}\n\n{extra}" if extra else instruction})
    messages.append({"role": "assistant", "content": _string(row, "output")})
    return Chat(messages)


def _messages(row: Row) -> Example:
    return Chat(_checked(row, row.value.get("messages"), "messages"), row.value.get("tools"))


def _checked(row: Row, messages: Any, key: str) -> list[Message]:
    if not isinstance(messages, list) or not messages:
        raise row.error(f"{key!r} is not a list of messages")
    for number, message in enumerate(messages, start=1):
        if not isinstance(message, dict) or message.get("role") not in ROLES:
            raise row.error(f"message {number} of {key!r} has no role of {', '.join(sorted(ROLES))}")
        if not isinstance(message.get("content"), str) and not message.get("tool_calls"):
            raise row.error(f"message {number} of {key!r} has no content")
    return messages


def _sharegpt(row: Row) -> Example:
    turns = row.value.get("conversations")
    if not isinstance(turns, list) or not turns:
        raise row.error("'conversations' is not a list of turns")
    messages = _system(row)
    for number, turn in enumerate(turns, start=1):
        role = SHAREGPT_ROLES.get(str(turn.get("from"))) if isinstance(turn, dict) else None
        if role is None or not isinstance(turn.get("value"), str):
            raise row.error(f"turn {number} has no known 'from' or no 'value'")
        messages.append({"role": role, "content": turn["value"]})
    return Chat(messages)


def _prompt_completion(row: Row) -> Example:
    prompt, completion = row.value.get("prompt"), row.value.get("completion")
    if isinstance(prompt, list) and isinstance(completion, list):
        messages = [*_checked(row, prompt, "prompt"), *_checked(row, completion, "completion")]
        return Chat(messages, row.value.get("tools"))
    return Completion(_string(row, "prompt"), _string(row, "completion"))


def _text(row: Row) -> Example:
    return Text(_string(row, "text"))


READERS: dict[str, Callable[[Row], Example]] = {
    "messages": _messages,
    "sharegpt": _sharegpt,
    "alpaca": _alpaca,
    "prompt_completion": _prompt_completion,
    "text": _text,
}
_SIGNS = {
    "messages": {"messages"},
    "sharegpt": {"conversations"},
    "alpaca": {"instruction", "output"},
    "prompt_completion": {"prompt", "completion"},
    "text": {"text"},
}


def detect(row: Row) -> str:
    """The format of a file, from the keys of its first row.

    Raises:
        DataError: no known form has these keys.
    """
    for name, keys in _SIGNS.items():
        if keys <= row.value.keys():
            return name
    forms = "; ".join(f"{name}: {', '.join(sorted(keys))}" for name, keys in _SIGNS.items())
    keys_here = ", ".join(map(repr, row.value)) or "(none)"
    raise row.error(f"no known form has the keys {keys_here}", hint=f"Known: {forms}.")


def to_example(row: Row, form: str) -> Example:
    """Raises `DataError` naming file and line when the row does not have this form."""
    return READERS[form](row)
