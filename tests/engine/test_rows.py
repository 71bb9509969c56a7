"""Rows out of files: every form, good and bad; every way a JSON file goes wrong."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftui.engine.data.formats import READERS, Chat, Completion, Example, Text, detect, to_example
from ftui.engine.data.sources import Row, read_rows
from ftui.errors import DataError

USER, ASSISTANT = {"role": "user", "content": "why?"}, {"role": "assistant", "content": "so"}
CALLED = {"name": "f", "arguments": {"a": 1}}
CALL = {"type": "function", "function": CALLED}
SAID_CALL = {"name": "f", "arguments": '{"a": 1}'}  # as OpenAI writes it
PARTS = [
    {"type": "reasoning", "value": "hm"},
    {"type": "text", "text": "so"},
    {"type": "tool_call", "value": json.dumps(CALLED)},
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
    ],
)
def test_every_form(form: str, value: dict[str, Any], expected: Example) -> None:
    assert to_example(row(**value), form) == expected
    assert detect(row(**value)) == form


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
        ("messages", {"messages": [USER, "so"]}, "message 2 of 'messages' has no role of assistant, developer, system"),
        ("messages", {"messages": [{"role": "gpt", "content": "so"}]}, "message 1 of 'messages' has no role of"),
        ("messages", {"messages": [USER, {"role": "assistant"}]}, "message 2 of 'messages' has no content"),
        ("sharegpt", {"conversations": {}}, "'conversations' is not a list of turns"),
        ("sharegpt", {"conversations": [{"from": "bard", "value": ""}]}, "turn 1 has no known 'from' or no 'value'"),
        ("sharegpt", {"conversations": [{"from": "gpt"}]}, "turn 1 has no known 'from' or no 'value'"),
        ("sharegpt", {"conversations": ["so"]}, "turn 1 has no known 'from' or no 'value'"),
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
            "message 1 of 'messages' has a part that is no text (image_url): only text can be learned",
        ),
        (
            "messages",
            {"messages": [USER, {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{a"}}]}]},
            "the arguments of a call in message 2 of 'messages' is not JSON",
        ),
        ("messages", {"messages": [USER, ASSISTANT], "images": ["a.png"]}, "it has images: only text can be learned"),
        ("sharegpt", {"conversations": [{"from": "function_call", "value": "f(1)"}]}, "the call in turn 1 is not JSON"),
        ("prompt_completion", {"prompt": "why?", "completion": None}, "'completion' is missing"),
        ("prompt_completion", {"prompt": "why?", "completion": [ASSISTANT]}, "'completion' is not a string"),
        ("prompt_completion", {"prompt": [USER], "completion": ["so"]}, "message 1 of 'completion' has no role of"),
        ("text", {"body": "so"}, "'text' is missing"),
        ("text", {"text": ["so"]}, "'text' is not a string"),
    ],
)
def test_a_row_of_another_form_is_named(form: str, value: dict[str, Any], reason: str) -> None:
    with pytest.raises(DataError) as caught:
        to_example(row(**value), form)
    assert caught.value.message.startswith(f"rows.jsonl, line 7: {reason}")
    assert caught.value.message.endswith(".")


def test_every_form_has_good_and_bad_rows_here() -> None:
    for test in (test_every_form, test_a_row_of_another_form_is_named):
        (mark,) = test.pytestmark
        assert {case[0] for case in mark.args[1]} == READERS.keys()


def test_an_unknown_form_is_named_by_its_keys() -> None:
    with pytest.raises(DataError, match=r"rows\.jsonl, line 7: no known form has the keys 'asked', 'answer'\.") as e:
        detect(row(asked="why?", answer="so"))
    assert "alpaca: instruction, output" in e.value.hint
    with pytest.raises(DataError, match=r"the keys \(none\)"):
        detect(row())


def lines_of(path: Path, data: bytes) -> list[tuple[int, dict[str, Any]]]:
    path.write_bytes(data)
    return [(found.place, found.value) for found in read_rows(path)]


A, B = {"text": "a"}, {"text": "b"}


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b'{"text": "a"}\n{"text": "b"}\n', [(1, A), (2, B)]),
        (b'{"text": "a"}\n{"text": "b"}', [(1, A), (2, B)]),
        (b'\xef\xbb\xbf{"text": "a"}\n{"text": "b"}\n', [(1, A), (2, B)]),
        (b'{"text": "a"}\r\n{"text": "b"}\r\n', [(1, A), (2, B)]),
        (b'\n{"text": "a"}\n\n  \n{"text": "b"}\n\n', [(2, A), (5, B)]),
        ('{"text": "a\u2028b\u0085c"}\n{"text": "b"}\n'.encode(), [(1, {"text": "a\u2028b\u0085c"}), (2, B)]),
        (b'{"text": "a\\ud83d\\ude00"}\n', [(1, {"text": "a\U0001f600"})]),
        (b'{"text": "a\\\\ud83d"}\n', [(1, {"text": "a\\ud83d"})]),
        (b'{"text": "a\\u0000"}\n', [(1, {"text": "a\x00"})]),
    ],
    ids=["plain", "no-last-newline", "bom", "crlf", "blank", "u2028", "pair", "escaped-backslash", "nul"],
)
def test_json_lines(data: bytes, expected: list[tuple[int, dict[str, Any]]], tmp_path: Path) -> None:
    assert lines_of(tmp_path / "rows.jsonl", data) == expected


DEEP = b'{"text": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b'{"text": "a"}\n{"text": "b', "line 2, column 10: not JSON (Unterminated string starting at, near"),
        (b'{"text": "a"}\n\n{"text" "b"}\n', "line 3, column 9: not JSON (Expecting ':' delimiter, near"),
        (b'{"text": "a"}\n{"text": "\xff\xfe"}\n', "line 2: not UTF-8 (byte 10: 0xff)"),
        ('{"text": "a"}\n'.encode("utf-16"), "line 1: not UTF-8 (byte 0: 0xff)"),
        (b'{"text": "a"}\n' + DEEP + b"\n", "line 2: nested too deeply"),
        (b'{"text": "a"}\n["b"]\n', "line 2: a JSON list, not an object"),
        (b'"a"\n', "line 1: a JSON string, not an object"),
        (b"null\n", "line 1: a JSON null, not an object"),
        (b"3\n", "line 1: a JSON number, not an object"),
        (b"true\n", "line 1: a JSON boolean, not an object"),
        (b'{"text": "a"}\n{"text": "b \\ud83d c"}\n', "line 2: \\ud83d is half a character"),
        (b'{"text": ' + b"1" * 5000 + b"}\n", "line 1: Exceeds the limit (4300 digits)"),
    ],
    ids=[
        "torn",
        "broken",
        "bytes",
        "utf-16",
        "deep",
        "list",
        "string",
        "null",
        "number",
        "bool",
        "half-pair",
        "digits",
    ],
)
def test_a_bad_line_is_named(data: bytes, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    with pytest.raises(DataError) as caught:
        lines_of(path, data)
    assert caught.value.message.startswith(f"{path}, {reason}")
    assert caught.value.hint or "not an object" in reason


def test_a_json_array(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    assert lines_of(path, json.dumps([A, B], indent=2).encode()) == [(1, A), (2, B)]
    with pytest.raises(DataError, match=r"rows\.json, row 2: a JSON string, not an object"):
        lines_of(path, b'[{"text": "a"},\n"b"]')
    with pytest.raises(DataError, match="holds one JSON object, not a list of rows"):
        lines_of(path, b'{"text": "a"}')
    with pytest.raises(DataError, match=r"rows\.json, line 3, column 1: not JSON"):
        lines_of(path, b'[{"text": "a"},\n\n')
    with pytest.raises(DataError, match=r"rows\.json, line 2: not UTF-8"):
        lines_of(path, b'[\n"\xff"]')


def test_a_text_file_is_one_row(tmp_path: Path) -> None:
    assert lines_of(tmp_path / "book.txt", b"\xef\xbb\xbfa\r\nb\n") == [(1, {"text": "a\r\nb\n"})]
    with pytest.raises(DataError, match=r"book\.txt, line 3: not UTF-8"):
        lines_of(tmp_path / "book.txt", b"a\nb\n\xe9t\xe9\n")


def test_files_that_are_not_there_empty_or_unknown(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"gone\.jsonl cannot be read: No such file"):
        list(read_rows(tmp_path / "gone.jsonl"))
    with pytest.raises(DataError, match=r"There are no rows in .*empty\.jsonl"):
        lines_of(tmp_path / "empty.jsonl", b"\xef\xbb\xbf\r\n \n")
    with pytest.raises(DataError, match=r"rows\.xlsx: unknown kind of file") as caught:
        lines_of(tmp_path / "rows.xlsx", b"PK")
    assert caught.value.hint.startswith("Rows are read from .jsonl, .json, .csv, .tsv, .parquet, .txt files")


@given(st.lists(st.dictionaries(st.text(), st.text() | st.integers() | st.none() | st.lists(st.text())), min_size=1))
def test_whatever_json_writes_is_read_back(tmp_path_factory: pytest.TempPathFactory, values: list[Any]) -> None:
    data = b"".join(json.dumps(value, ensure_ascii=False).encode() + b"\n" for value in values)
    found = lines_of(tmp_path_factory.getbasetemp() / "any.jsonl", data)
    assert found == list(enumerate(values, start=1))
