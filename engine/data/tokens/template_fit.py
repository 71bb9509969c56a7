"""A conversation made fit for a chat template: nothing that is said is left out without a word."""

from collections.abc import Callable
from typing import Any

from ..forms.examples import Message

REASONING = ("reasoning_content", "thinking", "reasoning")  # the names transformers knows for it


def reasoning_beside(message: Message) -> str:
    """What stands beside its text."""
    return str(next((message[name] for name in REASONING if message.get(name)), "")).strip()


def reasoning_inside(message: Message) -> str:
    """What stands in it."""
    content = message.get("content")
    if message["role"] != "assistant" or not isinstance(content, str):
        return ""
    before, closed, _ = content.partition("</think>")
    return before.rpartition("<think>")[2].strip() if closed else ""


def with_reasoning(message: Message) -> Message:
    """With all in its text."""
    said = reasoning_beside(message)
    if not said:
        return message
    rest = {name: value for name, value in message.items() if name not in REASONING}
    return rest | {"content": f"<think>\n{said}\n</think>\n\n{message.get('content', '')}"}


Renderer = Callable[[list[Message]], str]
"""What the template makes of messages."""


class TemplateRefusal(Exception):
    """The chat template refuses this conversation, or its assistant turns cannot be found in what it makes of it."""

    def __init__(self, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.hint = hint


def fit_messages(written: Renderer, template: str, tools: list[Any] | None, messages: list[Message]) -> list[Message]:
    """The conversation as this template can show it: without null values, as `apply_chat_template` does it too.

    Reasoning it has no place for stands in the text, between the marks that models write it in.

    Raises:
        TemplateRefusal: it would leave out tools, calls or the last thought without a word.
    """
    messages = [{key: value for key, value in message.items() if value is not None} for message in messages]
    calls = any(message.get("tool_calls") for message in messages)
    for there, name in ((tools, "tools"), (calls, "tool_calls")):
        if there and name not in template:
            words = f"it has {name}, and the chat template has no place for them"
            raise TemplateRefusal(words, 'data.chat_template = "qwen" has one.')
    _refuse_single_calls(written, messages)
    first = next((number for number, message in enumerate(messages) if reasoning_beside(message)), None)
    has_none = first is not None and reasoning_beside(messages[first]) not in written(messages[: first + 1])
    if has_none:
        messages = [with_reasoning(message) for message in messages]
    if has_none or "</think>" in template:
        _refuse_forgetful(written, messages)
    return messages


def _refuse_single_calls(written: Renderer, messages: list[Message]) -> None:
    """Some templates write the first of several calls only (gpt-oss's); Llama's refuses them itself.

    Raises:
        TemplateRefusal: this one does.
    """
    for number, message in enumerate(messages):
        calls = message.get("tool_calls") or []
        if len(calls) > 1:
            alone = message | {"tool_calls": calls[:1]}
            if written([*messages[:number], alone]) == written(messages[: number + 1]):
                words = f"it has {len(calls)} calls at once, and the chat template leaves out all but the first"
                raise TemplateRefusal(words, "Write each into a turn of its own, with its result behind it.")
            return


def _refuse_forgetful(written: Renderer, messages: list[Message]) -> None:
    """Many templates leave out earlier thoughts, some (DeepSeek-R1's) the last one too: nobody would learn to think.

    Raises:
        TemplateRefusal: this one does.
    """
    thoughts = [reasoning_beside(message) or reasoning_inside(message) for message in messages]
    last = max((number for number, one in enumerate(thoughts) if one), default=None)
    if last is not None and thoughts[last] not in written(messages[: last + 1]):
        words = "it has a thought (<think>), and the chat template leaves it out"
        hint = "Let data.chat_template name a .jinja file that keeps it, or take it out of the rows."
        raise TemplateRefusal(words, hint)
