"""`ftui import`: every value of another tool's file is carried or dropped, and what comes out can be run."""

import dataclasses
import importlib
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from ftui.cli.import_profile import import_profile
from ftui.errors import UsageError
from ftui.importers import Imported, import_file
from ftui.profile.layers import resolve
from tests.support.imports import FILES, FIXTURES, settled

REFUSED = {"trl_rloo.yaml"}
INCOMPLETE = {"deepspeed_zero2.json"}


def imported(name: str, folder: Path = FIXTURES) -> Imported:
    return import_file(FIXTURES / name, folder)


def profile(name: str) -> dict[str, Any]:
    return tomllib.loads(imported(name).text)


def values(name: str, *keys: str) -> dict[str, Any]:
    """Some keys of the profile that a file becomes, `None` where it does not say them."""
    whole = profile(name)
    return {key: whole.get(key.split(".")[0], {}).get(key.split(".")[1]) for key in keys}


def reasons(done: Imported) -> dict[str, str]:
    return {one.foreign: one.reason for one in done.dropped}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_value_is_reported_once_and_the_profile_can_be_run(path: Path, tmp_path: Path) -> None:
    out = tmp_path / "made.toml"
    done = import_file(path, tmp_path)
    settled(done, path)
    out.write_text(done.text)
    assert bool(done.refused) == (path.name in REFUSED)
    assert bool(done.missing) == (path.name in INCOMPLETE)
    if not done.missing:
        resolve(out)
    for one in done.missing:
        assert f"# MISSING: {one}" in done.text
    for carried in done.carried:  # what is reported as carried is what the profile says
        section, name, *inside = carried.ours.split(".")
        found = tomllib.loads(done.text)[section][name]
        assert (found[inside[0]] if inside else found) == carried.value, carried


def test_llamafactory() -> None:
    done = imported("llamafactory_qlora.yaml")
    made = tomllib.loads(done.text)
    assert made["adapter"] == {
        "method": "qlora", "r": 32, "lora_alpha": 64, "lora_dropout": 0.0,
        "target_modules": ["q_proj", "k_proj", "v_proj", "o_proj"], "modules_to_save": ["embed_tokens"],
        "bnb_4bit_use_double_quant": False,
    }  # fmt: skip
    assert made["data"] == {
        "train": [
            {"path": "rows/dataset_info.json", "subset": "workshop"},
            {"path": "rows/dataset_info.json", "subset": "manuals"},
        ],
        "eval_fraction": 0.05, "chat_template": "qwen", "max_length": 1536, "packing": True,
    }  # fmt: skip
    assert made["train"] == {
        "num_train_epochs": 3.0, "per_device_train_batch_size": 2, "gradient_accumulation_steps": 8,
        "learning_rate": 2e-4, "lr_scheduler_type": "cosine", "warmup_steps": 0.1, "optim": "paged_adamw_8bit",
        "weight_decay": 0.0, "precision": "bf16", "activation_checkpointing": True, "seed": 42,
    }  # fmt: skip
    assert made["eval"] == {
        "eval_strategy": "steps", "eval_steps": 100, "per_device_eval_batch_size": 4, "load_best_model_at_end": False,
    }  # fmt: skip
    assert made["checkpoint"] == {"save_steps": 250, "save_total_limit": 2}
    assert made["run"] == {"stage": "sft", "name": "mechanic-8b-first-try"}
    assert made["model"]["attn_implementation"] == "flash_attention_2"
    assert made["log"] == {"logging_steps": 5, "report_to": ["wandb"]}
    why = reasons(done)
    assert "did you mean lora_rank?" in why["lora_rnak"]
    assert "has no such name" in why["dataset: parts_catalogue"]
    assert "hardware.shard: shard and modules_to_save" in why["deepspeed"], "ZeRO 3 by the name of the file"
    assert "hardware" not in tomllib.loads(done.text)
    assert {one.foreign for one in done.dropped if one.matters} == {
        "lora_rnak", "dataset: parts_catalogue", "deepspeed", "max_samples", "template: its words",
    }  # fmt: skip


def test_what_llamafactory_does_where_nothing_is_said() -> None:
    """Its own defaults (hparams/finetuning_args.py, data_args.py) and transformers'."""
    assert values(
        "llamafactory_least.yaml", "adapter.method", "adapter.r", "adapter.lora_alpha", "adapter.target_modules",
        "data.max_length", "train.learning_rate", "train.per_device_train_batch_size", "train.num_train_epochs",
        "train.lr_scheduler_type", "train.warmup_steps", "train.activation_checkpointing", "train.precision",
    ) == {
        "adapter.method": "lora", "adapter.r": 8, "adapter.lora_alpha": 16, "adapter.target_modules": "all-linear",
        "data.max_length": 2048, "train.learning_rate": 5e-5, "train.per_device_train_batch_size": 8,
        "train.num_train_epochs": 3.0, "train.lr_scheduler_type": "linear", "train.warmup_steps": 0,
        "train.activation_checkpointing": True, "train.precision": "auto",
    }  # fmt: skip


def test_entries_of_dataset_info_are_named_unless_they_cannot_be_trained_on(tmp_path: Path) -> None:
    entries: dict[str, dict[str, Any]] = {
        "good": {"file_name": "a.json", "columns": {"prompt": "q", "response": "a"}, "num_samples": 3, "odd": 1},
        "pairs": {"file_name": "a.json", "ranking": True}, "seen": {"file_name": "a.json", "columns": {"images": "i"}},
        "far": {"ms_hub_url": "o/n"}, "part": {"hf_hub_url": "o/n", "folder": "x"}, "old": {"hf_hub_url": "squad"},
    }  # fmt: skip
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "dataset_info.json").write_text(json.dumps(entries))
    names = ",".join(entries)
    (tmp_path / "a.yaml").write_text(f"model_name_or_path: o/m\nstage: sft\nfinetuning_type: lora\ndataset: {names}\n")
    done = import_file(tmp_path / "a.yaml", tmp_path)
    good = {"path": "data/dataset_info.json", "subset": "good"}
    assert tomllib.loads(done.text)["data"]["train"] == [good]
    text = (tmp_path / "a.yaml").read_text() + f"dataset_dir: {tmp_path / 'data'}\n"
    (tmp_path / "b.yaml").write_text(text)
    whole = {"path": str(tmp_path / "data" / "dataset_info.json"), "subset": "good"}
    moved = tomllib.loads(import_file(tmp_path / "b.yaml", tmp_path).text)["data"]["train"]
    assert moved == [whole], "a whole path stays one: the profile may be moved"
    why = reasons(done)
    for name, reason in (
        ("pairs", "cannot train on"), ("seen", "it has images"), ("far", "names no file"), ("part", "read whole"),
        ("old", "no name on the hub"),
    ):  # fmt: skip
        assert reason in why[f"dataset: {name}"]
    assert "narrowed" in why["dataset_info.json: good.odd"]
    (tmp_path / "a.yaml").write_text("model_name_or_path: o/m\nstage: pt\nfinetuning_type: full\ndataset: good\n")
    done = import_file(tmp_path / "a.yaml", tmp_path)
    assert tomllib.loads(done.text)["data"]["train"] == [good | {"format": "text"}]
    assert "that of the prompt" in reasons(done)["dataset_info.json: good"]


def test_llamafactory_pretrains_and_freezes() -> None:
    made = profile("llamafactory_pretrain.json")
    assert made["run"]["stage"] == "pretrain" and made["adapter"] == {"method": "full"}
    assert made["data"]["packing"] is True, "pre-training packs there"
    assert made["train"]["max_steps"] == 500 and "num_train_epochs" not in made["train"]
    assert made["train"]["learning_rate"] == 1e-5 and made["train"]["precision"] == "fp16"
    assert made["model"]["name_or_path"] == "./tiny-base"
    made = profile("llamafactory_freeze.yaml")
    assert made["adapter"] == {
        "method": "freeze", "trainable_layers": 4, "trainable_modules": ["embed_tokens", "lm_head"],
    }  # fmt: skip
    assert made["eval"]["eval_strategy"] == "no", "YAML reads `no` as false"
    assert made["train"]["max_grad_norm"] == "none" and made["train"]["optim_args"] == {"momentum": 0.9}
    assert made["train"]["lr_scheduler_kwargs"] == {"num_cycles": 2.0}
    assert made["data"]["loss_on"] == "last"


def test_axolotl() -> None:
    done = imported("axolotl_qlora.yml")
    made = tomllib.loads(done.text)
    assert made["adapter"] == {
        "method": "qlora", "r": 32, "lora_alpha": 16, "lora_dropout": 0.05, "target_modules": "all-linear",
    }  # fmt: skip
    assert made["data"] == {
        "train": [
            {"path": "rows/workshop.jsonl", "format": "sharegpt"},
            {"path": "rows/a.jsonl", "format": "alpaca"},
            {"path": "rows/b.jsonl", "format": "alpaca"},
            {"path": "garage/manuals", "format": "messages", "subset": "english", "revision": "v2"},
        ],
        "eval_fraction": 0.02, "chat_template": "chatml", "max_length": 4096, "packing": True,
    }  # fmt: skip
    assert made["train"] == {
        "num_train_epochs": 2.0, "per_device_train_batch_size": 2, "gradient_accumulation_steps": 4,
        "learning_rate": 2e-4, "lr_scheduler_type": "cosine_with_min_lr", "lr_scheduler_kwargs": {"min_lr_rate": 0.1},
        "warmup_steps": 10, "optim": "paged_adamw_32bit", "weight_decay": 0.0, "precision": "auto", "tf32": False,
        "activation_checkpointing": True, "use_liger_kernel": True, "seed": 42,
    }  # fmt: skip
    assert made["eval"]["eval_steps"] == 0.125
    assert made["checkpoint"] == {"save_strategy": "epoch"}
    why = reasons(done)
    assert "part of a split" in why["datasets[2].split"] and "copy them here" in why["datasets[3].path"]


def test_what_axolotl_does_where_nothing_is_said() -> None:
    made = profile("axolotl_full.yml")
    assert made["adapter"] == {"method": "full"} and made["model"]["dtype"] == "bfloat16"
    assert made["data"]["max_length"] == 512 and made["data"]["chat_template"] == "alpaca"
    assert made["train"]["gradient_accumulation_steps"] == 8, "a batch of 32 in micro-batches of 4"
    assert made["train"]["num_train_epochs"] == 1.0 and made["train"]["lr_scheduler_type"] == "cosine"
    assert made["eval"] == {
        "eval_strategy": "steps", "eval_steps": 0.1, "load_best_model_at_end": False,
        "per_device_eval_batch_size": 4,  # micro_batch_size
    }  # fmt: skip
    made = profile("axolotl_pretrain.yml")
    assert made["run"]["stage"] == "pretrain" and made["adapter"]["method"] == "freeze"
    assert made["data"]["train"] == [{"path": "allenai/c4", "format": "text", "subset": "en"}]


def test_trl() -> None:
    made = profile("trl_sft.yaml")
    assert made["adapter"] == {
        "method": "qlora", "r": 32, "lora_alpha": 16, "lora_dropout": 0.05, "target_modules": ["q_proj", "v_proj"],
        "bnb_4bit_use_double_quant": False,
    }  # fmt: skip
    assert made["data"]["eval"] == [{"path": "trl-lib/Capybara", "subset": "default", "split": "test"}]
    assert made["data"]["loss_on"] == "everything"
    assert made["train"]["precision"] == "bf16" and made["train"]["activation_checkpointing"] is True


def test_the_shapes_of_guides() -> None:
    made = profile("guide_nested.yaml")
    assert made["adapter"] == {
        "method": "qlora", "r": 16, "lora_alpha": 32, "lora_dropout": 0.05, "target_modules": ["q_proj", "v_proj"],
        "bias": "none",
    }  # fmt: skip
    assert made["data"] == {
        "train": "rows/workshop.jsonl", "eval_fraction": 0.1, "format": "sharegpt", "max_length": 1024,
    }  # fmt: skip
    assert made["train"]["learning_rate"] == 2e-4 and made["train"]["precision"] == "bf16"
    made = profile("guide_fine_tuner.yaml")
    assert made["model"]["name_or_path"] == "meta-llama/Llama-2-7b-hf"
    assert made["adapter"]["method"] == "qlora" and made["adapter"]["r"] == 64
    assert made["train"]["warmup_steps"] == 0.03 and made["data"]["max_length"] == 512
    made = profile("guide_studio.json")
    assert made["adapter"]["method"] == "qlora" and made["adapter"]["r"] == 64
    assert made["train"]["activation_checkpointing"] is True and made["train"]["num_train_epochs"] == 1.0


def test_deepspeed_and_torchtune() -> None:
    done = imported("deepspeed_zero2.json")
    made = tomllib.loads(done.text)
    assert made["train"] == {
        "per_device_train_batch_size": 4, "gradient_accumulation_steps": 8, "learning_rate": 3e-5,
        "lr_scheduler_type": "linear", "warmup_steps": 500, "optim": "adamw_torch_fused", "weight_decay": 3e-7,
        "adam_beta1": 0.8, "adam_beta2": 0.99, "adam_epsilon": 1e-8, "max_grad_norm": 1.0, "precision": "bf16",
    }  # fmt: skip
    assert [one.split(":")[0] for one in done.missing] == ["model.name_or_path", "data.train"]
    assert made["hardware"] == {"offload": ["state"]}
    made = profile("torchtune_qlora.yaml")
    assert made["adapter"]["method"] == "qlora" and made["data"]["train"] == "yahma/alpaca-cleaned"
    assert made["adapter"]["target_modules"] == ["q_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    assert made["train"]["max_grad_norm"] == "none" and made["train"]["learning_rate"] == 3e-4


LLAMAFACTORY = "model_name_or_path: m/m\nfinetuning_type: lora\ndataset: o/rows\n"
AXOLOTL = "base_model: m/m\ndatasets: [{path: o/rows}]\n"
ALPACA = "base_model: m/m\ndatasets: [{path: o/rows, type: alpaca}]\n"
GUIDE = "model: {name: m/m}\ndata: {path: o/rows}\n"


@pytest.mark.parametrize(
    ("start", "line", "key", "expected"),
    [
        (LLAMAFACTORY, "quantization_bit: 8", "adapter.load_in_8bit", True),
        (LLAMAFACTORY, "optim: adamw_hf", "train.optim", "adamw_torch"),
        (LLAMAFACTORY, "warmup_steps: 0.1", "train.warmup_steps", 0.1),
        (LLAMAFACTORY, "warmup_ratio: 0.1\nwarmup_steps: 20", "train.warmup_steps", 20),
        (LLAMAFACTORY, "warmup_ratio: 0.1\nwarmup_steps: 0", "train.warmup_steps", 0.1),
        (LLAMAFACTORY, "val_size: 200", "data.eval_num_rows", 200),
        (LLAMAFACTORY, "pure_bf16: true", "model.dtype", "bfloat16"),
        (LLAMAFACTORY, "report_to: none", "log.report_to", []),
        (LLAMAFACTORY, "save_steps: 0.2", "checkpoint.save_steps", 0.2),
        (LLAMAFACTORY, "group_by_length: true", "train.train_sampling_strategy", "group_by_length"),
        (LLAMAFACTORY, "max_steps: -1\nnum_train_epochs: '2'", "train.num_train_epochs", 2.0),
        (LLAMAFACTORY, "learning_rate: '5.0E-6'", "train.learning_rate", 5e-6),
        (LLAMAFACTORY, "val_size: 0.1\neval_strategy: steps\nlogging_steps: 7", "eval.eval_steps", 7),
        (LLAMAFACTORY, "train_on_prompt: true", "data.loss_on", "everything"),
        (AXOLOTL, "adapter: lora\nload_in_8bit: true", "adapter.load_in_8bit", True),
        (AXOLOTL, "adapter: lora\nload_in_4bit: true", "adapter.method", "qlora"),
        (AXOLOTL, "adapter: lora", "adapter.target_modules", ["q_proj", "v_proj"]),
        (AXOLOTL, "chat_template: phi_35", "data.chat_template", "phi"),
        (AXOLOTL, "chat_template: tokenizer_default", "data.chat_template", "none"),
        (AXOLOTL, "saves_per_epoch: 2\nnum_epochs: 4", "checkpoint.save_steps", 0.125),
        (AXOLOTL, "bf16: false\nfp16: true", "train.precision", "fp16"),
        (AXOLOTL, "sample_packing: yes", "data.packing", True),
        (AXOLOTL, "val_set_size: 0.1", "eval.eval_strategy", "epoch"),
        (AXOLOTL, "adapter: lora\npeft_layers_to_transform: 2", "adapter.layers_to_transform", [2]),
        (AXOLOTL, "adapter: lora\npeft_layers_to_transform: [1, 2]", "adapter.layers_to_transform", [1, 2]),
        (AXOLOTL, "val_set_size: 0.1\nmicro_batch_size: 3", "eval.per_device_eval_batch_size", 3),
        (AXOLOTL, "val_set_size: 0.1", "eval.per_device_eval_batch_size", 1),
        (GUIDE, "dataset: {format: chatml}", "data.chat_template", "chatml"),
        (GUIDE, "dataset: {format: chatml}\ntemplate: llama3", "data.chat_template", "llama3"),
        (GUIDE.replace("m/m", "m/m-Instruct"), "dataset: {format: chatml}", "data.chat_template", None),
        (GUIDE, "dataset: {format: sharegpt}", "data.chat_template", None),
        (GUIDE, "quantization: {bits: 4}\nlora: {rank: 4}", "adapter.method", "qlora"),
        (GUIDE, "quantization: {bits: 8}\nlora: {rank: 4}", "adapter.load_in_8bit", True),
        (GUIDE, "method: {type: full_finetune}", "adapter.method", "full"),
        (GUIDE, "training: {warmup: 0.05}", "train.warmup_steps", 0.05),
        (GUIDE, "training: {train_on_inputs: false}", "data.loss_on", "assistant"),
        (GUIDE, "optimizer: {type: AdamW, lr: 1.0e-4}", "train.optim", "adamw_torch"),
    ],
)
def test_a_value_is_converted(start: str, line: str, key: str, expected: Any, tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(f"{start}{line}\n")
    done = import_file(path, tmp_path)
    section, name = key.split(".")
    assert tomllib.loads(done.text)[section].get(name) == expected
    assert not done.missing


@pytest.mark.parametrize(
    ("start", "line", "reason"),
    [
        (LLAMAFACTORY, "quantization_bit: 3", "4 or 8 bits"),
        (LLAMAFACTORY, "optim: galore_adamw", "no such optimizer"),
        (LLAMAFACTORY, "lr_scheduler_type: one_cycle", "no such scheduler"),
        (LLAMAFACTORY, "template: llama3.9", "no such template"),
        (LLAMAFACTORY, "adapter_name_or_path: a,b", "merge them first"),
        (LLAMAFACTORY, "pissa_init: true", "rewrites the weights of the base"),
        (LLAMAFACTORY, "lora_rank: 5000", "less than or equal to 1024"),
        (LLAMAFACTORY, "learning_rate: -1", "greater than or equal to 0"),
        (LLAMAFACTORY, "learning_rate: .nan", "not a number"),
        (LLAMAFACTORY, f"seed: 1{'0' * 400}", "too large a number"),
        (LLAMAFACTORY, "learning_rate: 1.0e+300", "too large a number"),
        (LLAMAFACTORY, "trust_remote_code: true", "needs revision"),
        (LLAMAFACTORY, "output_dir: ${here}/x", "refers to what the file does not say"),
        (AXOLOTL, "adapter: llama-adapter", "no method llama-adapter"),
        (AXOLOTL, "chat_template_jinja: '{{ x }}'", ".jinja file"),
        (AXOLOTL, "adapter: lora\npeft_layers_to_transform: 0.1", "not a whole number"),
        (AXOLOTL, "adapter: lora\npeft_layers_to_transform: true", "not a number"),
        (ALPACA, "chat_template: llama3", "in Alpaca's own words"),
        (ALPACA, "chat_template: jinja\nchat_template_jinja: x.jinja", "in Alpaca's own words"),
        (ALPACA.replace("}]", ", chat_template: llama3}]"), "", "in Alpaca's own words"),
        (ALPACA.replace("}]", ", train_on_eos: all}]"), "", "and no other"),
        (GUIDE, "lora: {r: 4, bogus: 4}", "no such key"),
    ],
)
def test_a_value_that_cannot_be_carried_is_reported_with_its_reason(
    start: str, line: str, reason: str, tmp_path: Path
) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(f"{start}{line}\n")
    done = import_file(path, tmp_path)
    settled(done, path)
    told = [one for one in done.dropped if reason in one.reason]
    assert told and all(one.matters for one in told), done.dropped
    assert not done.missing


def test_alpacas_words_stay_where_axolotl_writes_them(tmp_path: Path) -> None:
    """Axolotl's template is for rows of type chat_template only; one for all is what a profile has."""
    path = tmp_path / "a.yaml"
    path.write_text(f"{ALPACA}chat_template: llama3\n")
    assert tomllib.loads(import_file(path, tmp_path).text)["data"]["chat_template"] == "alpaca"
    path.write_text(f"{ALPACA.replace('}]', '}, {path: o/talks, type: chat_template}]')}chat_template: llama3\n")
    done = import_file(path, tmp_path)
    assert tomllib.loads(done.text)["data"]["chat_template"] == "llama3"
    assert "one template writes all rows" in reasons(done)["datasets: o/rows"]


@pytest.mark.parametrize(("text", "tool"), [('{"zero_optimization": {"stage": 0}}', "DeepSpeed"), (GUIDE, "the file")])
def test_what_a_file_does_not_name_is_reported_as_chosen_here(text: str, tool: str, tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(f"{text}\n" + ("training: {lr: 1.0e-4}\n" if text == GUIDE else ""))
    done = import_file(path, tmp_path)
    assert tomllib.loads(done.text)["adapter"]["method"] == "lora"
    assert [one for one in done.unsaid if one.startswith("adapter.method: ") and tool in one]
    assert not [one for one in imported("guide_nested.yaml").unsaid if "method" in one]


@pytest.mark.parametrize(
    ("scheduler", "told"),
    [
        ('{"type": "WarmupDecayLR"}', True),
        ('{"type": "WarmupCosineLR", "params": {"warmup_type": "log"}}', True),
        ('{"type": "WarmupDecayLR", "params": {"warmup_type": "linear"}}', False),
        ('{"type": "OneCycle"}', False),
    ],
)
def test_a_warm_up_by_logarithm_is_reported(scheduler: str, told: bool, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(f'{{"zero_optimization": {{"stage": 0}}, "scheduler": {scheduler}}}')
    done = import_file(path, tmp_path)
    settled(done, path)
    found = [one for one in done.dropped if one.foreign == "scheduler.params.warmup_type" and one.matters]
    assert bool(found) == told and all("by the logarithm" in one.reason for one in found)


def test_on_a_terminal_the_report_is_not_printed_twice(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert import_profile(FIXTURES / "trl_sft.yaml", None, as_json=False) == 0
    printed = capsys.readouterr()
    assert "Not carried over" in printed.out and "Not carried over" not in printed.err
    assert "values carried over" in printed.err and "-o FILE" in printed.err
    assert import_profile(FIXTURES / "trl_rloo.yaml", None, as_json=False) == 30
    assert "Not carried over" in capsys.readouterr().err, "then there is nothing else to read it in"


def test_paths_stay_right_wherever_the_profile_is_written(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "rows.jsonl").write_text('{"text": "x"}\n')
    for where in (tmp_path, tmp_path / "a", tmp_path / "a" / "b"):
        source = tmp_path / "train.yaml"
        source.write_text(
            "model_name_or_path: m/m\nfinetuning_type: lora\ndataset: rows.jsonl\n"
            "eval_dataset: elsewhere/no.jsonl\neval_strategy: epoch\n"
        )
        out = where / "made.toml"
        assert import_profile(source, out, as_json=False) == 0
        data = resolve(out).profile.data
        assert data.train == str(tmp_path / "rows.jsonl")
        out.unlink()
    # Run from its project's folder, as these tools are, the rows are sought there too.
    source = tmp_path / "a" / "b" / "train.yaml"
    source.write_text("model_name_or_path: m/m\nfinetuning_type: lora\ndataset: rows.jsonl\n")
    assert tomllib.loads(import_file(source, tmp_path).text)["data"]["train"] == "rows.jsonl"


def test_exit_codes_and_outputs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, refused = FIXTURES / "trl_sft.yaml", FIXTURES / "trl_rloo.yaml"
    assert import_profile(good, None, as_json=False) == 0
    printed = capsys.readouterr()
    assert tomllib.loads(printed.out)["model"]["name_or_path"] == "Qwen/Qwen2.5-0.5B"
    assert "eos_token" in printed.err
    out = tmp_path / "made.toml"
    assert import_profile(refused, out, as_json=False) == 30 and not out.exists()
    assert "RLOO" in capsys.readouterr().err
    assert import_profile(good, out, as_json=True) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["kind"] == "TRL" and told["profile"] == out.read_text() and told["written"] == str(out)
    assert {"from", "to", "value"} == told["carried"][0].keys()
    with pytest.raises(UsageError, match="already"):
        import_profile(good, out, as_json=False)


def test_every_argument_of_the_libraries_is_known() -> None:
    """So that a new release of transformers or TRL shows here."""
    trl = importlib.import_module("trl")
    from transformers import Seq2SeqTrainingArguments

    from ftui.importers.rules import find_wide
    from ftui.importers.tools.trainer import TRAINER
    from ftui.importers.tools.trl import RULES

    def unknown(arguments: Any, rules: Any) -> list[str]:
        names = [field.name for field in dataclasses.fields(arguments)]
        return [name for name in names if name not in rules and find_wide(rules, name) is None and "token" not in name]

    assert unknown(Seq2SeqTrainingArguments, TRAINER) == []
    assert [unknown(one, RULES) for one in (trl.SFTConfig, trl.ModelConfig, trl.ScriptArguments)] == [[], [], []]


def test_what_is_supposed_is_what_the_libraries_do(tmp_path: Path) -> None:
    trl = importlib.import_module("trl")
    from transformers import TrainingArguments

    path = tmp_path / "a.yaml"
    path.write_text("model_name_or_path: m/m\ndataset_name: o/rows\nuse_peft: true\n")
    made = tomllib.loads(import_file(path, tmp_path).text)
    fields = (*dataclasses.fields(trl.ModelConfig), *dataclasses.fields(trl.SFTConfig))
    theirs = {field.name: field.default for field in fields}
    for name in ("learning_rate", "per_device_train_batch_size", "num_train_epochs", "lr_scheduler_type",
                 "warmup_steps", "optim", "weight_decay", "seed", "gradient_accumulation_steps"):  # fmt: skip
        assert made["train"][name] == theirs[name], name
    assert made["train"]["activation_checkpointing"] == theirs["gradient_checkpointing"]
    assert made["data"]["max_length"] == theirs["max_length"] and made["data"]["packing"] == theirs["packing"]
    assert (made["adapter"]["r"], made["adapter"]["lora_alpha"], made["adapter"]["lora_dropout"]) == (
        theirs["lora_r"], theirs["lora_alpha"], theirs["lora_dropout"],
    )  # fmt: skip
    plain = {field.name: field.default for field in dataclasses.fields(TrainingArguments)}
    made = profile("llamafactory_least.yaml")
    for name in ("learning_rate", "per_device_train_batch_size", "num_train_epochs", "lr_scheduler_type",
                 "warmup_steps", "optim", "weight_decay", "seed", "gradient_accumulation_steps"):  # fmt: skip
        assert made["train"][name] == plain[name], name
