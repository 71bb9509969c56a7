"""A conversation as text with its trained spans: the assistant's turns, each with the token that ends it."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any

from jinja2 import TemplateError
from transformers import PreTrainedTokenizerBase

from ..forms.examples import Chat, Message, shared_start
from .template_fit import TemplateRefusal, fit_messages
from .transformers_private import compile_template, plain_messages, render_with_spans

Span = tuple[int, int]
GENERATION = re.compile(r"\{%-?\s*generation\s*-?%\}")
REFUSALS = (TemplateError, TypeError, ValueError, AttributeError, LookupError)  # whatever a template's code may raise
DATE = datetime(2024, 7, 26)  # the one Llama's templates fall back to; whoever changes it raises FORM in cache.py


@dataclass(frozen=True)
class RenderedText:
    """Text of one sequence and its trained character spans. `ends` = the last one ends with a stop token.

    A conversation in which the assistant says nothing has no spans. `label` is that of its `Sequence`.
    """

    text: str
    spans: tuple[Span, ...]
    ends: bool
    label: int = 0


def render(
    tokenizer: PreTrainedTokenizerBase, chat: Chat, stops: frozenset[str], loss_on: str = "assistant",
    *, is_plain: bool = False,
) -> list[RenderedText]:  # fmt: skip
    """The conversation through the tokenizer's chat template; `loss_on` as in `Encoder`.

    `is_plain` hands its messages on as they are: texts alone, which the template has a place for.

    One sequence where the template only appends as the conversation grows; else (templates that rewrite earlier turns,
    as those that drop old reasoning do) one sequence per assistant turn, each just as the model will see it.

    Raises:
        TemplateRefusal: see there.
    """
    with template_errors():
        writer, messages = _prepare(tokenizer, chat, is_plain=is_plain)
        if loss_on == "everything":
            return [_render_whole(writer.text(messages), stops)]
        trained_messages = _trained_messages(chat, loss_on)
        if GENERATION.search(writer.template):
            return [_render_marked(writer, messages, stops, trained_messages)]
        return _render_by_prefixes(writer, messages, stops, trained_messages)


def render_text(
    template: str, special: dict[str, Any], messages: list[Message], tools: list[Any] | None, **options: bool
) -> str:
    """What a template makes of a conversation. Raises `TemplateRefusal`."""
    with template_errors():
        fix_date(template)
        return _Writer(template, special, tools).text(messages, **options)


def render_prompt(tokenizer: PreTrainedTokenizerBase, chat: Chat) -> str:
    """The conversation up to where the assistant begins to speak. Raises `TemplateRefusal`."""
    with template_errors():
        writer, messages = _prepare(tokenizer, chat)
        return writer.text(messages, add_generation_prompt=True)


def locate_turns(tokenizer: PreTrainedTokenizerBase, chat: Chat, text: str) -> list[tuple[str, int, int]]:
    """Who says which characters of a rendered text: (role, start, end), one after the other.

    What the template puts before a turn is the turn's. Turns that it cannot write without the next one, or has changed
    since, are counted to that one.
    """
    with template_errors():
        writer, messages = _prepare(tokenizer, chat)
    turns: list[tuple[str, int, int]] = []
    for number, message in enumerate(messages, start=1):
        start = turns[-1][2] if turns else 0
        try:
            written = writer.text(messages[:number])
        except REFUSALS:
            continue
        if len(written) > start and text.startswith(written.rstrip()):
            turns.append((message["role"], start, min(len(written), len(text))))
    return turns[:-1] + [(role, start, len(text)) for role, start, _ in turns[-1:]]


@contextmanager
def template_errors() -> Iterator[None]:
    """Whatever a template's code may raise is a refusal."""
    try:
        yield
    except REFUSALS as error:
        raise TemplateRefusal(f"the chat template refuses it: {error}") from error


def _prepare(
    tokenizer: PreTrainedTokenizerBase, chat: Chat, *, is_plain: bool = False
) -> tuple["_Writer", list[Message]]:
    template = tokenizer.get_chat_template(tools=chat.tools)
    fix_date(template)
    writer = _Writer(template, tokenizer.special_tokens_map, chat.tools)
    messages = chat.messages
    if not is_plain:
        messages = fit_messages(writer.text, template, chat.tools, plain_messages(messages))
    if any(not isinstance(tool, dict) for tool in chat.tools or ()):
        raise ValueError("Tools should be objects, the schema of each")
    if not _writes_answers(template):
        words = "the chat template leaves out what is said: it wants content in parts, as models that see do"
        raise TemplateRefusal(words, "Name another one in data.chat_template.")
    return writer, messages


@lru_cache(maxsize=8)
def _writes_answers(template: str) -> bool:
    """Whether it writes text that an assistant says."""
    said = [{"role": "user", "content": "Who?"}, {"role": "assistant", "content": "Me."}]
    try:
        return "Me." in compile_template(template).render(
            messages=said, tools=None, documents=None, add_generation_prompt=False
        )
    except REFUSALS:  # it is the conversation that matters
        return True


def fix_date(template: str) -> None:
    """Let this template see `DATE`, in this process, when it asks for the time (Llama 3.x and gpt-oss print the day).

    Else the same rows would be other tokens tomorrow: a run resumed then would not be the same run, and tokens in the
    cache would be of a day nobody knows. The price: the model learns a single date; when it is used it is told today's.
    """
    if "strftime_now" in template:
        # `render_jinja_template` hands no functions on; a compiled template is kept, and has globals of its own.
        compile_template(template).globals["strftime_now"] = DATE.strftime


@lru_cache(maxsize=8)
def _globals(template: Any) -> dict[str, Any]:
    return dict(template.globals)


@dataclass(frozen=True)
class _Writer:
    """What `apply_chat_template` does, without what it does again for every call: the rows are plain values of JSON."""

    template: str
    special_tokens: dict[str, str]
    tools: list[Any] | None

    def text(self, messages: list[Message], *, add_generation_prompt: bool = False) -> str:
        template = compile_template(self.template)
        values = _globals(template) | self._values(messages, add_generation_prompt)
        # What `template.render` does, which merges its globals anew each time: that takes as long as writing the text.
        return "".join(template.root_render_func(template.new_context(values, shared=True)))

    def marked(self, messages: list[Message]) -> tuple[str, list[Span]]:
        """With the spans between `{% generation %}` and its end, those that are empty left out."""
        text, spans = render_with_spans(compile_template(self.template), self._values(messages, False))
        return text, [span for span in spans if span[1] > span[0]]

    def _values(self, messages: list[Message], add_generation_prompt: bool) -> dict[str, Any]:
        values = {"messages": messages, "tools": self.tools, "documents": None}
        return self.special_tokens | values | {"add_generation_prompt": add_generation_prompt}


def _trained_messages(chat: Chat, loss_on: str) -> list[int]:
    """The numbers of the messages that are trained on."""
    said = [n for n, message in enumerate(chat.messages) if message["role"] == "assistant"]
    return [n for n in (said[-1:] if loss_on == "last" else said) if n not in chat.untrained]


def _render_whole(text: str, stops: frozenset[str]) -> RenderedText:
    return RenderedText(text, ((0, len(text)),), text.rstrip().endswith(tuple(stops)))


def _render_marked(
    writer: _Writer, messages: list[Message], stops: frozenset[str], trained_messages: list[int]
) -> RenderedText:
    """The template marks the assistant's turns itself (`{% generation %}`)."""
    text, spans = writer.marked(messages)
    said = [number for number, message in enumerate(messages) if message["role"] == "assistant"]
    if trained_messages != said:  # a turn's marks are those that come with it
        before = {n: len(writer.marked(messages[:n])[1]) if n else 0 for n in trained_messages}
        through = {n: len(writer.marked(messages[: n + 1])[1]) for n in trained_messages}
        spans = [span for n in trained_messages for span in spans[before[n] : through[n]]]
    trained_spans = tuple(_include_stop(text, span, stops) for span in spans)
    ends = not trained_spans or text[: trained_spans[-1][1]].rstrip().endswith(tuple(stops))
    return RenderedText(text, trained_spans, ends)


def _include_stop(text: str, span: Span, stops: frozenset[str]) -> Span:
    """Templates that close `{% generation %}` before the stop token would never teach the earlier turns to end."""
    start, end = span
    return start, end + max((len(stop) for stop in stops if text.startswith(stop, end)), default=0)


def _render_by_prefixes(
    writer: _Writer, messages: list[Message], stops: frozenset[str], trained_messages: list[int]
) -> list[RenderedText]:
    """A turn is what the template adds between "the assistant speaks now" and the conversation with that turn.

    Two renderings for each turn that is trained on, and one of the whole where that ends with another's turn.
    """
    turns: list[RenderedText] = []
    for index in trained_messages:
        through = writer.text(messages[: index + 1])
        turns.append(_turn(through, _answer_start(writer, messages[:index], through), stops))
    at_the_end = bool(trained_messages) and trained_messages[-1] == len(messages) - 1
    whole = turns[-1].text if at_the_end else writer.text(messages)
    if not turns:
        return [RenderedText(whole, (), ends=True)]
    if all(whole.startswith(turn.text[: turn.spans[0][1]]) for turn in turns):
        return [RenderedText(whole, tuple(turn.spans[0] for turn in turns), turns[-1].ends)]
    return turns


def _answer_start(writer: _Writer, before: list[Message], through: str) -> int:
    """Where the assistant's words begin in the conversation `through` them."""
    if not before:
        return _first_answer_start(writer, through)
    opened = writer.text(before, add_generation_prompt=True)
    return len(opened) if through.startswith(opened) else _probe_answer_start(writer, before, through)


def _first_answer_start(writer: _Writer, through: str) -> int:
    """The same where nobody has spoken yet: few templates can write nothing, so it is seen how they begin an answer."""
    question: Message = {"role": "user", "content": "?"}
    opening = writer.text([question], add_generation_prompt=True).removeprefix(writer.text([question]))
    if opening.strip() and opening in through:  # before it may stand an introduction, or a system turn by default
        return through.index(opening) + len(opening)
    return _probe_answer_start(writer, [], through)


def _probe_answer_start(writer: _Writer, before: list[Message], through: str) -> int:
    """Where the assistant's words begin, if the template has it begin otherwise when it is asked to speak.

    (Those of models that think begin a thought for it, which is not there in the turn that is written out.)
    """
    probes = [writer.text([*before, {"role": "assistant", "content": said}]) for said in ("yes", "no")]
    head = shared_start(*probes)
    if through.startswith(head):
        if not before or head.startswith(writer.text(before)):
            return len(head)
        opening = _opening(writer, before) if before[1:] else ""
        if opening.strip() and opening in head:
            return head.rindex(opening) + len(opening)
    raise TemplateRefusal("the chat template changes what comes before an assistant's turn")


def _opening(writer: _Writer, before: list[Message]) -> str:
    """What the template adds with the last message and "the assistant speaks now".

    It stands where it did if the answer changes earlier turns (gpt-oss's drops what was thought before a call).
    """
    opened = writer.text(before, add_generation_prompt=True)
    return opened.removeprefix(shared_start(opened, writer.text(before[:-1])))


def _turn(through: str, start: int, stops: frozenset[str]) -> RenderedText:
    """The span ends with the first token that stops: white space or another such token after it is nobody's answer."""
    end, rest = 0, through.rstrip()
    while len(rest) > start and (stop := next((stop for stop in stops if rest.endswith(stop)), "")):
        end, rest = len(rest), rest.removesuffix(stop).rstrip()
    return RenderedText(through, ((start, end or len(through)),), ends=bool(end))
