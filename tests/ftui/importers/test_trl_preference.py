"""TRL's trainers on preferences: what their keys become, by which trainer a file trains, what is said of the rest."""

import dataclasses
import importlib
from pathlib import Path
from typing import Any

import pytest

from ftui.importers import Imported, import_file
from tests.support.made_profile import checked, lost

MODEL = "model_name_or_path: m/m\ndataset_name: o/pairs\nuse_peft: true\nlora_dropout: 0.1\n"
ARGUMENTS = "--model_name_or_path m/m --dataset_name o/rows\n"


def imported(keys: str, folder: Path, name: str = "train.yaml", start: str = MODEL) -> Imported:
    source = folder / name
    source.write_text(f"{start}{keys}\n")
    return import_file(source, folder)


@pytest.mark.parametrize(
    ("keys", "stage", "preference", "without"),
    [
        # DPOConfig
        ("beta: 0.3", "dpo", {"beta": 0.3}, set()),
        ("loss_type: ipo\nbeta: 0.01", "dpo", {"loss_type": "ipo", "beta": 0.01}, set()),
        ("loss_type: [sigmoid]\nbeta: 0.1\nmax_length: 512", "dpo", {"loss_type": "sigmoid", "beta": 0.1}, set()),
        ("loss_type: [sigmoid, bco_pair, sft]\nloss_weights: [0.8, 0.2, 1.0]", "dpo", {
            "loss_type": ["sigmoid", "bco_pair", "sft"], "loss_weights": [0.8, 0.2, 1.0],
        }, set()),
        ("loss_type: robust\nlabel_smoothing: 0.1", "dpo", {"loss_type": "robust", "label_smoothing": 0.1}, set()),
        ("loss_type: exo_pair\nlabel_smoothing: 1e-3", "dpo",
         {"loss_type": "exo_pair", "label_smoothing": 0.001}, set()),
        ("beta: 0.1\nlabel_smoothing: 0.1", "dpo", {"beta": 0.1}, set()),  # TRL's sigmoid takes no notice
        ("loss_type: [sigmoid, robust]\nlabel_smoothing: 0.1", "dpo", {"loss_type": ["sigmoid", "robust"]},
         {"label_smoothing"}),
        ("ld_alpha: 0.5\nuse_weighting: true\ndiscopop_tau: 0.1", "dpo",
         {"ld_alpha": 0.5, "use_weighting": True}, set()),
        ("loss_type: discopop\ndiscopop_tau: 0.1", "dpo", {"loss_type": "discopop", "discopop_tau": 0.1}, set()),
        ("beta: 0.1\nprecompute_ref_log_probs: true\nprecompute_ref_batch_size: 8\npadding_free: true\n"
         "disable_dropout: true\ntruncation_mode: keep_start\nf_divergence_type: reverse_kl\nsync_ref_model: false",
         "dpo", {"beta": 0.1}, set()),
        ("beta: 0.1\ntruncation_mode: keep_end\nmax_prompt_length: 512", "dpo", {"beta": 0.1},
         {"truncation_mode", "max_prompt_length"}),
        ("beta: 0.1\nf_divergence_type: js_divergence\nf_alpha_divergence_coef: 0.5", "dpo", {"beta": 0.1},
         {"f_divergence_type"}),
        ("loss_type: aot\nbeta: 0.1", "dpo", {"beta": 0.1}, {"loss_type"}),
        ("beta: 0.1\nsync_ref_model: true\nref_model_sync_steps: 64", "dpo", {"beta": 0.1}, {"sync_ref_model"}),
        # older ones
        ("beta: 0.1\nrpo_alpha: 0.5", "dpo", {"beta": 0.1, "loss_type": ["sigmoid", "sft"], "loss_weights": [1.0, 0.5]},
         set()),
        ("loss_type: hinge\nrpo_alpha: 1", "dpo", {"loss_type": ["hinge", "sft"], "loss_weights": [1.0, 1.0]}, set()),
        ("beta: 0.1\nrpo_alpha: 0", "dpo", {"beta": 0.1}, set()),
        ("beta: 0.2\nreference_free: true", "cpo", {"beta": 0.2, "cpo_alpha": 0.0}, set()),
        ("loss_type: ipo\nreference_free: true", "cpo", {"loss_type": "ipo", "cpo_alpha": 0.0}, set()),
        ("loss_type: apo_zero\nreference_free: true", "dpo", {"loss_type": "apo_zero"}, {"reference_free"}),
        ("beta: 0.1\nreference_free: false\nref_model: m/other", "dpo", {"beta": 0.1}, {"ref_model"}),
        # KTOConfig
        ("desirable_weight: 1.3\nundesirable_weight: 0.9\nbeta: 0.2", "kto",
         {"desirable_weight": 1.3, "undesirable_weight": 0.9, "beta": 0.2}, set()),
        ("loss_type: apo_zero_unpaired", "kto", {"loss_type": "apo_zero_unpaired"}, set()),
        # CPOConfig
        ("cpo_alpha: 0.5\nloss_type: hinge", "cpo", {"cpo_alpha": 0.5, "loss_type": "hinge"}, set()),
        ("cpo_alpha: 1.0\nlabel_smoothing: 0.1", "cpo", {"cpo_alpha": 1.0, "label_smoothing": 0.1}, set()),
        ("loss_type: simpo\ncpo_alpha: 0\nsimpo_gamma: 0.7\nbeta: 2", "simpo",
         {"simpo_gamma": 0.7, "beta": 2.0}, set()),
        ("loss_type: simpo\ncpo_alpha: 0.5", "simpo", {}, {"cpo_alpha"}),
        ("loss_type: simpo", "simpo", {}, {"cpo_alpha where nothing is said"}),
        # RewardConfig
        ("center_rewards_coefficient: 0.01", "rm", {"center_rewards_coefficient": 0.01}, set()),
        ("lora_task_type: SEQ_CLS\ndisable_dropout: true", "rm", {}, set()),
        # SFTConfig
        ("assistant_only_loss: true\nmax_length: 512", "sft", {}, set()),
    ],
)  # fmt: skip
def test_keys_of_the_loss(keys: str, stage: str, preference: dict[str, Any], without: set[str], tmp_path: Path) -> None:
    made = imported(keys, tmp_path)
    values = checked(made, tmp_path)
    assert values["run"]["stage"] == stage
    assert values.get("preference", {}) == preference
    assert lost(made) == without
    assert values["train"]["learning_rate"] == {"sft": 2e-5, "rm": 1e-4}.get(stage, 1e-6)
    assert values["adapter"]["lora_dropout"] == (0.1 if stage == "sft" else 0.0)


@pytest.mark.parametrize(
    ("name", "text", "stage", "is_open"),
    [
        ("train.yaml", f"{MODEL}beta: 0.1\n", "dpo", True),
        ("orpo.yaml", f"{MODEL}beta: 0.1\nmax_completion_length: 256\n", "orpo", False),
        ("config.yaml", f"{MODEL}beta: 0.1\noutput_dir: zephyr-7b-orpo-full\n", "orpo", False),
        ("config_kto.yaml", f"{MODEL}beta: 0.1\n", "kto", False),
        ("simpo.yaml", f"{MODEL}cpo_alpha: 0\nloss_type: simpo\n", "simpo", False),
        ("dpo.yaml", f"{MODEL}max_length: 512\n", "sft", False),  # its name alone says nothing
        ("run.sh", f"trl kto {ARGUMENTS}", "kto", False),
        ("run.sh", f"trl reward {ARGUMENTS}", "rm", False),
        ("run.sh", f"python examples/scripts/reward_modeling.py {ARGUMENTS}", "rm", False),
        ("run.sh", f"accelerate launch examples/scripts/orpo.py {ARGUMENTS}", "orpo", False),
        ("run.sh", f"python -m trl.scripts.dpo {ARGUMENTS}", "dpo", False),
        ("run.sh", f"python run_cpo.py {ARGUMENTS}", "cpo", False),
        ("run.sh", f"trl sft {ARGUMENTS}", "sft", False),
    ],
)  # fmt: skip
def test_by_which_trainer_a_file_trains(name: str, text: str, stage: str, is_open: bool, tmp_path: Path) -> None:
    made = imported("", tmp_path, name, text)
    values = checked(made, tmp_path)
    assert values["run"]["stage"] == stage
    assert any(line.startswith("run.stage") for line in made.unsaid) == is_open
    assert (values["train"].get("train_sampling_strategy") == "sequential") == (stage == "kto")


def test_the_command_counts_beside_the_file_that_it_names(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text(f"{MODEL}beta: 0.1\n")
    made = imported("", tmp_path, "run.sh", "trl orpo --config recipe.yaml --beta 0.3\n")
    values = checked(made, tmp_path)
    assert values["run"]["stage"] == "orpo" and values["preference"] == {"beta": 0.3}


def test_its_last_ppo(tmp_path: Path) -> None:
    """PPOConfig's keys become those of stage ppo; the model is the one that was fine-tuned, the reward a model's."""
    keys = (
        "num_ppo_epochs: 2\nkl_coef: 0.1\nkl_estimator: k3\ncliprange: 0.3\nvf_coef: 0.2\ncliprange_value: 0.4\n"
        "gamma: 0.99\nlam: 0.9\nwhiten_rewards: true\nresponse_length: 64\nmissing_eos_penalty: 1.0\n"
        "sft_model_path: m/sft\nreward_model_path: m/judge\ntotal_episodes: 100\nstop_token: eos\n"
        "per_device_train_batch_size: 16\nnum_sample_generations: 0"
    )
    made = imported(keys, tmp_path)
    values = checked(made, tmp_path)
    assert values["run"]["stage"] == "ppo" and values["model"]["name_or_path"] == "m/sft" and not lost(made)
    assert values["ppo"] == {
        "num_ppo_epochs": 2, "kl_coef": 0.1, "kl_estimator": "k3", "cliprange": 0.3, "vf_coef": 0.2,
        "cliprange_value": 0.4, "gamma": 0.99, "lam": 0.9, "whiten_rewards": True, "max_completion_length": 64,
        "missing_eos_penalty": 1.0,
    }  # fmt: skip
    assert values["rewards"] == {"reward_funcs": "reward_model", "reward_model_name_or_path": "m/judge"}
    assert values["train"]["max_steps"] == 14, "seven rollouts of 16 answers, two passes"
    assert values["train"]["learning_rate"] == 3e-6 and values["data"]["max_length"] == 1088


def test_its_batch_is_divided_there_and_multiplied_here(tmp_path: Path) -> None:
    made = imported("num_ppo_epochs: 1\nnum_mini_batches: 4\nreward_model_path: m/judge", tmp_path)
    assert checked(made, tmp_path)["ppo"]["num_mini_batches"] == 4
    assert lost(made) == {"a batch divided into"}


@pytest.fixture
def silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """`trl.experimental` warns whoever loads it."""
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")


@pytest.mark.slow
@pytest.mark.usefixtures("silence")
def test_every_argument_of_its_trainers_is_known() -> None:
    """So that a new release of TRL shows here."""
    from ftui.importers.rules import find_wide
    from ftui.importers.tools.trl import RULES

    trl, cpo, orpo = map(importlib.import_module, ("trl", "trl.experimental.cpo", "trl.experimental.orpo"))
    for config in (trl.DPOConfig, trl.KTOConfig, trl.RewardConfig, cpo.CPOConfig, orpo.ORPOConfig):
        names = [field.name for field in dataclasses.fields(config) if "token" not in field.name]
        assert [name for name in names if name not in RULES and find_wide(RULES, name) is None] == [], config


@pytest.mark.parametrize(
    ("module", "config", "keys"),
    [
        ("trl", "DPOConfig", "beta: 0.1\nloss_weights: [1.0]"), ("trl", "KTOConfig", "desirable_weight: 1.0"),
        ("trl.experimental.cpo", "CPOConfig", "cpo_alpha: 1.0"),
        ("trl", "RewardConfig", "center_rewards_coefficient: 0.01"),
    ],
)  # fmt: skip
@pytest.mark.slow
@pytest.mark.usefixtures("silence")
def test_what_is_supposed_is_what_its_trainers_do(module: str, config: str, keys: str, tmp_path: Path) -> None:
    values = checked(imported(keys, tmp_path), tmp_path)
    theirs = {
        field.name: field.default for field in dataclasses.fields(getattr(importlib.import_module(module), config))
    }
    for name in ("learning_rate", "per_device_train_batch_size", "num_train_epochs", "lr_scheduler_type", "seed"):
        assert values["train"][name] == theirs[name], name
    assert values["data"]["max_length"] == theirs["max_length"]
    assert theirs["disable_dropout"]
    order = values["train"].get("train_sampling_strategy", "random")
    assert order == theirs.get("train_sampling_strategy", "random")
