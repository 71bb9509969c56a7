"""A conversation as text with the spans that are learned: the assistant's turns, each with the token that ends it."""

import re
from dataclasses import dataclass
from typing import Any

from jinja2 import TemplateError
from transformers import PreTrainedTokenizerBase
from transformers.utils.chat_template_utils import render_jinja_template

from ftui.engine.data.formats import Chat, Message

Span = tuple[int, int]
GENERATION = re.compile(r"\{%-?\s*generation\s*-?%\}")


@dataclass(frozen=True)
class Rendered:
    """Text of one sequence and the character spans that are learned. `ends` = the last one ends with a stop token.

    A conversation in which the assistant says nothing has no spans.
    """

    text: str
    spans: tuple[Span, ...]
    ends: bool


class Unrenderable(Exception):
    """The chat template refuses this conversation, or its assistant turns cannot be found in what it makes of it."""


def render(tokenizer: PreTrainedTokenizerBase, chat: Chat, stops: frozenset[str]) -> list[Rendered]:
    """The conversation through the tokenizer's chat template.

    One sequence where the template only appends as the conversation grows; else (templates that rewrite earlier turns,
    as those that drop old reasoning do) one sequence per assistant turn, each just as the model will see it.

    Raises:
        Unrenderable: see there.
    """
    template = tokenizer.get_chat_template()
    try:
        if GENERATION.search(template):
            return [_marked(tokenizer, template, chat, stops)]
        return _by_prefixes(tokenizer, chat, stops)
    except (TemplateError, TypeError, ValueError, AttributeError, LookupError) as error:  # whatever its code may raise
        raise Unrenderable(f"the chat template refuses it: {error}") from error


def _marked(tokenizer: PreTrainedTokenizerBase, template: str, chat: Chat, stops: frozenset[str]) -> Rendered:
    """The template marks the assistant's turns itself (`{% generation %}`)."""
    rendered: Any = render_jinja_template
    texts, spans = rendered(
        conversations=[chat.messages], tools=chat.tools, chat_template=template,
        return_assistant_tokens_mask=True, **tokenizer.special_tokens_map,
    )  # fmt: skip
    kept = tuple(_to_the_stop(texts[0], span, stops) for span in spans[0] if span[1] > span[0])
    ends = not kept or texts[0][: kept[-1][1]].rstrip().endswith(tuple(stops))
    return Rendered(texts[0], kept, ends)


def _to_the_stop(text: str, span: Span, stops: frozenset[str]) -> Span:
    """Templates that close `{% generation %}` before the stop token would never teach the earlier turns to end."""
    start, end = span
    return start, end + max((len(stop) for stop in stops if text.startswith(stop, end)), default=0)


def _by_prefixes(tokenizer: PreTrainedTokenizerBase, chat: Chat, stops: frozenset[str]) -> list[Rendered]:
    """A turn is what the template adds between "the assistant speaks now" and the conversation with that turn."""

    def text(messages: list[Message], **options: Any) -> str:
        rendered = tokenizer.apply_chat_template(messages, tools=chat.tools, tokenize=False, **options)
        assert isinstance(rendered, str)
        return rendered

    turns: list[Rendered] = []
    for index, message in enumerate(chat.messages):
        if message["role"] != "assistant":
            continue
        through = text(chat.messages[: index + 1])
        before = text(chat.messages[:index], add_generation_prompt=True) if index else ""
        if not through.startswith(before):
            raise Unrenderable("the chat template changes what comes before an assistant's turn")
        turns.append(_turn(through, len(before), stops))
    whole = text(chat.messages)
    if not turns:
        return [Rendered(whole, (), ends=True)]
    if all(whole.startswith(turn.text) for turn in turns):
        return [Rendered(whole, tuple(turn.spans[0] for turn in turns), turns[-1].ends)]
    return turns


def _turn(through: str, start: int, stops: frozenset[str]) -> Rendered:
    """The span ends with the stop token: white space that a template puts after it is nobody's answer."""
    stripped = through.rstrip()
    ends = len(stripped) > start and stripped.endswith(tuple(stops))
    return Rendered(through, ((start, len(stripped) if ends else len(through)),), ends)
