"""What the keys about training, evaluating, saving and hardware must agree on."""

from collections.abc import Iterator

from ftui.profile.checks.known_values import Contradiction, KnownValues, contradiction
from ftui.profile.sections.optimizers import FROM_BITSANDBYTES
from ftui.profile.sections.optimizers import TAKES as OPTIM_TAKES
from ftui.profile.sections.schedulers import HAVE_LOWEST, LR_END, PLATEAU, explicit_values
from ftui.profile.sections.schedulers import TAKES as SCHEDULER_TAKES

EVAL_ROWS = ("data.eval", "data.eval_fraction", "data.eval_num_rows")
GIVE_ROWS = "give data.eval, data.eval_fraction or data.eval_num_rows"


def _one_end(facts: KnownValues) -> Iterator[Contradiction]:
    if facts("train.max_steps") is not None and facts("train.num_train_epochs") is not None:
        keys = "train.max_steps train.num_train_epochs"
        yield contradiction(keys, "give one of max_steps and num_train_epochs", "Leave the other out.")


def _curriculum(facts: KnownValues) -> Iterator[Contradiction]:
    stages = facts("curriculum")
    if stages and facts.is_known("train.num_train_epochs") and facts("train.num_train_epochs") is not None:
        why = "each stage of the curriculum has num_train_epochs of its own"
        yield contradiction("curriculum train.num_train_epochs", why, "Leave train.num_train_epochs out.")
    if facts.is_known("run.stage") and facts("run.stage") == "pretrain":
        for number, stage in enumerate(stages):
            if stage.sort_by == "target_share":
                why = 'run.stage = "pretrain" trains on every token, so all rows have the same trained share'
                yield contradiction(f"curriculum.{number}.sort_by run.stage", why, 'Set sort_by to "length" or "loss".')


def _scheduler_takes(facts: KnownValues) -> Iterator[Contradiction]:
    kind, here = facts("train.lr_scheduler_type"), "train.lr_scheduler_kwargs"
    takes = SCHEDULER_TAKES[kind]
    for name in explicit_values(facts(here)):
        if name not in takes:
            why = f'lr_scheduler_kwargs.{name} is not for lr_scheduler_type = "{kind}"'
            why += f", which takes {', '.join(takes) or 'nothing'}"
            having = [other for other, takes in SCHEDULER_TAKES.items() if name in takes]
            near = next((other for other in having if other.startswith(kind)), having[0])
            fix = f'Leave {name} out, or set lr_scheduler_type = "{near}".'
            yield contradiction(f"{here}.{name} train.lr_scheduler_type", why, fix)


def _scheduler_needs(facts: KnownValues) -> Iterator[Contradiction]:
    kind, here = facts("train.lr_scheduler_type"), "train.lr_scheduler_kwargs"
    found = explicit_values(facts(here))
    lowest = found.keys() & {"min_lr", "min_lr_rate"}
    if kind in HAVE_LOWEST and len(lowest) != 1 and _are_known(facts, f"{here}.min_lr", f"{here}.min_lr_rate"):
        why = f'lr_scheduler_type = "{kind}" needs one of lr_scheduler_kwargs.min_lr and min_lr_rate'
        keys = "train.lr_scheduler_type", *(f"{here}.{name}" for name in sorted(lowest))
        yield contradiction(" ".join(keys), why, "lr_scheduler_kwargs = { min_lr_rate = 0.1 } is usual.")
    if kind == "warmup_stable_decay" and "num_decay_steps" not in found and facts.is_known(f"{here}.num_decay_steps"):
        why = f'lr_scheduler_type = "{kind}" needs lr_scheduler_kwargs.num_decay_steps'
        yield contradiction("train.lr_scheduler_type", why, "A tenth of all steps is usual.")


def _scheduler_falls(facts: KnownValues) -> Iterator[Contradiction]:
    kind, here = facts("train.lr_scheduler_type"), "train.lr_scheduler_kwargs"
    highest, found = facts("train.learning_rate"), explicit_values(facts(here))
    for name in ("min_lr", "lr_end"):
        lowest = found.get(name, LR_END if name == "lr_end" and kind == "polynomial" else 0.0)
        assert isinstance(lowest, int | float)
        if lowest and lowest >= highest and facts.is_known(f"{here}.{name}"):
            why = f"lr_scheduler_kwargs.{name} = {lowest:g} must be less than learning_rate = {highest:g}"
            yield contradiction(f"{here}.{name} train.learning_rate", why, f"Set {name} to a tenth of learning_rate.")


def _optimizer(facts: KnownValues) -> Iterator[Contradiction]:
    optim, here = facts("train.optim"), "train.optim_args"
    found, takes = explicit_values(facts(here)), OPTIM_TAKES.get(facts("train.optim"), ())
    foreign = [name for name in found if name not in takes]
    for name in foreign:
        why = f'optim_args.{name} is not for optim = "{optim}", which takes {", ".join(takes) or "nothing"}'
        yield contradiction(f"{here}.{name} train.optim", why, f"Leave {name} out.")
    if foreign or not _are_known(facts, *(f"{here}.{name}" for name in takes)):
        return
    momentum = f"Set {here}.momentum = 0.9."
    if found.get("nesterov") and (not found.get("momentum") or found.get("dampening")):
        why = "optim_args.nesterov needs a momentum, and no dampening"
        yield contradiction(f"{here}.nesterov {here}.momentum", why, momentum)
    elif found.get("dampening") and not found.get("momentum"):
        yield contradiction(f"{here}.dampening {here}.momentum", "optim_args.dampening needs a momentum", momentum)
    alpha = found.get("alpha") or 0
    if optim == "rmsprop" and isinstance(alpha, int | float) and alpha >= 1:
        why = f"optim_args.alpha of rmsprop is below 1, not {alpha:g}"
        yield contradiction(f"{here}.alpha train.optim", why, "0.99 is usual.")


def _checkpointed(facts: KnownValues) -> Iterator[Contradiction]:
    here = "train.activation_checkpointing"
    if facts(f"{here}_kwargs") is not None and not facts(here):
        why = "activation_checkpointing_kwargs needs activation_checkpointing = true"
        yield contradiction(f"{here}_kwargs {here}", why, "Or leave the table out.")


def _wants_evaluations(facts: KnownValues) -> Iterator[Contradiction]:
    """What asks for evaluations that will not be."""
    wanting = []
    if facts.is_known("train.lr_scheduler_type") and facts("train.lr_scheduler_type") == PLATEAU:
        wanting.append(("train.lr_scheduler_type", f'train.lr_scheduler_type = "{PLATEAU}"'))
    if facts.is_known("eval.early_stopping_patience") and facts("eval.early_stopping_patience") is not None:
        wanting.append(("eval.early_stopping_patience", "eval.early_stopping_patience"))
    if facts.is_known("checkpoint.save_strategy") and facts("checkpoint.save_strategy") == "best":
        wanting.append(("checkpoint.save_strategy", 'checkpoint.save_strategy = "best"'))
    has_rows = any(facts(dotted) is not None for dotted in EVAL_ROWS)
    strategy = facts("eval.eval_strategy")
    for key, words in wanting:
        if not has_rows:
            yield contradiction(f"{key} data.eval", f"{words} needs evaluations: {GIVE_ROWS}", "Or leave it out.")
        elif strategy == "no":
            why = f'{words} needs evaluations: set eval.eval_strategy to "steps" or "epoch"'
            yield contradiction(f"{key} eval.eval_strategy", why, "Or leave it out.")


def _best_needs_evaluations(facts: KnownValues) -> Iterator[Contradiction]:
    """By default the best weights are taken where they are known; who asks for them is told where they cannot be."""
    here = "eval.load_best_model_at_end"
    if not facts(here) or not facts.is_wished(here) or any(facts(dotted) is not None for dotted in EVAL_ROWS):
        return
    why = f"load_best_model_at_end = true needs evaluations: {GIVE_ROWS}"
    yield contradiction(f"{here} data.eval", why, "Or leave it out: then final/ holds the last weights.")


def _less_is_better(facts: KnownValues) -> Iterator[Contradiction]:
    if facts("eval.greater_is_better"):
        why = f"metric_for_best_model = {facts('eval.metric_for_best_model')!r} is better when it is less"
        yield contradiction("eval.greater_is_better eval.metric_for_best_model", why, "Leave greater_is_better out.")


def _on_mps(facts: KnownValues) -> Iterator[Contradiction]:
    """bitsandbytes keeps 8-bit moments, paged memory and 4-bit weights on NVIDIA GPUs and on CPUs."""
    if facts("hardware.device") != "mps":
        return
    if facts.is_known("train.optim") and facts("train.optim") in FROM_BITSANDBYTES:
        why = f'optim = "{facts("train.optim")}" comes from bitsandbytes, which has none for hardware.device = "mps"'
        yield contradiction("train.optim hardware.device", why, 'Set optim = "adamw_torch" there.')
    if facts.is_known("adapter.method") and facts("adapter.method") == "qlora":
        why = 'method = "qlora" holds the base with bitsandbytes, which cannot on hardware.device = "mps"'
        yield contradiction("adapter.method hardware.device", why, 'Set method = "lora".')
    if facts.is_known("adapter.load_in_8bit") and facts("adapter.load_in_8bit"):
        why = 'load_in_8bit holds the base with bitsandbytes, which cannot on hardware.device = "mps"'
        yield contradiction("adapter.load_in_8bit hardware.device", why, "Leave load_in_8bit out.")


def _flash_attention(facts: KnownValues) -> Iterator[Contradiction]:
    """The kernel is there for 16 bits on NVIDIA GPUs only; packed rows would not be kept apart without it."""
    here = "model.attn_implementation"
    if facts(here) != "flash_attention_2":
        return
    packed = ", so that packed rows would see each other" if facts("data.packing") else ""
    other = 'Set attn_implementation = "auto" or "sdpa".'
    if (device := facts("hardware.device")) in ("cpu", "mps"):
        why = f'flash_attention_2 does not work on hardware.device = "{device}"{packed}'
        yield contradiction(f"{here} hardware.device", why, other)
    if facts("train.precision") == "fp32":
        why = f'flash_attention_2 does not work with train.precision = "fp32"{packed}'
        yield contradiction(f"{here} train.precision", why, other)


def _are_known(facts: KnownValues, *dotted: str) -> bool:
    return all(map(facts.is_known, dotted))


CHECKS = (
    _one_end, _curriculum, _scheduler_takes, _scheduler_needs, _scheduler_falls, _optimizer, _checkpointed,
    _wants_evaluations, _best_needs_evaluations, _less_is_better, _on_mps, _flash_attention,
)  # fmt: skip
