"""Which form a file has, from its first rows; and what the profile may say of names, in columns and of speakers."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from ftui.engine.data.forms.detect_form import detect, detect_form
from ftui.engine.data.forms.formats import Chat, ColumnNames, Completion, Example, JudgedAnswer, Text, to_example
from ftui.errors import DataError
from ftui.profile.sections.row_forms import form_of
from tests.engine.data.forms.test_forms import ASSISTANT, CALL, CALLED, GPT, HUMAN, ME, SYSTEM, USER, WHO, WRONG, row
from tests.support.data_rows import read_rows

SHARED = Path(__file__).parents[5] / "shared"


def test_an_unknown_form_is_named_by_its_keys() -> None:
    with pytest.raises(DataError, match=r"rows\.jsonl:7: no known form has the keys 'asked', 'answer'\.") as e:
        detect(row(asked="why?", answer="so"))
    assert "Which column asks" in e.value.hint and "docs/data.md" in e.value.hint
    with pytest.raises(DataError) as e:
        detect(row(n=1, tags=["a"]))
    assert "is it the right file?" in e.value.hint
    with pytest.raises(DataError) as e:
        detect(row(warum="why?", darum="so"), ColumnNames({"warum": "question"}))
    assert e.value.hint.startswith('It is the other way round: data.columns = {question = "warum"}')
    with pytest.raises(DataError, match=r"the keys \(none\)"):
        detect(row())


ASKED = "Which column asks"
BOTH = ASKED + " and which one answers? data.columns = {"  # two readings, each with what it would train on
LONG = {"role": "assistant", "content": "so " * 9}
THEIRS = [{"speaker": "user", "text": "why?"}, {"speaker": "bot", "text": "so"}]
# name: (a row, what is trained on where it is read at once, or where its hint is obeyed; the hint where it asks)
UNKNOWN: dict[str, tuple[dict[str, Any], Example | str]] = {
    "query and response": ({"id": 1, "query": "why?", "response": "so"}, Chat([USER, ASSISTANT])),
    "input and output": ({"input": "why?", "output": "so"}, Chat([USER, ASSISTANT])),
    "instruction, input and answer": (
        {"instruction": "why?", "input": "here", "answer": "so"},
        Chat([{"role": "user", "content": "why?\n\nhere"}, ASSISTANT]),
    ),
    "the longer one asks": ({"Problem": "why?", "Solution": LONG["content"]}, Chat([USER, LONG])),
    "with a system column": (
        {"system": "be", "user_message": "why?", "assistant_message": "so"}, Chat([SYSTEM, USER, ASSISTANT]),
    ),
    "german": ({"Antwort": "so", "Frage": "why?"}, Chat([USER, ASSISTANT])),
    "a misspelt name": ({"question": "why?", "anwser": "so"}, Chat([USER, ASSISTANT])),
    "another": ({"instrution": "why?", "input": "", "output": "so"}, Chat([USER, ASSISTANT])),
    "a plural": ({"prompt": "why?", "completions": "so"}, Completion("why?", "so")),
    "one text": ({"id": 3, "body": "so it is"}, Text("so it is")),
    "turns": ({"dialogue": [USER, ASSISTANT], "id": "x"}, Chat([USER, ASSISTANT])),
    "turns of ShareGPT": ({"dialog": [HUMAN, GPT]}, Chat([USER, ASSISTANT])),
    "turns as JSON": ({"chat_history": json.dumps([USER, ASSISTANT])}, Chat([USER, ASSISTANT])),
    "turns of other keys": ({"talk": THEIRS, "score": 1}, Chat([USER, ASSISTANT])),
    "inputs and targets": ({"inputs": "why?", "targets": "so", "language": "en"}, Chat([USER, ASSISTANT])),
    "names of two words": ({"User Prompt": "why?", "bot_response": "so"}, Chat([USER, ASSISTANT])),
    "chinese": ({"\u6307\u4ee4": "why?", "\u8f93\u51fa": "so"}, Chat([USER, ASSISTANT])),
    "french": ({"consigne": "why?", "r\u00e9ponse": "so"}, Chat([USER, ASSISTANT])),
    "who asks and who answers in one name": ({"user_response": "why?", "bot_question": "so", "x": "a"}, ASKED),
    "summaries": ({"document": "so it is", "summary": "so"}, BOTH),
    "news": ({"article": "so it is", "highlights": "so", "id": "a"}, BOTH),
    "what is in another language": ({"warum": "why is it?", "darum": "so"}, BOTH),
    "a text and a label": ({"review": "so it is", "sentiment": 1}, ASKED),
    "two answers": ({"question": "why?", "response": "so", "output": "no"}, ASKED),
    "an answer in an object": ({"context": "so", "question": "why?", "answers": {"text": "so"}}, "inside of 'answers'"),
    "a list of whole exchanges": ({"talks": [{"human": "why?", "assistant": "so"}]}, "inside of 'talks'"),
}  # fmt: skip


@pytest.mark.parametrize("name", UNKNOWN)
def test_a_hint_is_obeyed(name: str) -> None:
    """What it proposes trains on the right thing; what cannot be known is asked, and nothing there can be obeyed."""
    value, expected = UNKNOWN[name]
    rows = [row(**value)] * 3
    detected = detect_form(rows)
    assert not detected.form
    proposed = re.search(r"data\.columns = (\{.*?\})", detected.hint)
    if isinstance(expected, str):
        assert expected in detected.hint
        readings = re.findall(r'data\.columns = (\{[^"]*?"\w+".*?\}) trains on "(.*?)"', detected.hint)
        assert len(readings) == 2 * (expected is BOTH)
        for columns, trained in readings:  # obeyed
            read = ColumnNames(tomllib.loads(f"columns = {columns}")["columns"])
            example = to_example(rows[0], detect_form(rows, read).checked().form, read)
            assert isinstance(example, Chat) and example.messages[-1] == {"role": "assistant", "content": trained}
        assert readings or proposed is None or "NAME" in proposed[1]
        return
    assert proposed is not None, detected.hint
    shape = ColumnNames(tomllib.loads(f"columns = {proposed[1]}")["columns"])
    obeyed = detect_form(rows, shape).checked()
    roles = ColumnNames(shape.columns, {"bot": "assistant"})
    assert to_example(rows[0], obeyed.form, roles) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"Instruction": "why?", "Output": "so"}, Chat([USER, ASSISTANT])),
        ({" INSTRUCTION": "why?", "Input ": "", "output": "so"}, Chat([USER, ASSISTANT])),
        ({"Question": "why?", "Answer": "so", "System Prompt": "be"}, Chat([SYSTEM, USER, ASSISTANT])),
        ({"Prompt": "why?", "Completion": "so"}, Completion("why?", "so")),
        ({"TEXT": "so"}, Text("so")),
        ({"Messages": [{"Role": "user", "Content": "why?"}, ASSISTANT]}, Chat([USER, ASSISTANT])),
    ],
)
def test_names_are_compared_without_case_and_space(value: dict[str, Any], expected: Example) -> None:
    detected = detect_form([row(**value)]).checked()
    assert to_example(row(**value), detected.form) == expected
    assert form_of(value) == detected.form
    assert not detected.unused


def test_a_known_form_is_read_as_ever_whatever_stands_beside_it() -> None:
    """Runs that were begun go on with the same rows; the report asks whether the column is meant."""
    value = {"instruction": "why?", "output": "so", "Input": "here"}
    detected = detect_form([row(**value)])
    assert (detected.form, detected.unused) == ("alpaca", ("Input",))
    assert to_example(row(**value), "alpaca") == Chat([USER, ASSISTANT])
    both = {"Question": "why?", "question": "who?", "answer": "me"}
    assert to_example(row(**both), "question_answer") == Chat([WHO, ME])


@pytest.mark.parametrize(
    ("value", "form"),
    [
        ({"prompt": "why?", "chosen": "so", "rejected": "no"}, "preference"),
        ({"chosen": [USER, ASSISTANT], "rejected": [USER, WRONG]}, "preference"),
        ({"prompt": "why?", "completion": "so", "label": True}, "kto"),
        ({"messages": [USER, ASSISTANT], "kto_tag": False}, "kto"),
    ],
)
def test_answers_with_a_verdict_have_to_be_asked_for(value: dict[str, Any], form: str) -> None:
    with pytest.raises(DataError) as caught:
        detect(row(**value))
    assert f'data.format = "{form}"' in caught.value.hint
    detected = detect_form([row(**value)] * 3)
    assert (detected.form, detected.confidence, detected.problem) == (form, 1.0, caught.value.message)
    with pytest.raises(DataError):
        detected.checked()
    assert not detect_form([row(**value)] * 3, form=form).checked().problem
    assert form_of(value) == form


@pytest.mark.parametrize(
    ("value", "form"),
    [
        ({"messages": None, "prompt": "why?", "completion": "so"}, "prompt_completion"),
        ({"messages": "", "conversations": [], "instruction": "why?", "output": "so"}, "alpaca"),
        ({"chosen": None, "rejected": None, "messages": [USER, ASSISTANT]}, "messages"),
        ({"input_ids": None, "text": "so"}, "text"),
        ({"messages": None, "prompt": "why?", "completion": "so", "label": True}, "kto"),
        ({"messages": []}, "messages"),
        ({"prompt": "why?", "completion": ""}, "prompt_completion"),
        ({"text": ""}, "text"),
    ],
)
def test_an_empty_cell_for_turns_is_of_another_form(value: dict[str, Any], form: str) -> None:
    """Tables put together have the columns of all in each row; without another form the row lacks its turns."""
    detected = detect_form([row(**value)] * 2)
    assert detected.form == form
    if form != "kto" and value != {"messages": []}:
        assert (detected.problem, detect(row(**value))) == ("", form)
    if form == "kto":
        assert to_example(row(**value), form) == JudgedAnswer(Completion("why?", "so"), good=True)


def test_a_form_is_judged_by_many_rows() -> None:
    """Optional columns come and go; a row or two may be bad; the form is the one that most rows have."""
    rows = [row(instruction="why?", response="so", **({"context": "here"} if n % 3 else {})) for n in range(100)]
    detected = detect_form(rows)
    assert detected.form in ("dolly", "instruction_response")
    assert (detected.confidence, detected.num_looked, detected.problem) == (1.0, 64, "")
    assert sum("here" in str(to_example(one, detected.form)) for one in rows) == 66, "no context is lost"
    mixed = detect_form([row(text="so"), *[row(messages=[USER, ASSISTANT])] * 8, row(messages=[])])
    assert (mixed.form, mixed.confidence, mixed.why) == ("messages", 0.8, "the keys messages")
    unknown = detect_form([row(asked="why?"), row(text="so")])
    assert (unknown.form, unknown.confidence) == ("text", 0.5)
    assert detect_form([*[row(messages=[])] * 3, *[row(text="so")] * 2]).form == "text", "keys alone are not the form"


def test_a_file_in_which_no_row_has_the_form_says_why() -> None:
    for rows, form, problem in (
        ([row(asked="why?", answer="so")], "", "rows.jsonl:7: no known form has the keys 'asked', 'answer'."),
        ([row(messages=[])] * 2, "messages", "rows.jsonl:7: 'messages' is not a list of messages."),
    ):
        detected = detect_form(rows)
        assert (detected.form, detected.confidence, detected.problem) == (form, 0.0, problem)
    assert detect_form([]).num_looked == 0


@pytest.mark.parametrize(
    ("columns", "roles", "form", "value", "expected"),
    [
        (
            {"instruction": "frage", "output": "antwort"},
            {},
            "alpaca",
            {"frage": "why?", "antwort": "so"},
            Chat([USER, ASSISTANT]),
        ),
        (
            {"prompt": "instruction", "completion": "output"},
            {},
            "prompt_completion",
            {"instruction": "why?", "output": "so"},
            Completion("why?", "so"),
        ),
        (
            {"prompt": "completion", "completion": "prompt"},
            {},
            "prompt_completion",
            {"prompt": "so", "completion": "why?"},
            Completion("why?", "so"),
        ),
        ({"text": "body"}, {}, "text", {"body": "so", "text": None, "instruction": ""}, Text("so")),
        (
            {"messages": "dialog", "role": "speaker", "content": "said"},
            {"bot": "assistant", "me": "user"},
            "messages",
            {"dialog": [{"speaker": "me", "said": "why?"}, {"speaker": "bot", "said": "so"}]},
            Chat([USER, ASSISTANT]),
        ),
        (
            {},
            {"gpt": "user", "eve": "assistant"},
            "sharegpt",
            {"conversations": [{"from": "gpt", "value": "why?"}, {"from": "eve", "value": "so"}]},
            Chat([USER, ASSISTANT]),
        ),
        (
            {},
            {"caller": "function_call"},
            "sharegpt",
            {"conversations": [HUMAN, {"from": "caller", "value": json.dumps(CALLED)}]},
            Chat([USER, {"role": "assistant", "content": None, "tool_calls": [CALL]}]),
        ),
        (
            {"label": "liked"},
            {},
            "kto",
            {"prompt": "why?", "completion": "so", "liked": True},
            JudgedAnswer(Completion("why?", "so"), True),
        ),
    ],
)
def test_the_profile_may_say_what_things_are_called(
    columns: dict[str, str], roles: dict[str, str], form: str, value: dict[str, Any], expected: Example
) -> None:
    shape = ColumnNames(columns, roles)
    assert to_example(row(**value), form, shape) == expected
    assert detect_form([row(**value)], shape).form == form
    assert hash(shape) == hash(ColumnNames(dict(columns), dict(roles)))


def test_a_mapped_column_that_is_not_there_is_named_with_the_nearest() -> None:
    shape = ColumnNames({"instruction": "frage", "output": "antwrot", "input": "kontext"})
    rows = [row(frage="why?", antwort="so", id=n) for n in range(3)]
    detected = detect_form(rows, shape, "alpaca")
    assert "none of the first 3 rows has a column that the profile names" in detected.problem
    assert "data.columns.output is 'antwrot'; there are 'frage', 'antwort', 'id'. Is 'antwort' meant?" in detected.hint
    assert "data.columns.input is 'kontext'" in detected.hint, "optional ones too: a whole column would be lost"
    with pytest.raises(DataError, match=r"rows\.jsonl:7: 'output' is missing") as caught:
        to_example(rows[0], "alpaca", shape)
    assert "Is 'antwort' meant?" in caught.value.hint
    with pytest.raises(DataError, match="has no 'speaker' to say who speaks, only 'speakr', 'content'") as caught:
        to_example(row(messages=[{"speakr": "user", "content": "so"}]), "messages", ColumnNames({"role": "speaker"}))
    assert caught.value.hint == "Is 'speakr' meant?"
    with pytest.raises(DataError) as caught:
        to_example(row(messages=[{"role": "the bot", "content": "so"}]), "messages")
    assert 'data.roles = {"the bot" = "ROLE"}' in caught.value.hint


@pytest.mark.parametrize(
    ("name", "form", "number"),
    [
        ("realdata/preference_gsm8k_solutions.jsonl", "preference", 731),
        ("realdata/preference_messages_gsm8k.jsonl", "preference", 136),
        ("peer_data/dpo_en_demo.json", "preference", 300),
        ("realdata/kto_gsm8k_solutions.jsonl", "kto", 1000),
        ("peer_data/kto_en_demo.json", "kto", 300),
    ],
)
def test_real_pairs_and_verdicts_are_trained_on_when_asked_for(name: str, form: str, number: int) -> None:
    if not (SHARED / name).exists():
        pytest.skip(f"the real data set {SHARED / name} is not on this machine")
    rows = list(read_rows(SHARED / name))
    assert detect_form(rows).form == form
    assert detect_form(rows, form=form).checked().confidence == 1.0
    assert len([to_example(one, form) for one in rows]) == number
