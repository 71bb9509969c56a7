"""`[rewards]`: what is refused in words, and that code runs by consent to its very text only."""

from pathlib import Path
from typing import Any

import pytest

from ftui.errors import ProfileError, RewardError
from ftui.profile.checks import grpo_checks, reward_checks
from ftui.profile.checks.known_values import KnownValues
from ftui.profile.consent import check_reward_code, keep_consents, read_allowed_code
from ftui.profile.paths import REWARDS, resolve_paths
from ftui.profile.schema import HardwareSection, Profile, RunSection
from ftui.profile.sections.adapter import AdapterSection
from ftui.profile.sections.data import DataSection
from ftui.profile.sections.model import ModelSection
from ftui.profile.sections.rewards import READY_OPTIONS, RewardsSection
from ftui.profile.sections.sampled_stages import GrpoSection


def faults(stage: str = "grpo", **keys: Any) -> list[tuple[str, str]]:
    keys = {name: tuple(value) if isinstance(value, list) else value for name, value in keys.items()}
    values = KnownValues(
        {"run": RunSection.model_construct(stage=stage), "rewards": RewardsSection(**keys)},
        wished={("rewards", name) for name in keys},
    )
    return [
        (".".join(one.key), f"{one.message} | {one.fix}") for check in reward_checks.CHECKS for one in check(values)
    ]


@pytest.mark.parametrize(
    ("keys", "place", "words"),
    [
        ({}, "reward_funcs", "learns from rewards, and there are none"),
        (
            {"stage": "sft", "reward_funcs": ["maths"]},
            "reward_funcs",
            "are for stage grpo, ppo, and this is stage sft",
        ),
        ({"reward_funcs": ["math"]}, "reward_funcs", "there is no reward 'math' | Did you mean 'maths'?"),
        ({"reward_funcs": ["maths", "maths"]}, "reward_funcs", "two rewards called 'maths'"),
        ({"reward_funcs": ["maths"], "reward_weights": [1.0, 2.0]}, "reward_weights", "2 numbers, and reward_funcs 1"),
        ({"reward_funcs": ["format"]}, "reward_funcs", "'format' takes pattern, which is not set"),
        ({"stage": "sft", "reference_column": "a"}, "reference_column", "and this is stage sft"),
        ({"reward_funcs": ["reward_model"]}, "reward_funcs", "takes reward_model_name_or_path, which is not set"),
        ({"reward_funcs": ["maths"], "penalty": 0.5}, "penalty", "is for repetition, and reward_funcs has none"),
        ({"reward_funcs": ["length"], "max_length": 3, "min_length": 4}, "min_length", "at least 4 and at most 3"),
        ({"reward_funcs": ["overlong"], "max_length": 3, "soft_punish_cache": 4}, "soft_punish_cache", "more than"),
        ({"reward_funcs": ["/no/such.py:f"]}, "reward_funcs", "/no/such.py cannot be read: No such file"),
    ],
)
def test_what_is_refused(keys: dict[str, Any], place: str, words: str) -> None:
    [(key, text)] = faults(**keys)
    assert key == f"rewards.{place}" and words in text


def test_what_is_accepted() -> None:
    assert faults("sft") == []
    names = [*READY_OPTIONS]
    keys: dict[str, Any] = {"pattern": "a", "max_length": 9, "soft_punish_cache": 3, "reward_model_name_or_path": "m"}
    assert faults(reward_funcs=names, reward_weights=[1.0] * len(names), **keys) == []


def test_a_function_is_looked_for_without_running_its_file(tmp_path: Path) -> None:
    path = tmp_path / "r.py"
    path.write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\ndef f(**_): ...\nasync def g(**_): ...\nh = f\n")
    assert faults(reward_funcs=[f"{path}:{name}" for name in "fgh"]) == []
    [(_, text)] = faults(reward_funcs=[f"{path}:x"])
    assert "has no function 'x' | It has f, g, h." in text
    path.write_text("def f(:\n")
    assert "is not Python" in faults(reward_funcs=[f"{path}:f"])[0][1]
    assert not (tmp_path / "ran").exists()


def test_a_path_is_relative_to_the_profile(tmp_path: Path) -> None:
    given = resolve_paths(REWARDS, ["maths", "sub/r.py:f"], tmp_path)
    assert given == ["maths", f"{tmp_path}/sub/r.py:f"]
    assert resolve_paths(REWARDS, "r.py:f", tmp_path) == f"{tmp_path}/r.py:f"


def with_code(path: Path) -> Profile:
    plain = Profile(
        run=RunSection(stage="sft"), model=ModelSection(name_or_path="m"), data=DataSection(train="d.jsonl")
    )
    return plain.model_copy(update={"rewards": RewardsSection(reward_funcs=(f"{path}:f",))})


def test_code_runs_by_consent_to_its_text_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that came from elsewhere, or was changed since, is asked about; the engine asks again by itself."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    path = tmp_path / "r.py"
    path.write_text("def f(**_): return [1.0]\n")
    profile = with_code(path)
    for allow, run_id in (((), None), (("remote-code", "measures"), None), ((), "a-run")):
        with pytest.raises(ProfileError, match="is Python code") as error:
            check_reward_code(profile, allow, run_id)
        assert "--allow reward-code" in error.value.hint
    with pytest.raises(RewardError, match="nobody has allowed it"):
        read_allowed_code(str(path), "a-run")
    check_reward_code(profile, ["reward-code"])
    keep_consents(profile, "a-run")
    check_reward_code(profile, (), "a-run")
    assert read_allowed_code(str(path), "a-run") == path.read_text()
    with pytest.raises(ProfileError):
        check_reward_code(profile, (), "another-run")
    path.write_text("def f(**_): return [2.0]\n")
    with pytest.raises(ProfileError):
        check_reward_code(profile, (), "a-run")
    with pytest.raises(RewardError, match="not the file that was allowed"):
        read_allowed_code(str(path), "a-run")
    path.unlink()
    with pytest.raises(RewardError, match="cannot be read"):
        read_allowed_code(str(path), "a-run")


def test_tries_without_dynamic_sampling_are_refused() -> None:
    """And obeying the hint mends it."""
    for is_on, messages in ((False, ["max_resample_times is for dynamic_sample, which is off"]), (True, [])):
        sections = {
            "run": RunSection.model_construct(stage="grpo"),
            "grpo": GrpoSection(max_resample_times=2, dynamic_sample=is_on),
        }
        values = KnownValues(sections, wished={("grpo", "max_resample_times")})
        assert [one.message for one in grpo_checks._sampled_again(values)] == messages


def test_a_reference_that_is_kept_is_not_divided() -> None:
    for method, beta, shard, number in (("full", 0.1, "all", 1), ("full", 0.1, "none", 0), ("lora", 0.1, "all", 0),
                                        ("full", 0.0, "all", 0)):  # fmt: skip
        sections = {
            "run": RunSection.model_construct(stage="grpo"),
            "grpo": GrpoSection(beta=beta),
            "adapter": AdapterSection.model_validate({"method": method}),
            "hardware": HardwareSection.model_construct(shard=shard),
        }
        assert len(list(grpo_checks._whole_reference(KnownValues(sections)))) == number


def test_answers_to_evaluate_need_rows() -> None:
    for rows, messages in (({}, ["num_generations_eval is for evaluations, and there are no rows for them"]),
                           ({"eval_num_rows": 3}, [])):  # fmt: skip
        sections = {
            "run": RunSection.model_construct(stage="grpo"),
            "grpo": GrpoSection(num_generations_eval=2),
            "data": DataSection.model_construct(eval=None, eval_fraction=None, eval_num_rows=rows.get("eval_num_rows")),
        }
        assert [one.message for one in grpo_checks._evaluated(KnownValues(sections))] == messages


def test_a_value_head_beside_divided_weights_is_refused() -> None:
    for method, shard, num_faults in (("full", "all", 1), ("full", "none", 0), ("lora", "all", 0)):
        sections = {
            "run": RunSection.model_construct(stage="ppo"),
            "adapter": AdapterSection.model_construct(method=method),
            "hardware": HardwareSection.model_construct(shard=shard),
        }
        assert len(list(grpo_checks._whole_value_head(KnownValues(sections)))) == num_faults, (method, shard)
