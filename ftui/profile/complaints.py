"""A validation error in words: file, line, key, what is wrong, what to write instead."""

import difflib
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
    "sequence_len": "data.max_length",
    "lora_r": "adapter.r",
    "lora_rank": "adapter.r",
    "lora_target": "adapter.target_modules",
    "num_epochs": "train.num_train_epochs",
    "epochs": "train.num_train_epochs",
    "micro_batch_size": "train.per_device_train_batch_size",
    "batch_size": "train.per_device_train_batch_size",
    "lr": "train.learning_rate",
    "lr_scheduler": "train.lr_scheduler_type",
    "optimizer": "train.optim",
    "base_model": "model.name_or_path",
    "model_name_or_path": "model.name_or_path",
    "bf16": 'train.precision = "bf16"',
    "fp16": "train.precision",
}


def complaint(error: ValidationError, path: Path, origins: "Mapping[Key, Origin]") -> ProfileError:
    """All that is wrong with a profile as one error, a line for each fault."""
    lines, hints = [], []
    for detail in error.errors():
        key = tuple(str(part) for part in detail["loc"])
        what, hint = _words(detail, key)
        lines.append(f"{_place(key, path, origins)}: {'.'.join(key) or 'profile'}: {what}")
        if hint and hint not in hints:
            hints.append(hint)
    return ProfileError("\n".join(lines), hint=" ".join(hints))


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
    quoted = isinstance(given, str) and kind.endswith(("_type", "_parsing"))
    return f"{message}, not {given!r}", "Write numbers and true/false without quotes." if quoted else ""


def _nearest(key: "Key") -> str:
    name = key[-1]
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
        inner = [t for t in (field.annotation, *get_args(field.annotation)) if _is_section(t)]
        keys += all_keys(inner[0], (*above, name)) if inner else [(*above, name)]
    return keys


def _is_section(annotation: object) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)
