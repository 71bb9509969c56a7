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
    "beta": frozenset({"dpo", "kto", "orpo", "simpo", "cpo"}),
    "loss_type": frozenset({"dpo", "kto", "cpo"}),
    "loss_weights": frozenset({"dpo", "cpo"}),
    "label_smoothing": frozenset({"dpo", "cpo", "simpo"}),
    "discopop_tau": frozenset({"dpo"}),
    "ld_alpha": frozenset({"dpo"}),
    "use_weighting": frozenset({"dpo"}),
    "simpo_gamma": frozenset({"simpo"}),
    "cpo_alpha": frozenset({"cpo"}),
    "desirable_weight": frozenset({"kto"}),
    "undesirable_weight": frozenset({"kto"}),
    "center_rewards_coefficient": frozenset({"rm"}),
}
"""The keys of `[preference]`, and the stages that each is for."""

PreferenceLoss = Literal[
    "sigmoid", "ipo", "hinge", "robust", "exo_pair", "nca_pair", "bco_pair", "sppo_hard", "apo_zero", "apo_down",
    "discopop", "sigmoid_norm", "sft", "kto", "apo_zero_unpaired",
]  # fmt: skip


LOSSES: dict[str, tuple[str, ...]] = {
    "dpo": (
        "sigmoid", "ipo", "hinge", "robust", "exo_pair", "nca_pair", "bco_pair", "sppo_hard", "apo_zero", "apo_down",
        "discopop", "sigmoid_norm", "sft",
    ),
    "cpo": ("sigmoid", "hinge", "ipo"),
    "kto": ("kto", "apo_zero_unpaired"),
}  # fmt: skip
"""The losses of each stage that has several, its default first."""


class PreferenceSection(Section):
    """`[preference]`: the loss of the stages that compare answers."""

    beta: float = weights(0.1, gt=0)
    """How strongly the model is held to the reference: rewards are beta times the log-ratio of the two. A higher value
    keeps it closer."""

    loss_type: tuple[PreferenceLoss, ...] | None = weights(None)
    """The loss, or a list of losses that are added. Of `dpo`: `sigmoid` (its default), `ipo`, `hinge`, `robust`,
    `exo_pair`, `nca_pair`, `bco_pair`, `sppo_hard`, `apo_zero`, `apo_down`, `discopop`, `sigmoid_norm`, and `sft` (the
    cross-entropy of the chosen answers; ["sigmoid", "sft"] is RPO). Of `cpo`: `sigmoid` (its default), `hinge`, `ipo`.
    Of `kto`: `kto` (its default), `apo_zero_unpaired`."""

    loss_weights: tuple[float, ...] | None = weights(None)
    """Factor of each loss in loss_type. Default: 1 for each."""

    label_smoothing: float = weights(0.0, ge=0, lt=0.5)
    """Share of pairs whose verdict is taken to be wrong: with `sigmoid` this is cDPO; `robust` and `exo_pair` use it
    too."""

    discopop_tau: float = weights(0.05, gt=0)
    """Temperature of the loss `discopop`."""

    ld_alpha: float | None = weights(None, ge=0, le=1)
    """Weight of the tokens of the longer answer beyond the length of the shorter one (LD-DPO): below 1, length counts
    for less."""

    use_weighting: bool = weights(False)
    """Weigh each pair by how likely the model itself is to say both answers (WPO): for pairs of other models."""

    simpo_gamma: float = weights(0.5, ge=0)
    """Margin that SimPO wants between the mean log-probabilities of both answers, after beta."""

    cpo_alpha: float = weights(1.0, ge=0)
    """Weight of the cross-entropy of the chosen answers in stage `cpo`."""

    desirable_weight: float = weights(1.0, gt=0)
    """Weight of the answers judged good in stage `kto`. Where good and bad ones differ in number, weights that make up
    for it keep the two sums within a factor of 4/3."""

    undesirable_weight: float = weights(1.0, gt=0)
    """Weight of the answers judged bad in stage `kto`."""

    center_rewards_coefficient: float | None = weights(None, ge=0)
    """Weight of what keeps the scores of a reward model (stage `rm`) around 0: the square of the sum of both scores of
    a pair is added to its loss. 0.01 is usual. Default: nothing is added."""

    @field_validator("loss_type", "loss_weights", mode="before")
    @classmethod
    def _one_or_several(cls, given: Any) -> Any:
        return (given,) if isinstance(given, str) else None if given is None else tuple_of_list(given)

    def weighted_losses(self, stage: str) -> tuple[tuple[str, float], ...]:
        """Each loss of the stage with its factor."""
        losses = self.loss_type or LOSSES[stage][:1]
        return tuple(zip(losses, self.loss_weights or (1.0,) * len(losses), strict=True))

    def needs_divergence(self, stage: str) -> bool:
        """Whether the loss asks how far the model has moved on mismatched answers: KTO's z0."""
        return stage in VERDICT_STAGES and self.weighted_losses(stage)[0][0] == "kto"
