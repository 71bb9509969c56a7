"""Columns beside those a form is known by: what belongs to the prompt is read, what nobody reads is named."""

import json
from typing import Any

import pytest

from ftui.engine.data.forms.detect_form import detect, detect_form
from ftui.engine.data.forms.formats import Chat, Completion, Example, Pair, Text, to_example
from ftui.errors import DataError
from tests.engine.data.forms.test_forms import ASSISTANT, CALLED, GPT, HUMAN, ME, SYSTEM, USER, WHO, WRONG, row

BELOW = {"role": "user", "content": "why?\n\nhere"}
TOOL = {"type": "function", "function": {"name": "f"}}
TOLD = {"role": "system", "content": f"Tools: {json.dumps([CALLED])}"}
HH = "\n\nHuman: who?\n\nAssistant: me\n\nHuman: why?\n\nAssistant: "


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"question": "why?", "context": "here", "answer": "so"}, Chat([BELOW, ASSISTANT])),
        ({"question": "why?", "context": {"title": ["here"]}, "answer": "so"}, Chat([USER, ASSISTANT])),
        ({"instruction": "why?", "input": "here", "response": "so"}, Chat([BELOW, ASSISTANT])),
        ({"instruction": "why?", "context": "here", "output": "so", "input": ""}, Chat([BELOW, ASSISTANT])),
        ({"instruction": "why?", "context": "here", "chosen": "so", "rejected": "no"},
            Pair(Chat([BELOW, ASSISTANT]), Chat([BELOW, WRONG]))),
        ({"question": "why?", "context": "here", "chosen": "so", "rejected": "no"},
            Pair(Chat([BELOW, ASSISTANT]), Chat([BELOW, WRONG]))),
        ({"system": "be", "prompt": "why?", "completion": "so"}, Chat([SYSTEM, USER, ASSISTANT])),
        ({"system": "be", "prompt": [USER], "completion": [ASSISTANT]}, Chat([SYSTEM, USER, ASSISTANT])),
        ({"system": "", "prompt": "why?", "completion": "so"}, Completion("why?", "so")),
        ({"system_prompt": "be", "conversations": [HUMAN, GPT]}, Chat([SYSTEM, USER, ASSISTANT])),
        ({"system_prompt": "be", "instruction": "why?", "output": "so"}, Chat([SYSTEM, USER, ASSISTANT])),
        ({"system_prompt": "be", "question": "why?", "answer": "so"}, Chat([SYSTEM, USER, ASSISTANT])),
        ({"system_prompt": "be", "prompt": "why?", "chosen": "so", "rejected": "no"},
            Pair(Chat([SYSTEM, USER, ASSISTANT]), Chat([SYSTEM, USER, WRONG]))),
        ({"system": "be", "prompt": [USER], "chosen": [ASSISTANT], "rejected": [WRONG]},
            Pair(Chat([SYSTEM, USER, ASSISTANT]), Chat([SYSTEM, USER, WRONG]))),
        ({"system": "be", "chosen": [USER, ASSISTANT], "rejected": [USER, WRONG]},
            Pair(Chat([SYSTEM, USER, ASSISTANT]), Chat([SYSTEM, USER, WRONG]))),
        # LIMA's rows; tools that are told already, are none, or a single one
        ({"conversations": ["who?", "me", "why?", "so"]}, Chat([WHO, ME, USER, ASSISTANT])),
        ({"messages": [TOLD, USER, ASSISTANT], "tools": json.dumps([TOOL])}, Chat([TOLD, USER, ASSISTANT])),
        ({"messages": [SYSTEM, USER, ASSISTANT], "tools": [TOOL]}, Chat([SYSTEM, USER, ASSISTANT], [TOOL])),
        ({"messages": [TOLD, USER, ASSISTANT], "tools": [TOOL, {"name": "g"}]},
            Chat([TOLD, USER, ASSISTANT], [TOOL, {"type": "function", "function": {"name": "g"}}])),
        ({"messages": [USER, ASSISTANT], "tools": "null"}, Chat([USER, ASSISTANT])),
        ({"messages": [USER, ASSISTANT], "tools": json.dumps(TOOL)}, Chat([USER, ASSISTANT], [TOOL])),
        ({"messages": [USER, ASSISTANT], "tools": [json.dumps(TOOL)]}, Chat([USER, ASSISTANT], [TOOL])),
        # text that begins as a list does; answers that are JSON; turns as JSON
        ({"prompt": "[INST] Say hi [/INST]", "completion": " hi"}, Completion("[INST] Say hi [/INST]", " hi")),
        ({"prompt": "Who?", "completion": "[1] First source"}, Completion("Who?", "[1] First source")),
        ({"prompt": "[3, 1, 2]", "completion": "[1, 2, 3]"}, Completion("[3, 1, 2]", "[1, 2, 3]")),
        ({"prompt": "[{}]", "completion": '[{"name": "Bo"}]'}, Completion("[{}]", '[{"name": "Bo"}]')),
        ({"prompt": "Sing", "chosen": "[Verse 1] la", "rejected": "[1]"},
            Pair(Completion("Sing", "[Verse 1] la"), Completion("Sing", "[1]"))),
        ({"prompt": json.dumps([USER]), "completion": json.dumps([ASSISTANT])}, Chat([USER, ASSISTANT])),
        # hh-rlhf: what both answers begin with is no prompt
        ({"chosen": f"{HH}so it is", "rejected": f"{HH}so it was"},
            Pair(*(Chat([WHO, ME, USER, {"role": "assistant", "content": said}], untrained=frozenset({1}))
                for said in ("so it is", "so it was")))),
        ({"text": "so", "image": "a.png"}, Text("so")),
    ],
)  # fmt: skip
def test_what_belongs_to_the_prompt_is_read(value: dict[str, Any], expected: Example) -> None:
    form = "preference" if "chosen" in value else detect(row(**value))
    assert to_example(row(**value), form) == expected
    left = {"context"} if isinstance(value.get("context"), dict) else {"image"} if "image" in value else set()
    assert set(detect_form([row(**value)], form=form).unused) == left


@pytest.mark.parametrize(
    ("value", "names"),
    [
        ({"question": "why?", "choices": ["so", "no"], "answer": "so", "id": "a7", "source_url": "x"}, ("choices",)),
        ({"prompt": "why?", "context": "here", "completion": "so", "num_hops": "two"}, ("context",)),
        ({"prompt": "why?", "context": "here", "chosen": "so", "rejected": "no"}, ("context",)),
        ({"messages": [USER, ASSISTANT], "system": "be", "rationale": "since", "score": 3, "hint": ""}, ("rationale",)),
        ({"instruction": "why?", "output": "so", "history": "we spoke", "category": "qa"}, ("history",)),
        ({"prompt": "why?", "completion": "so", "label": True, "reason": "good"}, ("reason",)),
        ({"prompt": "why?", "completion": "so", "tools": [TOOL], "system": ""}, ("tools",)),
        ({"prompt": "why?", "chosen": "so", "rejected": "no", "tools": [TOOL]}, ()),
        ({"chosen": "so it is", "rejected": "so it was", "system": "be"}, ("system",)),
        ({"prompt": "why?", "completion": "so", "tools": [TOOL], "system": "be"}, ()),
        ({"prompt": [USER], "completion": [ASSISTANT], "tools": [TOOL]}, ()),
        ({"text": "so", "parent_id": "b", "title": "It"}, ("title",)),
        ({"input_ids": [1, 2], "raw": "so"}, ("raw",)),
    ],
)
def test_columns_that_nobody_reads_are_named(value: dict[str, Any], names: tuple[str, ...]) -> None:
    """Numbers, empty cells and what is about the row are no news. Tools and system stand beside a conversation only."""
    assert detect_form([row(**value)] * 2).unused == names


def test_single_turns_of_a_tree_are_no_text() -> None:
    """OpenAssistant's rows: as text, its users would be trained on too. Who wants that says so."""
    one = row(message_id="a", parent_id=None, text="why?", role="prompter", lang="en")
    with pytest.raises(DataError, match=r"rows\.jsonl:7: a single turn of a conversation") as caught:
        detect(one)
    detected = detect_form([one] * 3)
    assert detected.problem == caught.value.message
    assert 'data.format = "text"' in detected.hint
    assert not detect_form([one] * 3, form="text").problem
    jobs = [row(text="so", role=job) for job in ("nurse", "Assistant", "clerk")]
    assert not detect_form([*jobs, row(text="so", parent_id="b")]).problem


@pytest.mark.parametrize("key", ["image", "video", "audio", "images", "videos", "audios"])
def test_a_row_that_shows_more_than_text_is_refused(key: str) -> None:
    with pytest.raises(DataError, match=f"it has {key}: only text can be trained on"):
        to_example(row(messages=[USER, ASSISTANT], **{key: {"path": "a.png"}}), "messages")
    assert to_example(row(messages=[USER, ASSISTANT], **{key: None}), "messages") == Chat([USER, ASSISTANT])


def test_tools_that_are_none_say_what_a_tool_is() -> None:
    with pytest.raises(DataError) as caught:
        to_example(row(messages=[USER, ASSISTANT], tools='{"a": 1}'), "messages")
    assert "'tools' is not a list" in caught.value.message
    assert "A tool is {type, function" in caught.value.hint


def test_of_a_conversation_in_one_text_the_assistant_has_the_last_word() -> None:
    with pytest.raises(DataError, match="does not have the last word"):
        to_example(row(chosen=f"{HH}so\n\nHuman: ah", rejected=f"{HH}no"), "preference")
