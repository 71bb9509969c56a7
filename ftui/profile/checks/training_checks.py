"""What the keys about training, evaluating, saving and hardware must agree on."""

from collections.abc import Iterator

from ftui.measures import MEASURES, TEXT_MEASURES
from ftui.profile.checks.known_values import EVAL_ROWS, KnownValues, contradiction
from ftui.profile.origins import ProfileFault
from ftui.profile.sections.optimizers import FROM_BITSANDBYTES
from ftui.profile.sections.optimizers import TAKES as OPTIM_TAKES
from ftui.profile.sections.sampled_stages import POLICY_STAGES
from ftui.profile.sections.schedulers import HAVE_LOWEST, LR_END, PLATEAU, explicit_values
from ftui.profile.sections.schedulers import TAKES as SCHEDULER_TAKES

UNSHARDED = {
    "adapter.use_dora": "DoRA reads the frozen weights outside the layers' own computation",
    "adapter.load_in_8bit": "a base in 8 bits cannot be divided; qlora stores it in 4",
    "adapter.bias": "biases of the base that are trained would be divided with it",
    "adapter.modules_to_save": "modules that are trained whole would be divided with the base",
    "model.extra_special_tokens": "embeddings of new tokens would be divided with the base",
    "model.trust_remote_code": "code that comes with a model may read weights that this process has not",
    "train.activation_offload": "what a layer stores would take its gathered weights with it",
    "train.torch_compile": "compiled layers with divided weights are not tried yet",
    "train.use_liger_kernel": "Liger's kernels with divided weights are not tried yet",
}
"""Keys of adapters that do not work with hardware.shard, and why."""

GIVE_ROWS = "give data.eval, data.eval_fraction or data.eval_num_rows"


def _one_end(values: KnownValues) -> Iterator[ProfileFault]:
    if values("train.max_steps") is not None and values("train.num_train_epochs") is not None:
        keys = "train.max_steps train.num_train_epochs"
        yield contradiction(keys, "give one of max_steps and num_train_epochs", "Leave the other out.")


def _curriculum(values: KnownValues) -> Iterator[ProfileFault]:
    stages = values("curriculum")
    if stages and values.is_known("train.num_train_epochs") and values("train.num_train_epochs") is not None:
        why = "each stage of the curriculum has num_train_epochs of its own"
        yield contradiction("curriculum train.num_train_epochs", why, "Leave train.num_train_epochs out.")
    if values.is_known("run.stage") and values("run.stage") == "pretrain":
        for number, stage in enumerate(stages):
            if stage.sort_by == "target_share":
                why = 'run.stage = "pretrain" trains on every token, so all rows have the same trained share'
                yield contradiction(f"curriculum.{number}.sort_by run.stage", why, 'Set sort_by to "length" or "loss".')


def _scheduler_takes(values: KnownValues) -> Iterator[ProfileFault]:
    kind, here = values("train.lr_scheduler_type"), "train.lr_scheduler_kwargs"
    takes = SCHEDULER_TAKES[kind]
    for name in explicit_values(values(here)):
        if name not in takes:
            why = f'lr_scheduler_kwargs.{name} is not for lr_scheduler_type = "{kind}"'
            why += f", which takes {', '.join(takes) or 'nothing'}"
            having = [other for other, takes in SCHEDULER_TAKES.items() if name in takes]
            near = next((other for other in having if other.startswith(kind)), having[0])
            fix = f'Leave {name} out, or set lr_scheduler_type = "{near}".'
            yield contradiction(f"{here}.{name} train.lr_scheduler_type", why, fix)


def _scheduler_needs(values: KnownValues) -> Iterator[ProfileFault]:
    kind, here = values("train.lr_scheduler_type"), "train.lr_scheduler_kwargs"
    options = explicit_values(values(here))
    lowest = options.keys() & {"min_lr", "min_lr_rate"}
    if kind in HAVE_LOWEST and len(lowest) != 1 and _are_known(values, f"{here}.min_lr", f"{here}.min_lr_rate"):
        why = f'lr_scheduler_type = "{kind}" needs one of lr_scheduler_kwargs.min_lr and min_lr_rate'
        keys = "train.lr_scheduler_type", *(f"{here}.{name}" for name in sorted(lowest))
        yield contradiction(" ".join(keys), why, "lr_scheduler_kwargs = { min_lr_rate = 0.1 } is usual.")
    if (
        kind == "warmup_stable_decay"
        and "num_decay_steps" not in options
        and values.is_known(f"{here}.num_decay_steps")
    ):
        why = f'lr_scheduler_type = "{kind}" needs lr_scheduler_kwargs.num_decay_steps'
        yield contradiction("train.lr_scheduler_type", why, "A tenth of all steps is usual.")


def _scheduler_falls(values: KnownValues) -> Iterator[ProfileFault]:
    kind, here = values("train.lr_scheduler_type"), "train.lr_scheduler_kwargs"
    highest, options = values("train.learning_rate"), explicit_values(values(here))
    for name in ("min_lr", "lr_end"):
        lowest = options.get(name, LR_END if name == "lr_end" and kind == "polynomial" else 0.0)
        assert isinstance(lowest, int | float)
        if lowest and lowest >= highest and values.is_known(f"{here}.{name}"):
            why = f"lr_scheduler_kwargs.{name} = {lowest:g} must be less than learning_rate = {highest:g}"
            yield contradiction(f"{here}.{name} train.learning_rate", why, f"Set {name} to a tenth of learning_rate.")


def _optimizer(values: KnownValues) -> Iterator[ProfileFault]:
    optim, here = values("train.optim"), "train.optim_args"
    options, takes = explicit_values(values(here)), OPTIM_TAKES.get(values("train.optim"), ())
    foreign = [name for name in options if name not in takes]
    for name in foreign:
        why = f'optim_args.{name} is not for optim = "{optim}", which takes {", ".join(takes) or "nothing"}'
        yield contradiction(f"{here}.{name} train.optim", why, f"Leave {name} out.")
    if foreign or not _are_known(values, *(f"{here}.{name}" for name in takes)):
        return
    momentum = f"Set {here}.momentum = 0.9."
    if options.get("nesterov") and (not options.get("momentum") or options.get("dampening")):
        why = "optim_args.nesterov needs a momentum, and no dampening"
        yield contradiction(f"{here}.nesterov {here}.momentum", why, momentum)
    elif options.get("dampening") and not options.get("momentum"):
        yield contradiction(f"{here}.dampening {here}.momentum", "optim_args.dampening needs a momentum", momentum)
    alpha = options.get("alpha") or 0
    if optim == "rmsprop" and isinstance(alpha, int | float) and alpha >= 1:
        why = f"optim_args.alpha of rmsprop is below 1, not {alpha:g}"
        yield contradiction(f"{here}.alpha train.optim", why, "0.99 is usual.")


def _checkpointed(values: KnownValues) -> Iterator[ProfileFault]:
    here = "train.activation_checkpointing"
    if values(f"{here}_kwargs") is not None and not values(here):
        why = "activation_checkpointing_kwargs needs activation_checkpointing = true"
        yield contradiction(f"{here}_kwargs {here}", why, "Or leave the table out.")
    details = values(f"{here}_kwargs")
    if details is not None and details.num_layers is not None and details.every_n_layers != 1:
        why = "every_n_layers and num_layers both say which layers are recomputed"
        yield contradiction(f"{here}_kwargs.num_layers {here}_kwargs.every_n_layers", why, "Leave one of them out.")


def _wants_evaluations(values: KnownValues) -> Iterator[ProfileFault]:
    """What asks for evaluations that will not be."""
    wanting = []
    if values.is_known("train.lr_scheduler_type") and values("train.lr_scheduler_type") == PLATEAU:
        wanting.append(("train.lr_scheduler_type", f'train.lr_scheduler_type = "{PLATEAU}"'))
    if values.is_known("eval.early_stopping_patience") and values("eval.early_stopping_patience") is not None:
        wanting.append(("eval.early_stopping_patience", "eval.early_stopping_patience"))
    if values.is_known("checkpoint.save_strategy") and values("checkpoint.save_strategy") == "best":
        wanting.append(("checkpoint.save_strategy", 'checkpoint.save_strategy = "best"'))
    has_rows = any(values(dotted) is not None for dotted in EVAL_ROWS)
    strategy = values("eval.eval_strategy")
    for key, words in wanting:
        if not has_rows:
            yield contradiction(f"{key} data.eval", f"{words} needs evaluations: {GIVE_ROWS}", "Or leave it out.")
        elif strategy == "no":
            why = f'{words} needs evaluations: set eval.eval_strategy to "steps" or "epoch"'
            yield contradiction(f"{key} eval.eval_strategy", why, "Or leave it out.")


def _best_needs_evaluations(values: KnownValues) -> Iterator[ProfileFault]:
    """By default the best weights are taken where they are known; who asks for them is told where they cannot be."""
    here = "eval.load_best_model_at_end"
    if not values(here) or not values.is_wished(here) or any(values(dotted) is not None for dotted in EVAL_ROWS):
        return
    why = f"load_best_model_at_end = true needs evaluations: {GIVE_ROWS}"
    yield contradiction(f"{here} data.eval", why, "Or leave it out: then final/ holds the last weights.")


def _metric(values: KnownValues) -> Iterator[ProfileFault]:
    name, wish = values("eval.metric_for_best_model"), values("eval.greater_is_better")
    samples = values.is_known("run.stage") and values("run.stage") in POLICY_STAGES
    measure = MEASURES["reward" if name == "loss" and samples else name]
    if wish is not None and wish != measure.greater_is_better:
        why = f"metric_for_best_model = {name!r} is better when it is {'less' if wish else 'greater'}"
        yield contradiction("eval.greater_is_better eval.metric_for_best_model", why, "Leave greater_is_better out.")
    if (stage := values("run.stage")) not in measure.stages:
        why = f"stage {stage} does not measure metric_for_best_model = {name!r}"
        there_are = ", ".join(other for other, own in MEASURES.items() if own.chooses and stage in own.stages)
        yield contradiction("eval.metric_for_best_model run.stage", why, f"It has {there_are}.")
    elif name in TEXT_MEASURES and not values("eval.generate"):
        why = f"metric_for_best_model = {name!r} is measured of answers"
        yield contradiction("eval.metric_for_best_model eval.generate", why, "Set generate = true.")


def _generates(values: KnownValues) -> Iterator[ProfileFault]:
    """Answers are compared with those of evaluation rows, which follow a prompt."""
    if not values("eval.generate"):
        return
    if (stage := values("run.stage")) != "sft":
        why = f"generate = true compares answers with those of rows, and stage {stage} does not train on these"
        yield contradiction("eval.generate run.stage", why, "Leave generate out; sample_prompts are answered.")
    elif not any(values(dotted) is not None for dotted in EVAL_ROWS):
        why = f"generate = true needs evaluations: {GIVE_ROWS}"
        yield contradiction("eval.generate data.eval", why, "Or leave it out.")
    elif values("data.loss_on") == "everything":
        why = "generate = true needs to know where an answer begins, and loss_on = 'everything' marks no answers"
        yield contradiction("eval.generate data.loss_on", why, "Leave one of them out.")


def _on_mps(values: KnownValues) -> Iterator[ProfileFault]:
    """bitsandbytes keeps 8-bit moments, paged memory and 4-bit weights on NVIDIA GPUs and on CPUs."""
    if values("hardware.device") != "mps":
        return
    if values.is_known("train.optim") and values("train.optim") in FROM_BITSANDBYTES:
        why = (
            f'optim = "{values("train.optim")}" comes from bitsandbytes, which does not support hardware.device = "mps"'
        )
        yield contradiction("train.optim hardware.device", why, 'Set optim = "adamw_torch" there.')
    if values.is_known("adapter.method") and values("adapter.method") == "qlora":
        why = 'method = "qlora" needs bitsandbytes, which does not support hardware.device = "mps"'
        yield contradiction("adapter.method hardware.device", why, 'Set method = "lora".')
    if values.is_known("adapter.load_in_8bit") and values("adapter.load_in_8bit"):
        why = 'load_in_8bit needs bitsandbytes, which does not support hardware.device = "mps"'
        yield contradiction("adapter.load_in_8bit hardware.device", why, "Leave load_in_8bit out.")


def _nodes(values: KnownValues) -> Iterator[ProfileFault]:
    """Each node has as many processes; how many nodes a launcher has started is compared as the run starts."""
    if not (values.is_known("hardware.nodes") and values.is_known("hardware.num_processes")):
        return
    nodes, number = values("hardware.nodes") or 1, values("hardware.num_processes")
    if number % nodes:
        why = f"num_processes = {number} cannot be shared by nodes = {nodes}"
        fix = f"num_processes counts all nodes together: {nodes} x the GPUs of one."
        yield contradiction("hardware.num_processes hardware.nodes", why, fix)


def _sharding(values: KnownValues) -> Iterator[ProfileFault]:
    """What hardware.shard cannot do yet. What it takes the model to know is refused by engine/check_profile.py."""
    here = "hardware.shard"
    shard, whole = values(here), 'Or set shard = "none".'
    yield from _shard_groups(values)
    if shard == "none":
        return
    if values.is_known("hardware.num_processes") and values("hardware.num_processes") == 1:
        why = f'shard = "{shard}" divides the model among processes: set num_processes to 2 or more'
        yield contradiction(f"{here} hardware.num_processes", why, whole)
    if values.is_known("hardware.device") and values("hardware.device") == "mps":
        yield contradiction(f"{here} hardware.device", 'device = "mps" is one device, for one process', whole)
    method = values("adapter.method")
    if method == "freeze":
        why = f'shard = "{shard}" is built for method = "lora", "qlora" and "full", not for "{method}"'
        yield contradiction(f"{here} adapter.method", why, whole)
    if method == "full":
        yield from _sharded_training(values, shard, whole)
    elif shard == "state":
        why = 'shard = "state" is for full fine-tuning: the optimizer state of an adapter is small'
        yield contradiction(f"{here} adapter.method", why, 'Set shard = "all", which divides the frozen base.')
    for key, why in UNSHARDED.items():
        if values.is_known(key) and values(key) not in (None, False, (), "none"):
            yield contradiction(
                f"{here} {key}", f"shard and {key.partition('.')[2]}: {why}", f"Leave {key} out. {whole}"
            )


def _shard_groups(values: KnownValues) -> Iterator[ProfileFault]:
    """Whether the processes can be divided into groups of that size, if they share anything."""
    here = "hardware.dp_shard_size"
    if not values.is_known(here) or (size := values(here)) is None:
        return
    if values("hardware.shard") == "none":
        why = f'dp_shard_size = {size} and shard = "none": each process has all of it'
        yield contradiction(f"{here} hardware.shard", why, 'Set shard = "all", or leave dp_shard_size out.')
    if values.is_known("hardware.num_processes") and (number := values("hardware.num_processes")) % size:
        why = f"num_processes = {number} cannot be divided into groups of dp_shard_size = {size}"
        yield contradiction(f"{here} hardware.num_processes", why, "Leave dp_shard_size out: all share one model.")


def _sharded_training(values: KnownValues, shard: object, whole: str) -> Iterator[ProfileFault]:
    """What trained weights that are divided do not go with."""
    here = "hardware.shard"
    optim = values("train.optim")
    if optim in FROM_BITSANDBYTES or optim == "adafactor":
        why = f'shard = "{shard}" and optim = "{optim}": it is built for whole weights only'
        yield contradiction(f"{here} train.optim", why, f'"adamw_torch_fused" goes with it. {whole}')
    if values.is_known("hardware.offload") and "state" in values("hardware.offload"):
        why = 'offload = "state" and shard: moments that are divided are not moved yet'
        yield contradiction(f"{here} hardware.offload", why, f"Leave one of them out. {whole}")
    if values.is_known("run.stage") and values("run.stage") == "rm":
        why = f'shard = "{shard}" and stage = "rm": the new head of a reward model cannot be divided yet'
        yield contradiction(f"{here} run.stage", why, whole)
    if values.is_known("model.from_scratch") and values("model.from_scratch") is not None:
        why = f'shard = "{shard}" reads each process\'s part from files, and a model from scratch has none'
        yield contradiction(f"{here} model.from_scratch", why, whole)


def _flash_attention(values: KnownValues) -> Iterator[ProfileFault]:
    """The kernel is there for 16 bits on NVIDIA GPUs only; packed rows would not be kept apart without it."""
    here = "model.attn_implementation"
    if values(here) != "flash_attention_2":
        return
    packed = "; packed rows would then attend to each other" if values("data.packing") else ""
    other = 'Set attn_implementation = "auto" or "sdpa".'
    if (device := values("hardware.device")) in ("cpu", "mps"):
        why = f'flash_attention_2 does not work on hardware.device = "{device}"{packed}'
        yield contradiction(f"{here} hardware.device", why, other)
    if values("train.precision") == "fp32":
        why = f'flash_attention_2 does not work with train.precision = "fp32"{packed}'
        yield contradiction(f"{here} train.precision", why, other)


def _are_known(values: KnownValues, *dotted: str) -> bool:
    return all(map(values.is_known, dotted))


CHECKS = (
    _one_end, _curriculum, _scheduler_takes, _scheduler_needs, _scheduler_falls, _optimizer, _checkpointed,
    _wants_evaluations, _best_needs_evaluations, _metric, _generates, _on_mps, _nodes, _sharding, _flash_attention,
)  # fmt: skip
