"""Answers that were compared or judged: pairs with the better one first (DPO's rows), verdicts (KTO's)."""

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any
from unicodedata import east_asian_width

from ftui.errors import DataError
from ftui.profile.sections.row_forms import SIGNS, fold_name

from ..files.raw_rows import Row
from . import conversations as forms
from .column_names import MINUS, ColumnNames, column_list, match_form, nearest_name_hint
from .conversations import (
    Turns,
    conversation_turns,
    make_chat,
    question_turns,
    read_string,
    system_turn,
    untrained_turns,
)
from .examples import Chat, Completion, JudgedAnswer, Pair, shared_start
from .ranked_answers import with_pair
from .turns import read_turn, read_turns, turns_or_text

LARGEST = 3e38  # of float32, which margins are kept in
_SPEAKER = re.compile(r"(?:\A|\n\n)(Human|Assistant):")
SIDES = ("chosen", "rejected")
OPENING = ("system", "user", "developer")  # who speaks first in a conversation that is whole
JUDGING = ("kto_tag", "label")
GOOD, BAD = ("true", "1", "good", "desirable"), ("false", "0", "bad", "undesirable")
NOT_JUDGED = "there is nothing that was judged"
LAST_WORD = "Let the answer be the last turn, or leave the row out."
NAME_PROMPT = 'Name it: data.columns = {prompt = "NAME"}.'
JUDGED = {
    "messages": forms.messages,
    "sharegpt": forms.sharegpt,
    "alpaca": forms.alpaca,
    "dolly": forms.instruction_response,
    "instruction_response": forms.instruction_response,
    "question_answer": forms.question_answer,
    "prompt_completion": forms.prompt_completion,
}
"""The forms that may have a verdict beside the answer."""


def preference(row: Row, shape: ColumnNames) -> Pair:
    """The prompt stands in a column of its own (as text or turns, or as in another form), or begins both answers.

    Rows with several scored or ranked answers are read, too (ranked_answers.py).
    """
    row = with_pair(_unfold_input(row))
    return Pair(*_answers(row, shape), margin=read_margin(row, shape))


def _unfold_input(row: Row) -> Row:
    """OpenAI has the prompt's messages and tools in a table `input`."""
    asked = row.value.get("input")
    if not isinstance(asked, dict) or "messages" not in asked:
        return row
    return row.with_value({name: cell for name, cell in row.value.items() if name != "input"} | asked)


def _answers(row: Row, shape: ColumnNames) -> Sequence[Chat | Completion]:
    """The chosen answer and the rejected one, each with what comes before it."""
    column, said = _prompt_column(row), [_answer(row, key, shape) for key in SIDES]
    texts = [one for one in said if isinstance(one, str)]
    if len(texts) == len(SIDES) and column is None:
        talks = [_split_speakers(text) for text in texts]
        return [_last_answer(row, one) for one in talks] if all(talks) else _split_shared_prompt(row, *texts)
    if len(texts) == len(SIDES) and column == "prompt" and _is_plain_prompt(row, shape):
        return [Completion(read_string(row, "prompt"), text) for text in texts]
    strips = bool(_asked_by_speakers(row))
    turns = [_as_turns(one.strip() if strips else one) if isinstance(one, str) else one for one in said]
    return _with_prompt(row, column, turns, shape)


def _with_prompt(row: Row, column: str | None, said: list[Turns], shape: ColumnNames) -> list[Chat]:
    """Turns that begin with the prompt are whole; others follow it. What both share at the beginning was not judged."""
    are_whole = [one[0][0]["role"] in OPENING or (column is None and len(one) > 1) for one in said]
    before = [] if all(are_whole) else _prompt(row, column, shape)
    if not any(are_whole):
        num_given, full = len(before), [before + one for one in said]
    else:
        system = _system(row, column, shape)
        whole = [one if one[0][0]["role"] == "system" else [*system, *one] for one in said]
        full = [own if is_whole else before + one for own, one, is_whole in zip(whole, said, are_whole, strict=True)]
        alike = sum(1 for _ in takewhile(lambda pair: pair[0][0] == pair[1][0], zip(*full, strict=False)))
        num_given = min(alike, *(len(one) - 1 for one in full))
    for key, one in zip(SIDES, full, strict=True):
        if one[-1][0]["role"] != "assistant":
            raise row.error(f"the assistant does not have the last word in {key!r}: {NOT_JUDGED}", hint=LAST_WORD)
    return [make_chat(row, untrained_turns(one[:num_given]) + one[num_given:]) for one in full]


def _is_plain_prompt(row: Row, shape: ColumnNames) -> bool:
    """Whether the prompt is text to be continued: no turns, and nothing beside it that only a conversation has."""
    is_chat = any(name in row.value for name in ("system", "system_prompt")) or row.value.get("tools")
    return not is_chat and turns_or_text(row, "prompt", shape) is None and not _asked_by_speakers(row)


def _asked_by_speakers(row: Row) -> Turns:
    """The turns of a prompt that is one text, as hh-rlhf writes them: the last of them waits for an answer."""
    prompt = row.value.get("prompt")
    said = _split_speakers(prompt) if isinstance(prompt, str) else []
    is_open = bool(said) and said[-1][0]["role"] == "assistant" and not said[-1][0]["content"]
    return said[:-1] if is_open else []


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
    known = ("prompt", "conversations", "messages", "instruction", "question", "input")
    return next((key for key in known if row.value.get(key) is not None), None)


def _prompt(row: Row, column: str | None, shape: ColumnNames) -> Turns:
    """What the row says before the answers."""
    if column is None:
        raise row.error("'chosen' and 'rejected' are answers alone, and no column holds their prompt", hint=NAME_PROMPT)
    if column == "prompt" and (asked := _asked_by_speakers(row)):
        return [*system_turn(row), *asked]
    if column in ("conversations", "messages") or (column == "prompt" and turns_or_text(row, column, shape)):
        return conversation_turns(row, column, shape)
    return question_turns(row, column, "input" if column == "instruction" else None)


def _system(row: Row, column: str | None, shape: ColumnNames) -> Turns:
    """What the row says of the system beside conversations that are whole but for it."""
    if column == "prompt" and turns_or_text(row, column, shape):
        first, *_ = conversation_turns(row, column, shape)
        return [first] if first[0]["role"] == "system" else []
    return system_turn(row)


def _answer(row: Row, key: str, shape: ColumnNames) -> Turns | str:
    """An answer as text, as one message or as a list of them."""
    value = row.value.get(key)
    if value is None:
        raise _no_pair_error(row, key)
    if isinstance(value, dict):
        return [read_turn(row, value, repr(key), shape)]
    if value == []:
        raise row.error(f"{key!r} has no turn", hint=LAST_WORD)
    if turns_or_text(row, key, shape):
        return read_turns(row, key, shape)
    return read_string(row, key)


def _as_turns(text: str) -> Turns:
    return [({"role": "assistant", "content": text}, True)]


def _no_pair_error(row: Row, key: str) -> DataError:
    others = [name for name in row.value if name not in SIDES]
    hint = nearest_name_hint(key, others) or 'Name both answers: data.columns = {chosen = "NAME", rejected = "NAME"}.'
    if read_verdict(row) is not None:
        hint = 'Its answer has a verdict: stage = "kto" trains on such rows.'
    there = f"; there are {column_list(row)}" if key not in row.value else ""
    return row.error(f"{key!r} is missing{there}", hint=hint)


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
        raise row.error(f"the assistant does not have the last word: {NOT_JUDGED}", hint=LAST_WORD)
    return make_chat(row, [*system_turn(row), *untrained_turns(said[:-1]), said[-1]])


def _split_shared_prompt(row: Row, chosen: str, rejected: str) -> tuple[Completion, Completion]:
    """Two texts that begin alike: the prompt is what they share, up to a whole word (of wide scripts: a character)."""
    shared = shared_start(chosen, rejected)
    ends = (n for n in range(len(shared), 0, -1) if shared[n - 1].isspace() or east_asian_width(shared[n - 1]) in "WF")
    whole = next(ends, 0)
    if not whole:
        raise row.error("'chosen' and 'rejected' do not begin alike, and there is no prompt", hint=NAME_PROMPT)
    return Completion(chosen[:whole], chosen[whole:]), Completion(rejected[:whole], rejected[whole:])


def kto(row: Row, shape: ColumnNames) -> JudgedAnswer:
    good = read_verdict(row)
    if good is None:
        raise _no_verdict_error(row)
    answer = JUDGED[match_form(row, {form: SIGNS[form] for form in JUDGED}) or "prompt_completion"](row, shape)
    if isinstance(answer, Completion):
        return JudgedAnswer(answer, good)
    if answer.messages[-1]["role"] != "assistant":
        raise row.error(f"the assistant does not have the last word: {NOT_JUDGED}", hint=LAST_WORD)
    earlier = {n for n, message in enumerate(answer.messages[:-1]) if message["role"] == "assistant"}
    return JudgedAnswer(replace(answer, untrained=answer.untrained | earlier), good)  # only the last turn was judged


def _no_verdict_error(row: Row) -> DataError:
    column = next((key for key in JUDGING if row.value.get(key) is not None), None)
    if column is not None:
        known = ", ".join(f"{good} or {bad}" for good, bad in zip(GOOD, BAD, strict=True))
        return row.error(f"{column!r} is {row.value[column]!r:.40}, which is no verdict", hint=f"A verdict is {known}.")
    hint = 'Name its column: data.columns = {label = "NAME"}.'
    return row.error(
        f"no verdict: neither 'label' nor 'kto_tag' says anything; there are {column_list(row)}", hint=hint
    )


def read_verdict(row: Row) -> bool | None:
    """What is said of the answer, in a boolean, in 1 or 0, or in a word (from a table of text); `None` for nothing."""
    for column in JUDGING:
        word = fold_name(str(row.value.get(column))).removesuffix(".0")
        if word in GOOD or word in BAD:
            return word in GOOD
    return None


def is_verdict(value: Any) -> bool:
    """Whether it can be nothing but a verdict. Numbers and words may be labels of another kind, unless `kto` is asked
    for.
    """
    return isinstance(value, bool) or (isinstance(value, str) and value.lower() in ("true", "false"))
