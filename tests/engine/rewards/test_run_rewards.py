"""The rewards of a profile; a file that comes with it never runs unless somebody has said so on this machine."""

from pathlib import Path

import msgspec
import pytest

from ftui.engine.rewards.run_rewards import open_run_rewards, reward_specs
from ftui.errors import RewardError
from ftui.profile.consent import keep_consents
from ftui.profile.schema import Profile, RunSection
from ftui.profile.sections.data import DataSection
from ftui.profile.sections.model import ModelSection
from ftui.profile.sections.rewards import READY_OPTIONS, RewardsSection
from ftui.runs.run_folder import Run, RunFacts


def no_code(path: str) -> str:
    raise AssertionError(f"{path} is read")


def test_each_ready_reward_gets_the_options_that_it_takes(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text('{"type": "array"}')
    section = RewardsSection(
        reward_funcs=tuple(READY_OPTIONS), column="right", pattern="a+", schema_file=str(tmp_path / "s.json"),
        max_length=9, soft_punish_cache=3, penalty=0.5,
    )  # fmt: skip
    specs = {spec.name: spec.options for spec in reward_specs(section, no_code)}
    assert specs == {
        "exact_answer": {"column": "right"},
        "number_answer": {"column": "right"},
        "maths": {"column": "right"},
        "reasoning_gym": {},
        "format": {"pattern": "a+"},
        "json_schema": {"schema": '{"type": "array"}'},
        "length": {"max_length": 9, "min_length": 0},
        "repetition": {"ngram_size": 3, "penalty": 0.5},
        "overlong": {"max_length": 9, "cache": 3},
        "reward_model": {},
    }


def a_run(folder: Path) -> Run:
    folder.mkdir()
    run = Run(folder)
    run.facts.write_bytes(msgspec.json.encode(RunFacts("an-id", folder.name, 0.0, "p")))
    return run


def test_they_score(tmp_path: Path) -> None:
    names = tuple(name for name in READY_OPTIONS if name not in ("maths", "reasoning_gym", "reward_model"))
    section = RewardsSection(
        reward_funcs=names, reward_weights=(0.5, *[1.0] * (len(names) - 1)), pattern="4", max_length=9,
        soft_punish_cache=3, memory_gib=None,
    )  # fmt: skip
    with open_run_rewards(a_run(tmp_path / "mine"), section, print, {}) as rewards:
        table = rewards.score(["2 + 2"], ["4"], [[1]], {"answer": ["4"]})
    assert dict(zip(table.names, table.values[0].tolist(), strict=True)) == {
        "exact_answer": 1, "number_answer": 1, "format": 1, "json_schema": 1, "length": 1, "repetition": 0,
        "overlong": 0,
    }  # fmt: skip
    assert table.totals.tolist() == [4.5]


def test_code_that_came_with_a_profile_never_runs_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder as it may come from the hub: not when it is new, nor when it changed after somebody allowed it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    run = a_run(tmp_path / "mine")
    code, mark = tmp_path / "rewards.py", tmp_path / "it-ran"
    hostile = f"open({str(mark)!r}, 'w')\ndef f(completions, **_): return [1.0] * len(completions)\n"
    code.write_text(hostile)
    section = RewardsSection(reward_funcs=(f"{code}:f",))
    with pytest.raises(RewardError, match="nobody has allowed it"), open_run_rewards(run, section, print, {}):
        pass
    code.write_text("def f(completions, **_): return [2.0] * len(completions)\n")
    profile = Profile(
        run=RunSection(stage="sft"), model=ModelSection(name_or_path="m"), data=DataSection(train="d.jsonl")
    ).model_copy(update={"rewards": section})
    keep_consents(profile, run.read_facts().run_id)
    with open_run_rewards(run, section, print, {}) as rewards:
        assert rewards.score(["p"], ["a"], [[1]], {}).totals.tolist() == [2.0]
        code.write_text(hostile)
        assert rewards.score(["p"], ["a"], [[1]], {}).totals.tolist() == [2.0], "what was allowed goes on"
    with (
        pytest.raises(RewardError, match="not the file that was allowed") as error,
        open_run_rewards(run, section, print, {}),
    ):
        pass
    assert "--allow reward-code" in error.value.hint
    assert not mark.exists()
