"""A reward model as a reward: the scores that transformers and the stage that made it give, in whole runs too."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer, LlamaConfig, LlamaForSequenceClassification

from ftui.engine.check_profile import check_profile
from ftui.engine.rewards.reward_specs import AnswersToScore
from ftui.engine.rewards.score_with_model import ModelScorer, find_reward_model
from ftui.engine.system.device import find_hardware
from ftui.errors import ModelError, RewardError
from ftui.estimate.api import Known, estimate
from ftui.hardware.devices import find_card
from ftui.profile.schema import Profile
from ftui.profile.sections.rewards import RewardsSection
from ftui.runs.events import EvaluationDone, Step
from ftui.runs.run_folder import Run
from tests.support.attempts import attempt, killed_attempt, records
from tests.support.tiny import make_profile, make_tokenizer, preference_pairs, write_rows

ASKED = {"reward_funcs": ["reward_model"]}


def ignore(text: str) -> None:
    """What is told of progress."""


@pytest.fixture(scope="module")
def reward_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of other sizes and another tokenizer than those that are trained: of 320 entries, with BOS."""
    folder = tmp_path_factory.mktemp("reward_model")
    tokenizer = make_tokenizer(bos=True)
    torch.manual_seed(4)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        max_position_embeddings=64, initializer_range=0.3, pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id, bos_token_id=tokenizer.bos_token_id,
    )  # fmt: skip
    config.num_labels = 1
    LlamaForSequenceClassification(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def scorer(folder: Path, profile: Profile, warn: Any = ignore, batch_size: int = 3) -> ModelScorer:
    files = find_reward_model(
        RewardsSection(reward_funcs=("reward_model",), reward_model_name_or_path=str(folder)), ignore
    )
    assert files is not None
    return ModelScorer(files, find_hardware(profile), batch_size, ignore, warn)


def asked(prompts: list[Any], completions: list[Any]) -> AnswersToScore:
    return AnswersToScore(prompts, completions, [[0]] * len(prompts), {})


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    prompts = [[{"role": "user", "content": f"count {n} of the "}] for n in range(20)]
    return write_rows(tmp_path / "rows.jsonl", [{"prompt": prompt} for prompt in prompts])


def grpo(model: Path, rows: Path, /, **sections: dict[str, Any]) -> Profile:
    base: dict[str, dict[str, Any]] = {
        "run": {"stage": "grpo"},
        "adapter": {"method": "lora", "r": 4, "lora_alpha": 16},
        "data": {"max_length": 96},
        "train": {"max_steps": 3, "per_device_train_batch_size": 4, "gradient_accumulation_steps": 2,
                  "learning_rate": 5e-3, "warmup_steps": 0},
        "grpo": {"num_generations": 4, "max_completion_length": 12},
    }  # fmt: skip
    return make_profile(model, rows, **base | sections)


def test_scores_are_those_of_transformers(reward_model: Path, model_folder: Path, rows: Path) -> None:
    prompts: list[Any] = [[{"role": "user", "content": f"how many {n}"}] for n in range(4)] + ["2 + 2 =", "a" * 20]
    said = [[{"role": "assistant", "content": text}] for text in ("one", "two of the kernel", "", "three <s> four")]
    profile = grpo(model_folder, rows, rewards=ASKED | {"reward_model_name_or_path": str(reward_model)})
    found = scorer(reward_model, profile)(asked(prompts, [*said, " 4", "b" * 200]))
    tokenizer: Any = AutoTokenizer.from_pretrained(reward_model)
    model = AutoModelForSequenceClassification.from_pretrained(reward_model).eval()
    for prompt, completion, score in zip(prompts[:5], [*said, " 4"], found, strict=False):
        if isinstance(prompt, str):
            text = "<s>" + prompt + str(completion) + tokenizer.eos_token
        else:
            text = tokenizer.apply_chat_template([*prompt, *completion], tokenize=False)
        ids = tokenizer(text, return_tensors="pt", add_special_tokens=False).input_ids
        with torch.no_grad():
            assert score == pytest.approx(model(input_ids=ids).logits.item(), abs=2e-6)
    assert len(set(found)) == 6
    assert found[5] is None, "it does not see so much"


def test_what_is_too_long_for_it_is_told(reward_model: Path, model_folder: Path, rows: Path) -> None:
    told: list[str] = []
    score = scorer(reward_model, grpo(model_folder, rows, rewards={"reward_funcs": ["exact_answer"]}), told.append)
    assert score(asked(["a", "b"], ["c", "d" * 99]))[1] is None
    assert told == [
        "1 of 2 answers are longer than the 64 tokens that the reward model sees: they go without its score"
    ]


def test_its_weights_are_in_the_estimate(reward_model: Path, model_folder: Path, rows: Path) -> None:
    without = grpo(model_folder, rows, rewards={"reward_funcs": ["exact_answer"]})
    given = grpo(model_folder, rows, rewards=ASKED | {"reward_model_name_or_path": str(reward_model)})
    card = find_card("cpu")
    plain, more = (estimate(profile, card, Known()).memory for profile in (without, given))
    assert plain is not None and more is not None
    weights = sum(one.numel() * one.element_size() for one in scorer(reward_model, given).model.parameters())
    assert more.process - plain.process == more.breakdown["reward model"] == weights
    unknown = grpo(model_folder, rows, rewards=ASKED | {"reward_model_name_or_path": "no/such"})
    assert "The memory of the reward model is not known: its architecture is not." in estimate(unknown, card).notes


@pytest.mark.parametrize("method", ["lora", "full"])
def test_a_run_of_stage_rm_gives_the_scores_it_was_trained_to(
    method: str, model_folder: Path, rows: Path, tmp_path: Path
) -> None:
    """Its evaluation at the end is the oracle: mean scores of the chosen and the rejected answers of its rows."""
    pairs = preference_pairs(32)
    trained = Run(tmp_path / "rm")
    adapter = {"method": method, **({"r": 4, "lora_alpha": 16} if method == "lora" else {})}
    profile = make_profile(
        model_folder, write_rows(tmp_path / "pairs.jsonl", pairs[8:]), run={"stage": "rm"}, adapter=adapter,
        data={"eval": str(write_rows(tmp_path / "eval.jsonl", pairs[:8]))},
        train={"max_steps": 6, "per_device_train_batch_size": 4, "learning_rate": 5e-3, "warmup_steps": 0},
    )  # fmt: skip
    assert attempt(trained, profile) == 0
    score = scorer(trained.final, grpo(model_folder, rows, rewards={"reward_funcs": ["exact_answer"]}))
    measured = records(trained, EvaluationDone)[-1].extras
    for side in ("chosen", "rejected"):
        values = score(asked([pair["prompt"] for pair in pairs[:8]], [pair[side] for pair in pairs[:8]]))
        assert sum(float(value or 0) for value in values) / 8 == pytest.approx(measured[f"rewards/{side}"], abs=1e-5)


@pytest.mark.slow
def test_a_run_learns_from_it_and_a_kill_changes_nothing(
    reward_model: Path, model_folder: Path, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = sorted((path.name, path.read_bytes()) for path in reward_model.iterdir())
    rewards = {"reward_funcs": ["reward_model", "length"], "max_length": 8, "reward_weights": [1.0, 0.5]}
    profile = grpo(
        model_folder, rows, rewards=rewards | {"reward_model_name_or_path": str(reward_model), "memory_gib": None},
        checkpoint={"save_steps": 1},
    )  # fmt: skip
    whole, cut = Run(tmp_path / "whole"), Run(tmp_path / "cut")
    assert attempt(whole, profile) == 0
    killed_attempt(cut, profile, 2, monkeypatch)
    assert attempt(cut, profile, 2) == 0
    facts = [{one.step: (one.loss, one.extras) for one in records(run, Step)} for run in (whole, cut)]
    assert facts[0] == facts[1]
    assert {"rewards/reward_model/mean", "rewards/length/mean"} <= facts[0][1][1].keys()
    assert (whole.final / "adapter_model.safetensors").read_bytes() == (
        cut.final / "adapter_model.safetensors"
    ).read_bytes()
    assert sorted((path.name, path.read_bytes()) for path in reward_model.iterdir()) == files, "it is not trained"


def test_another_reward_model_is_another_run(
    reward_model: Path, model_folder: Path, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import shutil

    own = shutil.copytree(reward_model, tmp_path / "own")
    profile = grpo(
        model_folder, rows, rewards=ASKED | {"reward_model_name_or_path": str(own)}, checkpoint={"save_steps": 1}
    )
    run = Run(tmp_path / "run")
    killed_attempt(run, profile, 1, monkeypatch)
    model = AutoModelForSequenceClassification.from_pretrained(own)
    model.score.weight.data += 1
    model.save_pretrained(own)
    with pytest.raises(ModelError, match="the reward model"):
        attempt(run, profile, 2)


@pytest.mark.parametrize(
    ("name", "words"),
    [("model", "is no reward model"), ("classes", "classifier of 3 classes"), ("nothing", "holds no model")],
)
def test_what_gives_no_score_is_refused_by_every_command(
    name: str, words: str, model_folder: Path, reward_model: Path, rows: Path, tmp_path: Path
) -> None:
    folder = tmp_path / name
    if name == "model":
        folder = model_folder
    else:
        folder.mkdir()
    if name == "classes":
        model = AutoModelForSequenceClassification.from_pretrained(
            reward_model, num_labels=3, ignore_mismatched_sizes=True
        )
        model.save_pretrained(folder)
    profile = grpo(model_folder, rows, rewards=ASKED | {"reward_model_name_or_path": str(folder)})
    with pytest.raises(ModelError, match=words):
        check_profile(profile, model_folder, find_hardware(profile))


def test_conversations_need_its_template(reward_model: Path, model_folder: Path, rows: Path, tmp_path: Path) -> None:
    import shutil

    own = shutil.copytree(reward_model, tmp_path / "own")
    (own / "chat_template.jinja").unlink()
    score = scorer(own, grpo(model_folder, rows, rewards={"reward_funcs": ["exact_answer"]}))
    assert score(asked(["2 +"], [" 2"]))[0] is not None
    said = [{"role": "assistant", "content": "a"}]
    with pytest.raises(RewardError, match="no chat template"):
        score(asked([[{"role": "user", "content": "b"}]], [said]))
