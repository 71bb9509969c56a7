"""Training by preferences in other tools' files: what it becomes here, and what is said of the rest."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from ftui.importers import import_file
from ftui.profile.layers import resolve
from tests.support.made_profile import checked, lost

MODEL = "model_name_or_path: m/m\nfinetuning_type: lora\ndataset: rows.jsonl\n"


@pytest.mark.parametrize(
    ("keys", "stage", "preference"),
    [
        ("stage: dpo\npref_beta: 0.3", "dpo", {"beta": 0.3}),
        ("stage: dpo\npref_loss: ipo", "dpo", {"loss_type": "ipo"}),
        ("stage: dpo\npref_loss: hinge\npref_ftx: 0.5", "dpo", {
            "loss_type": ["hinge", "sft"], "loss_weights": [1.0, 0.5],
        }),
        ("stage: dpo\npref_ftx: 0", "dpo", {}),
        ("stage: dpo\ndpo_label_smoothing: 0.1\nld_alpha: 0.5", "dpo", {"label_smoothing": 0.1, "ld_alpha": 0.5}),
        ("stage: dpo\npref_loss: simpo\nsimpo_gamma: 0.7\npref_beta: 2", "simpo", {"simpo_gamma": 0.7, "beta": 2.0}),
        ("stage: dpo\npref_loss: orpo\npref_beta: 0.2", "orpo", {"beta": 0.2}),
        ("stage: kto\npref_beta: 0.2\nkto_chosen_weight: 1.3\nkto_rejected_weight: 0.9", "kto", {
            "beta": 0.2, "desirable_weight": 1.3, "undesirable_weight": 0.9,
        }),
        ("stage: kto\npref_loss: ipo\nsimpo_gamma: 0.5", "kto", {}),
        ("stage: rm\npref_beta: 0.3", "rm", {}),
        ("stage: dpo\nlora_dropout: 0.1\nneftune_alpha: 5", "dpo", {}),
        ("stage: sft\npref_beta: 0.3\npref_ftx: 1", "sft", {}),
    ],
)  # fmt: skip
def test_stages_of_llama_factory(keys: str, stage: str, preference: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"prompt": "a", "chosen": "b", "rejected": "c"}\n')
    source = tmp_path / "train.yaml"
    source.write_text(MODEL + keys + "\n")
    made = import_file(source, tmp_path)
    assert not made.refused
    values = tomllib.loads(made.text)
    assert values["run"]["stage"] == stage and values.get("preference", {}) == preference
    profile = tmp_path / "made.toml"
    profile.write_text(made.text)
    resolve(profile)  # its keys go together


def test_ppo_of_llama_factory(tmp_path: Path) -> None:
    """Its trainer steers the KL and samples narrowly where nothing is said; its length is the prompt's alone."""
    (tmp_path / "rows.jsonl").write_text('{"instruction": "a", "output": "b"}\n')
    source = tmp_path / "train.yaml"
    keys = (
        "stage: ppo\nppo_epochs: 2\nppo_buffer_size: 3\nppo_target: 4\nppo_score_norm: true\nppo_whiten_rewards: true\n"
        "reward_model: m/judge\nreward_model_type: full\nmax_new_tokens: 256\ntop_k: 0\ncutoff_len: 512\n"
        "lora_dropout: 0.1\n"
    )
    source.write_text(MODEL + keys)
    values = checked(import_file(source, tmp_path), tmp_path)
    assert values["run"]["stage"] == "ppo" and values["data"]["max_length"] == 768
    assert values["ppo"] == {
        "num_ppo_epochs": 2, "num_mini_batches": 3, "target": 4.0, "use_score_norm": True, "whiten_rewards": True,
        "max_completion_length": 256, "top_k": 0, "kl_coef": 0.2, "temperature": 0.95, "top_p": 0.7,
    }  # fmt: skip
    assert values["rewards"] == {"reward_funcs": "reward_model", "reward_model_name_or_path": "m/judge"}
    source.write_text(f"{MODEL}stage: ppo\nreward_model: http://judge\nreward_model_type: api\n")
    assert lost(import_file(source, tmp_path)) >= {"reward_model", "reward_model_type"}
    source.write_text(f"{MODEL}stage: sft\nppo_epochs: 2\nmax_new_tokens: 8\n")
    assert "ppo" not in checked(import_file(source, tmp_path), tmp_path)


@pytest.mark.parametrize("keys", ["pref_loss: kto_pair", "ref_model: other/model", "pref_bco_weight: 0.3"])
def test_what_is_not_built_is_told_as_a_loss(keys: str, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"prompt": "a", "chosen": "b", "rejected": "c"}\n')
    source = tmp_path / "train.yaml"
    source.write_text(f"{MODEL}stage: dpo\n{keys}\n")
    assert [one.foreign for one in import_file(source, tmp_path).dropped if one.matters] == [keys.partition(":")[0]]


AXOLOTL = (
    "base_model: m/m\nmicro_batch_size: 2\nsequence_len: 512\nadapter: lora\n"
    "datasets:\n  - path: rows.jsonl\n    type: bradley_terry.chat_template\n"
)


@pytest.mark.parametrize(
    ("text", "preference"),
    [
        (f"{AXOLOTL}reward_model: true\nnum_labels: 1\ntrain_on_inputs: true\n", {}),
        (
            f"{AXOLOTL}reward_model: true\ncenter_rewards_coefficient: 0.01\n",
            {"center_rewards_coefficient": 0.01},
        ),
        (
            "model_name_or_path: m/m\ndataset_name: rows.jsonl\ncenter_rewards_coefficient: 0.01\n",
            {"center_rewards_coefficient": 0.01},
        ),
        (
            "model_name_or_path: m/m\ndataset_name: rows.jsonl\nuse_peft: true\nlora_task_type: SEQ_CLS\n"
            "lora_modules_to_save: [score]\n",
            {},
        ),
        ("model_id: m/m\nstage: rm\ntrain_file: rows.jsonl\nnum_epochs: 1\nlearning_rate: 1e-5\nmethod: lora\n", {}),
    ],
    ids=["axolotl", "axolotl, centred", "trl", "trl, lora", "a guide"],
)
def test_reward_models_of_other_tools(text: str, preference: dict[str, Any], tmp_path: Path) -> None:
    """Axolotl calls the prompt of such rows `input`."""
    (tmp_path / "rows.jsonl").write_text('{"input": "a", "chosen": "b", "rejected": "c"}\n')
    source, profile = tmp_path / "train.yaml", tmp_path / "made.toml"
    source.write_text(text)
    made = import_file(source, tmp_path)
    assert not made.refused and not [one for one in made.dropped if one.matters]
    values = tomllib.loads(made.text)
    assert values["run"]["stage"] == "rm" and values.get("preference", {}) == preference
    if "bradley_terry" in text:
        assert values["data"]["train"][0]["columns"] == {"question": "input"}
    profile.write_text(made.text)
    resolve(profile)


def test_a_model_that_judges_steps_is_refused(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"input": "a", "chosen": "b", "rejected": "c"}\n')
    source = tmp_path / "train.yaml"
    source.write_text(f"{AXOLOTL}process_reward_model: true\n")
    assert "judges each step" in import_file(source, tmp_path).refused
