"""torchtune's recipes: tables whose `_component_` names what is built."""

from typing import Any

from ftui.importers.config_file import Leaf
from ftui.importers.draft import Draft, Rule, drops, to, walk
from ftui.importers.max_length import NOTE, longest_seen, uncut
from ftui.importers.tools import torchtune_data
from ftui.importers.tools.trainer_rules import SHARDED, launched
from ftui.importers.values import (
    Unfit,
    above_zero,
    converted,
    flag,
    is_on,
    number,
    one_of,
    optimizer,
    real,
    text,
    texts,
    whole,
)

TOOL = "torchtune"
DTYPES = {"bf16": "bf16", "fp16": "fp16", "fp32": "fp32"}
SCHEDULERS = {
    "get_cosine_schedule_with_warmup": "cosine", "get_linear_schedule_with_warmup": "linear",
    "get_constant_schedule_with_warmup": "constant_with_warmup",
}  # fmt: skip
MLP = ["gate_proj", "up_proj", "down_proj"]


def _component(draft: Draft, table: str) -> str:
    """The last part of what a table builds."""
    return str(draft.raw(f"{table}._component_") or "").rpartition(".")[2]


def _method(draft: Draft) -> str:
    builder = _component(draft, "model")
    return "qlora" if builder.startswith("qlora_") else "lora" if builder.startswith("lora_") else "full"


def _model(draft: Draft, leaf: Leaf) -> None:
    if "_qat" in text(leaf.value) or "dora" in text(leaf.value):
        raise Unfit("that builder is not known here")
    draft.carry(leaf, "adapter.method", _method(draft))


def _targets(draft: Draft, leaf: Leaf) -> None:
    names = ["o_proj" if name == "output_proj" else name for name in texts(draft.raw("model.lora_attn_modules") or [])]
    names += MLP if is_on(draft.raw("model.apply_lora_to_mlp")) else []
    names += ["lm_head"] if is_on(draft.raw("model.apply_lora_to_output")) else []
    draft.carry(leaf, "adapter.target_modules", names)


def _loss(draft: Draft, leaf: Leaf) -> None:
    named = text(leaf.value)
    if any(one in named.lower() for one in ("dpo", "ppo", "grpo", "kd", "kto", "simpo", "rso")):
        draft.refused = f"training with {named} is not yet built: ftui does sft and pretrain"
        draft.drop(leaf, "not yet built", matters=True)
    else:
        draft.drop(leaf, "the loss over the targets, as here")


def _optimizer(draft: Draft, leaf: Leaf) -> None:
    name = text(leaf.value)
    fused = name == "torch.optim.AdamW" and is_on(draft.raw("optimizer.fused"))
    draft.carry(leaf, "train.optim", "adamw_torch_fused" if fused else converted("train.optim", optimizer, name))


def _scheduler(draft: Draft, leaf: Leaf) -> None:
    ours, name = "train.lr_scheduler_type", _component(draft, "lr_scheduler")
    draft.carry(leaf, ours, converted(ours, one_of(SCHEDULERS, "scheduler"), name))


def _clip(draft: Draft, leaf: Leaf) -> None:
    draft.carry(leaf, "train.max_grad_norm", real(leaf.value) if number(leaf.value) > 0 else "none")


def _checkpoint(draft: Draft, leaf: Leaf) -> None:
    draft.carry(leaf, "model.name_or_path", draft.folder_or_id(leaf.value))


def _tracker(draft: Draft, leaf: Leaf) -> None:
    kinds: dict[str, Any] = {"WandBLogger": ["wandb"], "TensorBoardLogger": ["tensorboard"]}
    name = _component(draft, "metric_logger")
    if name in kinds:
        draft.carry(leaf, "log.report_to", kinds[name])
    else:
        draft.drop(leaf, "every step is recorded in the run's folder")


RULES: dict[str, Rule] = {
    "model._component_": _model,
    "model.lora_rank": to("adapter.r", above_zero),
    "model.lora_alpha": to("adapter.lora_alpha", above_zero),
    "model.lora_dropout": to("adapter.lora_dropout", real),
    "model.lora_attn_modules": _targets,
    "model.apply_lora_to_mlp": _targets,
    "model.apply_lora_to_output": _targets,
    "model.use_dora": to("adapter.use_dora", flag),
    "checkpointer.checkpoint_dir": _checkpoint,
    "tokenizer.max_seq_len": to("data.max_length", above_zero),
    "tokenizer.max_seq_len=null": uncut("checkpointer.checkpoint_dir", "dataset.packed"),
    **torchtune_data.RULES,
    "dataset.packed": to("data.packing", flag),
    "shuffle": lambda draft, leaf: draft.carry(
        leaf, "train.train_sampling_strategy", "random" if flag(leaf.value) else "sequential"
    ),
    "seed": to("train.seed", whole),
    "batch_size": to("train.per_device_train_batch_size", above_zero),
    "epochs": to("train.num_train_epochs", real),
    "gradient_accumulation_steps": to("train.gradient_accumulation_steps", above_zero),
    "optimizer._component_": _optimizer,
    "optimizer.lr": to("train.learning_rate", real),
    "optimizer.weight_decay": to("train.weight_decay", real),
    "optimizer.eps": to("train.adam_epsilon", real),
    "lr_scheduler._component_": _scheduler,
    "lr_scheduler.num_warmup_steps": to("train.warmup_steps", whole),
    "clip_grad_norm": _clip,
    "compile": to("train.torch_compile", flag),
    "dtype": to("train.precision", one_of(DTYPES, "precision")),
    "enable_activation_checkpointing": to("train.activation_checkpointing", flag),
    "log_every_n_steps": to("log.logging_steps", above_zero),
    "loss._component_": _loss,
    "metric_logger._component_": _tracker,
    "device": lambda draft, leaf: draft.carry(leaf, "hardware.device", one_of(
        {"cuda": "auto", "cpu": "cpu", "mps": "mps"}, "device")(leaf.value)),
    "launcher.*": launched,
    **drops("optimizer._component_ says it", "optimizer.fused"),
    **drops("the files of the folder, in transformers' format, say it", "checkpointer.* tokenizer.*"),
    **drops("every step is recorded whatever is printed", "log_peak_memory_stats log_level profiler profiler.*"),
    **drops("the tracker's own settings are its environment variables (WANDB_PROJECT ...)", "metric_logger.*"),
    **drops("a run has a folder of its own under runs/, named for the profile",
            "output_dir checkpointer.output_dir metric_logger.log_dir profiler.output_dir"),
    **drops("`ftui resume` goes on from a checkpoint", "resume_from_checkpoint checkpointer.recipe_checkpoint"),
    **drops("checkpoints hold what is trained, the adapter alone of a LoRA, and can be resumed always",
            "save_adapter_weights_only enable_async_checkpointing"),
    **drops("the update comes after the backward pass: the same weights, with all gradients held", "optimizer_in_bwd"),
    **drops("the mean over all targets of a step, as here", "loss.*"),
    **drops("the marks come from data.chat_template, else from the tokenizer's own", "tokenizer.prompt_template"
            " tokenizer.prompt_template.*", matters=True),
    **drops("an epoch is whole here; set train.max_steps", "max_steps_per_epoch", matters=True),
    **drops("not built", "enable_activation_offloading activation_offloading_* custom_sharded_layers model.* dataset.*"
            " dataset_val.* run_val_every_n_steps optimizer.* lr_scheduler.*", matters=True),
    **drops(SHARDED, "fsdp_* tensor_parallel_* context_parallel_* data_parallel_* parallelize_plan.*", matters=True),
}  # fmt: skip


def fill(draft: Draft) -> None:
    walk(draft, RULES)
    is_text = torchtune_data.builder(draft) == "text_completion_dataset"
    draft.suppose("run.stage", "pretrain" if is_text else "sft", "plain text" if is_text else "rows with answers")
    torchtune_data.suppose(draft)
    most = longest_seen(draft, draft.raw("checkpointer.checkpoint_dir"))
    if draft.raw("tokenizer.max_seq_len") is None and most is not None and not is_on(draft.raw("dataset.packed")):
        draft.suppose("data.max_length", most, NOTE)
    if "tokenizer.max_seq_len" not in draft.document.named and not is_on(draft.raw("dataset.packed")):
        draft.leave_open("data.max_length", 1024, "torchtune cuts nothing; here rows that are longer are cut")
    draft.suppose("adapter.method", _method(draft))
    draft.suppose("train.max_grad_norm", "none")
    draft.suppose("train.weight_decay", 0.01 if "AdamW" in _component(draft, "optimizer") else 0.0, "torch's default")
    draft.suppose("train.lr_scheduler_type", "constant", "torchtune's default: no schedule")
    draft.suppose("train.warmup_steps", 0)
    for key, value in (("gradient_accumulation_steps", 1), ("activation_checkpointing", False)):
        draft.suppose(f"train.{key}", value)
