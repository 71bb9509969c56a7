"""How the values of transformers' TrainingArguments are read."""

from typing import Any, get_args

from ftui.importers.config_file import Leaf
from ftui.importers.draft import Draft, Rule
from ftui.importers.launchers import ENVIRONMENT, LAUNCHER
from ftui.importers.values import (  # fmt: skip
    Unfit,
    above_zero,
    beside,
    details,
    flag,
    is_on,
    number,
    one_of,
    period,
    real,
    text,
    texts,
    whole,
)
from ftui.profile.schema import Tracker
from ftui.runs.run_folder import name_from

SHARDED = "ZeRO and FSDP are not built yet; several GPUs each hold the whole model (hardware.num_processes)"
HUB = "ftui pushes nothing to a hub; the result stands in the run's folder"
LOADER = "rows are read from a cache without loader processes"
LAUNCH = "ftui starts its processes itself (hardware.num_processes)"
LOGS = "every step is recorded whatever is printed"
SAY_PROCESSES = ("num_processes", "nproc_per_node", "num_gpus")
TRACKERS = get_args(Tracker)

STRATEGIES = {"no": "no", "false": "no", "none": "no", "steps": "steps", "epoch": "epoch", "epochs": "epoch"}
SAMPLING = {"random": "random", "group_by_length": "group_by_length", "sequential": "sequential"}


def precision(neither: str) -> Rule:
    """bf16 and fp16 and their kin say one key together.

    Args:
        neither: what the tool computes in where all of them are off.
    """

    def rule(draft: Draft, leaf: Leaf) -> None:
        own = [name for name in ("bf16", "pure_bf16", "bfloat16") if is_on(draft.raw(_beside(leaf, name)))]
        half = [name for name in ("fp16", "float16") if is_on(draft.raw(_beside(leaf, name)))]
        autos = [name for name in (*own, *half) if str(draft.raw(_beside(leaf, name))).lower() == "auto"]
        decided = "auto" if autos else "bf16" if own else "fp16" if half else neither
        if leaf.path[-1] in half and own:
            raise Unfit(f"{own[0]} is on too, and comes first")
        draft.carry(leaf, "train.precision", decided)

    return rule


def _beside(leaf: Leaf, name: str) -> str:
    """The name of a key in the same table."""
    return leaf.name[: len(leaf.name) - len(str(leaf.path[-1]))] + name


def max_steps(draft: Draft, leaf: Leaf) -> None:
    steps = whole(leaf.value)
    if steps <= 0:
        draft.drop(leaf, "it means: by epochs")
    else:
        draft.carry(leaf, "train.max_steps", steps)


def launched(draft: Draft, leaf: Leaf) -> None:
    """An argument of the launcher (accelerate, torchrun, deepspeed), whoever's program it starts."""
    name, half = str(leaf.path[-1]), {"bf16": "bf16", "fp16": "fp16", "no": "fp32"}
    if name in (*SAY_PROCESSES, "NPROC_PER_NODE"):
        draft.carry(leaf, "hardware.num_processes", above_zero(leaf.value), name)
    elif name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "include", "gpu_ids"):
        _devices(draft, leaf)
    elif name == "FORCE_TORCHRUN":
        says = any(draft.raw(f"{LAUNCHER}.{one}") is not None for one in (*SAY_PROCESSES, *ENVIRONMENT[:3]))
        every = "it starts a process for each GPU of the machine: set hardware.num_processes"
        draft.drop(leaf, LAUNCH if says else every, matters=not says and is_on(leaf.value))
    elif name in ("NNODES", "nnodes", "num_machines"):
        more = beside(leaf.value, "1") != "1"
        draft.drop(leaf, "ftui trains on one machine: a step there has more rows" if more else LAUNCH, matters=more)
    elif name == "mixed_precision" and not draft.has("bf16", "fp16", "pure_bf16"):
        draft.carry(leaf, "train.precision", one_of(half, "precision")(leaf.value))
    elif name == "mixed_precision":
        draft.drop(leaf, "the program's own bf16 and fp16 say it")
    elif name in ("config_file", "deepspeed_config_file"):
        draft.drop(leaf, "it is not read: hardware.num_processes says on how many GPUs", matters=True)
    elif name.startswith(("use_deepspeed", "use_fsdp", "fsdp_", "zero", "offload_", "use_megatron", "megatron_")):
        draft.drop(leaf, SHARDED, matters=is_on(leaf.value))
    else:
        draft.drop(leaf, LAUNCH)


def _devices(draft: Draft, leaf: Leaf) -> None:
    """GPUs by their numbers. Without a launcher transformers' Trainer takes all of them too, a batch for each."""
    each = [one for one in str(leaf.value).rpartition(":")[2].split(",") if one.strip()]
    by_launcher = any(draft.raw(f"{LAUNCHER}.{one}") is not None for one in (*SAY_PROCESSES, "NPROC_PER_NODE"))
    if each == ["-1"]:
        draft.carry(leaf, "hardware.device", "cpu")
    elif by_launcher:
        draft.drop(leaf, "the number of processes is said beside it")
    elif each == ["all"] or "@" in str(leaf.value):
        raise Unfit("how many there are is not said: set hardware.num_processes")
    elif len(each) == 1:
        draft.drop(leaf, "one GPU, as here")
    else:
        draft.carry(leaf, "hardware.num_processes", len(each), f"{leaf.path[-1]} = {leaf.value}")


def epochs(draft: Draft, leaf: Leaf) -> None:
    steps = next((leaf for leaf in draft.document.leaves if leaf.path[-1] == "max_steps"), None)
    try:
        by_steps = steps is not None and steps.value is not None and whole(steps.value) > 0
    except Unfit:
        by_steps = False
    if by_steps:
        draft.drop(leaf, "max_steps ends the run, as it does there")
    else:
        draft.carry(leaf, "train.num_train_epochs", real(leaf.value))


def warmup_ratio(draft: Draft, leaf: Leaf) -> None:
    steps = draft.raw(_beside(leaf, "warmup_steps"))
    if steps is not None and is_on(steps):
        draft.drop(leaf, "warmup_steps comes first, as it does there")
        return
    share = real(leaf.value)
    if share >= 1:
        raise Unfit("a share is below 1")
    draft.carry(leaf, "train.warmup_steps", share, "warmup_ratio: below 1 it is a share of all steps")


def warmup_steps(draft: Draft, leaf: Leaf) -> None:
    steps = number(leaf.value)
    ratio = draft.raw(_beside(leaf, "warmup_ratio"))
    if steps == 0 and ratio is not None and is_on(ratio):
        draft.drop(leaf, "0: warmup_ratio says it")
    else:
        draft.carry(leaf, "train.warmup_steps", float(steps) if 0 < steps < 1 else whole(steps))


def save_total_limit(draft: Draft, leaf: Leaf) -> None:
    wanted = above_zero(leaf.value)
    note = "1 there; two is the least, so that one is always whole" if wanted == 1 else ""
    draft.carry(leaf, "checkpoint.save_total_limit", max(wanted, 2), note)


def logging_steps(draft: Draft, leaf: Leaf) -> None:
    steps = period(leaf.value)
    if steps < 1:
        raise Unfit("a share of all steps; a number of steps is needed here")
    draft.carry(leaf, "log.logging_steps", whole(steps))


def report_to(draft: Draft, leaf: Leaf) -> None:
    named = [] if leaf.value is False else [one.lower() for one in texts(leaf.value)]
    known = [one for one in named if one in TRACKERS]
    others = [one for one in named if one not in (*TRACKERS, "none", "all")]
    if "all" in named:
        raise Unfit("name the trackers: tensorboard, wandb, trackio")
    if others and not known:
        raise Unfit(f"{', '.join(others)} cannot be told; tensorboard, wandb and trackio can")
    draft.carry(leaf, "log.report_to", known, f"not carried: {', '.join(others)}" if others else "")


def metric(value: Any) -> str:
    name = text(value)
    if name not in ("loss", "eval_loss"):
        raise Unfit("the evaluation loss is the only measure so far")
    return name


def checkpointing(draft: Draft, leaf: Leaf) -> None:
    """gradient_checkpointing, which is a flag or a word such as `unsloth` or `offload`."""
    try:
        draft.carry(leaf, "train.activation_checkpointing", flag(leaf.value))
    except Unfit:
        draft.carry(leaf, "train.activation_checkpointing", True, f"{leaf.value} there; nothing is moved to the host")


def group_by_length(draft: Draft, leaf: Leaf) -> None:
    draft.carry(leaf, "train.train_sampling_strategy", "group_by_length" if flag(leaf.value) else "random")


def one_detail(ours: str, known: Any) -> Rule:
    """One key of a table of details, as far as the profile's table has it."""

    def rule(draft: Draft, leaf: Leaf) -> None:
        name = str(leaf.path[-1])
        if name not in known.model_fields:
            raise Unfit(f"{ours} has no such detail")
        is_count = "int" in str(known.model_fields[name].annotation) and "float" not in str(
            known.model_fields[name].annotation
        )
        value = whole(leaf.value) if is_count else leaf.value
        draft.carry(leaf, f"{ours}.{name}", real(value) if isinstance(value, int | float) and not is_count
                    and not isinstance(value, bool) else value)  # fmt: skip

    return rule


def table_of_details(ours: str, known: Any) -> Rule:
    def rule(draft: Draft, leaf: Leaf) -> None:
        found = details(leaf.value) if leaf.value else {}
        if strangers := found.keys() - known.model_fields.keys():
            raise Unfit(f"{ours} has no {', '.join(sorted(strangers))}")
        if not found:
            draft.drop(leaf, "empty")
        else:
            draft.carry(leaf, ours, found)

    return rule


def run_name(draft: Draft, leaf: Leaf) -> None:
    draft.carry(leaf, "run.name", name_from(text(leaf.value)))


def seed(value: Any) -> int:
    seed = whole(value)
    if seed < 0:
        raise Unfit("a seed is not below 0")
    return seed


def max_grad_norm(value: Any) -> Any:
    return real(value) if number(value) > 0 else "none"  # transformers clips where it is above 0


def no_clipping(draft: Draft, leaf: Leaf) -> None:
    """max_grad_norm: null."""
    draft.carry(leaf, "train.max_grad_norm", "none")


def save_steps(value: Any) -> Any:
    return "none" if number(value) <= 0 else period(value)


def held_out(draft: Draft, leaf: Leaf) -> None:
    """Rows set aside for evaluation: below 1 a share of them, else a number."""
    size = real(leaf.value)
    if size <= 0:
        draft.drop(leaf, "0: nothing is set aside")
    elif size < 1:
        draft.carry(leaf, "data.eval_fraction", size)
    else:
        draft.carry(leaf, "data.eval_num_rows", whole(size))
