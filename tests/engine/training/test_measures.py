"""Measures beside the loss: token accuracy and perplexity against transformers' Trainer, whatever the batches are."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from datasets import Dataset
from transformers import AutoModelForCausalLM, DataCollatorForSeq2Seq, Trainer, TrainingArguments

from ftui.engine.training.evaluate import explain_fall
from ftui.engine.training.prepare import prepare
from ftui.profile.schema import Profile
from ftui.runs.events import EvaluationDone, Noted, RunFinished, Step
from ftui.runs.run_folder import Run
from tests.support.attempts import attempt, records
from tests.support.tiny import chats, make_profile, preference_pairs, write_rows

ACCURACY, PERPLEXITY = "mean_token_accuracy", "perplexity"


def profile_of(model: Path, rows: Path, /, **sections: dict[str, Any]) -> Profile:
    """Eight steps at a rate that changes what is right, each evaluated."""
    base: dict[str, dict[str, Any]] = {
        "data": {"eval_num_rows": 9},
        "train": {
            "max_steps": 8, "per_device_train_batch_size": 4, "learning_rate": 1e-2, "warmup_steps": 0,
            "lr_scheduler_type": "constant", "train_sampling_strategy": "sequential",
        },
        "eval": {"eval_strategy": "steps", "eval_steps": 2, "load_best_model_at_end": False},
    }  # fmt: skip
    merged = base | {name: base.get(name, {}) | values for name, values in sections.items()}
    return make_profile(model, rows, **merged)


def measured(run: Run) -> dict[str, float]:
    """Of the last evaluation."""
    last = records(run, EvaluationDone)[-1]
    return {"eval_loss": last.loss, **last.extras}


def trainer_measures(profile: Profile, run: Run, folder: Path) -> dict[str, float]:
    """The same of final/, by transformers' Trainer with `compute_metrics`."""
    prepared = prepare(profile, folder / "cache", lambda detail: None)
    assert prepared.evaluation is not None
    sequences = [prepared.evaluation.sequences[int(index)] for index in prepared.evaluation.indices]
    rows = [
        {"input_ids": s.input_ids.tolist(), "labels": np.where(s.targets, s.input_ids, -100).tolist()}
        for s in sequences
    ]

    def compute(output: Any) -> dict[str, float]:
        chosen, labels = output.predictions[:, :-1], output.label_ids[:, 1:]
        is_target = labels != -100
        return {ACCURACY: float((chosen == labels)[is_target].mean())}

    trainer = Trainer(
        model=AutoModelForCausalLM.from_pretrained(run.final),
        args=TrainingArguments(
            output_dir=str(folder), per_device_eval_batch_size=16, use_cpu=True, report_to=[], disable_tqdm=True,
            dataloader_pin_memory=False,
        ),
        eval_dataset=Dataset.from_list(rows), data_collator=DataCollatorForSeq2Seq(prepared.tokenizer),
        compute_metrics=compute, preprocess_logits_for_metrics=lambda logits, labels: logits.argmax(-1),
    )  # fmt: skip
    return trainer.evaluate()


@pytest.mark.slow
@pytest.mark.parametrize(
    "sections",
    [
        {"eval": {"per_device_eval_batch_size": 1}},
        {"eval": {"per_device_eval_batch_size": 4}},  # 9 rows: the last batch has one
        {"data": {"padding_free": False}, "eval": {"per_device_eval_batch_size": 9}},
        {"data": {"packing": True}, "train": {"label_smoothing_factor": 0.1}},
        {"run": {"stage": "pretrain"}, "data": {"max_length": 64}},
    ],
    ids=["single rows", "uneven batches", "padded", "packed and smoothed", "pretrain"],
)
def test_an_evaluation_measures_what_the_trainer_does(
    sections: dict[str, dict[str, Any]], model_folder: Path, tmp_path: Path
) -> None:
    rows = chats(60)
    if "run" in sections:
        rows = [{"text": " ".join(turn["content"] for turn in row["messages"])} for row in rows]
    profile = profile_of(model_folder, write_rows(tmp_path / "rows.jsonl", rows), **sections)
    run = Run(tmp_path / "run")
    assert attempt(run, profile) == 0
    found, theirs = measured(run), trainer_measures(profile, run, tmp_path)
    assert 0.2 < theirs[f"eval_{ACCURACY}"] < 0.9, "neither all nor nothing is right"
    assert found[ACCURACY] == pytest.approx(theirs[f"eval_{ACCURACY}"], abs=1e-7)
    assert found["eval_loss"] == pytest.approx(theirs["eval_loss"], rel=1e-4)  # their means of means are no better
    assert found[PERPLEXITY] == pytest.approx(math.exp(found["eval_loss"]), rel=1e-6)


@pytest.mark.slow
def test_a_step_measures_the_same_however_it_is_cut(model_folder: Path, tmp_path: Path) -> None:
    """Four rows at once, one by one, packed where they lie end to end anyway: the sums are those of the step."""
    rows = write_rows(tmp_path / "rows.jsonl", chats(60))
    cuts: dict[str, dict[str, dict[str, Any]]] = {
        "at once": {},
        "one by one": {"train": {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 4}},
        "padded": {"data": {"padding_free": False}, "train": {"per_device_train_batch_size": 2,
                   "gradient_accumulation_steps": 2}},
    }  # fmt: skip
    columns = []
    for name, sections in cuts.items():
        run = Run(tmp_path / name)
        assert attempt(run, profile_of(model_folder, rows, **sections)) == 0
        steps = records(run, Step)
        columns.append([(s.extras[ACCURACY] * s.num_target_tokens, s.extras[PERPLEXITY], s.loss) for s in steps])
    first = np.array(columns[0])
    assert (np.abs(first[:, 0] - first[:, 0].round()) < 1e-6).all(), "a whole number of tokens is right"
    np.testing.assert_allclose(first[:, 1], np.exp(first[:, 2]), rtol=1e-6)
    for other in columns[1:]:
        np.testing.assert_allclose(np.array(other)[:, 1:], first[:, 1:], rtol=1e-4)
        assert np.abs(np.array(other)[:, 0] - first[:, 0]).max() < 1.5, "weights differ in their last bits after a step"
        assert other[0][0] == pytest.approx(first[0, 0], abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("metric", [ACCURACY, PERPLEXITY])
def test_the_best_checkpoint_is_chosen_by_it(metric: str, model_folder: Path, tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", chats(40))
    section = {"eval_steps": 1, "load_best_model_at_end": True, "metric_for_best_model": f"eval_{metric}"}
    profile = profile_of(model_folder, rows, train={"learning_rate": 5e-2}, eval=section)
    run = Run(tmp_path / "run")
    assert attempt(run, profile) == 0
    later = [record for record in records(run, EvaluationDone) if record.step > 0]
    sign = 1 if metric == ACCURACY else -1
    best = max(later, key=lambda record: (sign * record.extras[metric], -record.step))
    assert [record.step for record in later if record.best][-1] == best.step
    assert records(run, RunFinished)[0].step_final == best.step
    state = json.loads((run.checkpoints / f"checkpoint-{best.step}" / "resume" / "state.json").read_text())
    assert state["best_metric"] == best.extras[metric]


FALLS = "the chosen answers are less likely than they were at the start"


@pytest.mark.parametrize(
    ("stage", "chosen", "margin", "words"),
    [
        ("dpo", -0.31, 0.5, FALLS),
        ("kto", -0.31, 0.5, "the good answers are less likely"),
        ("dpo", -0.29, 0.5, ""),  # a little
        ("dpo", 0.2, 0.5, ""),
        ("dpo", -0.9, -0.1, ""),  # the rejected ones are ahead: that is no matter of course
        ("simpo", -3.0, 0.5, ""),  # there is no start that it is measured against
        ("kto", -3.0, None, ""),  # an evaluation without bad answers
    ],
)
def test_falling_rewards_are_explained_where_they_are_usual(
    stage: str, chosen: float, margin: float | None, words: str
) -> None:
    profile = make_profile(Path("model"), Path("rows"), run={"stage": stage})
    text = explain_fall(profile, {"rewards/chosen": chosen, "rewards/margins": margin})
    assert text.startswith(words) and bool(text) == bool(words)


@pytest.mark.slow
def test_a_run_explains_falling_rewards_once(model_folder: Path, tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", preference_pairs(40))
    train = {"learning_rate": 2e-2, "max_steps": 10}
    both_down = {"loss_type": "apo_down"}
    sections: dict[str, Any] = {
        "run": {"stage": "dpo"},
        "train": train,
        "eval": {"eval_steps": 1},
        "preference": both_down,
    }
    profile = profile_of(model_folder, rows, **sections)
    run = Run(tmp_path / "run")
    assert attempt(run, profile) == 0
    fallen = [one for one in records(run, EvaluationDone) if explain_fall(profile, one.extras)]
    assert len(fallen) > 1, "there was more than one occasion"
    (note,) = [one for one in records(run, Noted) if FALLS in one.message]
    assert f"{fallen[0].extras['rewards/chosen']:.2f}" in note.message
