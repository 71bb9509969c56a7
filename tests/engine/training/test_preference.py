"""Whole runs of the stages that compare answers: what the first step says, and that no figure hangs on the batch."""

import json
import math
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from ftui.engine.inspection.browser import view_row
from ftui.engine.models.joined_rows import settle_joined_rows
from ftui.engine.models.load_model import load_model
from ftui.engine.objectives import make_objective
from ftui.engine.objectives.loss import RowLayout
from ftui.engine.training.collate import collate_examples
from ftui.engine.training.initial_model import with_reference
from ftui.engine.training.prepare import prepare
from ftui.errors import DataError
from ftui.profile.schema import Profile
from ftui.profile.serialize import to_toml
from ftui.runs.events import EvaluationDone, Step
from ftui.runs.run_folder import Run
from tests.support.attempts import attempt, records
from tests.support.tiny import (
    Rows,
    chats,
    column,
    judged_answers,
    make_profile,
    make_tokenizer,
    preference_pairs,
    train_run,
    write_rows,
)

LORA = {"r": 4, "lora_alpha": 16}
METHODS: dict[str, dict[str, Any]] = {
    "lora": {"method": "lora", **LORA},
    "dora": {"method": "lora", "use_dora": True, **LORA},
    "qlora": {"method": "qlora", **LORA},
    "full": {"method": "full"},
}
REWARDS = ("rewards/chosen", "rewards/rejected", "rewards/margins", "rewards/accuracies")


def dpo(model: Path, rows: Path, /, **sections: dict[str, Any]) -> Profile:
    base: dict[str, dict[str, Any]] = {
        "run": {"stage": "dpo"},
        "data": {"eval_num_rows": 6},
        "train": {"max_steps": 12, "per_device_train_batch_size": 4, "learning_rate": 5e-3, "warmup_steps": 0},
    }
    merged = base | {name: base.get(name, {}) | values for name, values in sections.items()}
    return make_profile(model, rows, **merged)


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    return write_rows(tmp_path / "rows.jsonl", preference_pairs(40))


@pytest.mark.parametrize(
    ("method", "precision"),
    [("lora", "fp32"), ("full", "fp32")]
    + [
        pytest.param(*case, marks=pytest.mark.slow)
        for case in (("dora", "fp32"), ("qlora", "fp32"), ("lora", "bf16"), ("full", "bf16"), ("qlora", "bf16"))
    ],
)
def test_it_begins_at_its_reference_and_learns(
    method: str, precision: str, model_folder: Path, rows: Path, tmp_path: Path
) -> None:
    profile = dpo(model_folder, rows, adapter=METHODS[method], train={"precision": precision})
    run = Run(tmp_path / "run")
    assert attempt(run, profile) == 0
    first, last = records(run, Step)[0], records(run, Step)[-1]
    before, after = records(run, EvaluationDone)[0], records(run, EvaluationDone)[-1]
    for start in (first, before):
        assert start.loss == pytest.approx(math.log(2), abs=1e-6)
        assert [start.extras[name] for name in REWARDS] == [0, 0, 0, 0]
    assert last.loss < first.loss and after.loss < before.loss
    assert after.extras["rewards/accuracies"] > 0.8 and after.extras["rewards/margins"] > 0


@pytest.fixture(scope="session")
def tied_folder(model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with one matrix for embeddings and head."""
    folder = tmp_path_factory.mktemp("tied")
    config = LlamaConfig.from_pretrained(model_folder)
    config.tie_word_embeddings = True
    torch.manual_seed(1)
    LlamaForCausalLM(config).save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    return folder


STARTS: dict[str, dict[str, Any]] = {
    "padded": {"data": {"padding_free": False}},
    "checkpointing": {"train": {"activation_checkpointing": True}},
    "tied, new tokens": {"adapter": METHODS["lora"], "model": {"extra_special_tokens": ["<|tool|>"]}},
    "tied, full": {"adapter": METHODS["full"]},
}


@pytest.mark.slow
@pytest.mark.parametrize("case", STARTS)
def test_rewards_are_0_at_the_start_whatever_is_tied_or_padded(
    case: str, model_folder: Path, tied_folder: Path, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever counts, is trained or is laid out how: model and reference are told apart in no bit."""
    monkeypatch.setenv("FTUI_CACHE", str(tmp_path / "cache"))  # values of another layout differ in the last bits
    model = tied_folder if "tied" in case else model_folder
    run = Run(tmp_path / "run")
    sections = STARTS[case] | {"model": {"name_or_path": str(model)} | STARTS[case].get("model", {})}
    assert attempt(run, dpo(model, rows, **sections)) == 0
    first, last = records(run, Step)[0], records(run, Step)[-1]
    assert first.loss == pytest.approx(math.log(2), abs=1e-6)
    assert [first.extras[name] for name in REWARDS] == [0, 0, 0, 0] and last.extras["rewards/margins"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("method", ["lora", "full"])
def test_nothing_is_dropped_while_answers_are_compared(method: str, tmp_path: Path, rows: Path) -> None:
    """trl#5542, trl#2042: GPT-2 drops a tenth by default, in the measurement and in each step."""
    folder, tokenizer = tmp_path / "gpt2", make_tokenizer()
    config = GPT2Config(
        vocab_size=len(tokenizer), n_embd=32, n_layer=2, n_head=4, n_positions=256, initializer_range=0.15,
        bos_token_id=None, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    torch.manual_seed(1)
    GPT2LMHeadModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    run = Run(tmp_path / "run")
    assert attempt(run, dpo(folder, rows, adapter=METHODS[method])) == 0
    first = records(run, Step)[0]
    assert first.loss == pytest.approx(math.log(2), abs=1e-6)
    assert [first.extras[name] for name in REWARDS] == [0, 0, 0, 0]
    if method == "full":
        assert GPT2Config.from_pretrained(run.final).resid_pdrop == 0.1, "the result is a model as the base was"


def pair(prompt: str, chosen: str, rejected: str) -> dict[str, str]:
    return {"prompt": prompt, "chosen": chosen, "rejected": rejected}


ODD_ROWS: dict[str, Rows] = {
    "emoji": [pair(f"{n} \U0001f600\u200d\u0301 ", f"\U0001f44d{n}", f"\U0001f44e {n}\u202e") for n in range(12)],
    "no prompts": [pair("", f"yes {n}", f"no {n}") for n in range(12)],
    "one begins the other": [pair(f"is it {n}? ", f"yes {n}", f"yes {n} or no") for n in range(12)],
    "nothing rejected": [pair(f"is it {n}? ", f"yes {n}", "") for n in range(12)],
    "one row": [pair("the ", "kernel", "shell")],
    "two rows": [pair("the ", "kernel", "shell"), pair("a ", "page", "cache")],
    "the same row": [pair("the ", "kernel", "shell")] * 12,
}


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["dpo", "orpo", "simpo"])
@pytest.mark.parametrize("rows", ODD_ROWS)
def test_odd_rows_are_trained_on(rows: str, stage: str, model_folder: Path, tmp_path: Path) -> None:
    data = {"eval_num_rows": None, "max_length": 64}
    train = {"max_steps": 3, "learning_rate": 1e-3}
    path = write_rows(tmp_path / "rows.jsonl", ODD_ROWS[rows])
    losses = column(
        train_run(tmp_path / "run", dpo(model_folder, path, run={"stage": stage}, data=data, train=train)), "loss"
    )
    assert np.isfinite(losses).all() and losses[-1] < losses[0]
    assert stage != "dpo" or losses[0] == pytest.approx(math.log(2), abs=1e-6)


@pytest.mark.parametrize(
    ("rows", "held_out", "words"),
    [
        (judged_answers(1), None, "There is one row to train on"),
        (judged_answers(9), 1, "There is one row to evaluate on"),
        (preference_pairs(1), None, "There is one row to train on"),  # two answers, but to one prompt
        (
            [*preference_pairs(1), *judged_answers(1)],
            None,
            "There are 2 rows, of unlike numbers of answers, to train on",
        ),
    ],
)
def test_an_answer_alone_has_no_other_to_be_measured_against(
    rows: list[dict[str, Any]], held_out: int | None, words: str, model_folder: Path, tmp_path: Path
) -> None:
    files = [write_rows(tmp_path / f"{name}.jsonl", [row]) for name, row in enumerate(rows)]
    profile = dpo(
        model_folder, files[0], run={"stage": "kto"}, data={"train": list(map(str, files)), "eval_num_rows": held_out}
    )
    with pytest.raises(DataError, match=words):
        prepare(profile, tmp_path / "cache", lambda detail: None)


@pytest.mark.slow
def test_what_is_cached_is_weighed_anew(
    model_folder: Path, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """trl#7084: sums that were measured with another ld_alpha, or with none. Ours are kept token by token."""
    losses = []
    for number, cache in enumerate(("shared", "shared", "own")):
        monkeypatch.setenv("FTUI_CACHE", str(tmp_path / cache))
        keys = {"ld_alpha": 0.3} if number else {}
        losses.append(column(train_run(tmp_path / str(number), dpo(model_folder, rows, preference=keys)), "loss"))
    np.testing.assert_array_equal(losses[1], losses[2])
    assert losses[0][0] == losses[1][0] and np.abs(losses[0][1:] - losses[1][1:]).max() > 1e-4


@pytest.mark.parametrize("method", ["lora", pytest.param("full", marks=pytest.mark.slow)])
def test_kto_begins_at_its_reference_and_learns(method: str, model_folder: Path, tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", judged_answers(46))
    run = Run(tmp_path / "run")
    profile = dpo(model_folder, rows, run={"stage": "kto"}, adapter=METHODS[method], preference={"beta": 0.3})
    assert attempt(run, profile) == 0
    first, last = records(run, Step)[0], records(run, Step)[-1]
    before, after = records(run, EvaluationDone)[0], records(run, EvaluationDone)[-1]
    for start in (first, before):
        assert start.loss == pytest.approx(0.5, abs=1e-6)
        assert {start.extras[name] for name in ("rewards/chosen", "rewards/rejected", "kl")} <= {0.0, None}
    assert last.loss < 0.4 and after.extras["rewards/chosen"] > 0.2
    margins = [step for step in records(run, Step) if step.extras.get("rewards/margins") is not None]
    assert margins[-1].extras["rewards/margins"] > 1 and margins[0].extras["rewards/margins"] == 0
    assert max(step.extras["kl"] for step in records(run, Step)) > 0


def test_every_row_of_kto_has_an_answer_of_another(model_folder: Path, tmp_path: Path) -> None:
    """Its own prompt to the token, the partner's answer to the token; each answer once, none its own."""
    rows = write_rows(tmp_path / "rows.jsonl", judged_answers(30))
    profile = dpo(model_folder, rows, run={"stage": "kto"})
    data = prepare(profile, tmp_path / "cache", lambda detail: None)
    for split in (data.train, data.evaluation):
        assert split is not None and split.mismatched is not None
        answers = []
        for number in range(len(split)):
            (own,), (other,) = split.example(number), split.mismatched.example(number)
            prompt = int(np.flatnonzero(own.targets)[0])
            assert (other.input_ids[:prompt] == own.input_ids[:prompt]).all() and not other.targets[:prompt].any()
            assert split.mismatched.lengths[number] == len(other.input_ids)
            assert split.mismatched.num_targets[number] == other.num_targets == int(other.targets.sum())
            answers.append(bytes(other.input_ids[prompt:]))
            assert answers[-1] != bytes(own.input_ids[prompt:])
        mine = [
            bytes(s.input_ids[int(np.flatnonzero(s.targets)[0]) :]) for n in range(len(split)) for s in split.example(n)
        ]
        assert sorted(answers) == sorted(mine)


def test_what_is_set_aside_has_answers_of_both_kinds(model_folder: Path, tmp_path: Path) -> None:
    """Bad answers are different rows, as good ones are: else they would be copies of each other, and stay together.

    So are pairs that differ in the rejected answer only.
    """
    rows = write_rows(tmp_path / "rows.jsonl", judged_answers(60))
    profile = dpo(model_folder, rows, run={"stage": "kto"}, data={"eval_num_rows": 20})
    split = prepare(profile, tmp_path / "cache", lambda detail: None).evaluation
    assert split is not None and len(split) == 20
    assert set(split.sequences.labels[split.indices].tolist()) == {1, -1}

    one, *others = preference_pairs(20)
    same = [one | {"rejected": other["rejected"]} for other in others]
    profile = dpo(model_folder, write_rows(tmp_path / "pairs.jsonl", same), data={"eval_num_rows": 9})
    pairs = prepare(profile, tmp_path / "cache", lambda detail: None)
    assert not any("exactly what" in warning for warning in pairs.warnings)


@pytest.mark.parametrize(
    "stage", ["orpo", *(pytest.param(stage, marks=pytest.mark.slow) for stage in ("simpo", "cpo"))]
)
def test_stages_without_a_reference_learn(stage: str, model_folder: Path, rows: Path, tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    assert attempt(run, dpo(model_folder, rows, run={"stage": stage})) == 0
    before, after = records(run, EvaluationDone)[0], records(run, EvaluationDone)[-1]
    assert not run.reference.exists()
    assert after.loss < before.loss and after.extras["rewards/margins"] > before.extras["rewards/margins"]


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["dpo", "kto"])
def test_the_split_into_micro_batches_does_not_matter(stage: str, model_folder: Path, tmp_path: Path) -> None:
    given: Rows = preference_pairs(40) if stage == "dpo" else judged_answers(40)
    rows = write_rows(tmp_path / "rows.jsonl", given)
    keys: Any = {"loss_type": ["sigmoid", "sft"], "loss_weights": [1, 0.1]} if stage == "dpo" else {"beta": 0.5}
    figures = []
    for size, accumulation in ((8, 1), (1, 8), (2, 4)):
        profile = dpo(
            model_folder, rows, run={"stage": stage}, preference=keys,
            train={
                "per_device_train_batch_size": size, "gradient_accumulation_steps": accumulation, "max_steps": None,
                "num_train_epochs": 2,
            },
        )  # fmt: skip
        steps = train_run(tmp_path / f"{size}", profile)
        figures.append([column(steps, name) for name in ("loss", "grad_norm", "num_target_tokens")])
    assert len(figures[0][0]) == 10, "the last step of an epoch has two pairs"
    for losses, norms, targets in figures[1:]:
        np.testing.assert_allclose(losses, figures[0][0], rtol=2e-4)
        np.testing.assert_allclose(norms, figures[0][1], rtol=1e-4)
        np.testing.assert_array_equal(targets, figures[0][2])


def test_pairs_give_the_same_however_they_lie(model_folder: Path, rows: Path, tmp_path: Path) -> None:
    """Loss, metrics and gradients of pairs in lines of their own, of all in one line, and with their prompts once."""
    settle_joined_rows()
    profile = dpo(model_folder, rows, preference={"loss_type": ["sigmoid", "sft"]})
    data = prepare(profile, tmp_path / "cache", lambda detail: None)
    values = np.random.default_rng(0).normal(-30, 3, data.train.num_target_tokens).astype(np.float32)
    split = with_reference(replace(data, evaluation=None), {"train": values / 10}).train
    answers = [one for number in range(3) for one in split.example(number)]
    read = [one.input_ids[: np.flatnonzero(one.targets)[-1]].tolist() for one in answers]  # the last target is not read
    pairs = [read[number : number + 2] for number in (0, 2, 4)]
    computed = sum(len({(*one[:end],) for one in pair for end in range(1, len(one) + 1)}) for pair in pairs)
    assert computed < 0.95 * sum(map(len, read))
    alone, packed = ([(0,), (1,), (2,)], [(0, 1, 2)])
    results = []
    for line, layout, shape in (
        (alone, RowLayout.PADDED, (6, max(len(one.input_ids) for one in answers))),
        (packed, RowLayout.PADDED, (1, sum(len(one.input_ids) for one in answers))),
        (alone, RowLayout.SHARED, (1, computed)),
        (packed, RowLayout.SHARED, (1, computed)),
    ):
        model = load_model(model_folder, profile.model, torch.float32)
        model.train()
        if layout is RowLayout.SHARED and line is alone:
            model.activation_checkpointing_enable()
        batch = collate_examples(split, line, 0, layout)
        assert batch.input_ids.shape == shape and batch.amounts["examples"] == 3
        loss = make_objective(profile).loss(model, batch)
        (loss.sums["examples"] + loss.sums["chosen_targets"]).backward()
        figures = {name: value.detach() for name, value in (loss.sums | loss.metrics).items()}
        results.append(figures | {name: w.grad for name, w in model.named_parameters() if w.grad is not None})
    expected, *others = results
    for found in others:
        assert found.keys() == expected.keys() and len(found) > 20
        for name, value in expected.items():
            torch.testing.assert_close(found[name], value, rtol=1e-5, atol=1e-5 * float(value.abs().max()))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stage", "method", "packing"),
    [("dpo", "lora", False), ("dpo", "full", True), ("orpo", "dora", False), ("simpo", "full", False)],
)
def test_a_run_with_prompts_once_has_the_losses_of_two_rows(
    stage: str, method: str, packing: bool, model_folder: Path, rows: Path, tmp_path: Path
) -> None:
    runs = []
    for free in (True, False):
        data = {"padding_free": free, "packing": packing, "max_length": 120}
        profile = dpo(model_folder, rows, run={"stage": stage}, adapter=METHODS[method], data=data)
        folder = tmp_path / f"{free}"
        steps = train_run(folder, profile)
        said = json.loads(next(folder.rglob("MANIFEST.json")).read_text())["environment"]["attention"]
        assert said == ("sdpa, rows end to end, prompts once" if free else "sdpa")
        evaluated = [event.loss for event in records(Run(folder), EvaluationDone)]
        runs.append(([column(steps, name) for name in ("loss", "grad_norm", "num_tokens")], evaluated))
    (figures, evaluated), (expected, expected_evaluated) = runs
    np.testing.assert_allclose(figures[0], expected[0], rtol=2e-5)
    np.testing.assert_allclose(figures[1], expected[1], rtol=1e-3)
    np.testing.assert_array_equal(figures[2], expected[2])
    np.testing.assert_allclose(evaluated, expected_evaluated, rtol=2e-5)


@pytest.mark.parametrize(
    ("stage", "verdicts"), [("dpo", {"chosen", "rejected"}), ("kto", {"judged good", "judged bad"}), ("sft", {""})]
)
def test_the_row_view_says_which_answer_it_shows(
    stage: str, verdicts: set[str], model_folder: Path, tmp_path: Path
) -> None:
    rows = chats(9) if stage == "sft" else preference_pairs(9) if stage == "dpo" else judged_answers(9)
    profile = dpo(model_folder, write_rows(tmp_path / "rows.jsonl", rows), run={"stage": stage})
    view = partial(view_row, to_toml(profile), "number", lambda detail: None)
    seen = {
        view(number=number, part=part).verdict for number in range(6) for part in range(view(number=number).num_parts)
    }
    assert seen == verdicts
    for number in range(6):  # who speaks is read off the answer that is shown
        for part in range(view(number=number).num_parts):
            assert [turn.role for turn in view(number=number, part=part).turns][-2:] == ["user", "assistant"]
