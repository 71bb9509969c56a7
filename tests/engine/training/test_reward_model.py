"""Whole runs of stage rm: against TRL's trainer, cut into micro-batches, killed, and loaded by others."""

import json
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from datasets import Dataset
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BitsAndBytesConfig,
    BloomConfig,
    BloomForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    GraniteMoeConfig,
    GraniteMoeForCausalLM,
    LlamaConfig,
    LlamaForSequenceClassification,
    PreTrainedTokenizerFast,
)

from ftui.engine.build import build_model
from ftui.engine.check_profile import check_profile
from ftui.engine.generation.load_trained import load_trained
from ftui.engine.inspection.browser import view_row
from ftui.engine.models.quantization import keep_layout
from ftui.engine.models.tokenizer import end_padding
from ftui.engine.objectives.loss import RowLayout
from ftui.engine.objectives.reward_losses import sequence_scores
from ftui.engine.system.device import find_hardware
from ftui.engine.system.rng import seed_everything
from ftui.engine.training.collate import collate_examples
from ftui.engine.training.prepare import TrainingData, prepare
from ftui.engine.training.request_handlers import RequestHandler
from ftui.errors import ModelError
from ftui.profile.schema import Profile
from ftui.profile.serialize import to_toml
from ftui.runs.events import EvaluationDone, RunStarted, Step
from ftui.runs.requests import GenerateSamples
from ftui.runs.run_folder import Run
from ftui.system.user_folders import cache_folder
from tests.support.attempts import attempt, killed_attempt, records
from tests.support.sameness import same_runs
from tests.support.tiny import (
    column,
    completions,
    make_profile,
    make_tokenizer,
    preference_pairs,
    train_run,
    write_rows,
)

LORA: dict[str, Any] = {"r": 4, "lora_alpha": 16}
METHODS: dict[str, dict[str, Any]] = {
    "lora": {"method": "lora", **LORA},
    "dora": {"method": "lora", "use_dora": True, **LORA},
    "qlora": {"method": "qlora", **LORA},
    "full": {"method": "full"},
    "freeze": {"method": "freeze", "trainable_layers": 1},
}
QUICK = ("lora", "full")


def methods() -> list[Any]:
    return [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in METHODS]


def rm(model: Path, rows: Path, /, **sections: dict[str, Any]) -> Profile:
    base: dict[str, dict[str, Any]] = {
        "run": {"stage": "rm"},
        "data": {"eval_num_rows": 10},
        "train": {"max_steps": 12, "per_device_train_batch_size": 4, "learning_rate": 5e-3, "warmup_steps": 0},
    }
    merged = base | {name: base.get(name, {}) | values for name, values in sections.items()}
    return make_profile(model, rows, **merged)


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    return write_rows(tmp_path / "rows.jsonl", preference_pairs(50))


def prepared(profile: Profile) -> TrainingData:
    return prepare(profile, cache_folder(Path()), lambda detail: None)


def load_plain(profile: Profile, final: Path) -> tuple[Any, Any]:
    """The reward model in `final`, by transformers and PEFT alone, and its tokenizer."""
    load, tokenizer = AutoModelForSequenceClassification.from_pretrained, AutoTokenizer.from_pretrained(final)
    if not (final / "adapter_config.json").exists():
        return load(final).eval(), tokenizer
    options: dict[str, Any] = {}
    if profile.adapter.is_quantised:
        options["quantization_config"] = BitsAndBytesConfig(
            load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=torch.float32,
        )  # fmt: skip
    base = load(str(profile.model.name_or_path), num_labels=1, dtype=torch.float32, **options)
    if profile.adapter.is_quantised:
        keep_layout(base)
    base.config.pad_token_id = tokenizer.pad_token_id  # as README.md says
    return PeftModel.from_pretrained(base, final).eval(), tokenizer


def plain_scores(profile: Profile, run: Run) -> tuple[np.ndarray, np.ndarray]:
    """Scores of the held-out pairs (chosen, rejected), padded in one batch, by the forward of transformers."""
    model, tokenizer = load_plain(profile, run.final)
    split = prepared(profile).evaluation
    assert split is not None
    ids = [one.input_ids.tolist() for number in range(len(split)) for one in split.example(number)]
    inputs = tokenizer.pad({"input_ids": ids}, return_tensors="pt", padding_side="right")
    with torch.no_grad():
        scores = model(**inputs).logits.squeeze(-1).float().numpy()
    return scores[::2], scores[1::2]


@pytest.mark.parametrize("method", methods())
def test_it_learns_and_opens_in_plain_transformers(method: str, model_folder: Path, rows: Path, tmp_path: Path) -> None:
    """The head is there: without it, it would be drawn anew, and say something else of each pair."""
    profile = rm(model_folder, rows, adapter=METHODS[method], eval={"load_best_model_at_end": False})
    run = Run(tmp_path / "run")
    assert attempt(run, profile) == 0
    before, after = records(run, EvaluationDone)[0], records(run, EvaluationDone)[-1]
    assert after.loss < before.loss and after.extras["rewards/accuracies"] >= 0.9
    chosen, rejected = plain_scores(profile, run)
    assert chosen.mean() == pytest.approx(after.extras["rewards/chosen"], abs=1e-5)
    assert rejected.mean() == pytest.approx(after.extras["rewards/rejected"], abs=1e-5)
    assert (chosen > rejected).mean() == pytest.approx(after.extras["rewards/accuracies"])
    assert np.logaddexp(0, rejected - chosen).mean() == pytest.approx(after.loss, abs=1e-5)


@pytest.mark.slow
def test_one_that_is_saved_is_continued(model_folder: Path, rows: Path, tmp_path: Path) -> None:
    """As it is: the first evaluation of the second run is the last of the first. So does an adapter."""
    first, keys = Run(tmp_path / "first"), {"load_best_model_at_end": False}
    assert attempt(first, rm(model_folder, rows, eval=keys)) == 0
    adapted = Run(tmp_path / "adapted")
    assert attempt(adapted, rm(first.final, rows, adapter=METHODS["lora"], eval=keys)) == 0
    again = {"method": "lora", "name_or_path": str(adapted.final)}
    profiles = rm(first.final, rows), rm(first.final, rows, adapter=again)
    for before, profile in zip((first, adapted), profiles, strict=True):
        after = Run(tmp_path / f"after {before.name}")
        assert attempt(after, profile) == 0
        last, new = records(before, EvaluationDone)[-1], records(after, EvaluationDone)[0]
        assert new.loss == pytest.approx(last.loss, abs=1e-6)
        assert new.extras["rewards/chosen"] == pytest.approx(last.extras["rewards/chosen"], abs=1e-5)


def test_a_new_head_follows_the_seed_alone(model_folder: Path, rows: Path) -> None:
    """Whatever was drawn before it, whatever the type and the method; and it is told."""
    heads: dict[str, torch.Tensor] = {}
    cases: dict[str, dict[str, Any]] = {
        "full": {}, "bf16": {"train": {"precision": "bf16"}}, "qlora": {}, "another": {"train": {"seed": 6}},
    }  # fmt: skip
    for name, sections in cases.items():
        method = METHODS.get(name, METHODS["lora"])
        profile = rm(model_folder, rows, adapter=method, **sections)
        data, hardware = prepared(profile), find_hardware(profile)
        assert any("score head is new" in warning for warning in data.warnings)
        seed_everything(profile.train.seed)
        torch.rand(len(heads))
        model = build_model(profile, data, hardware)
        score = next(weight for path, weight in model.named_parameters() if "score" in path and weight.requires_grad)
        assert score.dtype == torch.float32
        heads[name] = score.detach().clone()
    assert torch.equal(heads["full"], heads["bf16"]) and torch.equal(heads["full"], heads["qlora"])
    assert not torch.equal(heads["full"], heads["another"])


@pytest.mark.slow
def test_the_split_into_micro_batches_does_not_matter(model_folder: Path, tmp_path: Path) -> None:
    """Nor do joined, packed and padded rows."""
    rows = write_rows(tmp_path / "rows.jsonl", preference_pairs(40))
    figures: list[list[np.ndarray]] = []
    for size, accumulation, data in (
        (8, 1, {}), (1, 8, {}), (2, 4, {}), (8, 1, {"padding_free": False}), (2, 4, {"padding_free": False}),
    ):  # fmt: skip
        profile = rm(
            model_folder, rows, preference={"center_rewards_coefficient": 0.01}, data={"eval_num_rows": 6, **data},
            train={
                "per_device_train_batch_size": size, "gradient_accumulation_steps": accumulation, "max_steps": None,
                "num_train_epochs": 2,
            },
        )  # fmt: skip
        steps = train_run(tmp_path / str(len(figures)), profile)
        figures.append([column(steps, name) for name in ("loss", "grad_norm")])
    assert len(figures[0][0]) == 10, "the last step of an epoch has two pairs"
    for losses, norms in figures[1:]:
        np.testing.assert_allclose(losses, figures[0][0], rtol=2e-5)
        np.testing.assert_allclose(norms, figures[0][1], rtol=1e-4)


def test_lines_of_all_kinds_give_the_same(model_folder: Path, rows: Path) -> None:
    """Scores of pairs in lines of their own, packed into one, end to end, and with their prompts once."""
    profile = rm(model_folder, rows)
    data, hardware = prepared(profile), find_hardware(profile)
    model = build_model(profile, data, hardware)
    found = []
    alone: list[tuple[int, ...]] = [(0,), (1,), (2,)]
    packed: list[tuple[int, ...]] = [(0, 1, 2)]
    ways = [(alone, RowLayout.PADDED), (packed, RowLayout.PADDED), (alone, RowLayout.JOINED), (alone, RowLayout.SHARED)]
    for lines, layout in ways:
        batch = collate_examples(data.train, lines, data.pad_id, layout)
        with torch.no_grad():
            found.append(sequence_scores(model, batch))
    assert found[0].shape == (6,) and float(found[0].std()) > 1e-3
    for scores in found[1:]:
        torch.testing.assert_close(scores, found[0], rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["lora", "full", "qlora"])
def test_a_killed_run_goes_on_bit_for_bit(
    method: str, model_folder: Path, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    profile = rm(
        model_folder, rows, adapter=METHODS[method], checkpoint={"save_steps": 2},
        eval={"eval_strategy": "steps", "eval_steps": 2},
    )  # fmt: skip
    whole, cut = Run(tmp_path / "whole"), Run(tmp_path / "cut")
    assert attempt(whole, profile) == 0
    killed_attempt(cut, profile, 3, monkeypatch)
    assert attempt(cut, profile, 2) == 0
    assert records(cut, RunStarted)[-1].reproducibility == "EXACT"
    same_runs(cut, whole)


def trl_steps(profile: Profile, folder: Path, rows: list[dict[str, Any]]) -> list[dict[str, float]]:
    """TRL's trainer on the pairs in the order of our plan; its head is ours."""
    from trl.trainer.reward_config import RewardConfig
    from trl.trainer.reward_trainer import RewardTrainer

    data, train = prepared(profile), profile.train
    order = [index for step in range(1, data.plan.max_steps + 1) for (index,) in data.plan.step(step)]
    policy: Any = AutoModelForSequenceClassification.from_pretrained(
        str(profile.model.name_or_path), num_labels=1, dtype=torch.float32
    )
    seed_everything(train.seed)
    own = build_model(profile, data, find_hardware(profile))
    head = next(weight for path, weight in own.named_parameters() if "score" in path and weight.requires_grad)
    policy.score.weight.data = head.detach().clone()
    if profile.adapter.method == "lora":
        torch.manual_seed(train.seed)
        config = LoraConfig(**LORA, target_modules="all-linear", task_type="SEQ_CLS", modules_to_save=["score"])
        policy = get_peft_model(policy, config)
        ours = {path: weight for path, weight in own.named_parameters() if "lora_" in path}
        for path, weight in policy.named_parameters():
            if "lora_" in path:
                weight.data = ours[path].detach().clone()
    settings: dict[str, Any] = {"max_steps": train.max_steps, "max_grad_norm": train.max_grad_norm}
    trainer = RewardTrainer(
        model=policy,
        args=RewardConfig(
            output_dir=str(folder), learning_rate=train.learning_rate, lr_scheduler_type=train.lr_scheduler_type,
            warmup_steps=train.warmup_steps, weight_decay=train.weight_decay, **settings, optim=train.optim,
            max_length=None, logging_steps=1, use_cpu=True,
            per_device_train_batch_size=train.per_device_train_batch_size, save_strategy="no", bf16=False,
            gradient_accumulation_steps=train.gradient_accumulation_steps, report_to=[], disable_tqdm=True,
            train_sampling_strategy="sequential", activation_checkpointing=False, dataloader_pin_memory=False,
            center_rewards_coefficient=profile.preference.center_rewards_coefficient,
        ),
        train_dataset=Dataset.from_list([rows[index] for index in order]),
        processing_class=make_tokenizer(),
    )  # fmt: skip
    trainer.train()
    return [entry for entry in trainer.state.log_history if "loss" in entry]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "size", "coefficient", "has_margins"),
    [("full", 4, None, False), ("lora", 4, None, True), ("full", 2, 0.1, True), ("lora", 2, 0.01, False)],
)
def test_eight_steps_are_trl_s(
    method: str, size: int, coefficient: float | None, has_margins: bool, model_folder: Path, tmp_path: Path
) -> None:
    rows = preference_pairs(40)
    if has_margins:
        rows = [row | {"margin": number % 5 / 2} for number, row in enumerate(rows)]
    profile = rm(
        model_folder, write_rows(tmp_path / "rows.jsonl", rows), adapter=METHODS[method], data={"eval_num_rows": None},
        preference={"center_rewards_coefficient": coefficient},
        train={
            "learning_rate": 1e-3, "lr_scheduler_type": "cosine", "warmup_steps": 2, "weight_decay": 0.1,
            "max_steps": 8, "per_device_train_batch_size": size, "gradient_accumulation_steps": 4 // size,
        },
    )  # fmt: skip
    steps = train_run(tmp_path / "run", profile)
    oracle = trl_steps(profile, tmp_path / "trl", rows)
    assert len(steps) == len(oracle) == 8
    found, expected = column(steps, "loss"), np.array([entry["loss"] for entry in oracle])
    assert np.ptp(found) > 1e-2, "nothing was learned, so nothing is compared"
    np.testing.assert_allclose(found, expected, rtol=5e-6, atol=5e-6)
    np.testing.assert_allclose(column(steps, "grad_norm"), [entry["grad_norm"] for entry in oracle], rtol=1e-4)
    for name, theirs in (("rewards/accuracies", "accuracy"), ("rewards/margins", "margin")):
        ours = np.array([step.extras[name] for step in steps], dtype=float)
        np.testing.assert_allclose(ours, [entry[theirs] for entry in oracle], rtol=5e-6, atol=1e-5, err_msg=name)


SMALL: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 32}


def save_model(kind: str, folder: Path) -> None:
    """A model of a kind with the tests' tokenizer."""
    tokenizer = make_tokenizer()
    size: dict[str, Any] = {"vocab_size": len(tokenizer), "pad_token_id": 0, "eos_token_id": 2, "bos_token_id": None}
    small = SMALL | size
    make: dict[str, Any] = {
        "three classes": lambda: LlamaForSequenceClassification(LlamaConfig(**(small | {"num_labels": 3}))),
        "reward": lambda: LlamaForSequenceClassification(LlamaConfig(**(small | {"num_labels": 1}))),
        "no class": lambda: GraniteMoeForCausalLM(GraniteMoeConfig(**small)),
        "gpt2": lambda: GPT2LMHeadModel(GPT2Config(n_embd=32, n_layer=1, n_head=4, n_positions=256, **size)),
        "bloom": lambda: BloomForCausalLM(BloomConfig(hidden_size=32, n_layer=1, n_head=4, **size)),
    }
    torch.manual_seed(1)
    make[kind]().save_pretrained(folder)
    tokenizer.save_pretrained(folder)


@pytest.mark.parametrize(
    ("kind", "stage", "words"),
    [
        ("three classes", "rm", "a classifier of 3 classes"),
        ("no class", "rm", "no class for sequence classification"),
        ("reward", "sft", "is a reward model"),
        ("reward", "dpo", "is a reward model"),
        ("three classes", "sft", "no causal language model"),
        ("reward", "rm", ""),
        ("gpt2", "rm", ""),
        ("bloom", "rm", ""),
    ],
)
def test_what_cannot_work_is_refused(kind: str, stage: str, words: str, tmp_path: Path) -> None:
    """By the check that every command asks, before a row is read."""
    save_model(kind, tmp_path / "model")
    profile = rm(tmp_path / "model", tmp_path / "rows.jsonl", run={"stage": stage})
    check = partial(check_profile, profile, tmp_path / "model", find_hardware(profile))
    if words:
        with pytest.raises(ModelError, match=words):
            check()
    else:
        made = check()
        assert made is not None and made.model.score.weight.shape == (1, 32)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gpt2", "bloom"])
def test_other_decoders_open_in_plain_transformers(kind: str, rows: Path, tmp_path: Path) -> None:
    save_model(kind, tmp_path / "model")
    profile = rm(tmp_path / "model", rows, eval={"load_best_model_at_end": False})
    run = Run(tmp_path / "run")
    assert attempt(run, profile) == 0
    chosen, rejected = plain_scores(profile, run)
    after = records(run, EvaluationDone)[-1]
    assert np.logaddexp(0, rejected - chosen).mean() == pytest.approx(after.loss, abs=1e-5)


def test_an_adapter_of_a_language_model_is_no_reward_model(model_folder: Path, rows: Path, tmp_path: Path) -> None:
    run, answers = Run(tmp_path / "sft"), write_rows(tmp_path / "answers.jsonl", completions(8))
    once = {"max_steps": 1, "precision": "fp32"}
    assert attempt(run, make_profile(model_folder, answers, adapter=METHODS["lora"], train=once)) == 0
    profile = rm(model_folder, rows, adapter={"method": "lora", "name_or_path": str(run.final)})
    with pytest.raises(ModelError, match="is that of a language model"):
        check_profile(profile, model_folder, find_hardware(profile))


@pytest.mark.parametrize(
    ("pad", "bos", "extra", "expected"),
    [
        ("<|pad|>", None, [], "<|pad|>"),
        ("<|im_end|>", "<s>", [], "<s>"),
        (None, "<s>", [], "<s>"),
        ("<|im_end|>", "<s>", ["<|my_pad|>"], "<|my_pad|>"),
        ("<|im_end|>", None, ["<|im_start|>"], "<|im_start|>"),
        ("<|im_end|>", None, [], None),
    ],
)
def test_padding_never_ends_a_text(pad: str | None, bos: str | None, extra: list[str], expected: str | None) -> None:
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=make_tokenizer().backend_tokenizer, eos_token="<|im_end|>", pad_token=pad, bos_token=bos,
        extra_special_tokens=extra,
    )  # fmt: skip
    if expected is None:
        with pytest.raises(ModelError, match="no token to pad with"):
            end_padding(tokenizer)
    else:
        assert end_padding(tokenizer) == expected


@pytest.mark.slow
@pytest.mark.parametrize("method", QUICK)
def test_a_tokenizer_that_pads_with_its_end(method: str, model_folder: Path, rows: Path, tmp_path: Path) -> None:
    """Plain transformers looks for the last token that is no padding: it must not take the end of a text for some."""
    folder = tmp_path / "model"
    folder.mkdir()
    for file in model_folder.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    tokenizer = make_tokenizer()
    tokenizer.pad_token = tokenizer.eos_token
    tokenizer.save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"pad_token_id": tokenizer.eos_token_id}))
    texts = [{side: f"{row['prompt'][0]['content']} {row[side][0]['content']}" for side in ("chosen", "rejected")}
             for row in preference_pairs(50)]  # fmt: skip
    plain = write_rows(tmp_path / "texts.jsonl", [{"prompt": "say ", **row} for row in texts])
    profile = rm(folder, plain, adapter=METHODS[method], eval={"load_best_model_at_end": False})
    run = Run(tmp_path / "run")
    assert attempt(run, profile) == 0
    chosen, rejected = plain_scores(profile, run)
    after = records(run, EvaluationDone)[-1]
    assert np.logaddexp(0, rejected - chosen).mean() == pytest.approx(after.loss, abs=1e-5)
    assert chosen.mean() == pytest.approx(after.extras["rewards/chosen"], abs=1e-5)


def test_scores_stay_around_0_where_that_is_asked_for(model_folder: Path, rows: Path, tmp_path: Path) -> None:
    """A large coefficient, so that twelve steps tell."""
    sums = []
    for coefficient in (None, 1.0):
        keys = {"center_rewards_coefficient": coefficient}
        steps: list[Step] = train_run(tmp_path / str(coefficient), rm(model_folder, rows, preference=keys))
        last = steps[-1].extras
        sums.append(abs(last["rewards/chosen"] + last["rewards/rejected"]))  # type: ignore[operator]
    assert sums[1] < sums[0] / 2


def test_the_row_view_says_which_side_is_chosen(model_folder: Path, rows: Path) -> None:
    view = partial(view_row, to_toml(rm(model_folder, rows)), "number", lambda detail: None)
    assert [view(number=0, part=part).verdict for part in range(view(number=0).num_parts)] == ["chosen", "rejected"]


def test_it_answers_no_prompts(model_folder: Path, rows: Path) -> None:
    """A request for samples is refused while the run goes on, and so is to chat with it."""
    refusals: list[str] = []
    inbox = SimpleNamespace(refuse=lambda request, reason: refusals.append(reason))
    generator: Any = SimpleNamespace(profile=rm(model_folder, rows))
    nothing: Any = None
    handler = RequestHandler(
        nothing, nothing, nothing, nothing, nothing, nothing, cast(Any, inbox), nothing, generator, nothing, nothing
    )
    handler.handle(GenerateSamples(id="1", attempt=1, token="", prompts=("Why?",)))
    assert refusals == ["a reward model gives scores, and answers no prompts"]
    with pytest.raises(ModelError, match="it gives scores"):
        load_trained(rm(model_folder, rows), None, cache_folder(Path()), lambda detail: None)
