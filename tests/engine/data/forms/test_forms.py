"""Rows of every form, good and bad; names that the profile gives to columns and speakers; which form a file has."""

import json
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from ftui.engine.data.files.raw_rows import Row
from ftui.engine.data.forms.detect_form import form_of_row
from ftui.engine.data.forms.examples import texts_of, trained_part
from ftui.engine.data.forms.formats import (
    READERS,
    Chat,
    Completion,
    Example,
    JudgedAnswer,
    Pair,
    Text,
    Tokens,
    to_example,
)
from ftui.errors import DataError
from ftui.profile.sections.data import Form

USER, ASSISTANT = {"role": "user", "content": "why?"}, {"role": "assistant", "content": "so"}
CALLED = {"name": "f", "arguments": {"a": 1}}
CALL = {"type": "function", "function": CALLED}
SAID_CALL = {"name": "f", "arguments": '{"a": 1}'}  # as OpenAI writes it
PARTS = [
    {"type": "reasoning", "value": "hm"},
    {"type": "text", "text": "so"},
    {"type": "tool_call", "value": json.dumps(CALLED)},
]


SYSTEM, WHO, ME = ({"role": r, "content": c} for r, c in (("system", "be"), ("user", "who?"), ("assistant", "me")))
WRONG = {"role": "assistant", "content": "no"}
HUMAN, GPT, BAD_GPT = ({"from": f, "value": v} for f, v in (("human", "why?"), ("gpt", "so"), ("gpt", "no")))
TALK = Chat([WHO, ME, USER, ASSISTANT], untrained=frozenset({1}))
WORSE = Chat([WHO, ME, USER, WRONG], untrained=frozenset({1}))
BETTER_ONE = Pair(Chat([USER, ASSISTANT]), Chat([USER, WRONG]))
MORE: list[tuple[str, dict[str, Any], Example]] = [
    # a system turn inside; speakers of other data sets; what OpenAI's first form called a function
    ("sharegpt", {"conversations": [{"from": "system", "value": "be"}, HUMAN, GPT]}, Chat([SYSTEM, USER, ASSISTANT])),
    ("sharegpt", {"conversations": [USER, ASSISTANT]}, Chat([USER, ASSISTANT])),
    ("messages", {"messages": [HUMAN, GPT]}, Chat([USER, ASSISTANT])),
    ("messages", {"messages": [{"role": "Human ", "content": "why?"}, ASSISTANT]}, Chat([USER, ASSISTANT])),
    (
        "messages",
        {"messages": [{"role": "prompter", "content": "why?"}, {"role": "model", "content": "so"}]},
        Chat([USER, ASSISTANT]),
    ),
    (
        "messages",
        {
            "messages": [
                USER,
                {"role": "assistant", "content": None, "function_call": SAID_CALL},
                {"role": "function", "name": "f", "content": "3"},
            ]
        },
        Chat(
            [
                USER,
                {"role": "assistant", "content": None, "tool_calls": [CALL]},
                {"role": "tool", "name": "f", "content": "3"},
            ]
        ),
    ),
    (
        "sharegpt",
        {"conversations": [HUMAN, {"from": "function_call", "value": f"<think>hm</think>\n{json.dumps(CALLED)}"}]},
        Chat([USER, {"role": "assistant", "content": None, "tool_calls": [CALL], "reasoning_content": "hm"}]),
    ),
    # pairs: the prompt as text, turns, in alpaca's columns, in both answers; answers as text, message, list
    (
        "preference",
        {"prompt": "why?", "chosen": "so", "rejected": "no"},
        Pair(Completion("why?", "so"), Completion("why?", "no")),
    ),
    (
        "preference",
        {"prompt": "why?", "system": "be", "chosen": "so", "rejected": "no"},
        Pair(Chat([SYSTEM, USER, ASSISTANT]), Chat([SYSTEM, USER, WRONG])),
    ),
    ("preference", {"prompt": [WHO, ME, USER], "chosen": [ASSISTANT], "rejected": [WRONG]}, Pair(TALK, WORSE)),
    ("preference", {"prompt": "why?", "chosen": [USER, ASSISTANT], "rejected": [USER, WRONG]}, BETTER_ONE),
    ("preference", {"prompt": "why?", "chosen": [ASSISTANT], "rejected": [WRONG]}, BETTER_ONE),
    ("preference", {"chosen": [WHO, ME, USER, ASSISTANT], "rejected": [WHO, ME, USER, WRONG]}, Pair(TALK, WORSE)),
    ("preference", {"conversations": [HUMAN], "chosen": GPT, "rejected": BAD_GPT}, BETTER_ONE),
    ("preference", {"instruction": "why?", "input": "", "chosen": "so", "rejected": "no"}, BETTER_ONE),
    ("preference", {"question": "why?", "chosen": "so", "rejected": "no"}, BETTER_ONE),
    (
        "preference",
        {"chosen": "Human: why? Assistant: so so", "rejected": "Human: why? Assistant: so, no"},
        Pair(Completion("Human: why? Assistant: ", "so so"), Completion("Human: why? Assistant: ", "so, no")),
    ),
    ("kto", {"prompt": "why?", "completion": "so", "label": True}, JudgedAnswer(Completion("why?", "so"), True)),
    ("kto", {"prompt": "why?", "completion": "no", "label": "False"}, JudgedAnswer(Completion("why?", "no"), False)),
    ("kto", {"messages": [WHO, ME, USER, ASSISTANT], "kto_tag": True}, JudgedAnswer(TALK, True)),
    ("kto", {"instruction": "why?", "output": "so", "kto_tag": False}, JudgedAnswer(Chat([USER, ASSISTANT]), False)),
    ("prompt", {"prompt": "why?", "answer": "so"}, Text("why?")),
    ("prompt", {"prompt": [USER], "answer": "so"}, Chat([USER])),
    ("tokenized", {"input_ids": [1, 2]}, Tokens(np.array([1, 2]), np.array([True, True]))),
]
MORE_FAULTS = [
    ("preference", {"prompt": "why?", "chosen": "so"}, "'rejected' is missing"),
    ("preference", {"chosen": "so", "rejected": "no"}, "'chosen' and 'rejected' do not begin alike"),
    ("preference", {"prompt": "why?", "chosen": 3, "rejected": "no"}, "'chosen' is not a string"),
    ("kto", {"prompt": "why?", "completion": "so", "label": "meh"}, "'label' is 'meh', which is no verdict"),
    ("kto", {"messages": [ASSISTANT, USER], "label": True}, "the assistant does not have the last word"),
    ("kto", {"prompt": "why?", "label": True}, "'completion' is missing"),
    ("prompt", {"question": "why?"}, "'prompt' is missing"),
    ("prompt", {"prompt": [USER, ASSISTANT]}, "the assistant has the last word in 'prompt'"),
    ("tokenized", {"input_ids": "1 2"}, "'input_ids' is not a list of whole numbers"),
    ("tokenized", {"input_ids": []}, "'input_ids' is not a list of token ids"),
    ("tokenized", {"input_ids": [1, 2.0]}, "'input_ids' has 2.0 at position 1: no whole number"),
    ("tokenized", {"input_ids": [1, 2**40]}, "'input_ids' has one: no whole number of 32 bits"),
    ("tokenized", {"input_ids": [1, -5]}, "'input_ids' has -5 at position 1"),
    ("tokenized", {"input_ids": [1, 2], "labels": [1]}, "'labels' has 1 values, 'input_ids' has 2"),
    ("tokenized", {"input_ids": [1, 2, 3], "labels": [-100, 3, 1]}, "'labels' has 3 at position 1, where"),
    (
        "messages",
        {"messages": [{"content": "so"}]},
        "message 1 of 'messages' has no 'role' or 'from' to say who speaks",
    ),
    (
        "messages",
        {"messages": [USER, {"role": "tool", "content": {"a": 1}}]},
        "message 2 of 'messages' has content that is no text",
    ),
]


def row(**value: Any) -> Row:
    return Row(Path("rows.jsonl"), 7, value)


@pytest.mark.parametrize(
    ("form", "value", "expected"),
    [
        ("alpaca", {"instruction": "why?", "output": "so"}, Chat([USER, ASSISTANT])),
        ("alpaca", {"instruction": "why?", "input": "", "output": "so"}, Chat([USER, ASSISTANT])),
        ("alpaca", {"instruction": "why?", "input": None, "output": "so"}, Chat([USER, ASSISTANT])),
        (
            "alpaca",
            {"instruction": "why?", "input": "here", "output": "so", "system": "be"},
            Chat([{"role": "system", "content": "be"}, {"role": "user", "content": "why?\n\nhere"}, ASSISTANT]),
        ),
        ("messages", {"messages": [USER, ASSISTANT]}, Chat([USER, ASSISTANT])),
        ("messages", {"messages": [USER, ASSISTANT], "tools": [{}]}, Chat([USER, ASSISTANT], [{}])),
        (
            "messages",
            {"messages": [USER, {"role": "assistant", "content": None, "tool_calls": [{}]}]},
            Chat([USER, {"role": "assistant", "content": None, "tool_calls": [{}]}]),
        ),
        (
            "sharegpt",
            {"conversations": [{"from": "human", "value": "why?"}, {"from": "gpt", "value": "so"}]},
            Chat([USER, ASSISTANT]),
        ),
        (
            "sharegpt",
            {
                "conversations": [{"from": "user", "value": "why?"}, {"from": "assistant", "value": "so"}],
                "system": "be",
            },
            Chat([{"role": "system", "content": "be"}, USER, ASSISTANT]),
        ),
        (
            "alpaca",
            {"instruction": "why?", "output": "so", "history": [["who?", "me"]]},
            Chat([{"role": "user", "content": "who?"}, {"role": "assistant", "content": "me"}, USER, ASSISTANT]),
        ),
        (
            "dolly",
            {"instruction": "why?", "context": "here", "response": "so", "category": "open_qa"},
            Chat([{"role": "user", "content": "why?\n\nhere"}, ASSISTANT]),
        ),
        ("instruction_response", {"instruction": "why?", "response": "so"}, Chat([USER, ASSISTANT])),
        ("question_answer", {"question": "why?", "answer": "so"}, Chat([USER, ASSISTANT])),
        ("messages", {"messages": json.dumps([USER, ASSISTANT]), "tools": ""}, Chat([USER, ASSISTANT])),
        (
            "messages",
            {"messages": [USER, ASSISTANT | {"weight": 0}], "system": "be", "tools": '[{"name": "f"}]'},
            Chat(
                [{"role": "system", "content": "be"}, USER, ASSISTANT],
                [{"type": "function", "function": {"name": "f"}}],
                frozenset({2}),
            ),
        ),
        (
            "messages",
            {"messages": [USER, {"role": "assistant", "tool_calls": [CALL | {"function": SAID_CALL}]}]},
            Chat([USER, {"role": "assistant", "tool_calls": [CALL]}]),
        ),
        (
            "messages",
            {"messages": [USER, {"role": "assistant", "content": PARTS}]},
            Chat([USER, {"role": "assistant", "content": "so", "reasoning_content": "hm", "tool_calls": [CALL]}]),
        ),
        (
            "sharegpt",
            {
                "conversations": [
                    {"from": "function_call", "value": json.dumps(CALLED)},
                    {"from": "observation", "value": "3"},
                ]
            },
            Chat([{"role": "assistant", "content": None, "tool_calls": [CALL]}, {"role": "tool", "content": "3"}]),
        ),
        ("prompt_completion", {"prompt": "why?", "completion": "so"}, Completion("why?", "so")),
        ("prompt_completion", {"prompt": [USER], "completion": [ASSISTANT]}, Chat([USER, ASSISTANT])),
        ("text", {"text": "so"}, Text("so")),
        *MORE,
    ],
)
def test_every_form(form: str, value: dict[str, Any], expected: Example) -> None:
    assert to_example(row(**value), form) == expected
    assert form_of_row(row(**value)) == (None if form == "prompt" else form)  # the stage says that answers are missing


@pytest.mark.parametrize(
    ("form", "value", "reason"),
    [
        ("alpaca", {"instruction": "why?"}, "'output' is missing"),
        ("alpaca", {"instruction": None, "output": "so"}, "'instruction' is missing"),
        ("alpaca", {"instruction": "why?", "output": 4}, "'output' is not a string"),
        ("alpaca", {"instruction": "why?", "output": "so", "system": 5}, "'system' is not a string"),
        ("messages", {}, "'messages' is not a list of messages"),
        ("messages", {"messages": []}, "'messages' is not a list of messages"),
        ("messages", {"messages": "why?"}, "'messages' is not a list of messages"),
        ("messages", {"messages": [USER, "so"]}, "message 2 of 'messages' is no object with a role and content"),
        (
            "messages",
            {"messages": [{"role": "narrator", "content": "so"}]},
            "message 1 of 'messages' has the role 'narrator', which",
        ),
        ("messages", {"messages": [USER, {"role": "assistant"}]}, "message 2 of 'messages' has no content"),
        ("sharegpt", {"conversations": {}}, "'conversations' is not a list of turns"),
        (
            "sharegpt",
            {"conversations": [{"from": "eve", "value": ""}]},
            "turn 1 of 'conversations' has the role 'eve', which",
        ),
        ("sharegpt", {"conversations": [{"from": "gpt"}]}, "turn 1 of 'conversations' has no content"),
        ("sharegpt", {"conversations": ["so"]}, "message 1 of 'conversations' is no object with a role"),
        ("alpaca", {"instruction": "why?", "output": "so", "history": [["who?"]]}, "turn 1 of 'history' is no"),
        ("dolly", {"instruction": "why?", "context": 3, "response": "so"}, "'context' is not a string"),
        ("instruction_response", {"instruction": "why?", "response": None}, "'response' is missing"),
        ("question_answer", {"question": ["why?"], "answer": "so"}, "'question' is not a string"),
        ("messages", {"messages": "[why?"}, "'messages' is not JSON"),
        ("messages", {"messages": [USER, ASSISTANT], "tools": {"f": 1}}, "'tools' is not a list"),
        (
            "messages",
            {"messages": [USER, ASSISTANT | {"loss_weight": 0.5}]},
            "message 2 of 'messages' has the weight 0.5",
        ),
        (
            "messages",
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
            "message 1 of 'messages' has a part that is no text (image_url): only text can be trained on",
        ),
        (
            "messages",
            {"messages": [USER, {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{a"}}]}]},
            "the arguments of a call in message 2 of 'messages' is not JSON",
        ),
        (
            "messages",
            {"messages": [USER, ASSISTANT], "images": ["a.png"]},
            "it has images: only text can be trained on",
        ),
        (
            "sharegpt",
            {"conversations": [{"from": "function_call", "value": "f(1)"}]},
            "the call in turn 1 of 'conversations' is not JSON",
        ),
        ("prompt_completion", {"prompt": "why?", "completion": None}, "'completion' is missing"),
        ("prompt_completion", {"prompt": "why?", "completion": ASSISTANT}, "'completion' is not a string"),
        (
            "prompt_completion",
            {"prompt": [USER], "completion": ["so"]},
            "message 1 of 'completion' is no object with a role",
        ),
        ("text", {"body": "so"}, "'text' is missing"),
        ("text", {"text": ["so"]}, "'text' is not a string"),
        *MORE_FAULTS,
    ],
)
def test_a_row_of_another_form_is_named(form: str, value: dict[str, Any], reason: str) -> None:
    with pytest.raises(DataError) as caught:
        to_example(row(**value), form)
    assert caught.value.message.startswith(f"rows.jsonl:7: {reason}")
    assert caught.value.message.endswith(".")


@pytest.mark.parametrize(
    ("form", "value", "meant"),
    [
        ("question_answer", {"question": "why?", "anwser": "so"}, "anwser"),
        ("question_answer", {"answer": "so", "qestion": "why?", "id": "1"}, "qestion"),
        ("alpaca", {"instruction": "why?", "output": None, "ouput": "so"}, "ouput"),
        ("prompt_completion", {"prompt": "why?", "Completions": "so"}, "Completions"),
        ("preference", {"prompt": "why?", "chosen": "so", "rejcted": "no"}, "rejcted"),
        ("messages", {"mesages": [USER, ASSISTANT]}, "mesages"),
        ("sharegpt", {"conversation": [{"from": "human", "value": "why?"}]}, "conversation"),
        ("text", {"txt": "so"}, "txt"),
        ("text", {"body": "so"}, ""),
        ("alpaca", {"instruction": "why?", "id": "so"}, ""),
    ],
)
def test_a_misspelt_column_of_one_row_is_suggested(form: str, value: dict[str, Any], meant: str) -> None:
    with pytest.raises(DataError) as caught:
        to_example(row(**value), form)
    assert caught.value.hint == (f"Is {meant!r} meant?" if meant else "")


def test_every_form_has_good_and_bad_rows_here() -> None:
    for test in (test_every_form, test_a_row_of_another_form_is_named):
        (mark,) = test.pytestmark
        assert {case[0] for case in mark.args[1]} == READERS.keys() == set(get_args(Form)) - {"auto"}


@pytest.mark.parametrize(
    ("value", "targets"),
    [
        ({"labels": [-100, -100, 7, 8]}, [7, 8]),
        ({"completion_mask": [0, 1, 1, 0]}, [6, 7]),
        ({"assistant_masks": [0, 0, 0, 1], "attention_mask": [1, 1, 1, 1]}, [8]),
        ({"attention_mask": [0, 1, 1, 1]}, [6, 7, 8]),
        ({"labels": [-100, 6, 7, 8], "attention_mask": [1, 1, 1, 0]}, [6, 7]),
        ({"labels": "[-100, 6, 7, 8]"}, [6, 7, 8]),
    ],
)
def test_tokens_are_trained_on_where_their_row_says_so(value: dict[str, Any], targets: list[int]) -> None:
    tokens = to_example(row(input_ids=[5, 6, 7, 8], **value), "tokenized")
    assert isinstance(tokens, Tokens)
    mask = value.get("attention_mask", [1] * 4)
    assert tokens.input_ids.tolist() == [i for i, kept in zip([5, 6, 7, 8], mask, strict=True) if kept]
    assert tokens.input_ids[tokens.targets].tolist() == targets


def test_shifted_labels_are_told() -> None:
    with pytest.raises(DataError) as caught:
        to_example(row(input_ids=[5, 6, 7, 8], labels=[-100, 7, 8, -100]), "tokenized")
    assert "shifted by one" in caught.value.hint


def test_of_a_pair_the_better_is_trained_and_of_judged_ones_the_good() -> None:
    for form, value, expected in MORE:
        if isinstance(expected, Pair):
            assert trained_part(to_example(row(**value), form)) == expected.chosen
        if isinstance(expected, JudgedAnswer):
            assert trained_part(expected) == (expected.answer if expected.good else None)
    assert list(texts_of(BETTER_ONE)) == ["why?", "so", "why?", "no"]
