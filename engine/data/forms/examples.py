"""What a row is turned into, whatever form it came in."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

import numpy as np

Message = dict[str, Any]


@dataclass(frozen=True)
class Chat:
    """A conversation; the assistant's turns are trained on, but for the `untrained` ones (their numbers, from 0).

    `tools` goes to the chat template as it is.
    """

    messages: list[Message]
    tools: list[Any] | None = None
    untrained: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Completion:
    """A prompt and what follows it; the completion is trained on."""

    prompt: str
    completion: str


@dataclass(frozen=True)
class Text:
    """Plain text; every token is trained on. `num_joined` ends of lines were taken out of it (see line_wrapping.py)."""

    text: str
    num_joined: int = 0


@dataclass(frozen=True)
class Tokens:
    """Token ids (int32) and whether each is trained on (bool): a row that somebody else has tokenised.

    `is_bare` = its attention mask has told what is padding, and that is gone.
    """

    input_ids: np.ndarray = field(compare=False)
    targets: np.ndarray = field(compare=False)
    is_bare: bool = field(default=False, compare=False)


@dataclass(frozen=True)
class Pair:
    """Two answers to the same, of which the first is better. `sft` trains on that one.

    `margin`: by how much it is better, in whatever the row measures that; 0 where it does not say.
    """

    chosen: Chat | Completion
    rejected: Chat | Completion
    margin: float = field(default=0.0, kw_only=True)


@dataclass(frozen=True)
class JudgedAnswer:
    """An answer and the verdict on it. `sft` trains on the good ones."""

    answer: Chat | Completion
    good: bool


TrainedPart = Chat | Completion | Text | Tokens
Example = TrainedPart | Pair | JudgedAnswer


def trained_part(example: Example) -> TrainedPart | None:
    """What `sft` trains on of it; `None` for an answer that was found bad."""
    if isinstance(example, Pair):
        return example.chosen
    if isinstance(example, JudgedAnswer):
        return example.answer if example.good else None
    return example


def labelled_part(example: Example, label: int) -> TrainedPart | None:
    """What a sequence with this label (see `Sequence.label`) was made of."""
    match example:
        case Pair(rejected=rejected) if label < 0:
            return rejected
        case JudgedAnswer(answer) if label:
            return answer
    return trained_part(example)


def texts_of(example: Example) -> Iterator[str]:
    """All that is said in it, one turn after the other (of a pair, both answers)."""
    match example:
        case Chat(messages):
            yield from (str(message["content"]) for message in messages if message.get("content"))
        case Completion(prompt, completion):
            yield from (prompt, completion)
        case Text(text):
            yield text
        case Pair(chosen, rejected):
            yield from texts_of(chosen)
            yield from texts_of(rejected)
        case JudgedAnswer(answer):
            yield from texts_of(answer)


def shared_start(one: str, other: str) -> str:
    """What both texts begin with."""
    return one[: sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))]
