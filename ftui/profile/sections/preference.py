"""`[preference]`: what the stages that compare answers make of them. Names and defaults are TRL's."""

from typing import Any, Literal

from pydantic import field_validator

from ftui.profile.sections.fields import Section, tuple_of_list, weights

PAIR_STAGES = frozenset({"dpo", "orpo", "simpo", "cpo", "rm"})
"""Stages that train on pairs: a chosen and a rejected answer to the same prompt."""

VERDICT_STAGES = frozenset({"kto"})
"""Stages that train on single answers, each judged good or bad."""

COMPARING_STAGES = PAIR_STAGES | VERDICT_STAGES

REFERENCE_STAGES = frozenset({"dpo", "kto"})
"""Stages whose loss compares the model with what it was when the run began."""

TAKES = {
    "beta": frozenset({"dpo"}),
    "loss_type": frozenset({"dpo"}),
    "loss_weights": frozenset({"dpo"}),
    "label_smoothing": frozenset({"dpo"}),
    "discopop_tau": frozenset({"dpo"}),
}
"""The keys of `[preference]`, and the stages that each is for."""

DpoLoss = Literal[
    "sigmoid", "ipo", "hinge", "robust", "exo_pair", "nca_pair", "bco_pair", "sppo_hard", "apo_zero", "apo_down",
    "discopop", "sigmoid_norm", "sft",
]  # fmt: skip


class PreferenceSection(Section):
    """`[preference]`: the loss of the stages that compare answers (`dpo`)."""

    beta: float = weights(0.1, gt=0)
    """How strongly the model is held to the reference: rewards are beta times the log-ratio of the two. A higher value
    keeps it closer."""

    loss_type: tuple[DpoLoss, ...] = weights(("sigmoid",))
    """Loss of stage `dpo`, or a list of losses that are added: `sigmoid` (DPO), `ipo`, `hinge`, `robust`, `exo_pair`,
    `nca_pair`, `bco_pair`, `sppo_hard`, `apo_zero`, `apo_down`, `discopop`, `sigmoid_norm`, and `sft` (the
    cross-entropy of the chosen answers). ["sigmoid", "sft"] is RPO."""

    loss_weights: tuple[float, ...] | None = weights(None)
    """Factor of each loss in loss_type. Default: 1 for each."""

    label_smoothing: float = weights(0.0, ge=0, lt=0.5)
    """Share of pairs whose verdict is taken to be wrong: with `sigmoid` this is cDPO; `robust` and `exo_pair` use it
    too."""

    discopop_tau: float = weights(0.05, gt=0)
    """Temperature of the loss `discopop`."""

    @field_validator("loss_type", mode="before")
    @classmethod
    def _one_or_several(cls, given: Any) -> Any:
        return (given,) if isinstance(given, str) else tuple_of_list(given)

    @field_validator("loss_weights", mode="before")
    @classmethod
    def _list(cls, given: Any) -> Any:
        return None if given is None else tuple_of_list(given)

    @property
    def weighted_losses(self) -> tuple[tuple[str, float], ...]:
        """Each loss with its factor."""
        return tuple(zip(self.loss_type, self.loss_weights or (1.0,) * len(self.loss_type), strict=True))
