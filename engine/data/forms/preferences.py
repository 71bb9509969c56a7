"""Answers that were compared or judged: pairs with the better one first (DPO's rows), verdicts (KTO's)."""

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile
from unicodedata import east_asian_width

from ftui.profile.sections.row_forms import SIGNS

from ..files.raw_rows import Row
from . import conversations as forms
from .column_names import MINUS, ColumnNames, match_form
from .conversations import (
    Turns,
    conversation_turns,
    make_chat,
    question_turns,
    read_string,
    system_text,
    system_turn,
    untrained_turns,
)
from .examples import Chat, Completion, JudgedAnswer, Pair, shared_start
from .turns import read_turn, read_turns, turns_or_text

LARGEST = 3e38  # of float32, which margins are kept in
_SPEAKER = re.compile(r"(?:\A|\n\n)(Human|Assistant):")
JUDGED = {
    "messages": forms.messages,
    "sharegpt": forms.sharegpt,
    "alpaca": forms.alpaca,
    "prompt_completion": forms.prompt_completion,
}
"""The forms that may have a verdict beside the answer."""


def preference(row: Row, shape: ColumnNames) -> Pair:
    """The prompt stands in a column of its own (as text or turns, or as in another form), or begins both answers."""
    return Pair(*_answers(row, shape), margin=read_margin(row, shape))


def _answers(row: Row, shape: ColumnNames) -> Sequence[Chat | Completion]:
    """The chosen answer and the rejected one, each with what comes before it."""
    answers = [turns_or_text(row, key, shape) or row.value.get(key) for key in ("chosen", "rejected")]
    if all(isinstance(answer, str) for answer in answers) and not _prompt_column(row):
        talks = [_split_speakers(str(answer)) for answer in answers]
        if all(talks):
            return [_last_answer(row, said) for said in talks]
        return _split_shared_prompt(row, *map(str, answers))
    if _prompt_column(row) == "prompt" and turns_or_text(row, "prompt", shape) is None and not system_text(row):
        prompt = read_string(row, "prompt")
        if all(isinstance(answer, str) for answer in answers):
            return [Completion(prompt, str(answer)) for answer in answers]
    said = [_answer(row, key, shape) for key in ("chosen", "rejected")]
    before = _prompt(row, said, shape)
    if before is None:  # both begin with it
        said = [one if one[0][0]["role"] == "system" else [*system_turn(row), *one] for one in said]
        alike = sum(1 for _ in takewhile(lambda pair: pair[0][0] == pair[1][0], zip(*said, strict=False)))
        num_given = min(alike, *(len(one) - 1 for one in said))
        return [make_chat(row, untrained_turns(one[:num_given]) + one[num_given:]) for one in said]
    return [make_chat(row, untrained_turns(before) + one) for one in said]


def read_margin(row: Row, shape: ColumnNames) -> float:
    """By how much the chosen answer is better: a column, or the difference of two that `data.columns` names.

    0 where the row does not say.
    """
    first, _, second = shape.columns.get("margin", "").partition(MINUS)
    if second and "margin" not in row.value:
        return _read_number(row, first) - _read_number(row, second)
    return 0.0 if row.value.get("margin") is None else _read_number(row, "margin")


def _read_number(row: Row, key: str) -> float:
    """A finite number of float32, perhaps as text (from a table of text)."""
    value = row.value.get(key)
    try:
        number = math.nan if isinstance(value, bool) or value is None else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not abs(number) < LARGEST:
        what = "missing" if value is None else f"no number ({value!r:.40})"
        raise row.error(f"{key!r} is {what}", hint='data.columns = {margin = ""} reads no margin.')
    return number


def _prompt_column(row: Row) -> str | None:
    known = ("prompt", "conversations", "messages", "instruction", "question")
    return next((key for key in known if row.value.get(key) is not None), None)


def _prompt(row: Row, answers: list[Turns], shape: ColumnNames) -> Turns | None:
    """What the row says before the answers; `None` where they say it themselves."""
    key = _prompt_column(row)
    if key is None or answers[0][0][0]["role"] in ("system", "user", "developer"):
        return None
    if key in ("conversations", "messages"):
        return conversation_turns(row, key, shape)
    if key == "prompt" and turns_or_text(row, key, shape) is not None:
        return conversation_turns(row, key, shape)
    return question_turns(row, key, "input" if key == "instruction" else None)


def _answer(row: Row, key: str, shape: ColumnNames) -> Turns:
    """An answer as text, as one message or as a list of them."""
    value = row.value.get(key)
    if isinstance(value, dict):
        return [read_turn(row, value, repr(key), shape)]
    if turns_or_text(row, key, shape):
        return read_turns(row, key, shape)
    return [({"role": "assistant", "content": read_string(row, key)}, True)]


def _split_speakers(text: str) -> Turns:
    """The turns of a conversation in one text, as hh-rlhf has it; none of any other text."""
    before, *parts = _SPEAKER.split(text)
    if before.strip() or "Assistant" not in parts[::2]:
        return []
    roles = {"Human": "user", "Assistant": "assistant"}
    return [
        ({"role": roles[who], "content": words.strip()}, True)
        for who, words in zip(parts[::2], parts[1::2], strict=True)
    ]


def _last_answer(row: Row, said: Turns) -> Chat:
    if said[-1][0]["role"] != "assistant":
        raise row.error("the assistant does not have the last word, so there is nothing that was judged")
    return make_chat(row, [*system_turn(row), *untrained_turns(said[:-1]), said[-1]])


def _split_shared_prompt(row: Row, chosen: str, rejected: str) -> tuple[Completion, Completion]:
    """Two texts that begin alike: the prompt is what they share, up to a whole word (of wide scripts: a character)."""
    shared = shared_start(chosen, rejected)
    ends = (n for n in range(len(shared), 0, -1) if shared[n - 1].isspace() or east_asian_width(shared[n - 1]) in "WF")
    whole = next(ends, 0)
    if not whole:
        raise row.error("'chosen' and 'rejected' do not begin alike, and there is no prompt")
    return Completion(chosen[:whole], chosen[whole:]), Completion(rejected[:whole], rejected[whole:])


def kto(row: Row, shape: ColumnNames) -> JudgedAnswer:
    good = read_verdict(row)
    if good is None:
        number = next((one for one in map(row.value.get, ("kto_tag", "label")) if one in (0, 1, -1)), None)
        hint = "" if number is None else f"Write the verdict as true or false: {number} may be the number of a class."
        raise row.error("neither 'label' nor 'kto_tag' is true or false", hint=hint)
    answer = JUDGED[match_form(row, {form: SIGNS[form] for form in JUDGED}) or "prompt_completion"](row, shape)
    if isinstance(answer, Completion):
        return JudgedAnswer(answer, good)
    if answer.messages[-1]["role"] != "assistant":
        raise row.error("the assistant does not have the last word, so there is nothing that was judged")
    earlier = {n for n, message in enumerate(answer.messages[:-1]) if message["role"] == "assistant"}
    return JudgedAnswer(replace(answer, untrained=answer.untrained | earlier), good)  # only the last turn was judged


def read_verdict(row: Row) -> bool | None:
    """What is said of the answer, in a boolean or in the word for it (from a table of text)."""
    for value in (row.value.get("kto_tag"), row.value.get("label")):
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value.lower() in ("true", "false"):
            return value.lower() == "true"
    return None
