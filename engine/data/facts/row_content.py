"""What a row says, whatever its form: prompt, answers and all of it, for facts about rows."""

from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from ..forms.examples import Chat, Completion, Example, JudgedAnswer, Message, Pair, Text, Tokens

_encoder = msgspec.json.Encoder(enc_hook=str)
_UNANSWERED_ROLES = ("system", "developer")


@dataclass(frozen=True)
class RowContent:
    """`answers` are what the model is to say; `text` is all that is said, without what the system says.

    `content` (bytes) is the same for two rows only if they say the same in the same roles, whatever their form;
    `prompt` is that of what stands before the last answer, empty where nothing does. `words` and `question` are these
    two in small letters, with single spaces, and without what the system says.

    Where answers are compared, `unwanted` are the rejected ones or those judged bad, and `chosen` and `rejected` are
    the `content` of either side: what is asked and the answer to it; empty for a side that is not there.
    """

    answers: list[str]
    text: str
    content: bytes
    prompt: bytes = b""
    words: bytes = b""
    question: bytes = b""
    unwanted: tuple[str, ...] = ()
    chosen: bytes = b""
    rejected: bytes = b""


def row_content(example: Example, *, compares: bool = False) -> RowContent:
    """Of a pair the better answer, of a bad one none, but where a stage `compares` them: then both sides are told."""
    match example:
        case Pair(chosen, rejected) if compares:
            its, other = row_content(chosen), row_content(rejected)
            text, content = "\n".join([its.text, *other.answers]), its.content + other.content
            return RowContent(
                its.answers, text, content, its.prompt, its.words + other.words, its.question,
                tuple(other.answers), its.content, other.content,
            )  # fmt: skip
        case Chat():
            return _of_chat(example)
        case Completion(prompt, completion):
            question_turns: list[Message] = [{"role": "user", "content": prompt}] if prompt else []
            return _of_chat(Chat([*question_turns, {"role": "assistant", "content": completion}]))
        case Text(text):
            return RowContent([text], text, text.encode(), words=_plain(text).encode())
        case Pair(chosen):
            return row_content(chosen)
        case JudgedAnswer(answer, good=verdict):
            its, word = row_content(answer), bytes([verdict])
            wanted, unwanted = (its.answers, []) if verdict else ([], its.answers)
            sides = (its.content, b"") if verdict else (b"", its.content)
            return RowContent(
                wanted, its.text, its.content + word, its.prompt, its.words + word, its.question,
                *((tuple(unwanted), *sides) if compares else ()),
            )  # fmt: skip
        case Tokens(input_ids, targets):
            content = np.asarray(input_ids).tobytes() + np.packbits(targets).tobytes()
            return RowContent([], "", content, words=content)


def _of_chat(chat: Chat) -> RowContent:
    heard = [message for message in chat.messages if message.get("role") not in _UNANSWERED_ROLES]
    turns = [_turn(message) for message in chat.messages]
    words = [[message.get("role"), _plain(_text(message))] for message in heard]
    before, before_words = turns[: _last_answer(turns)], words[: _last_answer(words)]
    return RowContent(
        [
            _text(message)
            for number, message in enumerate(chat.messages)
            if message.get("role") == "assistant" and number not in chat.untrained
        ],
        "\n".join(map(_text, heard)),
        _encoder.encode([turns, chat.tools, sorted(chat.untrained)]),
        _encoder.encode([before, chat.tools]) if before else b"",
        _encoder.encode([words, chat.tools]),
        _encoder.encode([before_words, chat.tools]) if before_words else b"",
    )


def is_asked_alike(one: Chat | Completion, other: Chat | Completion) -> bool:
    """Whether the same stands before the first turn that is compared, in both."""
    if isinstance(one, Completion) or isinstance(other, Completion):
        return isinstance(one, Completion) and isinstance(other, Completion) and one.prompt == other.prompt
    first, second = _before_answer(one), _before_answer(other)
    are_same = first == second or [*map(_turn, first)] == [*map(_turn, second)]
    return are_same and one.tools == other.tools


def prompt_text(answer: Chat | Completion) -> str:
    """What stands before the first turn that is compared."""
    return answer.prompt if isinstance(answer, Completion) else "\n".join(map(_text, _before_answer(answer)))


def _before_answer(chat: Chat) -> list[Message]:
    turns, untrained = chat.messages, chat.untrained
    spoken = (n for n, one in enumerate(turns) if one.get("role") == "assistant" and n not in untrained)
    return turns[: next(spoken, len(turns))]


def _last_answer(turns: list[list[Any]]) -> int:
    """Its number; that of the turns where there is none."""
    answers = [number for number, turn in enumerate(turns) if turn[0] == "assistant"]
    return answers[-1] if answers else len(turns)


def _turn(message: Message) -> list[Any]:
    """Who says what. Numbers, times and the like that stand beside it say nothing, nor do the ids of calls."""
    content = message.get("content")
    return [
        message.get("role"), message.get("name"), content.strip() if isinstance(content, str) else content,
        message.get("reasoning_content"), _calls(message),
    ]  # fmt: skip


def _calls(message: Message) -> list[Any]:
    return [call.get("function", call) if isinstance(call, dict) else call for call in message.get("tool_calls") or []]


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())


def _text(message: Message) -> str:
    """What stands in a turn: its text, else the calls in it."""
    content = message.get("content")
    if isinstance(content, str) and content.strip():
        return content
    calls = _calls(message)
    return _encoder.encode(calls).decode() if calls else str(message.get("reasoning_content") or "")
