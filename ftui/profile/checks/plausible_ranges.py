"""Where the values of a key lie in practice: the one table behind the warnings about a profile's numbers.

A range is wide: from outside it hardly anybody reports a success. docs/profile.md has the table with its sources.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ftui.profile.origins import Key, ProfileFault
from ftui.profile.schema import Profile
from ftui.profile.sections.preference import COMPARING_STAGES


@dataclass(frozen=True)
class PlausibleRange:
    """The range of a key's values.

    Attributes:
        number: what is compared, `None` where the key has no value or no effect.
        usual: what most people write, in words.
        case: what it holds for, in words; "" = whatever else the profile says.
        measure: what the number is, where it is not the key's own value.
    """

    key: str
    low: float
    high: float
    usual: str
    source: str
    number: Callable[[Profile], float | None]
    case: str = ""
    measure: str = ""

    @property
    def words(self) -> str:
        """`1e-06 to 0.01`."""
        return f"{self.low:g} to {self.high:g}"


RATE_OF_ADAMW = {
    "full": (1e-7, 1e-3, 1e-5, 5e-5),
    "lora": (1e-6, 1e-2, 1e-4, 5e-4),
    "from scratch": (1e-5, 1e-2, 3e-4, 3e-3),
    "full, compared": (1e-8, 1e-5, 5e-7, 1e-6),
    "lora, compared": (1e-7, 1e-4, 5e-6, 5e-5),
    "full, scored": (1e-7, 1e-4, 5e-6, 2e-5),
    "lora, scored": (1e-6, 1e-2, 1e-4, 3e-4),
}
"""Learning rates by what is trained: lowest and highest plausible, then the usual ones."""
RATE_SOURCES = {
    "full": "LIMA 1e-5 (arXiv 2305.11206), Alpaca 2e-5, transformers' default 5e-5; small models take more",
    "lora": "QLoRA 1e-4 to 2e-4 (arXiv 2305.14314), about ten times that of all weights; the tiny quickstart 4e-3",
    "from scratch": "GPT-3 6e-5 with 175B to 6e-4 with 125M parameters (arXiv 2005.14165); pretrain-tiny 3e-3",
    "full, compared": "DPO 1e-6 (arXiv 2305.18290, TRL's default), Zephyr 5e-7 (arXiv 2310.16944)",
    "lora, compared": "about ten times that of all weights: the alignment handbook's QLoRA 5e-6",
    "full, scored": "InstructGPT 9e-6 (arXiv 2203.02155), Llama 2 5e-6 to 1e-5 (arXiv 2307.09288)",
    "lora, scored": "TRL's default 1e-4",
}
LEARN_TO_ANSWER = {"orpo"}
"""Stages that compare answers and take the rates of `sft`: cross-entropy is most of their loss."""
TRAINED = {
    "full": "a model's own weights",
    "lora": "LoRA",
    "from scratch": "a new model",
    "full, compared": "a model's own weights in a stage that compares answers",
    "lora, compared": "LoRA in a stage that compares answers",
    "full, scored": "a reward model's own weights",
    "lora, scored": "LoRA of a reward model",
}
OPTIMIZERS = {
    "AdamW": (1.0, 1.0, ""),
    "Lion": (0.1, 0.1, "Lion takes 3 to 10 times less (arXiv 2302.06675)"),
    "Adafactor": (1.0, 10.0, "as AdamW, or more: T5 was fine-tuned with 1e-3 (arXiv 1910.10683)"),
    "Adagrad": (1.0, 100.0, "as AdamW, or more: torch's default is 1e-2"),
    "SGD": (100.0, 1000.0, "SGD scales no gradient, so that its rates are 0.01 to 1 (torch's examples)"),
}
"""What multiplies the lower and the upper end of the rates of AdamW, by kind of optimizer, and the source."""


def optimizer_kind(optim: str) -> str:
    """The kind of an optimizer in `OPTIMIZERS`: AdEMAMix and RMSprop take the rates of AdamW."""
    return next((kind for kind in OPTIMIZERS if kind.lower() in optim), "AdamW")


def trained_kind(profile: Profile) -> str:
    """What is trained, as in `RATE_OF_ADAMW`."""
    if profile.model.from_scratch is not None:
        return "from scratch"
    kind = "lora" if profile.adapter.is_lora else "full"
    if profile.gives_scores:
        return f"{kind}, scored"
    return f"{kind}, compared" if profile.run.stage in COMPARING_STAGES - LEARN_TO_ANSWER else kind


def _rate_range(trained: str, optimizer: str) -> PlausibleRange:
    low, high, *usual = RATE_OF_ADAMW[trained]
    times_low, times_high, source = OPTIMIZERS[optimizer]
    first, last = usual[0] * times_low, usual[1] * times_high

    def number(profile: Profile) -> float | None:
        is_meant = trained_kind(profile) == trained and optimizer_kind(profile.train.optim) == optimizer
        return profile.train.learning_rate if is_meant else None

    return PlausibleRange(
        "train.learning_rate", low * times_low, high * times_high, f"{first:g} to {last:g}",
        source or RATE_SOURCES[trained], number, f"{TRAINED[trained]} with {optimizer}",
    )  # fmt: skip


def _adapter_scale(profile: Profile) -> float | None:
    adapter = profile.adapter
    if not adapter.is_lora or adapter.name_or_path is not None:
        return None
    return adapter.lora_alpha / (math.sqrt(adapter.r) if adapter.use_rslora else adapter.r)


def _is_lion(profile: Profile) -> bool:
    return optimizer_kind(profile.train.optim) == "Lion"


def _compares(profile: Profile, stages: str) -> bool:
    return profile.run.stage in stages.split()


RANGES: tuple[PlausibleRange, ...] = (
    *(_rate_range(trained, optimizer) for trained in RATE_OF_ADAMW for optimizer in OPTIMIZERS),
    PlausibleRange(
        "train.weight_decay", 0, 0.5, "0 to 0.1", "torch's default 0.01; GPT-3 and Llama 0.1",
        lambda profile: None if _is_lion(profile) else profile.train.weight_decay, "optimizers other than Lion",
    ),
    PlausibleRange(
        "train.weight_decay", 0, 5, "0 to 1", "3 to 10 times that of AdamW (arXiv 2302.06675)",
        lambda profile: profile.train.weight_decay if _is_lion(profile) else None, "Lion",
    ),
    PlausibleRange(
        "train.warmup_steps", 0, 0.5, "0.03 to 0.1", "Alpaca 0.03",
        lambda profile: profile.train.warmup_steps if profile.train.warmup_steps < 1 else None, "a share of all steps",
    ),
    PlausibleRange(
        "train.num_train_epochs", 0, 100, "1 to 5", "instruction data 1 to 5; LIMA 15 over 1,000 rows",
        lambda profile: profile.train.num_train_epochs,
    ),
    PlausibleRange(
        "train.max_grad_norm", 0.01, 100, "0.3 to 1",
        "transformers' default 1; QLoRA 0.3", lambda profile: profile.train.max_grad_norm,
    ),
    PlausibleRange(
        "train.adam_beta1", 0.5, 0.99, "0.9", "Adam 0.9 (arXiv 1412.6980)", lambda profile: profile.train.adam_beta1
    ),
    PlausibleRange(
        "train.adam_beta2", 0.9, 0.99999, "0.95 to 0.999", "Adam 0.999; GPT-3 and Llama 0.95",
        lambda profile: profile.train.adam_beta2,
    ),
    PlausibleRange(
        "train.adam_epsilon", 1e-16, 1e-3, "1e-8 to 1e-5", "Adam 1e-8; Llama 2 1e-5 (arXiv 2307.09288)",
        lambda profile: profile.train.adam_epsilon,
    ),
    PlausibleRange(
        "train.label_smoothing_factor", 0, 0.3, "0 or 0.1", "0.1 in the Transformer's paper (arXiv 1706.03762)",
        lambda profile: profile.train.label_smoothing_factor,
    ),
    PlausibleRange(
        "train.neftune_noise_alpha", 0.1, 50, "5 to 15", "its paper tries 5, 10 and 15 (arXiv 2310.05914)",
        lambda profile: profile.train.neftune_noise_alpha,
    ),
    PlausibleRange(
        "adapter.r", 1, 512, "8 to 128", "\"LoRA Without Regret\" tries 1 to 512 (Thinking Machines 2025)",
        lambda profile: profile.adapter.r if profile.adapter.is_lora and not profile.adapter.name_or_path else None,
    ),
    PlausibleRange(
        "adapter.lora_alpha", 1 / 16, 32, "1 to 2", "QLoRA 16 / 64; one alpha of 32 for ranks from 1 to 512 "
        "(\"LoRA Without Regret\", Thinking Machines 2025)", _adapter_scale,
        measure="lora_alpha / r (with use_rslora: / sqrt(r))",
    ),
    PlausibleRange(
        "adapter.lora_dropout", 0, 0.3, "0 to 0.1", "QLoRA 0.05 to 0.1",
        lambda profile: profile.adapter.lora_dropout if profile.adapter.is_lora else None,
    ),
    PlausibleRange(
        "preference.beta", 0.001, 10, "0.01 to 0.5", "DPO 0.1 and 0.5 (arXiv 2305.18290), Zephyr 0.01 to 1, KTO 0.1",
        lambda profile: profile.preference.beta if _compares(profile, "dpo kto orpo cpo") else None,
        "stages other than simpo",
    ),
    PlausibleRange(
        "preference.beta", 0.01, 100, "2 to 10", "SimPO 2 to 10 (arXiv 2405.14734)",
        lambda profile: profile.preference.beta if _compares(profile, "simpo") else None, "stage simpo",
    ),
    PlausibleRange(
        "preference.simpo_gamma", 0, 10, "0.3 to 1.6", "SimPO 0.3 to 1.6 (arXiv 2405.14734)",
        lambda profile: profile.preference.simpo_gamma if _compares(profile, "simpo") else None,
    ),
    PlausibleRange(
        "data.eval_fraction", 0, 0.5, "0.01 to 0.1", "what is set aside is not trained on",
        lambda profile: profile.data.eval_fraction,
    ),
    PlausibleRange(
        "data.eval_num_rows", 10, 100_000, "50 to 1000", "differences under 2 / sqrt(n) of the spread of n losses may "
        "be chance: 0.63 with 10 rows", lambda profile: profile.data.eval_num_rows,
    ),
)  # fmt: skip


def find_implausible(profile: Profile) -> Iterator[ProfileFault]:
    """The values outside their range, those of a curriculum's stages among them."""
    for plausible in RANGES:
        number = plausible.number(profile)
        if number is not None:
            yield from _compare(plausible, tuple(plausible.key.split(".")), number)
        is_of_stages = plausible.key == "train.num_train_epochs" or (
            plausible.key == "train.learning_rate" and number is not None  # the range of this optimizer
        )
        for place, stage in enumerate(profile.curriculum if is_of_stages else ()):
            name = plausible.key.removeprefix("train.")
            if (own := getattr(stage, name)) is not None:
                yield from _compare(plausible, ("curriculum", str(place), name), own)


def _compare(plausible: PlausibleRange, key: Key, number: float) -> Iterator[ProfileFault]:
    if plausible.low <= number <= plausible.high:
        return
    what = f"{plausible.measure} = {number:g}" if plausible.measure else f"{number:g}"
    side = "below" if number < plausible.low else "above"
    case = f" for {plausible.case}" if plausible.case else ""
    yield ProfileFault(
        key, None, f"{what} is {side} what is plausible{case}, {plausible.words}", f"{plausible.usual} is usual."
    )
