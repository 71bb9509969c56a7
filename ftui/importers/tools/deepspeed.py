"""DeepSpeed's JSON, and the same as YAML: how a run is spread, and a little of what it does."""

from ftui.importers.config_file import Leaf
from ftui.importers.draft import Draft, Rule, drops, to, walk
from ftui.importers.tools.trainer_rules import LAUNCH, SHARDED
from ftui.importers.values import Unfit, above_zero, flag, is_on, number, optimizer, real, scheduler, text, whole

TOOL = "DeepSpeed"


def _micro(draft: Draft) -> int | None:
    micro = draft.raw("train_micro_batch_size_per_gpu")
    return above_zero(micro) if isinstance(micro, int) else None


def _batch(draft: Draft, leaf: Leaf) -> None:
    if draft.raw("gradient_accumulation_steps") not in (None, "auto"):
        draft.drop(leaf, "micro-batch and accumulation say it; on several GPUs it is as many times larger")
        return
    micro = _micro(draft)
    total = above_zero(leaf.value)
    if micro is None:
        draft.carry(leaf, "train.per_device_train_batch_size", total, "train_batch_size there, on one GPU")
    elif total % micro:
        raise Unfit("no multiple of train_micro_batch_size_per_gpu")
    else:
        draft.carry(leaf, "train.gradient_accumulation_steps", total // micro, "train_batch_size there, on one GPU")


def _precision(draft: Draft, leaf: Leaf) -> None:
    bf16 = is_on(draft.raw("bf16.enabled")) or is_on(draft.raw("bfloat16.enabled"))
    fp16 = is_on(draft.raw("fp16.enabled"))
    if leaf.path[0] == "fp16" and is_on(leaf.value) and bf16:
        raise Unfit("bf16 is on too")
    draft.carry(leaf, "train.precision", "bf16" if bf16 else "fp16" if fp16 else "fp32")


def _betas(draft: Draft, leaf: Leaf) -> None:
    if not isinstance(leaf.value, list) or len(leaf.value) != 2:
        raise Unfit("not two numbers")
    first, second = map(real, leaf.value)
    draft.carry(leaf, "train.adam_beta1", first)
    draft.values[("train", "adam_beta2")] = second
    draft.notes[("train", "adam_beta2")] = leaf.name


def _optimizer(draft: Draft, leaf: Leaf) -> None:
    name = text(leaf.value)
    if name.lower() == "adam" and not is_on(draft.raw("optimizer.params.adam_w_mode") or True):
        raise Unfit("Adam whose decay is a part of the gradient is not built")
    draft.carry(leaf, "train.optim", "adamw_torch_fused" if name.lower() in ("adam", "adamw") else optimizer(name))


def _clip(draft: Draft, leaf: Leaf) -> None:
    draft.carry(leaf, "train.max_grad_norm", real(leaf.value) if number(leaf.value) > 0 else "none")


def _activations(draft: Draft, leaf: Leaf) -> None:
    draft.drop(leaf, "set train.activation_checkpointing", matters=is_on(leaf.value))


WARMUP, LOG = "scheduler.params.warmup_type", "warms up by the logarithm of the step there, here in a straight line"
LOGARITHMIC = ("WarmupLR", "WarmupDecayLR", "WarmupCosineLR")  # deepspeed/runtime/lr_schedules.py: log by default


def _warmup_type(draft: Draft, leaf: Leaf) -> None:
    if leaf.value != "linear":
        raise Unfit(f"{draft.raw('scheduler.type')} {LOG}")
    draft.drop(leaf, "as it is here")


_SCALE = "ftui scales the loss by its own rule under fp16"

RULES: dict[str, Rule] = {
    "train_micro_batch_size_per_gpu": to("train.per_device_train_batch_size", above_zero),
    "gradient_accumulation_steps": to("train.gradient_accumulation_steps", above_zero),
    "train_batch_size": _batch,
    "optimizer.type": _optimizer,
    "optimizer.params.lr": to("train.learning_rate", real),
    "optimizer.params.betas": _betas,
    "optimizer.params.eps": to("train.adam_epsilon", real),
    "optimizer.params.weight_decay": to("train.weight_decay", real),
    "optimizer.params.momentum": to("train.optim_args.momentum", real),
    "scheduler.type": to("train.lr_scheduler_type", scheduler),
    "scheduler.params.warmup_num_steps": to("train.warmup_steps", whole),
    WARMUP: _warmup_type,
    "scheduler.params.warmup_max_lr": to("train.learning_rate", real),
    "scheduler.params.total_num_steps": to("train.max_steps", above_zero),
    "fp16.enabled": _precision,
    "bf16.enabled": _precision,
    "bfloat16.enabled": _precision,
    "gradient_clipping": _clip,
    "seed": to("train.seed", whole),
    "steps_per_print": to("log.logging_steps", above_zero),
    "tensorboard.enabled": lambda draft, leaf: draft.carry(leaf, "log.report_to", ["tensorboard"])
    if flag(leaf.value) else draft.drop(leaf, "off, as it is here"),
    "wandb.enabled": lambda draft, leaf: draft.carry(leaf, "log.report_to", ["wandb"])
    if flag(leaf.value) else draft.drop(leaf, "off, as it is here"),
    "activation_checkpointing.*": _activations,
    **drops(SHARDED, "zero_optimization.* zero_allow_untested_optimizer zero_force_ds_cpu_optimizer aio.*"
            " tensor_parallel.* pipeline.*", matters=True),
    **drops(LAUNCH, "communication_data_type prescale_gradients gradient_predivide_factor sparse_gradients"
            " data_types.* amp.* dump_state comms_logger.* dataloader_drop_last"),
    **drops(_SCALE, "fp16.* bf16.* bfloat16.*"),
    **drops("every step is recorded anyway", "wall_clock_breakdown memory_breakdown flops_profiler.* tensorboard.*"
            " wandb.* csv_monitor.* monitor_config.* comet.* disable_allgather train_steps_per_print"),
    **drops("not built", "scheduler.params.* optimizer.params.* optimizer.legacy_fusion sparse_attention.*"
            " data_efficiency.* curriculum_learning.* compression_training.* progressive_layer_drop.* eigenvalue.*"
            " quantize_training.* elasticity.* autotuning.* checkpoint.* compile.*", matters=True),
}  # fmt: skip


def fill(draft: Draft) -> None:
    """Values of `auto` are the trainer's, whose file says them."""
    walk(draft, {name: _unless_auto(rule) for name, rule in RULES.items()})
    draft.leave_open("run.stage", "sft", "rows with answers, or pretrain; DeepSpeed's file does not say")
    draft.leave_open("adapter.method", "lora", "LoRA, as by default here; DeepSpeed's file names no method")
    kind = draft.raw("scheduler.type")
    if ("train", "lr_scheduler_type") in draft.values and draft.raw(WARMUP) is None and kind in LOGARITHMIC:
        draft.tell(WARMUP, "log", f"{kind} {LOG}, where it says nothing else")


def _unless_auto(rule: Rule) -> Rule:
    def settle(draft: Draft, leaf: Leaf) -> None:
        if leaf.value == "auto":
            draft.drop(leaf, "auto: the file of the trainer says it")
        else:
            rule(draft, leaf)

    return settle
