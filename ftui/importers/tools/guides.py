"""The shapes of guides and small trainers: tables `model`, `lora`, `data`, `training`, `components.fine_tuner` ...

Nobody defines these; names are taken for what nearly everybody means by them, by the table they stand in where they
need one (`r` in `lora`). What their scripts do where the file says nothing is not known, so nothing is supposed.
"""

import re
from typing import Any

from ftui.importers.command import LAUNCHER
from ftui.importers.config_file import Document, Leaf
from ftui.importers.draft import ProfileDraft
from ftui.importers.rules import (
    LAUNCH,
    OFF,
    OWN_FOLDER,
    OWN_TRACKER,
    Gate,
    Rule,
    SourceTool,
    carries,
    drops,
    each,
    if_on,
    only,
    path_to,
    refuse,
    says,
    to,
    trackers,
)
from ftui.importers.tools.llamafactory import TEMPLATES
from ftui.importers.tools.trainer import CARRIED, HUB, TRAINER, held_out, report_to
from ftui.importers.values import Unfit, either, flag, is_on, one_of, word, word_or
from ftui.profile.aliases import SPELLINGS
from ftui.profile.sections.preference import LOSSES

FEWEST = 3  # keys that a file of no tool must have in common with these shapes
LORA_TABLES = ("lora", "qlora", "peft", "adapter", "lora_config", "peft_config", "method", "qlora_config")
MODEL_TABLES = ("model", "base_model", "model_config")
SAVING_TABLES = ("saving", "save", "checkpoint", "checkpointing", "checkpoints")
DATA_TABLES = ("data", "dataset", "datasets", "data_config")
FOUR = ("use_qlora", "load_in_4bit", "use_4bit")
_METHODS = {"lora": "lora", "qlora": "qlora", "full": "full", "full_finetune": "full", "full_finetuning": "full",
            "full-finetune": "full", "sft": "full", "freeze": "freeze", "lora/qlora": "lora",
            "peft": "lora"}  # fmt: skip
NAMES_METHOD = (
    "training_type", "finetuning_type", "finetune_type", "peft_method", "tuning_type", "peft_type", "training_method",
)  # fmt: skip
QUANTISED = "bnb_4bit_quant_type bnb_4bit_use_double_quant bnb_4bit_compute_dtype"
BITS = ("bits", "quantization_bit", "quantization", "quantization_bits")
_REWARDING = ("rm", "reward")
_PREFERRING = ("ppo", "grpo", "rlhf")
NAMES_FORM = ("format_type", "dataset_format", "data_format", "dataset_type", "format", "type")
_CONVERSES = re.compile(r"instruct|chat|[-_]it\b", re.IGNORECASE)  # names of models that have a template of their own
FORMS = {"auto": "auto", "alpaca": "alpaca", "chatml": "messages", "messages": "messages", "openai": "messages",
          "chat": "messages", "sharegpt": "sharegpt", "text": "text", "raw": "text", "dolly": "dolly",
          "prompt_completion": "prompt_completion", "conversational": "messages"}  # fmt: skip
KNOWN_STAGES = {name: name for name in ("sft", "pretrain", *LOSSES, "orpo", "simpo")}
KNOWN_STAGES |= dict.fromkeys(("pt", "cpt"), "pretrain") | dict.fromkeys(_REWARDING, "rm")
_QUANT_WORDS = {"4bit": 4, "4-bit": 4, "nf4": 4, "4": 4, "int4": 4, "8bit": 8, "8-bit": 8, "int8": 8, "8": 8}
_PRECISION = to("train.precision", one_of({
    "bf16": "bf16", "fp16": "fp16", "no": "fp32", "none": "fp32", "fp32": "fp32", "bfloat16": "bf16",
    "float16": "fp16", "float32": "fp32", "auto": "auto", "true": "auto",
}, "precision"))  # fmt: skip


def _key(leaf: Leaf) -> str:
    return leaf.last.lower()


def _table_of(leaf: Leaf) -> str:
    """The innermost table it stands in; empty at the top."""
    above = [step for step in leaf.path[:-1] if isinstance(step, str)]
    return above[-1].lower() if above else ""


def _first_value(draft: ProfileDraft, *names: str) -> Any:
    """The value of the first key of one of these names, wherever it stands."""
    values = (leaf.value for leaf in draft.document.leaves if _key(leaf) in names)
    return next((value for value in values if value is not None), None)


def _method(draft: ProfileDraft) -> str | None:
    named = _first_value(draft, *NAMES_METHOD)
    for leaf in draft.document.leaves:
        key, table = _key(leaf), _table_of(leaf)
        if named is None and isinstance(leaf.value, str):
            in_its_table = key == "type" and table in ("method", "adapter", "peft")
            if in_its_table or (key in ("method", "adapter") and leaf.value.lower() in _METHODS):
                named = leaf.value
        if key in ("enabled", "enable", "use") and table in LORA_TABLES and not is_on(leaf.value):
            return "full"
    kind = _METHODS.get(word_or(named, ""))
    if kind == "full":
        return kind
    if any(is_on(_first_value(draft, name)) for name in FOUR) or _bits(draft) == 4 or kind == "qlora":
        return "qlora"
    if kind:
        return kind
    switch = _first_value(draft, "use_lora", "use_peft")
    if switch is not None:
        return "lora" if is_on(switch) else "full"
    has_rank = _first_value(draft, "lora_r", "lora_rank") is not None
    return "lora" if has_rank or any(_table_of(leaf) in LORA_TABLES for leaf in draft.document.leaves) else None


def _bits(draft: ProfileDraft) -> int | None:
    bits = _first_value(draft, *BITS)
    return _QUANT_WORDS.get(word(bits)) if isinstance(bits, str | int) and not isinstance(bits, bool) else None


def _names_method(draft: ProfileDraft, leaf: Leaf) -> None:
    given = word(leaf.value)
    if given in (*_PREFERRING, *_REWARDING):
        refuse(draft, leaf, f"training by {given}")
        return
    chosen = _method(draft)
    switches = (*FOUR, *BITS, "use_lora", "use_peft")
    if (_key(leaf) not in switches and given not in _METHODS) or chosen is None:
        raise Unfit("ftui has no such method")
    if _key(leaf) in FOUR and flag(leaf.value) and chosen != "qlora":
        raise Unfit(f"the method is {chosen}: only the base of an adapter is stored in 4 bits")
    draft.carry(leaf, "adapter.method", chosen)


def _quantization(draft: ProfileDraft, leaf: Leaf) -> None:
    if _QUANT_WORDS.get(word(leaf.value)) == 8:
        draft.carry(leaf, "adapter.load_in_8bit", True)
    elif word(leaf.value) in ("none", "no", "16", "fp16", "bf16"):
        draft.drop(leaf, OFF)
    elif _QUANT_WORDS.get(word(leaf.value)) != 4:
        raise Unfit("bitsandbytes with 4 or 8 bits is built")
    else:
        _names_method(draft, leaf)


def _quantization_or_export(draft: ProfileDraft, leaf: Leaf) -> None:
    """unsloth-cli's `--quantization` is that of the GGUF it exports."""
    if draft.document.has("save_gguf", "push_gguf", "save_model", "push_model", "save_method"):
        draft.drop(leaf, HUB)
    else:
        _quantization(draft, leaf)


_LORA = Gate(
    lambda draft: _method(draft) in ("lora", "qlora", None),
    lambda draft: f"the method is {_method(draft)}, which has no adapter",
)
_QLORA = Gate(lambda draft: _method(draft) == "qlora", lambda draft: "the base is not stored in 4 bits")


def _rows(ours: str) -> Rule:
    """Where the rows are: a file or a folder where the key says so, else perhaps a data set on the hub."""

    def rule(draft: ProfileDraft, leaf: Leaf) -> None:
        paths = leaf.value if isinstance(leaf.value, list) else [leaf.value]
        if not paths or any(isinstance(path, bool | int | float) for path in paths):
            raise Unfit("not a path")
        is_file = "file" in _key(leaf) or _key(leaf) in ("input_path", "data_dir")
        marks = [isinstance(path, str) and is_file and path[:1] not in "/~." for path in paths]
        sources = [draft.rows(f"./{path}" if mark else path) for path, mark in zip(paths, marks, strict=True)]
        draft.carry(leaf, ours, sources if isinstance(leaf.value, list) else sources[0])

    return rule


def _base_name(draft: ProfileDraft, leaf: Leaf) -> None:
    if _first_value(draft, "huggingface_id") is None:
        _MODEL(draft, leaf)
    else:
        draft.drop(leaf, "huggingface_id says which")


def _fraction(draft: ProfileDraft, leaf: Leaf) -> None:
    if isinstance(leaf.value, str) and not leaf.value.replace(".", "").isdigit():
        raise Unfit("the name of a split: give data.eval a [[data.eval]] table with path and split")
    held_out(draft, leaf)


def _stage(draft: ProfileDraft, leaf: Leaf) -> None:
    given = word(leaf.value)
    if given in _PREFERRING:
        refuse(draft, leaf, f"training by {given}")
    else:
        draft.carry(leaf, "run.stage", one_of(KNOWN_STAGES, "stage")(leaf.value))


def _spelled(section: str, own: str = "", gate: Gate | None = None) -> dict[str, Rule]:
    """The rules for keys of a section by the names that they have elsewhere, and for `own`, which have that of here."""
    rules: dict[str, Rule] = {}
    for key, names in SPELLINGS.items():
        name = key.partition(".")[2]
        if key.startswith(f"{section}.") and (name in QUANTISED.split()) == (gate is _QLORA):
            rules |= each(CARRIED[name], names) if name in CARRIED else carries(section, gate, **{name: names})
    return rules | carries(section, gate, **{name: name for name in own.split()})


def _within(tables: tuple[str, ...], rules: dict[str, Rule]) -> dict[str, Rule]:
    """The rules for keys that have this meaning in these tables only."""
    return {f"{table}.{name}": rule for table in tables for name, rule in rules.items()}


_MODEL, _TRAIN, _EVAL = path_to("model.name_or_path"), _rows("data.train"), _rows("data.eval")
_SWITCH = says("adapter.method", lambda draft, _: _method(draft) or "lora")
_SPLIT = only("train", "give a [[data.train]] table path and split")
_FORM = to("data.format", one_of(FORMS, "form of rows"))
_SAVING = {"save_steps": "steps interval", "save_strategy": "strategy", "save_total_limit": "total_limit limit keep"}

RULES: dict[str, Rule] = {
    **TRAINER,
    **each(_MODEL, "model model_name model_id base_model model_name_or_path model_path base_model_name"
            " huggingface_id pretrained_model_name_or_path base_model_id hf_model_id model.name"),
    **_within(MODEL_TABLES, each(_MODEL, "path id name_or_path")),
    "base_model.name": _base_name,
    **_spelled("model", "revision trust_remote_code dtype attn_implementation"),
    **each(if_on("model.attn_implementation", "flash_attention_2"),
            "use_flash_attention use_flash_attention_2 flash_attention flash_attn"),
    **each(_stage, "stage training_stage task trainer_type"),
    **each(_names_method, " ".join((*NAMES_METHOD, *FOUR, "use_lora use_peft method adapter trainer algorithm"))),
    **_within(("method", "adapter", "peft", "lora"), each(_names_method, "type")),
    **each(_quantization, " ".join(BITS)),
    **_spelled("adapter", "lora_alpha lora_dropout target_modules load_in_8bit modules_to_save use_rslora use_dora"
               " init_lora_weights", _LORA),
    **carries("adapter", _LORA, r=".r .rank", bias=".bias"),
    **_within(LORA_TABLES,
              carries("adapter", _LORA, r="r rank", lora_alpha="alpha", lora_dropout="dropout", bias="bias")),
    **_within(LORA_TABLES, each(_SWITCH, "enabled enable use")),
    **_spelled("adapter", QUANTISED, _QLORA),
    **each(_TRAIN, "dataset dataset_name dataset_path data_path train_file train_path train_data train_dataset"
            " training_file training_data train_data_path dataset_id hf_dataset local_dataset"),
    **_within(DATA_TABLES, each(_TRAIN, "path name train file train_files input_path train_file")),
    **_within(DATA_TABLES, each(_SPLIT, "split")),
    **each(_SPLIT, "dataset_split train_split"),
    **each(only("text", "[data] cannot rename columns yet: name the column text in the file"),
            "text_column text_field dataset_text_field"),
    **drops("the file's name says it", "input_type file_type ds_type"),
    **each(_EVAL, "val_file eval_file validation_file eval_path val_path eval_data val_data validation_data"
            " eval_dataset validation_path eval_data_path val_data_path"),
    **_within(DATA_TABLES, each(_EVAL, "eval val validation valid")),
    **each(_fraction, "val_split validation_split val_size val_set_size test_size eval_split test_split"
            " validation_ratio val_ratio eval_ratio eval_fraction"),
    **each(_FORM, "format_type dataset_format data_format dataset_type"),
    **_within(DATA_TABLES, each(_FORM, "format type")),
    **each(to("data.chat_template", one_of(TEMPLATES | {"phi-3": "phi", "llama-3": "llama3"}, "template")),
            "chat_template template prompt_template conversation_template"),
    **_spelled("data", "max_length packing"),
    **each(to("data.loss_on", either("assistant", "everything")), "train_on_completions train_on_responses_only"
            " completion_only_loss assistant_only_loss"),
    "train_on_inputs": to("data.loss_on", either("everything", "assistant")),
    **{name: rule for section in ("train", "eval", "checkpoint", "log", "hardware")
       for name, rule in _spelled(section).items()},
    **carries("eval", early_stopping_patience="early_stopping_patience"),
    **_within(("scheduler", "lr_scheduler"),
              carries("train", lr_scheduler_type="type name", warmup_steps="num_warmup_steps warmup_steps")),
    **_within(("optimizer",), carries("train", optim="type name")),
    **_within(("evaluation", "eval"), carries("eval", eval_steps="steps interval", eval_strategy="strategy")),
    **_within(SAVING_TABLES, {name: CARRIED[key] for key, names in _SAVING.items() for name in names.split()}),
    **_within(("logging", "log"), carries("log", logging_steps="steps interval")),
    **each(_PRECISION, "mixed_precision precision"),
    **trackers(wandb="use_wandb enable_wandb", tensorboard="use_tensorboard enable_tensorboard"),
    **each(report_to, "tracker"),
    **each(CARRIED["run_name"], "experiment_name"),
    **drops(OWN_TRACKER, "wandb_project wandb_entity wandb_name wandb_run_name wandb_mode tensorboard_dir"
            " project_name"),
    **drops("ftui trains by its own engine", "fine_tuner.type fine_tuner.component fine_tuner.implementation"
            " fine_tuner.name fine_tuner.framework fine_tuner.description"),
    **drops("ftui knows it", "task_type device_map tokenizer_name use_fast use_fast_tokenizer use_cache padding_side"
            " padding preprocessing_num_workers num_workers num_proc"
            " shuffle use_unsloth model_family"),
    **drops("only text can be trained on", "vision_all_linear finetune_vision_layers finetune_language_layers is_vlm"
            " finetune_attention_modules finetune_mlp_modules is_dataset_image is_dataset_audio"),
    **drops("it rewrites the weights of the base, so that the adapter would be wrong on the base you have",
            "use_loftq loftq_config loftq_config.*", matters=True),
    **drops(LAUNCH, "num_nodes distributed strategy"),
    **drops("a folder of checkpoints, or the base: that is not known; the base stands in model.name_or_path",
            "checkpoint_dir", matters=True),
    **drops(OWN_FOLDER, "output_path save_dir adapter_dir log_dir merged_dir adapter_base_dir logs_dir"
            " cache_dir"),
    **drops(HUB, "push_to_hub hub_repo hub_model_name merge_and_push save_method save_model save_gguf push_model"
            " push_gguf save_path hub_path quantization_method"),
    **drops("the mark that ends a turn is a token of its own here: add it with model.extra_special_tokens",
            "map_eos_token", matters=True),
    ".quantization": _quantization_or_export,
}  # fmt: skip


def _key_name(leaf: Leaf) -> str:
    """A key with the table it stands in where that table gives it its meaning, else alone."""
    if leaf.path[0] == LAUNCHER:
        return leaf.name
    last = _key(leaf)
    here = f"{_table_of(leaf)}.{last}"
    if here not in RULES and (last in RULES or f"{last}.*" in RULES):
        return last
    return here if here in RULES else here.lstrip(".")


def _suppose(draft: ProfileDraft) -> None:
    if draft.refused:
        return
    draft.unsaid.append("the tool: keys are read as guides mean them; compare each with what yours means by it")
    if (method := _method(draft)) is not None:
        draft.suppose("adapter.method", method, "as the keys of the adapter say")
    draft.leave_open("adapter.method", "lora", "LoRA, as by default here; the file names no method")
    _suppose_template(draft)
    draft.suppose("run.stage", "sft", "rows with answers; pretrain trains on plain text")


def _suppose_template(draft: ProfileDraft) -> None:
    """`format: chatml` says the marks of a conversation too, which a base without a template may lack."""
    leaves = draft.document.leaves
    chatml = next((leaf.name for leaf in leaves if _key(leaf) in NAMES_FORM and leaf.value == "chatml"), None)
    name = draft.given("model.name_or_path") or ""
    if chatml is not None and draft.given("data.format") == "messages" and not _CONVERSES.search(name):
        draft.suppose("data.chat_template", "chatml", f"{chatml}; leave it out where the base has its own")


def _recognizes(document: Document) -> bool:
    return len([leaf for leaf in document.leaves if _key_name(leaf) in RULES]) >= FEWEST


GUIDE = SourceTool("an unknown tool", RULES, _recognizes, _suppose, _key_name, most_strange=0.12)
