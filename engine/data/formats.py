"""The forms rows come in, each turned into one of three examples: a chat, a prompt with its completion, or a text."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ftui.engine.data.rows import Row
from ftui.engine.data.turns import Message, listed, message_of, sharegpt_message, tools_of
from ftui.profile.row_forms import PAIR, SIGNS

__all__ = ["READERS", "Chat", "Completion", "Example", "Message", "Text", "detect", "to_example"]


@dataclass(frozen=True)
class Chat:
    """A conversation; the assistant's turns are learned, but for the `unlearned` ones (their numbers, from 0).

    `tools` goes to the chat template as it is.
    """

    messages: list[Message]
    tools: list[Any] | None = None
    unlearned: frozenset[int] = frozenset()


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


def _string(row: Row, key: str, *, default: str | None = None) -> str:
    value = default if row.value.get(key) is None else row.value[key]
    if not isinstance(value, str):
        raise row.error(f"{key!r} is {'missing' if value is None else 'not a string'}")
    return value


def _system(row: Row) -> list[Message]:
    content = _string(row, "system", default="")
    return [{"role": "system", "content": content}] if content else []


def _asked(row: Row, question: str, answer: str, extra: str | None = None) -> Example:
    """Alpaca and its kin: a question (what `extra` holds stands below it), an answer, and perhaps turns before."""
    messages = [*_system(row), *_history(row)]
    asked, more = _string(row, question), _string(row, extra, default="") if extra else ""
    messages.append({"role": "user", "content": f"{asked}\n\n{more}" if more else asked})
    messages.append({"role": "assistant", "content": _string(row, answer)})
    return Chat(messages)


def _history(row: Row) -> list[Message]:
    """Earlier turns of the alpaca form: a list of [question, answer]. They are learned too."""
    messages: list[Message] = []
    for number, pair in enumerate(listed(row, "history") or [], start=1):
        if not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(said, str) for said in pair):
            raise row.error(f"turn {number} of 'history' is no [question, answer]")
        messages += [{"role": "user", "content": pair[0]}, {"role": "assistant", "content": pair[1]}]
    return messages


def _alpaca(row: Row) -> Example:
    return _asked(row, "instruction", "output", "input")


def _dolly(row: Row) -> Example:
    return _asked(row, "instruction", "response", "context")


def _instruction_response(row: Row) -> Example:
    return _asked(row, "instruction", "response")


def _question_answer(row: Row) -> Example:
    return _asked(row, "question", "answer")


def _messages(row: Row) -> Example:
    found = _checked(row, "messages")
    return _chat(row, found, [] if found[0][0]["role"] == "system" else _system(row))


def _chat(row: Row, found: list[tuple[Message, bool]], before: list[Message]) -> Chat:
    """The messages that stand `before`, then those `found`, each with whether the assistant's is learned."""
    unlearned = {
        number
        for number, (message, learned) in enumerate(found, start=len(before))
        if message["role"] == "assistant" and not learned
    }
    return Chat([*before, *(message for message, _ in found)], tools_of(row), frozenset(unlearned))


def _checked(row: Row, key: str) -> list[tuple[Message, bool]]:
    """The messages, and whether each would be learned if the assistant said it."""
    messages = listed(row, key)
    if not messages:
        raise row.error(f"{key!r} is not a list of messages")
    return [message_of(row, message, number, key) for number, message in enumerate(messages, start=1)]


def _sharegpt(row: Row) -> Example:
    turns = listed(row, "conversations")
    if not turns:
        raise row.error("'conversations' is not a list of turns")
    return _chat(row, [sharegpt_message(row, turn, n) for n, turn in enumerate(turns, start=1)], _system(row))


def _prompt_completion(row: Row) -> Example:
    prompt, completion = row.value.get("prompt"), row.value.get("completion")
    if isinstance(prompt, list) and isinstance(completion, list):
        asked = [(message, False) for message, _ in _checked(row, "prompt")]  # its answers are given, not learned
        return _chat(row, asked + _checked(row, "completion"), [])
    return Completion(_string(row, "prompt"), _string(row, "completion"))


def _text(row: Row) -> Example:
    return Text(_string(row, "text"))


READERS: dict[str, Callable[[Row], Example]] = {
    "messages": _messages,
    "sharegpt": _sharegpt,
    "alpaca": _alpaca,
    "dolly": _dolly,
    "instruction_response": _instruction_response,
    "question_answer": _question_answer,
    "prompt_completion": _prompt_completion,
    "text": _text,
}
_MEDIA = ("images", "videos", "audios")


def detect(row: Row) -> str:
    """The format of a file, from the keys of its first row.

    Raises:
        DataError: no known form has these keys, or one that `sft` cannot learn from (pairs to choose from, verdicts).
    """
    keys = row.value.keys()
    if keys >= PAIR:
        raise row.error(
            "a preference pair (chosen, rejected), and sft learns from one answer",
            hint="Name the column of the good answers completion or messages to learn from them alone.",
        )
    for name, signs in SIGNS.items():
        if signs <= keys:
            return _unless_judged(row, name)
    forms = "; ".join(f"{name}: {', '.join(sorted(keys))}" for name, keys in SIGNS.items())
    keys_here = ", ".join(map(repr, row.value)) or "(none)"
    raise row.error(f"no known form has the keys {keys_here}", hint=f"Known: {forms}.")


def _unless_judged(row: Row, form: str) -> str:
    """KTO's rows have a verdict beside the answer: learning the bad ones too is hardly what is wanted."""
    verdict = next((key for key in ("label", "kto_tag") if isinstance(row.value.get(key), bool)), None)
    if verdict is None or form not in ("messages", "sharegpt", "prompt_completion"):
        return form
    raise row.error(
        f"an answer with a verdict ({verdict!r}, as KTO has them), and sft would learn the bad ones too",
        hint=f'To learn every row whatever its verdict, set format = "{form}".',
    )


def to_example(row: Row, form: str) -> Example:
    """Raises `DataError` naming file and line when the row does not have this form, or shows more than text."""
    for key in _MEDIA:
        if row.value.get(key):
            raise row.error(f"it has {key}: only text can be learned")
    return READERS[form](row)
