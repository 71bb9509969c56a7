"""Prompts with the answers of each side, and in which words two answers differ."""

import re
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher
from functools import lru_cache

import msgspec

from ftui.launch.prompt_file import PromptLine
from ftui.launch.transcript import Exchange

Word = tuple[str, bool]
"""A word or the end of a line, and whether the other side has another one there."""


class Asked(msgspec.Struct):
    """A prompt. `answers`: what each side has said (so far, where `is_asked`); `cut`: it was cut off; `problem`: why
    nobody has answered."""

    prompt: str
    system: str | None = None
    sides: Sequence[str] = ()
    answers: Sequence[str] = ()
    cut: Sequence[bool] = ()
    is_asked: bool = False
    problem: str = ""

    def take(self, exchange: Exchange) -> None:
        """It is answered."""
        self.sides = [answer.of for answer in exchange.answers]
        self.answers = [answer.text.strip() for answer in exchange.answers]
        self.cut = [not answer.is_complete for answer in exchange.answers]
        self.is_asked = False

    def forget(self) -> None:
        """It was not answered to the end."""
        self.answers, self.cut, self.is_asked = (), (), False

    @property
    def is_answered(self) -> bool:
        return bool(self.answers) and not self.is_asked

    @property
    def differs(self) -> bool | None:
        """`None` where there are no two answers yet."""
        return len(set(self.answers)) > 1 if self.is_answered and len(self.answers) > 1 else None


def make_list(lines: Iterable[PromptLine | Exchange]) -> list[Asked]:
    """Of the lines of a file."""
    found = []
    for line in lines:
        found.append(Asked(line.prompt, line.system))
        if isinstance(line, Exchange):
            found[-1].take(line)
    return found


@lru_cache(maxsize=64)  # the screen draws them again with each key
def compare_words(first: str, second: str) -> tuple[list[Word], list[Word]]:
    """Both texts in words, those marked that the other has not in their place."""
    words, others = (re.findall(r"\n|[^\s]+", text) for text in (first, second))
    marks, other_marks = [True] * len(words), [True] * len(others)
    for at, other_at, length in SequenceMatcher(None, words, others).get_matching_blocks():
        marks[at : at + length] = other_marks[other_at : other_at + length] = [False] * length
    return list(zip(words, marks, strict=True)), list(zip(others, other_marks, strict=True))
