"""Tasks of reasoning-gym: a row, as it comes back from a file, is scored by the task's own scorer."""

import json
from pathlib import Path
from typing import Any

import pytest

from ftui.cli.main import main
from ftui.engine.rewards.ready_rewards import ready_reward
from ftui.rollouts.reasoning_gym_rows import COLUMN

TASKS = ("leg_counting", "rearc", "graph_color")
"""A number; grids, whose scorer compares tuples; one with many right answers, none of which is given."""


def make(task: str, out: Path, *options: str) -> list[dict[str, Any]]:
    assert main(["make-task", f"reasoning-gym:{task}", "--rows", "3", "--seed", "4", "-o", str(out), *options]) == 0
    return [json.loads(line) for line in out.read_text().splitlines()]


@pytest.fixture(autouse=True)
def gym() -> Any:
    return pytest.importorskip("reasoning_gym", reason="the extra `reasoning-gym` compiles pycosat")


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_a_row_is_scored_as_its_task_does(task: str, tmp_path: Path, gym: Any) -> None:
    rows = make(task, tmp_path / "rows.jsonl")
    entries = list(gym.create_dataset(task, size=3, seed=4))
    score, reward = gym.get_score_answer_fn(task), ready_reward(COLUMN, {})
    prompts, made = [row["prompt"] for row in rows], [row[COLUMN] for row in rows]
    assert [prompt[0]["content"] for prompt in prompts] == [entry["question"] for entry in entries]
    given = [row.get("answer", "{}") for row in rows]
    expected = [score(answer=answer, entry=entry) for answer, entry in zip(given, entries, strict=True)]
    answers = [f"I think <answer>{answer}</answer>" for answer in given]
    assert reward(prompts=prompts, completions=answers, **{COLUMN: made}) == expected
    assert ("answer" not in rows[0]) == (task == "graph_color") and (expected == [1.0] * 3) == ("answer" in rows[0])
    first, second, third = reward(prompts=prompts, completions=["no idea"] * 3, **{COLUMN: [made[0], None, made[2]]})
    assert second is None and first is not None and third is not None and max(first, third) < 1


@pytest.mark.slow
def test_what_cannot_be_made_or_scored_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["make-task", "reasoning-gym:leg_count", "--rows", "3"]) == 2
    assert "reasoning-gym has no task 'leg_count'; it has" in capsys.readouterr().err
    (row, *_) = make("leg_counting", tmp_path / "rows.jsonl", "--plain")
    with pytest.raises(ValueError, match="another version of reasoning-gym"):
        ready_reward(COLUMN, {})(prompts=["Another question"], completions=["4"], **{COLUMN: [row[COLUMN]]})
