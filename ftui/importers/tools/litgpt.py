"""LitGPT's files: the arguments of its `finetune_lora` and `finetune_full` (2024 to 2026).

Names and defaults as of litgpt/args.py, litgpt/finetune and litgpt/data.
"""

import contextlib
from pathlib import Path
from typing import Any

from ftui.importers.config_file import Document, Leaf
from ftui.importers.draft import ProfileDraft, as_text
from ftui.importers.rules import (
    LAUNCH,
    NOT_SHORTENED,
    OFF,
    OTHER_TRACKER,
    OWN_FOLDER,
    OWN_TRACKER,
    Rule,
    SourceTool,
    carries,
    drops,
    each,
    longest_input,
    not_shortened,
    only,
    says,
    to,
)
from ftui.importers.tools.trainer import LOADER, LOGS, betas, evaluates, launched
from ftui.importers.values import (
    Unfit,
    above_zero,
    convert_for,
    either,
    flag,
    one_of,
    optimizer,
    steps_between_saves,
    text,
    whole,
    word,
)
from ftui.profile.paths import HUB_ID

TOOL = "LitGPT"
BASE = "checkpoint_dir"
DOWNLOADS = "checkpoints/"  # where `litgpt download` puts owner/name
# Its flags, whether they are on by default, and what those layers are called in Llama and its kin.
LAYERS = {
    "lora_query": (True, ["q_proj"]), "lora_key": (False, ["k_proj"]), "lora_value": (True, ["v_proj"]),
    "lora_projection": (False, ["o_proj"]), "lora_mlp": (False, ["gate_proj", "up_proj", "down_proj"]),
    "lora_head": (False, ["lm_head"]),
}  # fmt: skip
VERBS_OF_LORA = ("litgpt.finetune", "litgpt.finetune_lora")  # the first is short for the second
LLAMA_NOTE = "as these layers are called in Llama and its kin"
PRECISIONS = {"bf16-mixed": "bf16", "16-mixed": "fp16", "32-true": "fp32", "32": "fp32"}
QUANTIZED = ("nf4", "nf4-dq", "fp4", "fp4-dq")
SETS = {"alpaca2k": ("mhenrichsen/alpaca_2k_test", 0.05)}  # data sets of the hub as they are, and their held-out share
JSON_SHARE = 0.05
PAGED = "paged_adamw_32bit"  # bitsandbytes' PagedAdamW, which it takes for AdamW beside a quantised base
ROWS = ("data", "data.class_path", "data.json_path", "data.repo_id")
STEPS = ("train.micro_batch_size", "train.global_batch_size", "train.lr_warmup_steps", "train.save_interval")


def _key_name(leaf: Leaf) -> str:
    """`data.json_path`, whether it is an argument of the command or stands in `init_args` of a file."""
    return leaf.pattern.replace(".init_args.", ".")


def _said(draft: ProfileDraft, name: str) -> Any:
    """The value of a key by the name that `_key_name` gives it."""
    table, _, key = name.partition(".")
    return next((v for way in (name, f"{table}.init_args.{key}") if (v := draft.raw(way)) is not None), None)


def _has_lora(document: Document) -> bool:
    return document.has("lora_r", "lora_alpha", "lora_dropout", *LAYERS) or any(
        verb in document.named for verb in VERBS_OF_LORA
    )


def _verb(draft: ProfileDraft, leaf: Leaf) -> None:
    """`litgpt finetune_lora`, `litgpt finetune_full` ...: which method its command trains with."""
    if leaf.name not in VERBS_OF_LORA:
        draft.carry(leaf, "adapter.method", "full")
    elif draft.raw("quantize") is None:
        draft.carry(leaf, "adapter.method", "lora")
    else:
        draft.drop(leaf, "quantize says the rest of it")


def _base(draft: ProfileDraft, leaf: Leaf) -> None:
    given = text(leaf.value).rstrip("/")
    name = given.removeprefix("./").partition(DOWNLOADS)[2]
    folder = draft.find(given)
    if HUB_ID.fullmatch(name) and not (folder and any(folder.glob("*.safetensors"))):
        draft.carry(leaf, "model.name_or_path", name, f"{BASE}: the model that LitGPT downloads to there")
    else:
        draft.carry(leaf, "model.name_or_path", draft.folder_or_id(given))


def _precision(draft: ProfileDraft, leaf: Leaf) -> None:
    if leaf.value == "bf16-true":
        draft.carry(leaf, "model.dtype", "bfloat16", "bf16-true: what is trained is stored in it too")
        draft.suppose("train.precision", "bf16", "bf16-true")
    else:
        draft.carry(leaf, "train.precision", one_of(PRECISIONS, "precision")(leaf.value))


def _quantize(draft: ProfileDraft, leaf: Leaf) -> None:
    kind = word(leaf.value).removeprefix("bnb.")
    if kind.startswith("int8"):
        draft.carry(leaf, "adapter.load_in_8bit", True)
    elif kind in QUANTIZED:
        draft.carry(leaf, "adapter.method", "qlora")
        draft.suppose("adapter.bnb_4bit_quant_type", kind.removesuffix("-dq"), str(leaf.value))
        draft.suppose("adapter.bnb_4bit_use_double_quant", kind.endswith("-dq"), str(leaf.value))
    else:
        raise Unfit("bitsandbytes with 4 or 8 bits is built")


def _targets(draft: ProfileDraft, leaf: Leaf | None = None) -> list[str]:
    names = []
    for key, (usual, layers) in LAYERS.items():
        given = draft.raw(key)
        names += layers if (usual if given is None else flag(given)) else []
    if not names:
        raise Unfit("no layer has an adapter")
    return names


def _kind(draft: ProfileDraft) -> str:
    """What reads the rows, in lower case; without a word on it LitGPT takes its Alpaca."""
    named = as_text(_said(draft, "data.class_path")) or as_text(draft.raw("data")) or "Alpaca"
    return named.rpartition(".")[2].lower()


def _rows(draft: ProfileDraft, leaf: Leaf) -> None:
    kind = _kind(draft)
    if kind in SETS and _key_name(leaf) != "data.json_path":
        draft.carry(leaf, "data.train", [{"path": SETS[kind][0], "format": "alpaca"}])
        return
    path = _said(draft, "data.json_path")
    if kind != "json" or path is None:
        raise Unfit("code of LitGPT fetches and shapes these rows: name a file of them in data.train")
    splits = _splits(draft, draft.find(text(path)), text(path))
    draft.carry(leaf, "data.train", [{"path": splits[0], "format": "alpaca"}])
    if len(splits) > 1:
        draft.suppose("data.eval", [{"path": splits[1], "format": "alpaca"}], "val.json of the folder")


def _splits(draft: ProfileDraft, place: Path | None, given: str) -> list[str]:
    """The file, or train and val of a folder. Raises `Unfit` where they are not there."""
    if place is None or not place.is_dir():
        if not given.endswith((".json", ".jsonl")):
            raise Unfit("there is no such folder here, so that its files cannot be named")
        return [draft.rows(given)]
    files = [next(iter(sorted(place.glob(f"{name}.json*"))), None) for name in ("train", "val")]
    if None in files:
        raise Unfit("its folder holds no train.json and val.json")
    return [draft.rows(f"{given}/{file.name}") for file in files if file]


def _style(draft: ProfileDraft, leaf: Leaf) -> None:
    if leaf.value != "alpaca":
        raise Unfit("LitGPT writes these words itself; here data.chat_template, or the tokenizer's own template, does")
    draft.carry(leaf, "data.chat_template", "alpaca")


def _gradients(draft: ProfileDraft, leaf: Leaf | None = None) -> int:
    """Micro-batches in a step of one process."""
    devices = draft.raw("devices")
    ranks = devices if isinstance(devices, int) and devices > 0 else 1
    micro, total = (_said(draft, f"train.{name}_batch_size") for name in ("micro", "global"))
    parts, rest = divmod(above_zero(total or 16), above_zero(micro or 1) * ranks)
    if rest or not parts:
        raise Unfit("no multiple of micro_batch_size times devices")
    return parts


def _devices(draft: ProfileDraft, leaf: Leaf) -> None:
    if not isinstance(leaf.value, int):
        raise Unfit("how many there are is not said: set hardware.num_processes")
    draft.carry(leaf, "hardware.num_processes", above_zero(leaf.value))


def _optimizer(draft: ProfileDraft, leaf: Leaf) -> Any:
    name = text(leaf.value)
    if draft.raw("quantize") and "AdamW" in name:
        return PAGED
    return convert_for("train.optim", optimizer, name if "." in name else f"torch.optim.{name}")


def _epochs(draft: ProfileDraft, leaf: Leaf) -> None:
    if draft.raw("train.max_steps"):
        draft.drop(leaf, "max_steps ends the run; there the epochs end it where they are fewer", matters=True)
    else:
        draft.carry(leaf, "train.num_train_epochs", float(above_zero(leaf.value)))


def _interval(draft: ProfileDraft, leaf: Leaf) -> None:
    draft.carry(leaf, "eval.eval_steps", above_zero(leaf.value))
    draft.suppose("eval.eval_strategy", "steps", leaf.name)


def _tracker(draft: ProfileDraft, leaf: Leaf) -> None:
    if leaf.value in ("wandb", "tensorboard", "mlflow"):
        draft.carry(leaf, "log.report_to", [leaf.value])
    else:
        draft.drop(leaf, LOGS if leaf.value == "csv" else OTHER_TRACKER)


REFUSED = "LitGPT's finetuning refuses it too"
RULES: dict[str, Rule] = {
    **each(_verb, f"{' '.join(VERBS_OF_LORA)} litgpt.finetune_full"),
    BASE: _base,
    "precision": _precision,
    "quantize": _quantize,
    "devices": _devices,
    "num_nodes": only(1, "ftui trains on one machine", OFF),
    **carries("adapter", r="lora_r", lora_alpha="lora_alpha", lora_dropout="lora_dropout"),
    **each(says("adapter.target_modules", _targets, LLAMA_NOTE), " ".join(LAYERS)),
    **each(_rows, " ".join(ROWS)),
    **carries("data", eval_fraction="data.val_split_fraction", max_length="train.max_seq_length"),
    "data.mask_prompt": to("data.loss_on", either("assistant", "everything")),
    "data.prompt_style": _style,
    "train.max_seq_length=null": not_shortened(BASE, ""),
    **carries("train", data_seed="data.seed", seed="seed", max_steps="train.max_steps",
              per_device_train_batch_size="train.micro_batch_size", adam_epsilon="optimizer.eps",
              learning_rate="optimizer.lr train.learning_rate",
              weight_decay="optimizer.weight_decay train.weight_decay",
              adam_beta1="train.beta1", adam_beta2="train.beta2"),
    "train.global_batch_size": says("train.gradient_accumulation_steps", _gradients, "global_batch_size there"),
    "train.lr_warmup_steps": to("train.warmup_steps", whole),
    "train.epochs": _epochs,
    "train.save_interval": to("checkpoint.save_steps", steps_between_saves),
    "train.save_interval=null": to("checkpoint.save_steps", lambda value: "none"),
    **each(says("train.optim", _optimizer), "optimizer optimizer.class_path"),
    "optimizer.betas": betas,
    "eval.interval": _interval,
    **carries("eval", eval_on_start="eval.initial_validation"),
    "logger_name": _tracker,
    "launcher.*": launched,
    **drops("the last step is always evaluated", "eval.final_validation"),
    **drops("all rows set aside are evaluated", "eval.max_iters"),
    **drops("set eval.sample_prompts to see answers", "eval.max_new_tokens eval.evaluate_example"),
    **drops("finetuning ends at a learning rate of 0 there too", "train.min_lr"),
    **drops(REFUSED, "train.max_tokens train.max_norm train.lr_warmup_fraction train.tie_embeddings", matters=True),
    **drops("not built: set train.max_steps", "train.max_time", matters=True),
    **drops("not built", "optimizer.*", matters=True),
    **drops("left to torch", "optimizer.fused optimizer.foreach"),
    **drops("what is not trained on is marked so", "data.ignore_index"),
    **drops("code of LitGPT fetches and shapes these rows", "data.*", matters=True),
    **drops(LOADER, "data.num_workers data.download_dir data.file_name data.file_url"),
    **drops(LOGS, "train.log_interval"),
    **drops(OWN_TRACKER, "log.*"),
    **drops(OWN_FOLDER, "out_dir"),
    **drops("`ftui resume` goes on from a checkpoint", "resume"),
    **drops(LAUNCH, "accelerator"),
    **drops("set hardware.shard to divide the model among GPUs", "strategy", matters=True),
}  # fmt: skip


def _suppose(draft: ProfileDraft) -> None:
    if "quantize" in draft.document.named and not _has_lora(draft.document):
        draft.refused = "LLaMA-Adapter, whose keys these are (finetune_adapter), is not built"
    draft.suppose("run.stage", "sft", f"{TOOL}'s finetuning")
    lora = _has_lora(draft.document)
    draft.suppose("adapter.method", "lora" if lora else "full", "lora_r ..." if lora else "no key of LoRA")
    if lora:
        draft.suppose_all("adapter", r=8, lora_alpha=16, lora_dropout=0.05)
        with contextlib.suppress(Unfit):  # reported where it stands
            draft.suppose("adapter.target_modules", _targets(draft), f"{TOOL}'s default; {LLAMA_NOTE}")
    _suppose_rows(draft)
    draft.suppose("train.precision", "bf16", f"{TOOL}'s default: bf16-mixed")
    draft.suppose("train.optim", PAGED if draft.raw("quantize") else "adamw_torch")
    draft.suppose_all("train", "torch's default of AdamW", learning_rate=1e-3, weight_decay=0.01)
    with contextlib.suppress(Unfit):  # reported where it stands
        draft.suppose("train.gradient_accumulation_steps", _gradients(draft))
    draft.suppose_all("train", per_device_train_batch_size=1,
                      warmup_steps=100, lr_scheduler_type="cosine", max_grad_norm="none", seed=1337,
                      activation_checkpointing=(draft.given("hardware.num_processes") or 1) > 1)  # fmt: skip
    if draft.given("train.max_steps") is None:
        draft.suppose("train.num_train_epochs", 5.0)
    if evaluates(draft):
        draft.suppose("eval.eval_strategy", "steps")
        draft.suppose_all("eval", eval_steps=100 if lora else 600, load_best_model_at_end=False)
    draft.suppose("checkpoint.save_steps", 1000)


def _suppose_rows(draft: ProfileDraft) -> None:
    kind, usual = _kind(draft), f"{TOOL}'s default"
    if draft.given("data.train") is not None and not evaluates(draft):
        draft.suppose("data.eval_fraction", SETS[kind][1] if kind in SETS else JSON_SHARE)
    draft.suppose("data.loss_on", "everything", f"{usual}: mask_prompt is off")
    if _said(draft, "data.prompt_style") is None:
        draft.suppose("data.chat_template", "alpaca", f"{usual}: prompt_style alpaca")
    draft.suppose("data.packing", False)
    if "train.max_seq_length" in draft.document.named:
        return
    longest = longest_input(draft, draft.given("model.name_or_path"))
    if longest is None:
        draft.leave_open("data.max_length", 1024, f"{TOOL} cuts nothing; here rows that are longer are cut")
    else:
        draft.suppose("data.max_length", longest, NOT_SHORTENED)


def _recognizes(document: Document) -> bool:
    named = document.named
    if document.has("litgpt"):  # its command
        return True
    if any(str(named.get(name, "")).startswith("litgpt.") for name in ("data.class_path", "data")):
        return True
    has_own = BASE in named or "data.json_path" in named
    return has_own and not named.keys().isdisjoint((*STEPS, *LAYERS, "lora_r", "quantize"))


LITGPT = SourceTool(TOOL, RULES, _recognizes, _suppose, _key_name)
