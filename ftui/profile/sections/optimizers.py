"""`train.optim` and `[train.optim_args]`: the optimizers by transformers' names, and the options of each."""

from typing import Literal, get_args

from ftui.profile.sections.fields import Section, weights

Optimizer = Literal[
    "adamw_torch",
    "adamw_torch_fused",
    "adamw_8bit",
    "adamw_bnb_8bit",
    "paged_adamw_8bit",
    "paged_adamw_32bit",
    "adafactor",
    "sgd",
    "adagrad",
    "rmsprop",
    "rmsprop_bnb",
    "rmsprop_bnb_8bit",
    "rmsprop_bnb_32bit",
    "lion_32bit",
    "lion_8bit",
    "paged_lion_32bit",
    "paged_lion_8bit",
    "ademamix",
    "ademamix_8bit",
    "paged_ademamix_32bit",
    "paged_ademamix_8bit",
]
OF_TORCH = ("adamw_torch", "adamw_torch_fused", "adafactor", "sgd", "adagrad", "rmsprop")
FROM_BITSANDBYTES = tuple(name for name in get_args(Optimizer) if name not in OF_TORCH)
ADEMAMIX = ("beta3", "alpha", "t_alpha", "t_beta3")
TAKES: dict[str, tuple[str, ...]] = {
    "sgd": ("momentum", "dampening", "nesterov"),
    "adagrad": ("lr_decay", "eps"),
    "rmsprop": ("momentum", "alpha", "eps", "centered"),
    "ademamix": ADEMAMIX,
    "ademamix_8bit": ADEMAMIX,
    "paged_ademamix_32bit": ADEMAMIX,
    "paged_ademamix_8bit": ADEMAMIX,
}


class OptimArgs(Section):
    """`[train.optim_args]`: options of the optimizers other than AdamW. Each takes some of them."""

    momentum: float | None = weights(None, ge=0, lt=1)
    """Share of the last update that `sgd` and `rmsprop` keep (0)."""

    dampening: float | None = weights(None, ge=0, le=1)
    """Share of the gradient that is left out of the momentum of `sgd` (0)."""

    nesterov: bool | None = weights(None)
    """Nesterov's momentum for `sgd` (false)."""

    alpha: float | None = weights(None, ge=0)
    """Smoothing of `rmsprop` (0.99, below 1); weight of the slow moment of `ademamix` (5)."""

    centered: bool | None = weights(None)
    """Whether `rmsprop` divides by the variance of the gradient (false)."""

    eps: float | None = weights(None, gt=0)
    """Added to the denominator of `rmsprop` (1e-8) and `adagrad` (1e-10)."""

    lr_decay: float | None = weights(None, ge=0)
    """Decay of the learning rate of `adagrad` per step (0)."""

    beta3: float | None = weights(None, ge=0, lt=1)
    """Decay of the slow moment of `ademamix` (0.9999)."""

    t_alpha: int | None = weights(None, ge=1)
    """Steps over which alpha of `ademamix` grows to its value (immediately)."""

    t_beta3: int | None = weights(None, ge=1)
    """Steps over which beta3 of `ademamix` grows to its value (immediately)."""
