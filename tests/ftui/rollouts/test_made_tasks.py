import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftui.cli.main import main
from ftui.engine.rewards.ready_rewards import ready_reward
from ftui.rollouts.made_tasks import LONGEST_LEVEL, TASKS, make_rows


@given(st.sampled_from(sorted(TASKS)), st.integers(1, LONGEST_LEVEL), st.integers(0, 99))
def test_the_right_answer_gets_the_reward_and_others_do_not(name: str, level: int, seed: int) -> None:
    rows = list(make_rows(name, 4, seed=seed, level=level))
    reward, answers = ready_reward(TASKS[name].reward, {}), [answer for _, answer in rows]
    assert reward(completions=answers, answer=answers) == [1.0] * 4
    assert reward(completions=["nothing"] * 4, answer=answers) == [0.0] * 4


def test_rows_are_the_same_everywhere_and_do_not_depend_on_their_number() -> None:
    assert list(make_rows("sums", 2)) == [("48 + 2 = ?", "50"), ("93 + 68 = ?", "161")]
    for name in TASKS:
        rows = list(make_rows(name, 50))
        assert rows[:7] == list(make_rows(name, 7)) and rows != list(make_rows(name, 50, seed=1))
        assert len(set(rows)) > 30, "rows differ"


def test_answers_are_right() -> None:
    for ask, answer in make_rows("sums", 20, level=5):
        assert eval(ask.removesuffix(" = ?")) == int(answer)
    for ask, answer in make_rows("letters", 20):
        words = ask.removesuffix("?").split()
        assert words[-1].count(words[5]) == int(answer)
    for ask, answer in make_rows("sorting", 20):
        assert sorted(map(int, ask.split(": ")[1].split())) == [int(one) for one in answer.split()]


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["make-task"]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in TASKS)
    out = tmp_path / "sums.jsonl"
    assert main(["make-task", "sums", "--rows", "3", "-o", str(out)]) == 0
    assert "number_answer" in capsys.readouterr().out
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["answer"] for row in rows] == [answer for _, answer in make_rows("sums", 3)]
    assert rows[0]["prompt"][0]["role"] == "user"
    assert main(["make-task", "sums", "-o", str(out)]) == 2
    assert "is there already" in capsys.readouterr().err
    assert main(["make-task", "sums", "--rows", "1", "--plain"]) == 0
    assert json.loads(capsys.readouterr().out)["prompt"].endswith("= ?")
    assert main(["make-task", "sum"]) == 2
    assert main(["make-task", "sums", "--level", "13"]) == 2
