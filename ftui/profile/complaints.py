"""A validation error in words: file, line, key, what is wrong, what to write instead."""

import difflib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from ftui.errors import ProfileError
from ftui.profile.sections import Profile

if TYPE_CHECKING:
    from ftui.profile.layers import Key, Origin

# Spellings of older releases and of other tools, and what the key is called here.
OLD_SPELLINGS = {
    "warmup_ratio": "train.warmup_steps (below 1 it is a share)",
    "gradient_checkpointing": "train.activation_checkpointing",
    "group_by_length": 'train.train_sampling_strategy = "group_by_length"',
    "evaluation_strategy": "eval.eval_strategy",
    "max_seq_length": "data.max_length",
    "cutoff_len": "data.max_length",
    "dataset": "data.train",
    "datasets": "data.train",
    "train_file": "data.train",
    "eval_dataset": "data.eval",
    "test_datasets": "data.eval",
    "val_size": "data.eval_fraction, or data.eval_num_rows",
    "val_set_size": "data.eval_fraction, or data.eval_num_rows",
    "template": "data.chat_template",
    "sample_packing": "data.packing",
    "train_on_inputs": 'data.loss_on = "everything"',
    "mask_history": 'data.loss_on = "last"',
    "train_on_prompt": 'data.loss_on = "everything"',
    "assistant_only_loss": 'data.loss_on = "assistant"',
    "completion_only_loss": 'data.loss_on = "assistant"',
    "interleave_probs": "the weight of a [[data.train]] table",
    "dataset_mixer": "the weight of a [[data.train]] table",
    "sequence_len": "data.max_length",
    "lora_r": "adapter.r",
    "lora_rank": "adapter.r",
    "lora_target": "adapter.target_modules",
    "lora_target_modules": "adapter.target_modules",
    "lora_modules_to_save": "adapter.modules_to_save",
    "additional_target": "adapter.modules_to_save",
    "finetuning_type": "adapter.method",
    "use_peft": 'adapter.method = "lora"',
    "load_in_4bit": 'adapter.method = "qlora"',
    "quantization_bit": 'adapter.method = "qlora"',
    "quantization_type": "adapter.bnb_4bit_quant_type",
    "double_quantization": "adapter.bnb_4bit_use_double_quant",
    "adapter_name_or_path": "adapter.name_or_path",
    "lora_model_dir": "adapter.name_or_path",
    "peft_use_dora": "adapter.use_dora",
    "peft_use_rslora": "adapter.use_rslora",
    "freeze_trainable_layers": "adapter.trainable_layers",
    "freeze_trainable_modules": "adapter.trainable_modules",
    "unfrozen_parameters": "adapter.trainable_modules",
    "num_epochs": "train.num_train_epochs",
    "epochs": "train.num_train_epochs",
    "micro_batch_size": "train.per_device_train_batch_size",
    "batch_size": "train.per_device_train_batch_size",
    "lr": "train.learning_rate",
    "gradient_checkpointing_kwargs": "train.activation_checkpointing_kwargs",
    "neftune_alpha": "train.neftune_noise_alpha",
    "label_smoothing": "train.label_smoothing_factor",
    "liger": "train.use_liger_kernel",
    "enable_liger_kernel": "train.use_liger_kernel",
    "optimizer_args": "train.optim_args",
    "epsilon": "train.adam_epsilon",
    "gradient_clipping": "train.max_grad_norm",
    "clip_grad_norm": "train.max_grad_norm",
    "saves_per_epoch": 'checkpoint.save_strategy = "epoch"',
    "evals_per_epoch": 'eval.eval_strategy = "epoch", or eval.eval_steps as a share of all steps',
    "early_stopping": "eval.early_stopping_patience",
    "cosine_min_lr_ratio": 'train.lr_scheduler_type = "cosine_with_min_lr" and train.lr_scheduler_kwargs.min_lr_rate',
    "lr_scheduler": "train.lr_scheduler_type",
    "optimizer": "train.optim",
    "base_model": "model.name_or_path",
    "model_name_or_path": "model.name_or_path",
    "model_revision": "model.revision",
    "torch_dtype": "model.dtype",
    "flash_attn": "model.attn_implementation",
    "flash_attention": "model.attn_implementation",
    "additional_special_tokens": "model.extra_special_tokens",
    "new_special_tokens": "model.extra_special_tokens",
    "bf16": 'train.precision = "bf16"',
    "fp16": 'train.precision = "fp16"',
}

# Tables of other tools.
OTHER_TABLES = {
    "lora": "adapter", "peft": "adapter", "qlora": "adapter", "training": "train", "optimizer": "train",
    "scheduler": "train", "dataset": "data", "datasets": "data", "evaluation": "eval", "logging": "log",
    "saving": "checkpoint", "save": "checkpoint",
}  # fmt: skip
TYPES = ("int", "float", "str", "bool")


def complaint(error: ValidationError, path: Path, origins: "Mapping[Key, Origin]") -> ProfileError:
    """All that is wrong with a profile as one error, a line for each fault."""
    lines: dict[Key, str] = {}
    hints: list[str] = []
    for detail in error.errors():
        # A value of no type of a union has a fault for each, the type behind the key: the last one is told.
        key = tuple(str(part) for part in detail["loc"] if not str(part).startswith("(") and part not in TYPES)
        what, hint = _words(detail, tuple(part for part in key if not part.isdigit()))
        lines[key] = f"{_place(key, path, origins)}: {'.'.join(key) or 'profile'}: {what}"
        if hint and hint not in hints:
            hints.append(hint)
    return ProfileError("\n".join(lines.values()), hint=" ".join(hints))


def _place(key: "Key", path: Path, origins: "Mapping[Key, Origin]") -> str:
    for length in range(len(key), 0, -1):
        for known, origin in origins.items():
            if known[:length] == key[:length]:
                return str(origin)
    return str(path)


def _words(detail: ErrorDetails, key: "Key") -> tuple[str, str]:
    kind, given = detail["type"], detail.get("input")
    if kind == "extra_forbidden":
        return "there is no such key", _nearest(key)
    if kind == "missing":
        return "is missing", f"Add {key[-1]} to [{'.'.join(key[:-1])}]." if len(
            key
        ) > 1 else f"Add a [{key[-1]}] table."
    message = detail["msg"].removeprefix("Value error, ")
    message = message[0].lower() + message[1:]
    if kind == "value_error":
        return message, ""
    if kind == "literal_error" and isinstance(given, str):
        choices = re.findall(r"'([^']*)'", str(detail.get("ctx", {}).get("expected", "")))
        close = difflib.get_close_matches(given, choices, n=1, cutoff=0.4)
        return f"{message}, not {given!r}", f"Did you mean {close[0]!r}?" if close else ""
    quoted = isinstance(given, str) and kind.endswith(("_type", "_parsing"))
    return f"{message}, not {given!r}", "Write numbers and true/false without quotes." if quoted else ""


def _nearest(key: "Key") -> str:
    name = key[-1]
    if len(key) == 1:
        tables = list(Profile.model_fields)
        close = difflib.get_close_matches(name.lower(), tables, n=1, cutoff=0.6)
        meant = OTHER_TABLES.get(name.lower()) or (close[0] if close else None)
        return f"Did you mean [{meant}]?" if meant else f"The tables are [{'], ['.join(tables)}]."
    if name in OLD_SPELLINGS:
        return f"Here it is {OLD_SPELLINGS[name]}."
    known = all_keys()
    here = [k for k in known if k[:-1] == key[:-1]]
    for pool in (here, known):
        if close := difflib.get_close_matches(name, [k[-1] for k in pool], n=1, cutoff=0.6):
            return f"Did you mean {'.'.join(next(k for k in pool if k[-1] == close[0]))}?"
    return f"The keys of [{'.'.join(key[:-1])}] are {', '.join(k[-1] for k in here)}." if here else ""


def all_keys(section: type[BaseModel] = Profile, above: "Key" = ()) -> "list[Key]":
    """Every key a profile can have, section by section, tables inside tables included."""
    keys: list[tuple[str, ...]] = []
    for name, field in section.model_fields.items():
        inner = tables_in(field.annotation)
        keys += all_keys(inner[0], (*above, name)) if inner else [(*above, name)]
    return keys


def tables_in(annotation: object) -> list[type[BaseModel]]:
    """The tables that may stand under a key, alone or in a list."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [table for inner in get_args(annotation) for table in tables_in(inner)]
