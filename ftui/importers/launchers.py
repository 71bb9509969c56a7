"""Programs that start a training program on several GPUs: where their own arguments begin and end."""

LAUNCHER = "launcher"  # the table that their arguments stand in
ENVIRONMENT = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "NPROC_PER_NODE", "NNODES", "FORCE_TORCHRUN")
"""Variables that say on how many GPUs, to them and to programs that start themselves on several."""
_WORDS = (
    ("torchrun",), ("deepspeed",), ("accelerate", "launch"), ("accelerate-launch",), ("-m", "torch.distributed.run"),
    ("tune", "run"), ("-m", "torch.distributed.launch"), ("-m", "accelerate.commands.launch"),
    ("-m", "deepspeed.launcher.runner"),
)  # fmt: skip
# What takes no value: of accelerate 1.x, torch's elastic launcher and DeepSpeed.
_SWITCHES = (
    "cpu", "debug", "downcast_bf16", "dynamo_use_dynamic", "dynamo_use_fullgraph",
    "dynamo_use_regional_compilation", "multi_gpu", "tpu", "enable_cpu_affinity", "fp8_use_autocast_during_eval",
    "no_python", "no_tpu_cluster", "quiet", "same_network", "tpu_cluster", "tpu_use_sudo", "use_deepspeed",
    "use_fsdp", "use_megatron_lm", "use_parallelism_config", "standalone", "run_path", "use_env",
    "virtual_local_rank", "no_local_rank", "no_ssh", "no_ssh_check", "save_pid", "force_multi",
    "bind_cores_to_rank",
)  # fmt: skip


def launcher_at(words: list[str], at: int) -> int | None:
    """Where the arguments of the launcher that is called at `at` begin; `None` where none is."""
    if at and words[at - 1].startswith("--") and "=" not in words[at - 1]:
        return None  # a value, such as `--strategy deepspeed`
    named = (words[at].rpartition("/")[2], *words[at + 1 : at + 2])
    return next((at + len(one) for one in _WORDS if named[: len(one)] == one), None)


def program_at(words: list[str], at: int) -> int:
    """Where the program that a launcher starts begins: the first word that is no argument of the launcher's own.

    Args:
        at: where the arguments begin.
    """
    while at < len(words) and words[at].startswith("-"):
        name, equals, _ = words[at].lstrip("-").replace("-", "_").partition("=")
        if name in ("m", "module"):
            return at if words[at] == "-m" else at + 1
        takes_none = equals or name in _SWITCHES or words[at + 1 : at + 2] == [] or words[at + 1].startswith("--")
        at += 1 if takes_none else 2
    return at
