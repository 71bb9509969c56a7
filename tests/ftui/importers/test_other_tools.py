"""`ftui import`: LitGPT's files are carried; those of tools that are not read are refused by their name."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from ftui.errors import ProfileError
from ftui.importers import Imported, import_file
from tests.support.imports import settled

LORA = (
    "checkpoint_dir: checkpoints/o/m\nlora_r: 4\ndata: {class_path: litgpt.data.JSON, init_args: {json_path: a.json}}\n"
)
FULL = LORA.replace("lora_r: 4\n", "")


def imported(text: str, folder: Path, name: str = "a.yaml") -> tuple[Imported, dict[str, Any]]:
    (folder / name).write_text(text)
    done = import_file(folder / name, folder)
    settled(done, folder / name)
    return done, tomllib.loads(done.text)


def test_litgpts_file_is_carried(tmp_path: Path) -> None:
    text = (
        "checkpoint_dir: checkpoints/owner/base-1b\nout_dir: out/lora\nprecision: bf16-true\nlora_r: 8\n"
        "lora_mlp: true\nlora_value: false\ndevices: 2\ndata:\n  class_path: litgpt.data.JSON\n  init_args:\n"
        "    json_path: rows.jsonl\n    val_split_fraction: 0.1\n    mask_prompt: true\n    seed: 7\n"
        "train: {micro_batch_size: 2, global_batch_size: 32, max_seq_length: 512, epochs: 3, lr_warmup_steps: 9,\n"
        "  save_interval: 50, max_tokens: null}\neval: {interval: 25, initial_validation: true, max_iters: 100}\n"
        "optimizer: {class_path: torch.optim.AdamW, init_args: {lr: 2.0e-4, weight_decay: 0.1, betas: [0.9, 0.95]}}\n"
        "logger_name: tensorboard\nseed: 11\n"
    )
    done, made = imported(text, tmp_path)
    assert done.kind == "LitGPT" and not done.missing and not [one for one in done.dropped if one.matters]
    assert made["model"] == {"name_or_path": "owner/base-1b", "dtype": "bfloat16"}
    assert made["adapter"] == {
        "method": "lora", "r": 8, "lora_alpha": 16, "lora_dropout": 0.05,
        "target_modules": ["q_proj", "gate_proj", "up_proj", "down_proj"],
    }  # fmt: skip
    assert made["data"] == {
        "train": [{"path": "rows.jsonl", "format": "alpaca"}], "eval_fraction": 0.1, "chat_template": "alpaca",
        "loss_on": "assistant", "max_length": 512, "packing": False,
    }  # fmt: skip
    assert made["train"] == {
        "num_train_epochs": 3.0, "per_device_train_batch_size": 2, "gradient_accumulation_steps": 8,
        "learning_rate": 2e-4, "lr_scheduler_type": "cosine", "warmup_steps": 9, "optim": "adamw_torch",
        "weight_decay": 0.1, "adam_beta1": 0.9, "adam_beta2": 0.95, "max_grad_norm": "none", "precision": "bf16",
        "activation_checkpointing": True, "seed": 11, "data_seed": 7,
    }  # fmt: skip
    assert made["eval"] == {
        "eval_strategy": "steps", "eval_steps": 25, "eval_on_start": True, "load_best_model_at_end": False,
    }  # fmt: skip
    assert made["checkpoint"] == {"save_steps": 50} and made["log"] == {"report_to": ["tensorboard"]}
    assert made["hardware"] == {"num_processes": 2}


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        (LORA, "train.learning_rate", 1e-3), (LORA, "train.gradient_accumulation_steps", 16),
        (LORA, "train.num_train_epochs", 5.0), (LORA, "data.loss_on", "everything"), (LORA, "data.eval_fraction", 0.05),
        (LORA, "adapter.target_modules", ["q_proj", "v_proj"]), (LORA, "train.precision", "bf16"),
        (LORA, "eval.eval_steps", 100), (FULL + "train: {epochs: 1}\n", "eval.eval_steps", 600),
        (FULL + "train: {epochs: 1}\n", "adapter.method", "full"),
        (LORA + "train: {max_steps: 30}\n", "train.max_steps", 30),
        (LORA + "train: {max_steps: 30}\n", "train.num_train_epochs", None),
        (LORA + "train: {save_interval: null}\n", "checkpoint.save_steps", "none"),
        (LORA + "precision: 16-mixed\n", "train.precision", "fp16"),
        (LORA + "quantize: bnb.nf4-dq\n", "adapter.method", "qlora"),
        (LORA + "quantize: bnb.nf4-dq\n", "adapter.bnb_4bit_use_double_quant", True),
        (LORA + "quantize: bnb.fp4\n", "adapter.bnb_4bit_quant_type", "fp4"),
        (LORA + "quantize: bnb.int8-training\noptimizer: AdamW\n", "train.optim", "paged_adamw_32bit"),
        (LORA + "quantize: bnb.int8-training\n", "adapter.load_in_8bit", True),
        (LORA + "optimizer: SGD\n", "train.optim", "sgd"),
        (LORA.replace("checkpoints/", ""), "model.name_or_path", "o/m"),
        (LORA.replace("checkpoints/o/m", "/models/mine"), "model.name_or_path", "/models/mine"),
        (LORA.replace("JSON", "Alpaca2k"), "data.train", [{"path": "mhenrichsen/alpaca_2k_test", "format": "alpaca"}]),
    ],
)  # fmt: skip
def test_what_litgpt_does_where_nothing_or_something_else_is_said(
    text: str, key: str, value: Any, tmp_path: Path
) -> None:
    """Defaults of litgpt/finetune/lora.py and full.py, litgpt/args.py, litgpt/data, and torch's of AdamW."""
    _, made = imported(text, tmp_path)
    section, name = key.split(".")
    assert made[section].get(name) == value


def test_litgpts_folder_of_rows_has_both_splits(tmp_path: Path) -> None:
    (tmp_path / "rows").mkdir()
    for name in ("train.json", "val.json"):
        (tmp_path / "rows" / name).write_text("[]")
    _, made = imported(LORA.replace("a.json", "rows"), tmp_path)
    assert made["data"]["train"] == [{"path": "rows/train.json", "format": "alpaca"}]
    assert made["data"]["eval"] == [{"path": "rows/val.json", "format": "alpaca"}]
    assert "eval_fraction" not in made["data"]


@pytest.mark.parametrize(
    ("text", "key", "words"),
    [
        (LORA.replace("JSON", "LIMA").replace("json_path: a.json", "repo_id: o/n"),
         "data.init_args.repo_id", "code of LitGPT"),
        (LORA.replace("a.json}", "a.json, prompt_style: llama3}"), "data.init_args.prompt_style",
         "LitGPT writes these words itself"),
        (LORA + "train: {max_norm: 1.0}\n", "train.max_norm", "refuses it too"),
        (LORA + "train: {global_batch_size: 3, micro_batch_size: 2}\n", "train.global_batch_size", "no multiple"),
        (LORA + "devices: auto\n", "devices", "how many there are"),
        (LORA + "quantize: gptq.int4\n", "quantize", "bitsandbytes"),
        (LORA + "lora_rnak: 3\n", "lora_rnak", "no such key of LitGPT"),
    ],
)  # fmt: skip
def test_what_of_litgpt_has_no_place_here_is_told(text: str, key: str, words: str, tmp_path: Path) -> None:
    done, _ = imported(text, tmp_path)
    assert [one.reason for one in done.dropped if one.foreign == key and one.matters and words in one.reason]


def test_litgpts_command_is_read(tmp_path: Path) -> None:
    words = "--data JSON --data.json_path a.json --data.mask_prompt true --lora_r 4 --train.epochs 2"
    done, made = imported(f"litgpt finetune_lora o/m {words}\n", tmp_path, "a.sh")
    assert done.kind == "LitGPT" and made["adapter"]["r"] == 4 and made["train"]["num_train_epochs"] == 2.0
    assert made["data"]["train"] == [{"path": "a.json", "format": "alpaca"}]
    assert made["data"]["loss_on"] == "assistant"
    assert made["model"]["name_or_path"] == "o/m" and not done.missing


@pytest.mark.parametrize(
    ("command", "method", "model"),
    [
        ("litgpt finetune o/m", "lora", "o/m"),
        ("litgpt download o/m\nlitgpt finetune_lora checkpoints/o/m", "lora", "o/m"),
        ("litgpt finetune_full --checkpoint_dir o/m", "full", "o/m"),
        ("litgpt finetune lora --checkpoint_dir checkpoints/o/m", "lora", "o/m"),
        ("litgpt finetune full --checkpoint_dir checkpoints/o/m", "full", "o/m"),
        ("python -m litgpt finetune_lora --checkpoint_dir o/m", "lora", "o/m"),
        ("/opt/bin/litgpt finetune_full o/m --train.epochs 2", "full", "o/m"),
        ("litgpt finetune_lora o/m --quantize bnb.nf4", "qlora", "o/m"),
        ("litgpt finetune_lora o/m --quantize bnb.int8-training", "lora", "o/m"),
    ],
)
def test_the_verb_of_litgpts_command_is_the_method(command: str, method: str, model: str, tmp_path: Path) -> None:
    done, made = imported(f"{command} --data JSON --data.json_path a.json\nlitgpt chat out/final\n", tmp_path, "a.sh")
    assert done.kind == "LitGPT" and not [one for one in done.dropped if one.matters]
    assert (made["adapter"]["method"], made["model"]["name_or_path"]) == (method, model)


def test_litgpts_adapters_are_refused(tmp_path: Path) -> None:
    done, _ = imported(FULL + "quantize: bnb.nf4\ntrain: {epochs: 1}\n", tmp_path)
    assert "LLaMA-Adapter" in done.refused


TRAINING = "learning_rate: 1e-4, batch_size: 4, epochs: 3, output_dir: out, seed: 1"
UNREAD = {
    "H2O LLM Studio": (
        "llm_backbone: o/m\nproblem_type: text_causal_language_modeling\ndataset: {train_dataframe: a.csv, "
        f"prompt_column: [q], answer_column: a}}\ntraining: {{{TRAINING}, lora: true, lora_r: 4, lora_alpha: 16}}\n"
        "tokenizer: {max_length: 512}\n"
    ),
    "LitGPT's pretraining": (
        "model_name: tiny-llama-1.1b\ninitial_checkpoint_dir: null\ntokenizer_dir: checkpoints/o/m\n"
        "data: {class_path: litgpt.data.TinyLlama}\ntrain: {global_batch_size: 512, max_tokens: 3000}\nout_dir: x\n"
    ),
    "ms-swift": (
        "model: o/m\ntuner_type: lora\nlora_rank: 8\nlora_alpha: 32\ndataset: [o/rows]\nmax_length: 512\n"
        "num_train_epochs: 1\nlearning_rate: 1e-4\noutput_dir: out\n"
    ),
    "Oumi": (
        "model: {model_name: o/m, model_max_length: 512, trust_remote_code: true}\n"
        "data: {train: {datasets: [{dataset_name: o/rows}]}}\n"
        f"training: {{trainer_type: TRL_SFT, use_peft: true, {TRAINING}}}\npeft: {{lora_r: 8, lora_alpha: 16}}\n"
    ),
    "mlx-lm": (
        "model: o/m\ntrain: true\nfine_tune_type: lora\ndata: rows\niters: 100\nbatch_size: 4\nlearning_rate: 1e-5\n"
        "adapter_path: adapters\nmax_seq_length: 512\nlora_parameters: {rank: 8, scale: 20.0, dropout: 0.0}\nseed: 0\n"
    ),
    "AutoTrain": (
        "task: llm-sft\nbase_model: o/m\nproject_name: x\nbackend: local\ndata: {path: o/rows, train_split: train, "
        "column_mapping: {text_column: text}}\nparams: {epochs: 3, batch_size: 2, lr: 3e-5, quantization: int4}\n"
    ),
    "LLM Foundry": (
        "max_seq_len: 512\nmodel: {name: hf_causal_lm, pretrained_model_name_or_path: o/m}\nmax_duration: 2ep\n"
        "train_loader: {name: finetuning, dataset: {hf_name: o/rows}}\noptimizer: {name: decoupled_adamw, lr: 1e-6}\n"
    ),
    "nanotron": (
        "data_stages: [{name: one, data: {dataset: {hf_dataset_or_datasets: o/rows}}}]\nparallelism: {dp: 2}\n"
        "optimizer: {weight_decay: 0.1}\ntokens: {micro_batch_size: 2, sequence_length: 256}\n"
    ),
    "GPT-NeoX": (
        "pipe-parallel-size: 1\nnum-layers: 12\nzero_optimization: {stage: 1}\ntrain_micro_batch_size_per_gpu: 8\n"
        "optimizer: {type: Adam, params: {lr: 1e-4}}\ngradient_clipping: 1.0\n"
    ),
    "mistral-finetune": (
        "model_id_or_path: base\ndata: {instruct_data: a.jsonl}\nlora: {rank: 64}\nseq_len: 512\nbatch_size: 1\n"
        "max_steps: 300\noptim: {lr: 6e-5, weight_decay: 0.1}\nseed: 0\n"
    ),
    "Ludwig": (
        "model_type: llm\nbase_model: o/m\nadapter: {type: lora, r: 8}\ninput_features: [{name: q, type: text}]\n"
        f"output_features: [{{name: a, type: text}}]\ntrainer: {{type: finetune, {TRAINING}}}\n"
    ),
    "NeMo": (
        "trainer: {devices: 8, precision: bf16, max_steps: 100}\nexp_manager: {exp_dir: x}\n"
        "model: {micro_batch_size: 4, restore_from_path: a.nemo, data: {train_ds: {file_names: [a.jsonl]}}, "
        "optim: {name: adam, lr: 1e-4}}\n"
    ),
    "NeMo RL": (
        "policy: {model_name: o/m, precision: bfloat16, optimizer: {name: torch.optim.AdamW, kwargs: {lr: 1e-6}}}\n"
        "checkpointing: {checkpoint_dir: x, save_period: 10}\ncluster: {num_nodes: 1}\ndata: {dataset_name: o/rows}\n"
    ),
    "verl": (
        "data: {train_files: a.parquet, max_length: 512}\nmodel: {partial_pretrain: o/m, lora_rank: 32}\n"
        "optim: {lr: 1e-5, weight_decay: 0.01}\ntrainer: {project_name: x, experiment_name: y, total_epochs: 4}\n"
    ),
    "a service": '{"training_file": "file-abc", "model": "o/m", "suffix": "x", "hyperparameters": {"n_epochs": 3}}',
    "PyTorch Lightning": (
        "seed_everything: 1\ntrainer: {accelerator: gpu, max_epochs: 3, precision: bf16-mixed}\n"
        f"model: {{model_name: o/m, {TRAINING}, lora_r: 8}}\ndata: {{data_path: a.jsonl, batch_size: 4}}\n"
    ),
    "no known tool": (
        "checkpoint_dir: base\nsave_to: out\nrows: a.jsonl\nlora_r: 8\nlearning_rate: 1e-4\nbatch_size: 4\n"
        "minutes: 30\nrecipe: short\n"
    ),
}  # fmt: skip
SCRIPTS = {
    "LitGPT's pretraining": "litgpt pretrain o/m --tokenizer_dir o/m --data TextFiles --train.max_tokens 1000",
    "LitGPT's LLaMA-Adapter": "litgpt finetune_adapter_v2 o/m --data Alpaca",
    "OpenRLHF": "deepspeed --module openrlhf.cli.train_sft --dataset o/rows --input_key q --pretrain o/m --lora_rank 8",
    "FastChat": "torchrun --nproc_per_node=4 train.py --model_name_or_path o/m --data_path a.json --bf16 True",
    "transformers' example": "python run_clm.py --model_name_or_path o/m --dataset_name o/rows --block_size 512",
    "ms-swift": "swift sft --model o/m --dataset 'o/rows#500' --lora_rank 8 --learning_rate 1e-4 --num_train_epochs 1",
    "Megatron": "torchrun train.py --tensor-model-parallel-size 2 --micro-batch-size 4 --lr 1e-4 --train-iters 100",
}


@pytest.mark.parametrize(
    ("name", "file", "text"),
    [
        *((name, "a.yaml", text) for name, text in UNREAD.items()),
        *((name, "a.sh", f"#!/bin/sh\n{text}\n") for name, text in SCRIPTS.items()),
    ],
)
def test_files_of_tools_that_are_not_read_are_refused_by_name(name: str, file: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / file
    path.write_text(text)
    with pytest.raises(ProfileError) as failed:
        import_file(path, tmp_path)
    assert name in failed.value.message and "LitGPT" in failed.value.hint


def test_a_file_of_nobody_is_said_to_be_an_unknown_tools(tmp_path: Path) -> None:
    text = "model: o/m\nlora_r: 8\ndataset: o/rows\nlearning_rate: 1e-4\nepochs: 2\ncheckpoint_dir: x\n"
    done, made = imported(text, tmp_path)
    assert done.kind == "an unknown tool" and any("the tool" in one for one in done.unsaid)
    assert "(an unknown tool)" in done.text and made["model"]["name_or_path"] == "o/m"
    (lost,) = (one for one in done.dropped if one.foreign == "checkpoint_dir")
    assert lost.matters and "or the base" in lost.reason
