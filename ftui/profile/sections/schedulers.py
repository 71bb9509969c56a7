"""`[train.lr_scheduler_kwargs]`: the learning rate's curves, and what each of them takes beside the warm-up."""

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
PLATEAU = "reduce_lr_on_plateau"  # no curve: it falls when evaluations get no better

# The parameters of transformers' functions, without those that every curve has. A test compares the two.
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
NOT_OFFERED = {"greedy": "its long memory of the loss of every step is in no checkpoint here"}
LR_END = 1e-7  # of a polynomial, where nothing else is said: transformers' figure


class SchedulerKwargs(Section):
    """`[train.lr_scheduler_kwargs]`: details of the learning rate's curve. Each curve takes some of them."""

    num_cycles: float | None = weights(None, gt=0)
    """Waves of a cosine (0.5, the default, only falls), or the number of falls of `cosine_with_restarts` (1)."""

    power: float | None = weights(None, gt=0)
    """Exponent of `polynomial` (1 is a straight line)."""

    lr_end: float | None = weights(None, ge=0)
    """Learning rate at the end of `polynomial` (1e-7)."""

    min_lr: float | None = weights(None, ge=0)
    """Lowest learning rate of `cosine_with_min_lr` and `cosine_warmup_with_min_lr` (one of this and min_lr_rate), and
    of `reduce_lr_on_plateau` (0)."""

    min_lr_rate: float | None = weights(None, ge=0, le=1)
    """The lowest learning rate as a share of the highest. One of this and min_lr."""

    warmup_lr_rate: float | None = weights(None, ge=0, le=1)
    """Where the warm-up of `cosine_warmup_with_min_lr` begins, as a share of the highest rate (1 / warmup_steps)."""

    timescale: int | None = weights(None, ge=1)
    """Steps over which `inverse_sqrt` falls (the warm-up's, or 10000 without one)."""

    num_decay_steps: int | None = weights(None, ge=1)
    """Steps of the last, falling part of `warmup_stable_decay`. Required there."""

    num_stable_steps: int | None = weights(None, ge=0)
    """Steps of the level part of `warmup_stable_decay` (all that warm-up and decay leave)."""

    warmup_type: Literal["linear", "cosine", "1-sqrt"] | None = weights(None)
    """Shape of the rise of `warmup_stable_decay` (linear)."""

    decay_type: Literal["linear", "cosine", "1-sqrt"] | None = weights(None)
    """Shape of the fall of `warmup_stable_decay` (cosine)."""

    min_lr_ratio: float | None = weights(None, ge=0, le=1)
    """The lowest learning rate of `warmup_stable_decay` as a share of the highest (0)."""

    factor: float | None = weights(None, gt=0, lt=1)
    """What `reduce_lr_on_plateau` multiplies the learning rate by (0.1) ..."""

    patience: int | None = weights(None, ge=0)
    """... after more than this many evaluations without a better loss (10)."""

    threshold: float | None = weights(None, ge=0)
    """How much less a loss must be to be better for `reduce_lr_on_plateau` (1e-4) ..."""

    threshold_mode: Literal["rel", "abs"] | None = weights(None)
    """... as a share of the best (`rel`, the default) or in nats (`abs`)."""

    cooldown: int | None = weights(None, ge=0)
    """Evaluations after a fall that `reduce_lr_on_plateau` does not count (0)."""

    eps: float | None = weights(None, ge=0)
    """A fall by less than this is left out by `reduce_lr_on_plateau` (1e-8)."""


def explicit_values(section: Section | None) -> dict[str, float | int | str | bool]:
    """The keys of a table of details that were given, by name."""
    return {} if section is None else {k: v for k, v in section.model_dump().items() if v is not None}
