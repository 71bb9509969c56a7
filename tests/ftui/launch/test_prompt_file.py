from pathlib import Path

import pytest

from ftui.errors import DataError
from ftui.helper.chat_session import Side
from ftui.launch.prompt_file import (
    PromptLine,
    check_file,
    find_answers,
    read_prompts,
    read_prompts_and_answers,
)
from ftui.launch.transcript import Exchange, SideAnswer, add_exchange
from ftui.runs.requests import SamplingKeys
from ftui.runs.run_folder import Run

MINE = Run(Path("mine"))


def answered(
    prompt: str, seal: str = "ab", *, of: str = "final", run: str = "mine", turn: int = 1, seed: int = 0
) -> Exchange:
    sides = [SideAnswer(of, seal, "an answer", True, 3)]
    return Exchange(0.0, run, prompt, None, turn, sides, SamplingKeys(seed=seed), "", "fp32", "cpu")


@pytest.mark.parametrize(("text", "words"), [
    ('{"prompt": 3}\n', "p.jsonl, line 1"), ("\n\n", "has no prompt in it"), ('hello\n{"answers": 1}', "line 2"),
    ('hello\n{"prompt": "a", "other": 1}', "line 2"),
])  # fmt: skip
def test_a_file_that_is_none_of_prompts_says_where(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text(text)
    with pytest.raises(DataError, match=words):
        read_prompts_and_answers(path)
    with pytest.raises(DataError, match=r"There is no file nowhere\."):
        check_file(" nowhere ")


def test_lines_are_prompts_or_answers(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text('hello\n\n{"prompt": "with \u2028 in it", "system": "Be brief"}\n')
    prompts = [PromptLine("hello"), PromptLine("with \u2028 in it", "Be brief")]
    assert list(read_prompts(path)) == list(read_prompts_and_answers(path)) == prompts
    add_exchange(path, answered("third"))
    assert list(read_prompts_and_answers(path)) == [*prompts, answered("third")]
    with pytest.raises(DataError, match="line 4"):
        read_prompts(path)


def test_only_answers_of_the_same_weights_and_sampling_count(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    prompts, sides = [(name, None) for name in "abcde"], [Side("final", seal="ab")]
    assert find_answers(path, prompts, MINE, sides, SamplingKeys()) == [None] * 5, "it is not there yet"
    others = [answered("b", "cd"), answered("c", turn=2), answered("d", seed=1)]
    for exchange in (answered("a"), *others):
        add_exchange(path, exchange)
    assert find_answers(path, prompts, MINE, sides, SamplingKeys()) == [answered("a"), None, None, None, None]
    assert find_answers(path, [("a", "Be brief")], MINE, sides, SamplingKeys()) == [None]


def test_a_base_is_that_of_its_run(tmp_path: Path) -> None:
    """It has no seal; weights that have one keep their answers where the run gets another name."""
    path = tmp_path / "out.jsonl"
    lines = [answered("a", "", of="base", run="other"), answered("b", "", of="base"), answered("c", run="other")]
    for exchange in lines:
        add_exchange(path, exchange)
    prompts = [(name, None) for name in "abc"]
    assert find_answers(path, prompts, MINE, [Side("base")], SamplingKeys()) == [None, lines[1], None]
    assert find_answers(path, prompts, MINE, [Side("final", seal="ab")], SamplingKeys()) == [None, None, lines[2]]


@pytest.mark.parametrize("text", ["x" * 300, "~nobody-has-this-name/p.jsonl"])
def test_what_cannot_be_a_file_is_none(text: str) -> None:
    with pytest.raises(DataError, match="There is no file"):
        check_file(text)
