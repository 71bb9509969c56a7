"""Axolotl's `rl: dpo` and its kin: what the keys and the types of rows become, and what is said of the rest."""

from pathlib import Path
from typing import Any

import pytest

from ftui.engine.data.files.raw_rows import Row
from ftui.engine.data.forms.column_names import ColumnNames
from ftui.engine.data.forms.examples import Chat, Completion, JudgedAnswer, Pair
from ftui.engine.data.forms.formats import to_example
from ftui.importers import Imported, import_file
from tests.support.made_profile import checked, lost

MODEL = "base_model: m/m\nadapter: lora\nlora_dropout: 0.1\nmicro_batch_size: 1\nexcess_length_strategy: truncate\n"
PLAIN_ROWS = "datasets:\n  - path: o/rows\n    type: passthrough.default\n"


def imported(keys: str, folder: Path, rows: str = PLAIN_ROWS, start: str = MODEL) -> Imported:
    source = folder / "train.yml"
    source.write_text(f"{start}{rows}{keys}\n")
    return import_file(source, folder)


@pytest.mark.parametrize(
    ("keys", "stage", "preference", "without"),
    [
        ("rl: dpo", "dpo", {}, set()),
        ("rl: dpo\nrl_beta: 0.3", "dpo", {"beta": 0.3}, set()),
        ("rl: dpo\ndpo_beta: 0.3", "dpo", {"beta": 0.3}, set()),
        ("rl: dpo\nrl_beta: 0.3\ntrl:\n  beta: 0.2", "dpo", {"beta": 0.2}, set()),
        ("rl: ipo\nrl_beta: 0.01", "dpo", {"loss_type": "ipo", "beta": 0.01}, set()),
        ("rl: dpo\ndpo_loss_type: [hinge]", "dpo", {"loss_type": "hinge"}, set()),
        ("rl: dpo\ndpo_loss_type: [sigmoid, sft]\ndpo_loss_weights: [1.0, 0.2]", "dpo",
         {"loss_type": ["sigmoid", "sft"], "loss_weights": [1.0, 0.2]}, set()),
        ("rl: dpo\nrpo_alpha: 0.5", "dpo", {"loss_type": ["sigmoid", "sft"], "loss_weights": [1.0, 0.5]}, set()),
        ("rl: dpo\ndpo_label_smoothing: 0.1", "dpo", {}, set()),  # TRL's sigmoid takes no notice
        ("rl: dpo\ndpo_loss_type: [robust]\ndpo_label_smoothing: 0.1", "dpo",
         {"loss_type": "robust", "label_smoothing": 0.1}, set()),
        ("rl: dpo\ndpo_use_weighting: true\ndpo_padding_free: true\nprecompute_ref_log_probs: true\n"
         "max_prompt_len: 256", "dpo", {"use_weighting": True}, set()),
        ("rl: dpo\ndpo_loss_type: [aot]", "dpo", {}, {"dpo_loss_type"}),
        ("rl: dpo\ntrl:\n  sync_ref_model: true", "dpo", {}, {"trl.sync_ref_model"}),
        ("rl: dpo\nkto_desirable_weight: 0.2\nsimpo_gamma: 0.5", "dpo", {}, set()),
        ("rl: kto\nrl_beta: 0.5\nkto_desirable_weight: 0.2\nkto_undesirable_weight: 1.5", "kto",
         {"beta": 0.5, "desirable_weight": 0.2, "undesirable_weight": 1.5}, set()),
        ("rl: orpo\norpo_alpha: 0.2", "orpo", {"beta": 0.2}, set()),
        ("rl: orpo\nrl_beta: 0.3\norpo_alpha: 0.2", "orpo", {"beta": 0.3}, set()),
        ("rl: simpo\nrl_beta: 2\nsimpo_gamma: 1.0\ncpo_alpha: 0", "simpo", {"beta": 2.0, "simpo_gamma": 1.0}, set()),
        ("rl: simpo\ncpo_alpha: 0.5", "simpo", {}, {"cpo_alpha"}),
        ("rl: simpo", "simpo", {}, {"cpo_alpha where nothing is said"}),
    ],
)  # fmt: skip
def test_keys_of_the_loss(keys: str, stage: str, preference: dict[str, Any], without: set[str], tmp_path: Path) -> None:
    made = imported(keys, tmp_path)
    values = checked(made, tmp_path)
    assert values["run"]["stage"] == stage
    assert values.get("preference", {}) == preference
    assert lost(made) == without
    assert values["train"]["learning_rate"] == 1e-6
    assert values["adapter"]["lora_dropout"] == 0.0
    assert (values["train"].get("train_sampling_strategy") == "sequential") == (stage == "kto")


WHY, SO, NO = (
    {"role": role, "content": text} for role, text in (("user", "why?"), ("assistant", "so"), ("assistant", "no"))
)
BE = {"role": "system", "content": "be"}
PAIR = Pair(Chat([WHY, SO]), Chat([WHY, NO]))
GOOD = JudgedAnswer(Chat([WHY, SO]), True)
ANSWERS = {"chosen": "so", "rejected": "no"}
TURNS = {"chosen": [WHY, SO], "rejected": [WHY, NO]}


@pytest.mark.parametrize(
    ("stage", "type_", "row", "example", "template"),
    [
        ("dpo", "type: chatml.intel", {"system": "", "question": "why?", **ANSWERS}, PAIR, "chatml"),
        ("dpo", "type: llama3.intel", {"system": "be", "question": "why?", **ANSWERS},
         Pair(Chat([BE, WHY, SO]), Chat([BE, WHY, NO])), "llama3"),
        ("dpo", "type: chatml.icr", {"input": "why?", **ANSWERS}, PAIR, "chatml"),
        ("dpo", "type: chatml.prompt_pairs", {"prompt": "why?", **ANSWERS}, PAIR, "chatml"),
        ("dpo", "type: chatml", {"prompt": "why?", **ANSWERS}, PAIR, "chatml"),
        ("dpo", "type: chatml.argilla",
         {"instruction": "why?", "chosen_response": "so", "rejected_response": "no"}, PAIR, "chatml"),
        ("dpo", "type: llama3.argilla_chat", TURNS, PAIR, "llama3"),
        ("simpo", "type: llama3.ultra", {"prompt": "why?", **TURNS}, PAIR, "llama3"),
        ("orpo", "type: chat_template.argilla", {"prompt": "why?", **TURNS}, PAIR, None),
        ("dpo", "type: chat_template.default\n    field_messages: asked\n    field_chosen: better\n"
         "    field_rejected: worse\n    message_property_mappings: {role: who, content: said}\n"
         "    roles: {user: [person], assistant: [bot], system: [system]}",
         {"asked": [{"who": "person", "said": "why?"}], "better": {"who": "bot", "said": "so"},
          "worse": {"who": "bot", "said": "no"}}, PAIR, None),
        ("dpo", "type:\n      field_prompt: p\n      field_chosen: c\n      field_rejected: r\n"
         "      prompt_format: \"{prompt}\"\n      chosen_format: \"{chosen}\"",
         {"p": "why?", "c": "so", "r": "no"}, Pair(Completion("why?", "so"), Completion("why?", "no")), None),
        ("dpo", "split: train", {"prompt": "why?", **ANSWERS},
         Pair(Completion("why?", "so"), Completion("why?", "no")), None),
        ("kto", "type: chatml.argilla", {"instruction": "why?", "completion": "so", "label": True}, GOOD, "chatml"),
        ("kto", "type: chatml.argilla_chat", {"completion": [WHY, SO], "label": True}, GOOD, "chatml"),
        ("kto", "type: llama3.intel", {"question": "why?", "completion": "so", "label": True}, GOOD, "llama3"),
        ("kto", "type: llama3.ultra", {"prompt": "why?", "completion": "so", "label": True}, GOOD, "llama3"),
        ("kto", "type:\n      field_prompt: p\n      field_completion: c\n      field_label: v",
         {"p": "why?", "c": "so", "v": True}, JudgedAnswer(Completion("why?", "so"), True), None),
    ],
)  # fmt: skip
def test_rows_are_read_as_there(
    stage: str, type_: str, row: dict[str, Any], example: Any, template: str | None, tmp_path: Path
) -> None:
    made = imported(f"rl: {stage}\ncpo_alpha: 0", tmp_path, f"datasets:\n  - path: o/rows\n    {type_}\n")
    values = checked(made, tmp_path)
    assert lost(made) == set()
    assert values["data"].get("chat_template") == template
    source = values["data"]["train"]
    keys = source[0] if isinstance(source, list) and isinstance(source[0], dict) else {}
    shape = ColumnNames(keys.get("columns", {}), keys.get("roles", {}))
    form = "kto" if stage == "kto" else "preference"
    assert keys.get("format", form) == form
    assert to_example(Row(Path("rows.jsonl"), 1, row), form, shape) == example


@pytest.mark.parametrize(
    ("keys", "rows", "without"),
    [
        ("rl: dpo", "type: zephyr.nectar", {"datasets[0].type"}),
        ("rl: dpo", "type: my.own", {"datasets[0].type"}),
        ("rl: kto", "type: chatml.icr", {"datasets[0].type"}),
        ("rl: dpo\nchat_template: llama3", "type: chatml.intel", {"chat_template"}),
        ("rl: dpo\nchat_template: chatml", "type: chatml.intel", set()),
        ("rl: dpo", 'type:\n      field_prompt: prompt\n      prompt_format: "[INST] {prompt}"',
         {"datasets[0].type.prompt_format"}),
    ],
)  # fmt: skip
def test_what_is_read_otherwise_is_told(keys: str, rows: str, without: set[str], tmp_path: Path) -> None:
    made = imported(keys, tmp_path, f"datasets:\n  - path: o/rows\n    {rows}\n")
    checked(made, tmp_path)
    assert lost(made) == without


def test_rows_that_are_too_long_are_told(tmp_path: Path) -> None:
    start = MODEL.replace("excess_length_strategy: truncate\n", "")
    assert lost(imported("rl: dpo", tmp_path, start=start)) == {"excess_length_strategy where nothing is said"}
    assert lost(imported("rl: dpo\nexcess_length_strategy: drop", tmp_path, start=start)) == {"excess_length_strategy"}


@pytest.mark.parametrize("keys", ["rl: gdpo", "rl: ebft", "process_reward_model: true"])
def test_other_kinds_of_training_are_refused(keys: str, tmp_path: Path) -> None:
    assert imported(keys, tmp_path).refused
