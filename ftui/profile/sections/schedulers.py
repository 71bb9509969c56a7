"""`[train.lr_scheduler_kwargs]`: the learning-rate schedules, and the options that each takes beside the warm-up."""

from typing import Literal

from ftui.profile.sections.fields import Section, weights

Scheduler = Literal[
    "linear",
    "cosine",
    "cosine_with_restarts",
    "polynomial",
    "constant",
    "constant_with_warmup",
    "inverse_sqrt",
    "cosine_with_min_lr",
    "cosine_warmup_with_min_lr",
    "warmup_stable_decay",
    "reduce_lr_on_plateau",
]
PLATEAU = "reduce_lr_on_plateau"  # no fixed curve: the rate drops when the evaluation loss stops improving

# The parameters of transformers' functions, without those that every schedule has. A test compares the two.
TAKES: dict[str, tuple[str, ...]] = {
    "linear": (),
    "cosine": ("num_cycles",),
    "cosine_with_restarts": ("num_cycles",),
    "polynomial": ("lr_end", "power"),
    "constant": (),
    "constant_with_warmup": (),
    "inverse_sqrt": ("timescale",),
    "cosine_with_min_lr": ("num_cycles", "min_lr", "min_lr_rate"),
    "cosine_warmup_with_min_lr": ("num_cycles", "min_lr", "min_lr_rate", "warmup_lr_rate"),
    "warmup_stable_decay": (
        "num_decay_steps", "num_stable_steps", "warmup_type", "decay_type", "min_lr_ratio", "num_cycles",
    ),
    PLATEAU: ("factor", "patience", "threshold", "threshold_mode", "cooldown", "min_lr", "eps"),
}  # fmt: skip
HAVE_LOWEST = ("cosine_with_min_lr", "cosine_warmup_with_min_lr")
NOT_OFFERED = {"greedy": "it needs the loss of every earlier step, which no checkpoint stores"}
LR_END = 1e-7  # default of `polynomial` in transformers


class SchedulerKwargs(Section):
    """`[train.lr_scheduler_kwargs]`: options of the learning-rate schedule. Each schedule takes some of them."""

    num_cycles: float | None = weights(None, gt=0)
    """Waves of a cosine (0.5, the default, only falls), or the number of cycles of `cosine_with_restarts` (1)."""

    power: float | None = weights(None, gt=0)
    """Exponent of `polynomial` (1 is a straight line)."""

    lr_end: float | None = weights(None, ge=0)
    """Learning rate at the end of `polynomial` (1e-7)."""

    min_lr: float | None = weights(None, ge=0)
    """Lowest learning rate of `cosine_with_min_lr` and `cosine_warmup_with_min_lr` (give this or min_lr_rate), and of
    `reduce_lr_on_plateau` (0)."""

    min_lr_rate: float | None = weights(None, ge=0, le=1)
    """Lowest learning rate as a share of the peak. Give this or min_lr."""

    warmup_lr_rate: float | None = weights(None, ge=0, le=1)
    """Where the warm-up of `cosine_warmup_with_min_lr` starts, as a share of the peak (1 / warmup_steps)."""

    timescale: int | None = weights(None, ge=1)
    """Time scale of the fall of `inverse_sqrt` in steps (those of the warm-up, or 10000 without one)."""

    num_decay_steps: int | None = weights(None, ge=1)
    """Steps of the final, falling part of `warmup_stable_decay`. Required there."""

    num_stable_steps: int | None = weights(None, ge=0)
    """Steps of the constant part of `warmup_stable_decay` (all that warm-up and decay leave)."""

    warmup_type: Literal["linear", "cosine", "1-sqrt"] | None = weights(None)
    """Shape of the rise of `warmup_stable_decay` (linear)."""

    decay_type: Literal["linear", "cosine", "1-sqrt"] | None = weights(None)
    """Shape of the fall of `warmup_stable_decay` (cosine)."""

    min_lr_ratio: float | None = weights(None, ge=0, le=1)
    """Lowest learning rate of `warmup_stable_decay` as a share of the peak (0)."""

    factor: float | None = weights(None, gt=0, lt=1)
    """Factor by which `reduce_lr_on_plateau` multiplies the learning rate (0.1) ..."""

    patience: int | None = weights(None, ge=0)
    """... after more than this many evaluations without a lower loss (10)."""

    threshold: float | None = weights(None, ge=0)
    """How much lower the loss must be to count as better for `reduce_lr_on_plateau` (1e-4) ..."""

    threshold_mode: Literal["rel", "abs"] | None = weights(None)
    """... as a share of the best (`rel`, the default) or in nats (`abs`)."""

    cooldown: int | None = weights(None, ge=0)
    """Evaluations that `reduce_lr_on_plateau` ignores after it lowers the rate (0)."""

    eps: float | None = weights(None, ge=0)
    """`reduce_lr_on_plateau` ignores changes of the rate smaller than this (1e-8)."""


def explicit_values(section: Section | None) -> dict[str, float | int | str | bool]:
    """The options that a table sets, by name."""
    return {} if section is None else {k: v for k, v in section.model_dump().items() if v is not None}
