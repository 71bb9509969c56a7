from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trl.rewards.other_rewards import get_soft_overlong_punishment

from ftui.engine.rewards.ready_rewards import READY, final_answer, last_number, ready_reward


def values(name: str, completions: list[Any], options: dict[str, Any] | None = None, **columns: Any) -> list[Any]:
    return ready_reward(name, options or {})(completions=completions, **columns)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("so it is <answer> 4 </answer>.", "4"),
        ("<answer>1</answer> no: <answer>2\n</answer>", "2"),
        (r"thus \boxed{\frac{1}{2}} holds", r"\frac{1}{2}"),
        ("3 + 4\n#### 7", "7"),
        (" plain ", "plain"),
        (r"\boxed{unclosed", r"\boxed{unclosed"),
        ("", ""),
    ],
)
def test_where_an_answer_stands(text: str, answer: str) -> None:
    assert final_answer(text) == answer


def test_exact_answers() -> None:
    given = ["<answer>Rome</answer>", "rome", [{"role": "assistant", "content": "Rome"}], [], "x"]
    assert values("exact_answer", given, answer=["Rome", "Rome", "Rome", "Rome", None]) == [1, 0, 1, 0, None]
    assert values("exact_answer", ["7"], {"column": "right"}, answer=["8"], right=[7]) == [1]
    with pytest.raises(ValueError, match="no column answer or solution"):
        values("exact_answer", ["7"], other=[1])


@pytest.mark.parametrize(
    ("text", "right", "value"),
    [
        ("It costs $1,234.50 in all", "1234.5", 1),
        ("first 3, then 4", "#### 4", 1),
        ("-5 degrees", "5", 0),
        ("about 2e3", 2000, 1),
        ("none", "4", 0),
        ("4", "no number", None),
        ("version 1.2.3", "3", 0),
        ("x2", "2", 0),
    ],
)
def test_number_answers(text: str, right: Any, value: float | None) -> None:
    assert values("number_answer", [text], answer=[right]) == [value]


@given(st.integers(-(10**20), 10**20))
def test_a_number_is_read_back_however_it_is_written(number: int) -> None:
    assert last_number(f"so {number}") == last_number(f"= {number:,}") == number


def test_formats() -> None:
    pattern = r"^<think>.*</think>\s*<answer>.*</answer>$"
    given = ["<think>a\nb</think>\n<answer>c</answer>", "<answer>c</answer>", ""]
    assert values("format", given, {"pattern": pattern}) == [1, 0, 0]


def test_json() -> None:
    given = ['{"a": 1}', '```json\n{"a": "x"}\n```', "{a: 1}", "[" * 100_000, "<answer>[]</answer>"]
    assert values("json_schema", given) == [1, 1, 0, 0, 1]


def test_lengths_and_what_is_too_long() -> None:
    ids = [[0] * n for n in range(12)]
    assert values("length", ids, {"max_length": 3, "min_length": 2}, completion_ids=ids) == [0, 0, 1, 1, *[0] * 8]
    theirs = get_soft_overlong_punishment(max_completion_len=10, soft_punish_cache=4)
    ours = values("overlong", ids, {"max_length": 10, "cache": 4}, completion_ids=ids)
    assert ours == pytest.approx(theirs(completion_ids=ids))


def test_repetition() -> None:
    """As Open-R1 computes it: 5 words have 3 trigrams."""
    given = ["a b c d e", "a a a a a", "a b", ""]
    assert values("repetition", given) == pytest.approx([0, -2 / 3, 0, 0])
    assert values("repetition", ["a a a"], {"ngram_size": 1, "penalty": 0.3}) == pytest.approx([-0.2])


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("no", {}, "there is no reward 'no': exact_answer"),
        ("format", {}, "format missing 1 required"),
        ("length", {"max_length": 3, "most": 1}, "length got an unexpected keyword argument 'most'"),
        ("overlong", {"max_length": 3, "cache": 4}, "cache must be from 1 to max_length = 3"),
    ],
)
def test_what_is_wrong_with_a_reward(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match="^" + message):
        ready_reward(name, options)


@given(st.lists(st.text(max_size=60), min_size=1, max_size=4))
def test_any_text_can_be_judged(texts: list[str]) -> None:
    options: dict[str, dict[str, Any]] = {
        "format": {"pattern": "a+"}, "length": {"max_length": 4}, "overlong": {"max_length": 4, "cache": 2},
    }  # fmt: skip
    for name in READY.keys() - {"maths", "reasoning_gym"}:
        ids = [[1] * len(text) for text in texts]
        given = values(name, list(texts), options.get(name), answer=texts, completion_ids=ids)
        assert all(one is None or -1 <= one <= 1 for one in given) and len(given) == len(texts)


def test_maths() -> None:
    given = [r"so \boxed{\frac{1}{2}}", "0.5", "<answer>1/3</answer>", "I do not know", "0.5"]
    assert values("maths", given, answer=["1/2", "1/2", "1/2", "1/2", None]) == [1, 1, 0, 0, None]


def test_a_schema() -> None:
    schema = '{"type": "object", "required": ["a"], "properties": {"a": {"type": "integer"}}}'
    given = ['{"a": 1}', '{"a": "1"}', "{}", "3"]
    assert values("json_schema", given, {"schema": schema}) == [1, 0, 0, 0]
    with pytest.raises(ValueError, match="schema is none"):
        ready_reward("json_schema", {"schema": '{"type": 3}'})
