"""DeepSpeed's JSON, and the same as YAML: how a run is spread, and a little of what it does."""

from ftui.importers.config_file import Document, Leaf
from ftui.importers.draft import ProfileDraft
from ftui.importers.rules import LAUNCH, Rule, SourceTool, carries, drops, each, only, same, says, to, trackers
from ftui.importers.sharding import zero_rules
from ftui.importers.tools.trainer import PARALLEL, betas
from ftui.importers.values import Unfit, above_zero, is_on, optimizer, text, whole


def _batch(draft: ProfileDraft, leaf: Leaf) -> None:
    given, steps = draft.raw("train_micro_batch_size_per_gpu"), draft.raw("gradient_accumulation_steps")
    micro = above_zero(given) if isinstance(given, int) else None
    total = above_zero(leaf.value)
    if steps not in (None, "auto"):
        on_one = above_zero(steps) * (micro or 0)
        if on_one and total > on_one and total % on_one == 0:
            note = "train_batch_size / (micro-batch x accumulation)"
            draft.carry(leaf, "hardware.num_processes", total // on_one, note)
        else:
            draft.drop(leaf, "micro-batch and accumulation say it; on several GPUs it is as many times larger")
    elif micro is None:
        draft.carry(leaf, "train.per_device_train_batch_size", total, "train_batch_size there, on one GPU")
    elif total % micro:
        raise Unfit("no multiple of train_micro_batch_size_per_gpu")
    else:
        draft.carry(leaf, "train.gradient_accumulation_steps", total // micro, "train_batch_size there, on one GPU")


def _precision(draft: ProfileDraft, leaf: Leaf) -> str:
    bf16 = is_on(draft.raw("bf16.enabled")) or is_on(draft.raw("bfloat16.enabled"))
    fp16 = is_on(draft.raw("fp16.enabled"))
    if leaf.path[0] == "fp16" and is_on(leaf.value) and bf16:
        raise Unfit("bf16 is on too")
    return "bf16" if bf16 else "fp16" if fp16 else "fp32"


def _optimizer(draft: ProfileDraft, leaf: Leaf) -> str:
    name = text(leaf.value)
    if name.lower() == "adam" and not is_on(draft.raw("optimizer.params.adam_w_mode") or True):
        raise Unfit("Adam whose decay is a part of the gradient is not built")
    return "adamw_torch_fused" if name.lower() in ("adam", "adamw") else str(optimizer(name))


def _activations(draft: ProfileDraft, leaf: Leaf) -> None:
    draft.drop(leaf, "set train.activation_checkpointing", matters=is_on(leaf.value))


WARMUP, LOG = "scheduler.params.warmup_type", "warms up by the logarithm of the step there, here in a straight line"
LOGARITHMIC = ("WarmupLR", "WarmupDecayLR", "WarmupCosineLR")  # deepspeed/runtime/lr_schedules.py: log by default


_KEYS: dict[str, Rule] = {
    **same("train", "gradient_accumulation_steps seed"),
    **carries("train", per_device_train_batch_size="train_micro_batch_size_per_gpu",
              learning_rate="optimizer.params.lr scheduler.params.warmup_max_lr", adam_epsilon="optimizer.params.eps",
              weight_decay="optimizer.params.weight_decay", lr_scheduler_type="scheduler.type",
              max_steps="scheduler.params.total_num_steps", max_grad_norm="gradient_clipping"),
    **carries("train.optim_args", momentum="optimizer.params.momentum"),
    **carries("log", logging_steps="steps_per_print"),
    "train_batch_size": _batch,
    "optimizer.type": says("train.optim", _optimizer),
    "optimizer.params.betas": betas,
    "scheduler.params.warmup_num_steps": to("train.warmup_steps", whole),
    WARMUP: only("linear", LOG, "as it is here"),
    **each(says("train.precision", _precision), "fp16.enabled bf16.enabled bfloat16.enabled"),
    **trackers(tensorboard="tensorboard.enabled", wandb="wandb.enabled"),
    "activation_checkpointing.*": _activations,
    **zero_rules("zero_optimization."),
    **drops("ftui checks itself which optimizers go with hardware.shard and hardware.offload",
            "zero_allow_untested_optimizer zero_force_ds_cpu_optimizer"),
    **drops("host memory is used as it comes", "aio.*"),
    **drops(PARALLEL, "tensor_parallel.* pipeline.*", matters=True),
    **drops(LAUNCH, "communication_data_type prescale_gradients gradient_predivide_factor sparse_gradients"
            " data_types.* amp.* dump_state comms_logger.* dataloader_drop_last"),
    **drops("ftui scales the loss by its own rule under fp16", "fp16.* bf16.* bfloat16.*"),
    **drops("every step is recorded anyway", "wall_clock_breakdown memory_breakdown flops_profiler.* tensorboard.*"
            " wandb.* csv_monitor.* monitor_config.* comet.* disable_allgather train_steps_per_print"),
    **drops("not built", "scheduler.params.* optimizer.params.* optimizer.legacy_fusion sparse_attention.*"
            " data_efficiency.* curriculum_learning.* compression_training.* progressive_layer_drop.* eigenvalue.*"
            " quantize_training.* elasticity.* autotuning.* checkpoint.* compile.*", matters=True),
}  # fmt: skip


def _suppose(draft: ProfileDraft) -> None:
    draft.leave_open("run.stage", "sft", "rows with answers, or pretrain; DeepSpeed's file does not say")
    draft.leave_open("adapter.method", "lora", "LoRA, as by default here; DeepSpeed's file names no method")
    kind = draft.raw("scheduler.type")
    if draft.given("train.lr_scheduler_type") is not None and draft.raw(WARMUP) is None and kind in LOGARITHMIC:
        draft.drop_part(WARMUP, "log", f"{kind} {LOG}, where it says nothing else")


def _unless_auto(rule: Rule) -> Rule:
    """Values of `auto` are the trainer's, whose file says them."""

    def settle(draft: ProfileDraft, leaf: Leaf) -> None:
        if leaf.value == "auto":
            draft.drop(leaf, "auto: the file of the trainer says it")
        else:
            rule(draft, leaf)

    return settle


def _recognizes(document: Document) -> bool:
    own = {"zero_optimization", "train_micro_batch_size_per_gpu", "zero_allow_untested_optimizer"}
    is_a_guides = document.has("model", "base_model", "data")
    return document.has(*own) or ("optimizer.params.lr" in document.named and not is_a_guides)


RULES = {name: _unless_auto(rule) for name, rule in _KEYS.items()}
DEEPSPEED = SourceTool("DeepSpeed", RULES, _recognizes, _suppose)
