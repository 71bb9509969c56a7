"""transformers' TrainingArguments (5.24, and the spellings before it), which other tools' files hold too."""

from typing import Any

from ftui.importers.accelerate_config import CONFIG_FILE, of_config_file
from ftui.importers.command import ENVIRONMENT, LAUNCHER
from ftui.importers.config_file import Leaf
from ftui.importers.draft import ProfileDraft
from ftui.importers.rules import (
    EACH_MACHINE,
    LAUNCH,
    OTHER_TRACKER,
    OWN_FOLDER,
    Gate,
    Rule,
    carries,
    drops,
    each,
    same,
    says,
    to,
    when,
)
from ftui.importers.sharding import ABSENT, SAID, TRAINER_SHARDING, ZERO_OF_LAUNCHER, fsdp_rules, zero_rules
from ftui.importers.tools.push_keys import OTHER_WAY, push_rules
from ftui.importers.values import (
    Unfit,
    above_zero,
    details,
    either,
    flag,
    is_on,
    number,
    one_of,
    real,
    share_or_steps,
    text,
    texts,
    whole,
    word_or,
)
from ftui.profile.sections.optimizers import OptimArgs
from ftui.profile.sections.schedulers import SchedulerKwargs
from ftui.profile.tracker_names import TRACKERS
from ftui.runs.run_folder import name_from

PARALLEL = "splitting layers, sequences or stages among GPUs is not built"
HUB = "the result stands in the run's folder; `ftui push` sends it, or push.to when the run has finished"
LOADER = "rows are read from a cache without loader processes"
LOGS = "every step is recorded whatever is printed"
REENTRANT = "ftui checkpoints without reentering autograd; the result is the same"
ON_COMMAND_LINE = ZERO_OF_LAUNCHER | {name: rule for name, rule in fsdp_rules("").items() if name[:5] == "fsdp_"}
SAY_PROCESSES = ("num_processes", "nproc_per_node", "num_gpus")
SAY_NODES = ("num_machines", "nnodes", "num_nodes", "NNODES")


def precision(neither: str) -> Rule:
    """bf16 and fp16 and their kin say one key together.

    Args:
        neither: what the tool computes in where all of them are off.
    """

    def value(draft: ProfileDraft, leaf: Leaf) -> str:
        own = [name for name in ("bf16", "pure_bf16", "bfloat16") if is_on(draft.raw(_sibling(leaf, name)))]
        half = [name for name in ("fp16", "float16") if is_on(draft.raw(_sibling(leaf, name)))]
        autos = [name for name in (*own, *half) if str(draft.raw(_sibling(leaf, name))).lower() == "auto"]
        decided = "auto" if autos else "bf16" if own else "fp16" if half else neither
        if leaf.path[-1] in half and own:
            raise Unfit(f"{own[0]} is on too, and comes first")
        return decided

    return says("train.precision", value)


def _sibling(leaf: Leaf, name: str) -> str:
    """The name of a key in the same table."""
    return leaf.name[: len(leaf.name) - len(str(leaf.path[-1]))] + name


def _max_steps(draft: ProfileDraft, leaf: Leaf) -> None:
    if (steps := whole(leaf.value)) > 0:
        draft.carry(leaf, "train.max_steps", steps)
    else:
        draft.drop(leaf, "it means: by epochs")


def launched(draft: ProfileDraft, leaf: Leaf) -> None:
    """An argument of the launcher (accelerate, torchrun, deepspeed), whoever's program it starts."""
    name, half = str(leaf.path[-1]), {"bf16": "bf16", "fp16": "fp16", "no": "fp32"}
    if leaf.path[1] == CONFIG_FILE:
        of_config_file(draft, leaf)
    elif name in (*SAY_PROCESSES, "NPROC_PER_NODE"):
        _processes(draft, leaf)
    elif name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "include", "gpu_ids"):
        _devices(draft, leaf)
    elif name == "FORCE_TORCHRUN":
        says = any(draft.raw(f"{LAUNCHER}.{name}") is not None for name in (*SAY_PROCESSES, *ENVIRONMENT[:3]))
        every = "it starts a process for each GPU of the machine: set hardware.num_processes"
        draft.drop(leaf, LAUNCH if says else every, matters=not says and is_on(leaf.value))
    elif name in SAY_NODES:
        _machines(draft, leaf)
    elif name == "mixed_precision" and not draft.document.has("bf16", "fp16", "pure_bf16"):
        draft.carry(leaf, "train.precision", one_of(half, "precision")(leaf.value))
    elif name == "mixed_precision":
        draft.drop(leaf, "the program's own bf16 and fp16 say it")
    elif name == "deepspeed_config_file":
        draft.drop(leaf, ABSENT, matters=True)
    elif name in ("use_fsdp", "use_deepspeed"):
        draft.drop(leaf, "hardware.shard says it")
    elif rule := ON_COMMAND_LINE.get(name):
        rule(draft, leaf)
    elif name.startswith(("use_megatron", "megatron_")):
        draft.drop(leaf, PARALLEL, matters=is_on(leaf.value))
    else:
        draft.drop(leaf, LAUNCH)


def _processes(draft: ProfileDraft, leaf: Leaf) -> None:
    """Those of all machines. torchrun and DeepSpeed say how many each of them has."""
    name, number, nodes = str(leaf.path[-1]), above_zero(leaf.value), _num_nodes(draft)
    if name == "num_processes" or nodes == 1:
        draft.carry(leaf, "hardware.num_processes", number, name)
    else:
        draft.carry(leaf, "hardware.num_processes", number * nodes, f"{number} on each of {nodes} machines")


def _machines(draft: ProfileDraft, leaf: Leaf) -> None:
    if word_or(leaf.value, "1") == "1":
        draft.drop(leaf, LAUNCH)
    else:
        draft.carry(leaf, "hardware.nodes", above_zero(leaf.value), EACH_MACHINE)


def _num_nodes(draft: ProfileDraft) -> int:
    """1 where it is not said, or is no number."""
    given = (word_or(draft.raw(f"{LAUNCHER}.{name}"), "") for name in SAY_NODES)
    return next((int(number) for number in given if number.isdecimal() and int(number)), 1)


def _devices(draft: ProfileDraft, leaf: Leaf) -> None:
    """GPUs by their numbers. Without a launcher transformers' Trainer takes all of them too, a batch for each."""
    numbers = [number for number in str(leaf.value).rpartition(":")[2].split(",") if number.strip()]
    by_launcher = any(draft.raw(f"{LAUNCHER}.{name}") is not None for name in (*SAY_PROCESSES, "NPROC_PER_NODE"))
    if numbers == ["-1"]:
        draft.carry(leaf, "hardware.device", "cpu")
    elif by_launcher:
        draft.drop(leaf, "the number of processes is said beside it")
    elif numbers == ["all"] or "@" in str(leaf.value):
        raise Unfit("how many there are is not said: set hardware.num_processes")
    elif len(numbers) == 1:
        draft.drop(leaf, "one GPU, as here")
    else:
        draft.carry(leaf, "hardware.num_processes", len(numbers), f"{leaf.path[-1]} = {leaf.value}")


def betas(draft: ProfileDraft, leaf: Leaf) -> None:
    """The rule of a list of both betas of Adam."""
    if not isinstance(leaf.value, list) or len(leaf.value) != 2:
        raise Unfit("not two numbers")
    first, second = map(real, leaf.value)
    draft.carry(leaf, "train.adam_beta1", first)
    draft.values[("train", "adam_beta2")] = second
    draft.notes[("train", "adam_beta2")] = leaf.name


def _epochs(draft: ProfileDraft, leaf: Leaf) -> None:
    steps = next((leaf for leaf in draft.document.leaves if leaf.path[-1] == "max_steps"), None)
    try:
        by_steps = steps is not None and steps.value is not None and whole(steps.value) > 0
    except Unfit:
        by_steps = False
    if by_steps:
        draft.drop(leaf, "max_steps ends the run, as it does there")
    else:
        draft.carry(leaf, "train.num_train_epochs", real(leaf.value))


def _warmup_ratio(draft: ProfileDraft, leaf: Leaf) -> None:
    steps = draft.raw(_sibling(leaf, "warmup_steps"))
    if steps is not None and is_on(steps):
        draft.drop(leaf, "warmup_steps comes first, as it does there")
        return
    share = real(leaf.value)
    if share >= 1:
        raise Unfit("a share is below 1")
    draft.carry(leaf, "train.warmup_steps", share, "warmup_ratio: below 1 it is a share of all steps")


def _warmup_steps(draft: ProfileDraft, leaf: Leaf) -> None:
    steps = number(leaf.value)
    ratio = draft.raw(_sibling(leaf, "warmup_ratio"))
    if steps == 0 and ratio is not None and is_on(ratio):
        draft.drop(leaf, "0: warmup_ratio says it")
    else:
        draft.carry(leaf, "train.warmup_steps", share_or_steps(steps))


def _save_total_limit(draft: ProfileDraft, leaf: Leaf) -> None:
    limit = above_zero(leaf.value)
    note = "1 there; two is the least, so that one is always whole" if limit == 1 else ""
    draft.carry(leaf, "checkpoint.save_total_limit", max(limit, 2), note)


def report_to(draft: ProfileDraft, leaf: Leaf) -> None:
    """The rule of a list of trackers."""
    names = [] if leaf.value is False else [name.lower() for name in texts(leaf.value)]
    trackers = [name for name in names if name in TRACKERS]
    others = [name for name in names if name not in (*TRACKERS, "none", "all")]
    if "all" in names:
        raise Unfit(f"name the trackers: {', '.join(TRACKERS)}")
    if others and not trackers:
        raise Unfit(f"{', '.join(others)}: {OTHER_TRACKER}")
    draft.carry(leaf, "log.report_to", trackers, f"not carried: {', '.join(others)}" if others else "")


def _checkpointing(draft: ProfileDraft, leaf: Leaf) -> None:
    """gradient_checkpointing, which is a flag or a word such as `unsloth` or `offload`."""
    try:
        draft.carry(leaf, "train.activation_checkpointing", flag(leaf.value))
    except Unfit:
        moves = str(leaf.value).startswith(("offload", "unsloth"))
        if moves:
            draft.suppose("train.activation_offload", True, f"{leaf.name}: {leaf.value}")
        draft.carry(leaf, "train.activation_checkpointing", True, f"{leaf.value} there")


def _one_detail(ours: str, table: Any) -> Rule:
    """One key of a table of details, as far as the profile's table has it."""

    def rule(draft: ProfileDraft, leaf: Leaf) -> None:
        name, value = str(leaf.path[-1]), leaf.value
        if name not in table.model_fields:
            raise Unfit(f"{ours} has no such detail")
        kind = str(table.model_fields[name].annotation)
        if "int" in kind and "float" not in kind:
            value = whole(value)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            value = real(value)
        draft.carry(leaf, f"{ours}.{name}", value)

    return rule


def _table_of_details(ours: str, table: Any) -> Rule:
    def rule(draft: ProfileDraft, leaf: Leaf) -> None:
        values = details(leaf.value) if leaf.value else {}
        if strangers := values.keys() - table.model_fields.keys():
            raise Unfit(f"{ours} has no {', '.join(sorted(strangers))}")
        draft.carry(leaf, ours, values) if values else draft.drop(leaf, "empty")

    return rule


def held_out(draft: ProfileDraft, leaf: Leaf) -> None:
    """Rows set aside for evaluation: below 1 a share of them, else a number."""
    size = real(leaf.value)
    if size <= 0:
        draft.drop(leaf, "0: nothing is set aside")
    elif size < 1:
        draft.carry(leaf, "data.eval_fraction", size)
    else:
        draft.carry(leaf, "data.eval_num_rows", whole(size))


GENERATES = Gate(lambda draft: is_on(draft.raw("predict_with_generate")), lambda draft: "nothing is answered")
"""Whether evaluations answer rows."""

no_clipping = to("train.max_grad_norm", lambda value: "none")
"""The rule of `max_grad_norm: null`."""


CARRIED: dict[str, Rule] = {
    **same("train", "per_device_train_batch_size gradient_accumulation_steps learning_rate lr_scheduler_type optim"
           " weight_decay adam_beta1 adam_beta2 adam_epsilon max_grad_norm label_smoothing_factor tf32 torch_compile"
           " use_liger_kernel neftune_noise_alpha train_sampling_strategy seed data_seed full_determinism"),
    **same("eval", "per_device_eval_batch_size eval_strategy eval_steps eval_delay eval_on_start metric_for_best_model"
           " greater_is_better load_best_model_at_end"),
    **same("checkpoint", "save_strategy save_steps"),
    **same("log", "logging_steps"),
    **carries("train", per_device_train_batch_size="per_gpu_train_batch_size"),
    **carries("eval", per_device_eval_batch_size="per_gpu_eval_batch_size", eval_strategy="evaluation_strategy"),
    **carries("hardware", num_processes="num_processes nproc_per_node num_gpus"),
    **each(to("hardware.device", either("cpu", "auto")), "use_cpu no_cuda"),
    **each(precision("fp32"), "bf16 fp16"),
    **each(_checkpointing, "gradient_checkpointing activation_checkpointing"),
    "num_train_epochs": _epochs,
    "max_steps": _max_steps,
    "lr_scheduler_kwargs": _table_of_details("train.lr_scheduler_kwargs", SchedulerKwargs),
    "lr_scheduler_kwargs.*": _one_detail("train.lr_scheduler_kwargs", SchedulerKwargs),
    "warmup_steps": _warmup_steps,
    "warmup_ratio": _warmup_ratio,
    "optim_args": _table_of_details("train.optim_args", OptimArgs),
    "optim_args.*": _one_detail("train.optim_args", OptimArgs),
    "group_by_length": to("train.train_sampling_strategy", either("group_by_length", "random")),
    "save_total_limit": _save_total_limit,
    "report_to": report_to,
    "run_name": to("run.name", lambda value: name_from(text(value))),
    "launcher.*": launched,
}  # fmt: skip

TRAINER: dict[str, Rule] = {
    **CARRIED,
    **carries("eval", generate="predict_with_generate"),
    **when(GENERATES, to("eval.generate_max_new_tokens", above_zero, "there with the prompt"), "generation_max_length"),
    **drops(REENTRANT, "gradient_checkpointing_kwargs gradient_checkpointing_kwargs.*"
            " activation_checkpointing_kwargs activation_checkpointing_kwargs.*"),
    **drops(OWN_FOLDER,
            "output_dir overwrite_output_dir logging_dir project trackio_space_id trackio_bucket_id"
            " trackio_static_space_id"),
    **drops("`ftui --run` trains, evaluates and resumes by itself; `ftui resume` names a checkpoint",
            "do_train do_eval do_predict resume_from_checkpoint ignore_data_skip"
            " restore_callback_states_from_checkpoint auto_find_batch_size enable_jit_checkpoint"),
    **push_rules(by_name=False),
    **drops(OTHER_WAY, "hub_strategy hub_always_push hub_revision push_to_hub_organization"),
    **drops(LOADER, "dataloader_num_workers dataloader_pin_memory dataloader_persistent_workers"
                    " dataloader_prefetch_factor dataloader_multiprocessing_context dataloader_in_order"
                    " remove_unused_columns length_column_name label_names"),
    **drops("the last rows of an epoch are always trained on", "dataloader_drop_last", matters=True),
    **drops(LAUNCH, "local_rank ddp_backend ddp_timeout ddp_find_unused_parameters ddp_bucket_cap_mb"
                    " ddp_broadcast_buffers ddp_static_graph accelerator_config accelerator_config.* mp_parameters"
                    " parallelism_config parallelism_config.* split_batches ray_scope use_mps_device tpu_num_cores"
                    " nnodes node_rank master_addr master_port config_file include hostfile tpu_metrics_debug"
                    " xpu_backend average_tokens_across_devices"),
    **TRAINER_SHARDING,
    **drops(SAID, "launcher.deepspeed_config_file.*"),
    **zero_rules("launcher.deepspeed_config_file.zero_optimization."),
    **drops(LOGS, "logging_strategy logging_first_step logging_nan_inf_filter log_level log_level_replica"
                  " log_on_each_node disable_tqdm include_num_input_tokens_seen include_tokens_per_second"
                  " skip_memory_metrics debug"),
    **drops("checkpoints are safetensors, and can be resumed always",
            "save_safetensors save_only_model save_on_each_node"),
    **drops("evaluation measures the loss only", "prediction_loss_only eval_accumulation_steps include_for_metrics"
            " include_inputs_for_metrics batch_eval_metrics eval_do_concat_batches eval_use_gather_object"
            " sortish_sampler use_cache"),
    **drops("answers are the likeliest tokens", "generation_num_beams generation_config generation_config.*"),
    **drops("not built", "optim_target_modules liger_kernel_config liger_kernel_config.*", matters=True),
    **drops("left to torch", "torch_compile_backend torch_compile_mode torch_empty_cache_steps jit_mode_eval use_ipex"
            " torchdynamo fp16_backend fp16_opt_level half_precision_backend bf16_full_eval fp16_full_eval past_index"
            " fp16_eval dispatch_batches"),
}  # fmt: skip


def suppose_trainer(draft: ProfileDraft, **others: Any) -> None:
    """What transformers does where nothing is said, as far as it changes the result or how much memory it takes.

    Figures of TrainingArguments in transformers 5.24 (a test compares).

    Args:
        others: values of a tool that has other ones, such as learning_rate.
    """
    figures = {
        "num_train_epochs": 3.0,
        "per_device_train_batch_size": 8,
        "gradient_accumulation_steps": 1,
        "learning_rate": 5e-5,
        "lr_scheduler_type": "linear",
        "warmup_steps": 0,
        "optim": "adamw_torch_fused",
        "weight_decay": 0.0,
        "activation_checkpointing": False,
        "precision": "fp32",
        "seed": 42,
    }
    logging_steps = draft.values.get(("log", "logging_steps"), others.pop("logging_steps", 500))
    figures |= others
    if draft.given("train.max_steps") is not None:
        del figures["num_train_epochs"]
    draft.suppose_all("train", **figures)
    if evaluates(draft):
        draft.suppose_all("eval", eval_strategy="no", load_best_model_at_end=False)
        if draft.given("eval.eval_strategy") == "steps":
            draft.suppose("eval.eval_steps", logging_steps, f"{draft.tool} takes logging_steps")


def evaluates(draft: ProfileDraft) -> bool:
    """Whether the profile has rows to evaluate on."""
    return any(("data", name) in draft.values for name in ("eval", "eval_fraction", "eval_num_rows"))
