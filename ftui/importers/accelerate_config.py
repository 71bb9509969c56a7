"""The file that `accelerate config` writes: how a run is spread, and nothing of what it trains on."""

from ftui.importers.command import LAUNCHER
from ftui.importers.config_file import Document, Leaf
from ftui.importers.draft import ProfileDraft
from ftui.importers.rules import EACH_MACHINE, LAUNCH, OFF, Rule, SourceTool, carries, drops, find_wide, to
from ftui.importers.sharding import ABSENT, LAYERS, SAID, ZERO_OF_LAUNCHER, fsdp_rules, group_size, zero_rules
from ftui.importers.values import Unfit, above_zero, either, one_of, word

MODEL = ("base_model", "model_name_or_path", "model")


def _kind(draft: ProfileDraft, leaf: Leaf) -> None:
    kind = word(leaf.value)
    if kind in ("fsdp", "deepspeed"):
        draft.drop(leaf, "the keys of its table say how")
    elif kind in ("no", "multi_gpu", "multi_cpu"):
        draft.drop(leaf, OFF if kind == "no" else LAUNCH)
    else:
        raise Unfit("not built")


def _machines(draft: ProfileDraft, leaf: Leaf) -> None:
    if word(leaf.value) == "1":
        draft.drop(leaf, "one, as here")
    else:
        draft.carry(leaf, "hardware.nodes", above_zero(leaf.value), EACH_MACHINE)


RULES: dict[str, Rule] = {
    **carries("hardware", num_processes="num_processes"),
    "mixed_precision": to("train.precision", one_of({"no": "fp32", "fp16": "fp16", "bf16": "bf16"}, "precision")),
    "use_cpu": to("hardware.device", either("cpu", "auto")),
    "distributed_type": _kind,
    "num_machines": _machines,
    **{f"deepspeed_config.{name}": rule for name, rule in ZERO_OF_LAUNCHER.items()},
    **carries("train", gradient_accumulation_steps="deepspeed_config.gradient_accumulation_steps",
              max_grad_norm="deepspeed_config.gradient_clipping"),
    **drops(SAID, "deepspeed_config.deepspeed_config_file.*"),
    **zero_rules("deepspeed_config.deepspeed_config_file.zero_optimization."),
    **drops(ABSENT, "deepspeed_config.deepspeed_config_file", matters=True),
    **drops(LAYERS, "deepspeed_config.deepspeed_moe_layer_cls_names"),
    **drops(LAUNCH, "deepspeed_config.* compute_environment machine_rank gpu_ids main_process_ip main_process_port"
            " main_training_function rdzv_backend same_network enable_cpu_affinity debug mpirun_config.* command_file"
            " commands enable_numa_affinity"),
    **fsdp_rules("fsdp_config."),
    **drops("TPUs are not built", "tpu_* downcast_bf16", matters=True),
    **drops("set train.torch_compile = true to compile", "dynamo_config.*", matters=True),
    "parallelism_config.parallelism_config_dp_shard_size": group_size,
    **drops("num_processes / dp_shard_size", "parallelism_config.parallelism_config_dp_replicate_size"),
    **drops("not built", "megatron_lm_config.* parallelism_config.* fp8_config.* ipex_config.*", matters=True),
}  # fmt: skip


CONFIG_FILE = "config_file"


def of_config_file(draft: ProfileDraft, leaf: Leaf) -> None:
    """A key of the file that `accelerate launch --config_file` names; the command line goes before it."""
    name = ".".join(map(str, leaf.path[2:]))
    if not name:
        draft.drop(leaf, ABSENT, matters=True)
    elif draft.raw(f"{LAUNCHER}.{leaf.last}") is not None:
        draft.drop(leaf, "the command line says it")
    elif name == "mixed_precision" and draft.document.has("bf16", "fp16", "pure_bf16"):
        draft.drop(leaf, "the program's own bf16 and fp16 say it")
    elif rule := RULES.get(name) or find_wide(RULES, name):
        rule(draft, leaf)
    else:
        draft.drop(leaf, "ftui knows no such key of accelerate", matters=True)


def _recognizes(document: Document) -> bool:
    return document.has("distributed_type", "compute_environment") and not document.has(*MODEL)


def _suppose(draft: ProfileDraft) -> None:
    draft.leave_open("run.stage", "sft", "rows with answers, or pretrain; accelerate's file does not say")
    draft.leave_open("adapter.method", "lora", "LoRA, as by default here; accelerate's file names no method")


ACCELERATE = SourceTool("accelerate", RULES, _recognizes, _suppose)
