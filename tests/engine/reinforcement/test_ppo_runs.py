"""Stage ppo from its first answer to its result: it learns near its reference, and is the same run after a kill."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from peft import PeftModel
from safetensors.numpy import load_file
from transformers import AutoModelForCausalLM

from ftui.engine.checkpoints.checkpoint import CheckpointManager
from ftui.engine.reinforcement.ppo_rollouts import Moments, TokenLearning, steer
from ftui.engine.reinforcement.value_head import FILE as VALUE_HEAD
from ftui.engine.rewards.reward_table import RewardTable
from ftui.engine.training.step import StepRunner
from ftui.profile.schema import Profile
from ftui.runs.events import Step
from ftui.runs.records.health_records import HealthAlarm
from ftui.runs.run_folder import Run
from tests.engine.reinforcement.test_rollout_runs import LORA, LetterCounter, facts, rollout_bytes
from tests.support.attempts import Killed, attempt, killed_attempt, records
from tests.support.tiny import make_profile, write_rows


def ppo(model: Path, rows: Path, /, **sections: dict[str, Any]) -> Profile:
    base: dict[str, dict[str, Any]] = {
        "run": {"stage": "ppo"},
        "adapter": LORA,
        "data": {"max_length": 96},
        "train": {"max_steps": 8, "per_device_train_batch_size": 4, "gradient_accumulation_steps": 2,
                  "learning_rate": 5e-3, "warmup_steps": 0},
        "ppo": {"max_completion_length": 12, "num_ppo_epochs": 2, "temperature": 1.0},
        "rewards": {"reward_funcs": ["number_answer"]},
    }  # fmt: skip
    merged = base | {name: base.get(name, {}) | values for name, values in sections.items()}
    return make_profile(model, rows, **merged)


class SomeUnjudged(LetterCounter):
    """Gives no reward for every fifth answer."""

    def score(self, *answers: Any) -> RewardTable:
        table = super().score(*answers)
        table.values[::5] = np.nan
        return RewardTable(table.names, table.values, table.weights)


@pytest.fixture
def letters() -> LetterCounter:
    return LetterCounter()


@pytest.fixture(autouse=True)
def judged(letters: LetterCounter, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def open_rewards(*_: Any) -> Iterator[LetterCounter]:
        yield letters

    monkeypatch.setattr("ftui.engine.reinforcement.start.open_run_rewards", open_rewards)


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    return write_rows(tmp_path / "rows.jsonl", [{"prompt": f"count {n} of the ", "answer": str(n)} for n in range(20)])


def extras(run: Run, name: str) -> list[float]:
    return [float(step.extras[name] or 0) for step in records(run, Step)]


@pytest.mark.slow
def test_it_learns_and_leaves_an_adapter(model_folder: Path, prompts: Path, tmp_path: Path) -> None:
    """The letter comes more often; the result is PEFT's, and the value head lies with the checkpoint's state."""
    run = Run(tmp_path / "run")
    profile = ppo(
        model_folder, prompts, adapter={"r": 8, "target_modules": "all-linear"}, ppo={"kl_coef": 0.02,
        "use_score_norm": True}, train={"max_steps": 48, "per_device_train_batch_size": 16, "learning_rate": 2e-2},
        health={"thresholds": {"kl_budget": 0.02}},
    )  # fmt: skip
    assert attempt(run, profile) == 0
    alarm = next(one for one in records(run, HealthAlarm) if one.rule == "kl_budget")
    assert "nats a token away" in alarm.evidence and "ppo.kl_coef" in alarm.suggestion
    rewards = extras(run, "reward")
    assert np.mean(rewards[-10:]) > 2 * np.mean(rewards[:10]) > 0
    first, last = records(run, Step)[0].extras, records(run, Step)[-1].extras
    assert first["objective/kl"] == 0 and 0 < (last["objective/kl"] or 0) < 40
    assert first["policy/approxkl_avg"] == 0 and first["val/ratio"] == 1, "the first pass is on the model that answered"
    assert run.final.is_dir() and not (run.final / VALUE_HEAD).exists()
    base = AutoModelForCausalLM.from_pretrained(model_folder)
    assert PeftModel.from_pretrained(base, str(run.final)).active_adapter == "default"
    (kept,) = run.checkpoints.glob("checkpoint-48/resume/value_head.safetensors")
    assert np.abs(load_file(kept)["v_head.weight"]).max() > 0
    assert "value head" in (run.final / "README.md").read_text(encoding="utf-8")


RUNS: dict[str, dict[str, Any]] = {
    "one step a pass": {},
    "steered, normalised, three steps a pass": {
        "num_mini_batches": 3, "target": 0.1, "horizon": 50, "use_score_norm": True, "missing_eos_penalty": 0.2,
        "whiten_rewards": True, "kl_estimator": "k3",
    },
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("keys", RUNS)
def test_a_run_that_was_killed_is_the_same_run(
    keys: str, model_folder: Path, prompts: Path, tmp_path: Path, letters: LetterCounter,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Killed after steps, while answers are scored, while values are measured, and in a step."""
    profile = ppo(model_folder, prompts, train={"max_steps": 13}, ppo=RUNS[keys], checkpoint={"save_steps": 1})
    whole, cut = Run(tmp_path / "whole"), Run(tmp_path / "cut")
    assert attempt(whole, profile) == 0
    killed_attempt(cut, profile, 3, monkeypatch)
    for number, (place, name) in enumerate(
        [(letters, "score"), (TokenLearning, "complete"), (StepRunner, "run"), (CheckpointManager, "save")], start=2
    ):
        with monkeypatch.context() as patched, pytest.raises(Killed):
            patched.setattr(place, name, die)
            attempt(cut, profile, number)
    assert attempt(cut, profile, 6) == 0
    assert facts(cut) == facts(whole)
    assert rollout_bytes(cut) == rollout_bytes(whole)
    for file in ("final/adapter_model.safetensors", "checkpoints/checkpoint-13/resume/value_head.safetensors"):
        assert (cut.folder / file).read_bytes() == (whole.folder / file).read_bytes(), file
    if "steered" in keys:
        coefficients = list(dict.fromkeys(extras(whole, "objective/kl_coef")))
        assert len(coefficients) == 3, "one for each rollout"
        for now, following, kl in zip(
            coefficients, coefficients[1:], dict.fromkeys(extras(whole, "objective/kl")), strict=False
        ):
            assert following == pytest.approx(now * (1 + np.clip(kl / 0.1 - 1, -0.2, 0.2) * 20 / 50), rel=1e-9)
        state = json.loads((whole.checkpoints / "checkpoint-13/resume/state.json").read_bytes())
        assert state["scores"][0] == 60 and state["kl_coef"] not in coefficients


def die(*_: Any) -> Any:
    raise Killed


def test_all_weights_and_answers_without_a_reward(
    model_folder: Path, prompts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a reference everything is trained; what nobody judged is not; what is saved is a plain model."""

    @contextmanager
    def open_rewards(*_: Any) -> Iterator[LetterCounter]:
        yield SomeUnjudged()

    monkeypatch.setattr("ftui.engine.reinforcement.start.open_run_rewards", open_rewards)
    profile = ppo(
        model_folder, prompts, adapter={"method": "full", "r": 16, "lora_alpha": 32}, train={"max_steps": 4},
        ppo={"kl_coef": 0.0}, checkpoint={"save_steps": 1},
    )  # fmt: skip
    whole, cut = Run(tmp_path / "whole"), Run(tmp_path / "cut")
    assert attempt(whole, profile) == 0
    killed_attempt(cut, profile, 3, monkeypatch)
    assert attempt(cut, profile, 2) == 0
    assert facts(cut) == facts(whole)
    first = records(whole, Step)[0]
    assert first.num_target_tokens <= 6 * 12 and first.extras["objective/kl"] is None
    names = set(load_file(whole.final / "model.safetensors"))
    assert names and not any("v_head" in name for name in names)


def test_the_coefficient_is_steered_to_the_target() -> None:
    assert steer(0.2, 6.0, 6.0, 10_000, 256) == 0.2
    assert steer(0.2, 600.0, 6.0, 10_000, 256) == pytest.approx(0.2 * (1 + 0.2 * 0.0256))
    assert steer(0.2, 0.0, 6.0, 10_000, 256) == pytest.approx(0.2 * (1 - 0.2 * 0.0256))
    assert steer(0.2, 6.6, 6.0, 10_000, 256) == pytest.approx(0.2 * (1 + 0.1 * 0.0256))


def test_moments_are_those_of_all_scores() -> None:
    scores = np.random.default_rng(1).normal(3, 2, 50)
    moments = Moments()
    for part in np.split(scores, [7, 8, 30]):
        moments = moments.add(part)
    assert moments.mean == pytest.approx(scores.mean()) and moments.number == 50
    np.testing.assert_allclose(moments.normalise(scores), (scores - scores.mean()) / scores.std(ddof=1), rtol=1e-6)
