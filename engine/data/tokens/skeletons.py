"""Conversations written without their template: what it puts between turns is seen once for each order of roles.

That holds where the template only copies what is said. To see whether it does, it is given texts that tell of every
look at them, and that no escaping leaves as they are.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Any

from jinja2 import nodes
from transformers import PreTrainedTokenizerBase

from ..forms.examples import Chat, Message
from .chat_template import RenderedText, render
from .template_fit import TemplateRefusal
from .transformers_private import compile_template

Roles = tuple[str, ...]
Place = tuple[int, int]
PLAIN = {"role", "content"}
MOST_SHAPES = 256
LONGEST = 64  # turns
_ROLES = {"system", "user", "assistant", "tool", "developer"}


@dataclass
class _Looks:
    """What a template has done with the texts it was given."""

    were_read: bool = False
    were_stripped: bool = False


class _Watched(str):
    """A text that tells of every look at it, and at what it is made a part of."""

    looks: _Looks

    @classmethod
    def of(cls, text: str, looks: _Looks) -> "_Watched":
        made = cls(text)
        made.looks = looks
        return made

    def __add__(self, other: str) -> str:
        return self.of(str.__add__(self, other), self.looks)

    def __radd__(self, other: str) -> str:
        return self.of(str.__add__(other, self), self.looks)

    def __str__(self) -> str:
        return self


def _watch(name: str) -> Callable[..., Any]:
    plain = getattr(str, name)

    def look(self: _Watched, *positional: Any, **named: Any) -> Any:
        if name in ("strip", "lstrip", "rstrip") and positional in ((), (None,)):
            self.looks.were_stripped = True
            return self.of(plain(self), self.looks)
        self.looks.were_read = True
        return plain(self, *positional, **named)

    return look


_OF_OBJECTS = {name for name in dir(object) if name not in ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__")}
for _name in set(dir(str)) - (_OF_OBJECTS - {"__hash__", "__format__"}) - {"__add__"}:
    setattr(_Watched, _name, _watch(_name))
_Watched.__bool__ = _watch("__len__")  # type: ignore[attr-defined]
_LOSE_TRACK = (nodes.Concat, nodes.Macro, nodes.AssignBlock, nodes.FilterBlock, nodes.Block, nodes.Include)
_FILTERS = {"join", "safe", "format", "xmlattr"}
"""What makes a plain text of one that is watched."""


@lru_cache(maxsize=8)
def _keeps_track(template: str) -> bool:
    """Whether all that a template does with texts is seen by those that are watched."""
    tree = compile_template(template).environment.parse(template)
    blocks = tree.find_all(nodes.CallBlock)
    return (
        next(tree.find_all(_LOSE_TRACK), None) is None
        and all(isinstance(block.call.node, nodes.ExtensionAttribute) for block in blocks)  # {% generation %}
        and not any(one.name in _FILTERS for one in tree.find_all(nodes.Filter))
    )


@dataclass(frozen=True)
class _Skeleton:
    """`literals` stand around what is said, one more than that; `spans` begin and end in them: (which, character)."""

    literals: tuple[str, ...]
    spans: tuple[tuple[Place, Place], ...]
    ends: bool
    strips: bool

    def fill(self, said: Sequence[str]) -> RenderedText | None:
        """The conversation; `None` where the template may write it otherwise."""
        if self.strips and any(text != text.strip() for text in said):
            return None
        begins, at = [0], 0
        for literal, text in zip(self.literals, said, strict=False):
            at += len(literal) + len(text)
            begins.append(at)
        text = "".join(chain.from_iterable(zip(self.literals, said, strict=False))) + self.literals[-1]
        spans = tuple((begins[one] + start, begins[other] + end) for (one, start), (other, end) in self.spans)
        return RenderedText(text, spans, self.ends)


class Skeletons:
    """What a tokenizer's template makes of plain conversations; `finish` is done to what it renders."""

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, stops: frozenset[str], loss_on: str,
        has_marks: Callable[[str], object], finish: Callable[[RenderedText], RenderedText],
    ) -> None:  # fmt: skip
        self._tokenizer, self._stops, self._loss_on = tokenizer, stops, loss_on
        self._has_marks, self._finish = has_marks, finish
        self._by_roles: dict[Roles, _Skeleton | None] = {}

    def write(self, chat: Chat) -> RenderedText | None:
        """The conversation as `render` gives it; `None` where it has to be rendered.

        That is where anything but texts is said, nothing, or what the template or the end of a turn could take for its
        own: marks, thoughts, white space that may be taken away.
        """
        if chat.tools or chat.untrained or not all(map(_is_plain, chat.messages)):
            return None
        said = [message["content"] for message in chat.messages]
        if not all(said) or any(map(self._is_special, said)):
            return None
        roles = tuple(message["role"] for message in chat.messages)
        if roles not in self._by_roles:
            if "assistant" not in roles or len(self._by_roles) >= MOST_SHAPES or len(roles) > LONGEST:
                return None
            self._by_roles[roles] = self._prove(roles, chat)
        skeleton = self._by_roles[roles]
        return None if skeleton is None else skeleton.fill(said)

    def _is_special(self, text: str) -> bool:
        """Whether the template, or who looks for the end of a turn in what it made, may take some of it for its own."""
        return "</think>" in text or self._has_marks(text) is not None or any(stop in text for stop in self._stops)

    def _prove(self, roles: Roles, chat: Chat) -> _Skeleton | None:
        """That of these roles, if the template only copies what is said; tried on a conversation."""
        if not _keeps_track(self._tokenizer.get_chat_template()) or "user" not in roles[: roles.index("assistant")]:
            return None
        try:
            skeleton = self._look(roles)
            turns = [self._finish(turn) for turn in render(self._tokenizer, chat, self._stops, self._loss_on)]
        except TemplateRefusal:
            return None
        written = skeleton and skeleton.fill([message["content"] for message in chat.messages])
        return skeleton if written is None or turns == [written] else None

    def _look(self, roles: Roles) -> _Skeleton | None:
        looks = _Looks()
        said = [f"\u00e9Z{number}\\\"'<&>\n\t{{{{%}}}}\u3042z{number}q" for number in range(len(roles))]
        messages: list[Message] = [
            {"role": role, "content": _Watched.of(text, looks)} for role, text in zip(roles, said, strict=True)
        ]
        turns = render(self._tokenizer, Chat(messages), self._stops, self._loss_on, is_plain=True)
        if looks.were_read or len(turns) != 1 or any(turns[0].text.count(text) != 1 for text in said):
            return None
        return _cut(self._finish(turns[0]), said, strips=looks.were_stripped)


def _is_plain(message: Message) -> bool:
    return message.keys() == PLAIN and message["role"] in _ROLES and type(message["content"]) is str


def _cut(rendered: RenderedText, said: Sequence[str], *, strips: bool) -> _Skeleton | None:
    """What stands around the texts; `None` where they change places, or a span begins or ends within one."""
    literals: list[str] = []
    behind: list[int] = []
    rest = rendered.text
    for text in said:
        literal, there, rest = rest.partition(text)
        if not there:
            return None
        behind.append((behind[-1] if behind else 0) + len(literal) + len(text))
        literals.append(literal)
    literals.append(rest)
    begins = [0, *behind]

    def place(at: int) -> Place | None:
        places = ((n, at - begin) for n, begin in enumerate(begins))
        return next(((n, inside) for n, inside in places if 0 <= inside <= len(literals[n])), None)

    spans = [(place(start), place(end)) for start, end in rendered.spans]
    kept = tuple((one, other) for one, other in spans if one is not None and other is not None)
    is_end_copied = not rest.strip()  # what ends it may be what is said
    return None if len(kept) < len(spans) or is_end_copied else _Skeleton(tuple(literals), kept, rendered.ends, strips)
