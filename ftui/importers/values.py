"""Values of other tools' files as the profile writes them."""

import json
from collections.abc import Callable, Mapping
from typing import Any, get_args

from ftui.profile.aliases import OTHER_OPTIMIZERS, OTHER_SCHEDULERS
from ftui.profile.sections.evaluation import EvalSection
from ftui.profile.sections.optimizers import Optimizer
from ftui.profile.sections.schedulers import Scheduler

Convert = Callable[[Any], Any]
MEASURES = get_args(EvalSection.model_fields["metric_for_best_model"].annotation)


LARGEST = 1 << 62  # no key has a larger number, and TOML's integers and floats hold it


class Unfit(Exception):
    """A value that the profile has no place for. The text is the reason, as a part of a sentence; `ours` the key of the
    profile that would have said it."""

    def __init__(self, reason: str, ours: str = "") -> None:
        super().__init__(reason)
        self.ours = ours


def convert_for(ours: str, convert: Convert, value: Any) -> Any:
    """The value converted for a key of the profile.

    Raises:
        Unfit: it has no place there; the error names the key.
    """
    try:
        return convert(value)
    except Unfit as unfit:
        raise Unfit(str(unfit), ours) from unfit


def number(value: Any) -> float | int:
    """A number, also where it is written as a text."""
    if isinstance(value, str):
        try:
            value = float(value) if not value.strip().lstrip("+-").isdigit() else int(value)
        except ValueError as error:
            raise Unfit("not a number") from error
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Unfit("not a number")
    if not -LARGEST <= value <= LARGEST:
        raise Unfit("not a number" if value != value else "too large a number")
    return value


def real(value: Any) -> float:
    """A number as a float."""
    return float(number(value))


def whole(value: Any) -> int:
    """A whole number, also where it is written as `8.0`."""
    count = number(value)
    if count != int(count):
        raise Unfit("not a whole number")
    return int(count)


def wholes(value: Any) -> list[int]:
    """Whole numbers, of which one may stand alone."""
    return [whole(element) for element in (value if isinstance(value, list) else [value])]


def above_zero(value: Any) -> int:
    """A whole number of at least 1."""
    count = whole(value)
    if count < 1:
        raise Unfit("not above 0")
    return count


def period(value: Any) -> float | int:
    """Steps between two things: a whole number, or below 1 a share of all."""
    steps = number(value)
    if steps <= 0:
        raise Unfit("not above 0")
    return int(steps) if steps >= 1 and steps == int(steps) else steps


def steps_between_logs(value: Any) -> int:
    """A number of steps; a share of all is unfit."""
    if (steps := period(value)) < 1:
        raise Unfit("a share of all steps; a number of steps is needed here")
    return whole(steps)


def steps_between_saves(value: Any) -> float | int | str:
    """A period, or `none`."""
    return "none" if number(value) <= 0 else period(value)


def share_or_steps(value: Any) -> float | int:
    """Steps of warmup: below 1 a share of all, else a whole number."""
    steps = number(value)
    return float(steps) if 0 < steps < 1 else whole(steps)


def seed(value: Any) -> int:
    """A whole number that is not below 0."""
    if (start := whole(value)) < 0:
        raise Unfit("a seed is not below 0")
    return start


def norm_limit(value: Any) -> float | str:
    """The norm that gradients are clipped to; `none` where it is not above 0, as in transformers."""
    return real(value) if number(value) > 0 else "none"


def flag(value: Any) -> bool:
    """true or false, also as the words and numbers that argument parsers take for them."""
    if isinstance(value, bool):
        return value
    word = str(value).strip().lower()
    if word in ("true", "yes", "y", "t", "1", "on"):
        return True
    if word in ("false", "no", "n", "f", "0", "off", "none", "null", ""):
        return False
    raise Unfit("neither true nor false")


def is_on(value: Any) -> bool:
    """Whether a key that may be absent, or hold more than a flag, turns something on."""
    try:
        return flag(value)
    except Unfit:
        return True


def either(on: Any, off: Any) -> Convert:
    """Translate a flag."""
    return lambda value: on if flag(value) else off


def text(value: Any) -> str:
    """A scalar as it is written."""
    if isinstance(value, bool | list | dict) or value is None:
        raise Unfit("not a text")
    return str(value)


def reals(value: Any) -> list[float]:
    """Numbers as floats, of which one may stand alone."""
    return [real(element) for element in (value if isinstance(value, list) else [value])]


def texts(value: Any) -> list[str]:
    """A list, or one text with commas."""
    each = value if isinstance(value, list) else text(value).split(",")
    return [part for element in each if (part := text(element).strip())]


def targets(value: Any) -> Any:
    """Names of layers; `all` and its kin are `all-linear`."""
    names = texts(value)
    return "all-linear" if [name.lower() for name in names] in (["all"], ["all-linear"], ["all_linear"]) else names


OTHER_MEASURES = {"rougeL": "rouge_l", "rouge-l": "rouge_l", "bleu-4": "bleu", "f1": "token_f1"}


def measure(value: Any) -> str:
    """The measure that chooses the best checkpoint."""
    name = text(value).removeprefix("eval_")
    if found := next((one for one in (name, OTHER_MEASURES.get(name)) if one in MEASURES), None):
        return found
    raise Unfit(f"there is no such measure; there are {', '.join(MEASURES)}")


def word(value: Any) -> str:
    """A name such as `No` or `Cosine`; YAML 1.1 reads `no` as false."""
    return {False: "no", True: "true"}[value] if isinstance(value, bool) else text(value).strip().lower()


def word_or(value: Any, usual: str) -> str:
    """The word of another key that decides how this one is read; what is no word is reported at that key."""
    return usual if value is None or isinstance(value, list | dict) or not str(value).strip() else word(value)


def one_of(names: Mapping[str, Any], what: str) -> Convert:
    """Translate a name; another one is unfit."""

    def convert(value: Any) -> Any:
        name = word(value)
        if name not in names:
            raise Unfit(f"ftui has no such {what}")
        return names[name]

    return convert


def details(value: Any) -> dict[str, Any]:
    """Details written as one text: JSON, or `a=1,b=2`."""
    written = text(value).strip()
    try:
        pairs = json.loads(written) if written.startswith("{") else dict(x.split("=") for x in written.split(","))
        return {str(name).strip(): _plain(element) for name, element in pairs.items()}
    except (ValueError, AttributeError) as error:
        raise Unfit("neither JSON nor name=value pairs") from error


def _plain(value: Any) -> Any:
    try:
        return number(value)
    except Unfit:
        return flag(value) if str(value).lower() in ("true", "false") else value


DTYPES = {"auto": "auto", "fp32": "float32", "bf16": "bfloat16", "fp16": "float16"} | {
    f"{prefix}{name}": name for prefix in ("", "torch.") for name in ("float32", "bfloat16", "float16")
}
ATTENTION = {name: name for name in ("auto", "eager", "sdpa", "flash_attention_2")} | {
    "kernels-community/flash-attn2": "flash_attention_2", "flash_attention": "flash_attention_2",
}  # fmt: skip
STRATEGIES = {"no": "no", "false": "no", "none": "no", "steps": "steps", "epoch": "epoch", "epochs": "epoch"}
SAMPLING = {name: name for name in ("random", "group_by_length", "sequential")}
_OPTIMIZERS = {name: name for name in get_args(Optimizer)} | OTHER_OPTIMIZERS
_SCHEDULERS = {name: name for name in get_args(Scheduler)} | OTHER_SCHEDULERS
optimizer = one_of(_OPTIMIZERS, "optimizer")
scheduler = one_of(_SCHEDULERS, "scheduler")

_BY_CONVERTER: tuple[tuple[Convert, str], ...] = (
    (flag, "model.trust_remote_code adapter.load_in_8bit adapter.bnb_4bit_use_double_quant adapter.use_dora"
           " adapter.use_rslora data.packing train.tf32 train.torch_compile train.use_liger_kernel"
           " train.full_determinism train.activation_checkpointing train.activation_offload eval.eval_on_start"
           " eval.greater_is_better eval.load_best_model_at_end eval.generate"),
    (above_zero, "adapter.r adapter.lora_alpha data.max_length train.per_device_train_batch_size train.max_steps"
                 " train.gradient_accumulation_steps eval.per_device_eval_batch_size eval.early_stopping_patience"
                 " eval.generate_max_new_tokens hardware.num_processes"),
    (wholes, "adapter.layers_to_transform"),
    (real, "adapter.lora_dropout data.eval_fraction train.num_train_epochs train.learning_rate train.weight_decay"
           " train.adam_beta1 train.adam_beta2 train.adam_epsilon train.label_smoothing_factor"
           " train.neftune_noise_alpha train.optim_args.momentum eval.eval_delay"),
    (period, "eval.eval_steps"),
    (steps_between_saves, "checkpoint.save_steps"),
    (steps_between_logs, "log.logging_steps"),
    (share_or_steps, "train.warmup_steps"),
    (seed, "train.seed train.data_seed"),
    (norm_limit, "train.max_grad_norm"),
    (text, "model.revision adapter.bnb_4bit_quant_type"),
    (word, "adapter.bias"),
    (texts, "model.extra_special_tokens adapter.modules_to_save"),
    (targets, "adapter.target_modules"),
    (lambda value: ",".join(texts(value)), "adapter.layers_pattern"),
    (lambda value: value, "adapter.init_lora_weights"),
    (measure, "eval.metric_for_best_model"),
    (one_of(DTYPES, "type"), "model.dtype adapter.bnb_4bit_compute_dtype"),
    (one_of(ATTENTION, "attention kernel"), "model.attn_implementation"),
    (optimizer, "train.optim"),
    (scheduler, "train.lr_scheduler_type"),
    (one_of(SAMPLING, "order of rows"), "train.train_sampling_strategy"),
    (one_of(STRATEGIES, "time to evaluate"), "eval.eval_strategy"),
    (one_of(STRATEGIES | {"best": "best"}, "time to save"), "checkpoint.save_strategy"),
)  # fmt: skip
CONVERTERS: dict[str, Convert] = {key: convert for convert, keys in _BY_CONVERTER for key in keys.split()}
"""How a value becomes that of a key of the profile, where a tool has no rule of its own for it."""
