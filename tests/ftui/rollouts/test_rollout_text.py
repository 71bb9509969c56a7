import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftui.cli.main import main
from ftui.errors import DiskError, UsageError
from ftui.rollouts.read_rollouts import SeenGroup, find_groups, rollout_numbers
from ftui.rollouts.rollout_lines import AnswerLine, GroupLine, rollout_name
from ftui.rollouts.rollout_text import answer_figures, group_lines, spread
from ftui.text import cells


def answer(text: str, reward: float | None, tokens: int = 3, *, is_complete: bool = True) -> AnswerLine:
    rewards = {"number_answer": reward, "format": 0.5}
    return AnswerLine(text, tokens, is_complete, rewards, reward, None if reward is None else reward - 0.5)


def write(folder: Path, number: int, *groups: GroupLine) -> None:
    folder.mkdir(exist_ok=True, parents=True)
    lines = b"".join(msgspec.json.encode(group) + b"\n" for group in groups)
    (folder / f"{rollout_name(number)}.jsonl").write_bytes(lines)


def fill(folder: Path) -> None:
    write(folder, 1, GroupLine(4, "old", [answer("a", 0.9), answer("b", -1.0)]))
    write(
        folder, 12,
        GroupLine(7, "one", [answer("c", 0.2, 9), answer("d", None)]),
        GroupLine(8, "two", [answer("e", 0.0), answer("f", 1.0, 2, is_complete=False)]),
    )  # fmt: skip
    (folder / "000013.answers.jsonl").write_text("not scored yet")
    (folder / "000014.answers.safetensors").touch()


def completions(groups: list[SeenGroup]) -> list[str]:
    return ["".join(one.completion for one in group.group.answers) for group in groups]


@pytest.mark.parametrize(
    ("order", "number", "expected"),
    [
        ("newest", None, ["cd", "ef"]),
        ("newest", 1, ["ab"]),
        ("best", None, ["fe", "ab", "cd"]),
        ("worst", None, ["ba", "ef", "cd"]),
        ("longest", None, ["cd", "ef", "ab"]),
        ("best", 12, ["fe", "cd"]),
    ],
)
def test_the_order(tmp_path: Path, order: Any, number: int | None, expected: list[str]) -> None:
    folder = tmp_path / "r" / "rollouts"
    fill(folder)
    found = completions(find_groups(folder, order, number))
    assert found[0] == expected[0] and sorted(found) == sorted(expected)
    if order != "longest":
        assert found == expected
    assert rollout_numbers(folder) == [1, 12]


def test_what_is_not_there(tmp_path: Path) -> None:
    folder = tmp_path / "mine" / "rollouts"
    assert find_groups(folder) == []
    with pytest.raises(UsageError, match="mine has no rollout 3") as error:
        find_groups(folder, number=3)
    assert error.value.hint == "There is none yet."
    fill(folder)
    with pytest.raises(UsageError) as error:
        find_groups(folder, number=3)
    assert error.value.hint == "There are 1 to 12."
    (folder / "000001.jsonl").write_text('{"row": 1\n')
    with pytest.raises(DiskError, match=r"000001\.jsonl cannot be read"):
        find_groups(folder, "best")


def test_the_words_of_an_answer() -> None:
    assert answer_figures(answer("a", 1.0)) == "reward 1 · advantage +0.5 · number_answer 1, format 0.5 · 3 tokens"
    cut_off = AnswerLine("x", 1, False, {"f": None})
    assert answer_figures(cut_off) == "reward n/a · 1 token, cut off"
    assert answer_figures(AnswerLine("x", 5, True, {"f": 0.25}, 0.25, 0.0)) == "reward 0.25 · advantage +0 · 5 tokens"


def test_a_group_as_lines() -> None:
    group = GroupLine(8, "What?\n\n2 + 2", [answer("4", 1.0), answer("5\x1b[31m", 0.0)])
    assert group_lines(SeenGroup(12, 2, group), 80) == [
        "rollout 12, prompt 2 (row 8) · 2 answers, 0 to 1, mean 0.5",
        "  What?",
        "",
        "  2 + 2",
        "  reward 1 · advantage +0.5 · number_answer 1, format 0.5 · 3 tokens",
        "    4",
        "  reward 0 · advantage -0.5 · number_answer 0, format 0.5 · 3 tokens",
        "    5␛[31m",
    ]
    same = GroupLine(8, "p", [answer("4", 1.0), answer("5", 1.0)])
    assert "all 2 the same: 1 (nothing to learn from)" in group_lines(SeenGroup(1, 1, same), 80)[0]
    long = GroupLine(8, "w " * 1000, [])
    assert len(group_lines(SeenGroup(1, 1, long), 80)) == 7
    assert len(group_lines(SeenGroup(1, 1, long), 80, whole=True)) > 20


@given(st.text(max_size=300), st.text(max_size=300), st.integers(20, 130))
def test_no_line_is_wider_than_the_terminal(prompt: str, text: str, width: int) -> None:
    lines = group_lines(SeenGroup(1, 1, GroupLine(1, prompt, [answer(text, 0.5)])), width, whole=True)
    assert all(cells(line) <= width and "\x1b" not in line for line in lines)


def test_the_command(make_run: Any, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run("mine")
    assert main(["rollouts", "mine"]) == 0
    assert "mine has no rollouts" in capsys.readouterr().out
    fill(run.folder / "rollouts")
    assert main(["rollouts", "mine", "--best", "-n", "1"]) == 0
    output = capsys.readouterr().out
    assert output.startswith("rollout 12, prompt 2 (row 8)") and "cut off" in output
    assert main(["rollouts", "mine", "--worst", "--json"]) == 0
    [first, *_] = json.loads(capsys.readouterr().out)
    assert (first["rollout"], first["group"]["answers"][0]["reward"]) == (1, -1.0)
    assert main(["rollouts", "mine", "-n", "0"]) == 2
    assert main(["rollouts", "mine", "--rollout", "2"]) == 2


def test_a_single_answer_is_no_group_without_spread() -> None:
    """Stage ppo gives one to each prompt, and learns from it."""
    assert spread([answer("a", 0.9)]) == "reward 0.9"
    assert "nothing to learn from" in spread([answer("a", 0.9), answer("b", 0.9)])
