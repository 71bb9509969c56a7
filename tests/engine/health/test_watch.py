"""The exact rules in a real engine: sound runs raise none, each fault is found, and health.on_red is obeyed."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ftui.engine import recipe
from ftui.engine.runtime import control_flags
from ftui.engine.runtime.event_writer import EventWriter
from ftui.engine.training import forward_backward
from ftui.engine.training.evaluate import Evaluator
from ftui.engine.training.step import StepRunner
from ftui.errors import FINISHED, PARKED, NonFiniteError
from ftui.profile.schema import Profile
from ftui.runs.events import EvaluationDone, Noted, RunStopped, Step
from ftui.runs.records.health_records import HealthAlarm
from ftui.runs.requests import Continue, new_id, write_request
from ftui.runs.run_folder import Run
from tests.support.attempts import attempt, records
from tests.support.tiny import chats, make_profile, write_rows


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path / "run")


def profile_of(run: Run, model: Path, *, method: str = "lora", **health: Any) -> Profile:
    return make_profile(
        model, write_rows(run.folder.parent / "rows.jsonl", chats(40)), adapter={"method": method},
        data={"max_length": 128}, train={"precision": "fp32", "seed": 5, "max_steps": 8, "learning_rate": 1e-2},
        checkpoint={"save_steps": 4, "save_minutes": None}, health=health,
    )  # fmt: skip


def alarms(run: Run) -> list[HealthAlarm]:
    return records(run, HealthAlarm)


def freeze(patch: pytest.MonkeyPatch, *parts: str) -> None:
    """Weights whose names have all these parts are not trained."""
    assemble = recipe.assemble  # type: ignore[attr-defined]

    def assembled(*given: Any) -> Any:
        made = assemble(*given)
        for name, weight in made.model.named_parameters():
            if all(part in name for part in parts):
                weight.requires_grad_(False)
        return made

    patch.setattr(recipe, "assemble", assembled)


def change_gradients(patch: pytest.MonkeyPatch, first: int, change: Any) -> None:
    """From the micro-batch `first` on, `change` is done to the weights after each backward pass."""
    backpropagate, number = forward_backward.backpropagate, iter(range(1, 10**6))

    def changed(module: Any, *given: Any) -> Any:
        loss = backpropagate(module, *given)
        if next(number) >= first:
            change(dict(module.named_parameters()))
        return loss

    patch.setattr(forward_backward, "backpropagate", changed)


def answer_losses(patch: pytest.MonkeyPatch, value: float) -> None:
    patch.setattr(forward_backward, "mean_of", lambda sums, amounts: value)


@pytest.mark.parametrize("method", ["lora", "full"])
def test_a_sound_run_raises_no_alarm(method: str, run: Run, model_folder: Path) -> None:
    assert attempt(run, profile_of(run, model_folder, method=method, on_red="park")) == FINISHED
    assert alarms(run) == []


def test_frozen_second_matrices_are_a_dead_adapter(
    run: Run, model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    freeze(monkeypatch, "lora_B")
    assert attempt(run, profile_of(run, model_folder)) == FINISHED
    (alarm,) = alarms(run)
    assert (alarm.rule, alarm.level) == ("dead_adapter", "red")
    number = alarm.evidence.split("matrix B of ")[1].split(" targets")[0].split(" of ")
    assert number[0] == number[1] and int(number[0]) > 1, "all of them"


def test_one_dead_target_is_named(run: Run, model_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    freeze(monkeypatch, "lora_B", "layers.0", "q_proj")
    assert attempt(run, profile_of(run, model_folder)) == FINISHED
    (alarm,) = alarms(run)
    assert "matrix B of 1 of " in alarm.evidence and "model.layers.0.self_attn.q_proj" in alarm.evidence
    assert alarm.step == 6, "five steps after the first, whose learning rate may be 0"


def test_a_weight_that_no_gradient_reaches_is_named(
    run: Run, model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def drop(weights: dict[str, Any]) -> None:
        for name, weight in weights.items():
            if "layers.1" in name and "down_proj" in name:
                weight.grad = None

    change_gradients(monkeypatch, 1, drop)
    assert attempt(run, profile_of(run, model_folder, method="full")) == FINISHED
    (alarm,) = alarms(run)
    assert "no gradient reaches 1 trained weights (" in alarm.evidence and "layers.1.mlp.down_proj" in alarm.evidence


def spoil(weights: dict[str, Any]) -> None:
    for name, weight in weights.items():
        if "layers.1" in name and "down_proj" in name and weight.grad is not None:
            weight.grad.fill_(math.inf)


def test_a_gradient_that_is_not_finite_is_named_and_the_run_parked(
    run: Run, model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        change_gradients(patch, 3, spoil)
        assert attempt(run, profile_of(run, model_folder, on_red="park")) == PARKED
    (alarm,) = alarms(run)
    assert alarm.rule == "non_finite" and alarm.step == 3
    assert "the gradient of step 3 is NaN or infinite, that of model.layers.1.mlp.down_proj" in alarm.evidence
    (stopped,) = records(run, RunStopped)
    assert (stopped.step, stopped.reason) == (3, 'a red alarm, and health.on_red = "park"')
    assert attempt(run, profile_of(run, model_folder, on_red="park"), 2) == FINISHED
    assert len(alarms(run)) == 1


def test_a_red_alarm_pauses_until_a_person_continues(
    run: Run, model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_flags, "READ_SECONDS", 0.0)
    enter, paused_at = EventWriter.enter, []

    def entered(self: EventWriter, phase: Any, detail: str = "") -> None:
        enter(self, phase, detail)
        if phase == "held":
            paused_at.append(self.num_steps)
            write_request(run, Continue(id=new_id(), attempt=1, token="test"))

    monkeypatch.setattr(EventWriter, "enter", entered)
    answer_losses(monkeypatch, 0.0)
    assert attempt(run, profile_of(run, model_folder, on_red="pause")) == FINISHED
    assert [alarm.rule for alarm in alarms(run)] == ["zero_loss"] and paused_at == [1]


@pytest.mark.parametrize(("loss", "rule"), [(0.0, "zero_loss"), (6.4, "worse_than_guessing")])
def test_a_loss_that_cannot_be_is_told_once(
    loss: float, rule: str, run: Run, model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tokenizer has 300 entries: to guess among them is 5.70."""
    answer_losses(monkeypatch, loss)
    assert attempt(run, profile_of(run, model_folder)) == FINISHED
    assert [alarm.rule for alarm in alarms(run)] == [rule]


def test_a_rule_that_is_ignored_tells_nothing_and_does_nothing(
    run: Run, model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer_losses(monkeypatch, 0.0)
    assert attempt(run, profile_of(run, model_folder, on_red="park", ignore=["zero_loss"])) == FINISHED
    assert alarms(run) == []


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_weights_that_are_not_finite_are_never_published(
    value: float, run: Run, model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without an evaluation nothing else would tell."""
    run_step = StepRunner.run

    def spoiling(self: StepRunner, *boundary: Any) -> None:
        run_step(self, *boundary)
        if self.state.step == 8:
            weight = next(weight for weight in self.parts.model.parameters() if weight.requires_grad)
            with torch.no_grad():
                weight.view(-1)[3] = value

    monkeypatch.setattr(StepRunner, "run", spoiling)
    with pytest.raises(NonFiniteError, match="final/ is not written: a trained weight is NaN or infinite"):
        attempt(run, profile_of(run, model_folder))
    assert not run.final.exists() and len(records(run, Step)) in (0, 8)


def watch_of(run: Run, model: Path, monkeypatch: pytest.MonkeyPatch, num_rows: int, rise: float) -> None:
    """A run whose evaluation rows rise by `rise`, and half a per cent more or less, from the second evaluation on."""
    by_row, number = Evaluator._by_row, iter(range(10**6))

    def risen(self: Evaluator, row_losses: list[Any]) -> Any:
        losses, count = by_row(self, row_losses), next(number)
        return losses if count == 0 else losses[0] * 0 + FIRST_ROWS[: len(losses)] * (1 + rise * (count > 1))

    monkeypatch.setattr(Evaluator, "_by_row", risen)
    profile = profile_of(run, model)
    sections = profile.model_dump(mode="json", exclude_unset=True) | {
        "eval": {"eval_strategy": "steps", "eval_steps": 2}
    }
    sections["data"] |= {"eval_num_rows": num_rows}
    assert attempt(run, Profile.model_validate_json(json.dumps(sections))) == FINISHED


FIRST_ROWS = np.linspace(1.0, 5.0, 40)


def test_overfitting_is_told_once_with_its_rows(run: Run, model_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watch_of(run, model_folder, monkeypatch, 30, 0.02)
    (alarm,) = alarms(run)
    assert (alarm.rule, alarm.level) == ("overfitting", "amber")
    assert alarm.evidence.startswith("30 of 30 evaluation rows are worse at step 4 than at step 2, by 0.0")


def test_too_few_rows_to_tell_is_an_answer(run: Run, model_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watch_of(run, model_folder, monkeypatch, 10, 0.02)
    assert alarms(run) == []
    notes = [note.message for note in records(run, Noted) if "too few to tell" in note.message]
    assert notes == [
        "the evaluation loss has risen since step 2; whether that is overfitting: 10 evaluation rows are too few to "
        "tell: 20 are needed"
    ]


def test_the_rows_of_an_evaluation_are_those_of_its_loss(
    run: Run, model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weighted by their target tokens the rows are what the evaluation says."""
    by_row, seen = Evaluator._by_row, []

    def noted(self: Evaluator, row_losses: list[Any]) -> Any:
        losses, rows = by_row(self, row_losses), self.data.evaluation
        assert rows is not None
        seen.append(float((losses * rows.num_targets[rows.longest_first]).sum() / rows.num_targets.sum()))
        return losses

    monkeypatch.setattr(Evaluator, "_by_row", noted)
    sections = profile_of(run, model_folder).model_dump(mode="json", exclude_unset=True)
    sections["data"] |= {"eval_num_rows": 9}
    sections["eval"] = {"eval_strategy": "steps", "eval_steps": 4, "per_device_eval_batch_size": 4}
    assert attempt(run, Profile.model_validate_json(json.dumps(sections))) == FINISHED
    assert seen == pytest.approx([one.loss for one in records(run, EvaluationDone)], rel=1e-5) and len(seen) == 3


def test_what_goes_wrong_with_sampled_answers_is_told_and_paused_for_where_the_profile_says_so(
    run: Run, model_folder: Path
) -> None:
    """A reward that no answer gets, and rows whose own answers get it."""
    rows = write_rows(run.folder.parent / "rows.jsonl", [{"prompt": f"{n} and", "said": "xylophone"} for n in range(9)])
    profile = make_profile(
        model_folder, rows, run={"stage": "grpo"}, adapter={"method": "lora"}, data={"max_length": 64},
        train={"max_steps": 24, "per_device_train_batch_size": 4, "learning_rate": 1e-3},
        grpo={"num_generations": 2, "max_completion_length": 2},
        rewards={"reward_funcs": ["format"], "pattern": "xylophone", "memory_gib": None, "reference_column": "said"},
        health={"on_red": "park", "act_on": ["groups_without_spread"], "ignore": ["answers_truncated"]},
    )  # fmt: skip
    assert attempt(run, profile) == PARKED
    (alarm,) = alarms(run)
    assert (alarm.rule, alarm.level, alarm.step) == ("groups_without_spread", "amber", 20)
    steps = records(run, Step)
    assert len(steps) == 20 and {step.extras["reference_reward"] for step in steps} == {1.0}
    assert {step.extras["completions/identical_ratio"] for step in steps} <= {0.0, 0.5, 1.0}
