"""Losses of pairs of answers to one prompt: DPO and its family, CPO, SimPO, ORPO.

Formulas and names are TRL's (1.16), but for `sigmoid`, which smooths its labels here as in the cDPO paper. With no
reference (zeros) `sigmoid`, `hinge` and `ipo` are those of CPO.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

# The largest log-probability below 0 that float32's log-softmax tells from it: odds are infinite at 0.
LARGEST = -(2.0**-24)

# ln(1 - exp(x)) is computed in two ways, each exact on its side of -ln 2.
LN_HALF = -0.6931471805599453


class Pairs(NamedTuple):
    """Pairs of answers, one entry each, float32.

    Attributes:
        chosen: (pairs,) summed log-probabilities of the chosen answers under the model that is trained.
        rejected: (pairs,) the same of the rejected answers.
        reference_chosen: (pairs,) the same under the reference; zeros where a stage has none.
        reference_rejected: (pairs,) the same of the rejected answers.
        chosen_length: (pairs,) target tokens of the chosen answers.
        rejected_length: (pairs,) target tokens of the rejected answers.
    """

    chosen: Tensor
    rejected: Tensor
    reference_chosen: Tensor
    reference_rejected: Tensor
    chosen_length: Tensor
    rejected_length: Tensor

    @property
    def chosen_ratio(self) -> Tensor:
        """(pairs,) log-ratio of model and reference on the chosen answers."""
        return self.chosen - self.reference_chosen

    @property
    def rejected_ratio(self) -> Tensor:
        """(pairs,) log-ratio of model and reference on the rejected answers."""
        return self.rejected - self.reference_rejected

    @property
    def difference(self) -> Tensor:
        """(pairs,) by how much more the model has moved to the chosen answers than to the rejected ones."""
        return self.chosen_ratio - self.rejected_ratio

    @property
    def per_token(self) -> "Pairs":
        """The same pairs with log-probabilities that are means over an answer."""
        return self._replace(
            chosen=self.chosen / self.chosen_length, reference_chosen=self.reference_chosen / self.chosen_length,
            rejected=self.rejected / self.rejected_length,
            reference_rejected=self.reference_rejected / self.rejected_length,
        )  # fmt: skip

    @property
    def mean_difference(self) -> Tensor:
        """(pairs,) the same of log-ratios per token."""
        return self.chosen_ratio / self.chosen_length - self.rejected_ratio / self.rejected_length


@dataclass(frozen=True)
class LossSettings:
    """Numbers of the losses, as in `[preference]` of the profile."""

    beta: float = 0.1
    label_smoothing: float = 0.0
    discopop_tau: float = 0.05
    simpo_gamma: float = 0.5


def sigmoid(pairs: Pairs, settings: LossSettings) -> Tensor:
    """DPO (Rafailov et al. 2023), with `label_smoothing` its conservative form (Mitchell 2023)."""
    return _smoothed(settings.beta * pairs.difference, settings.label_smoothing)


def sigmoid_norm(pairs: Pairs, settings: LossSettings) -> Tensor:
    """DPO of log-ratios per token (Tülu 3, Lambert et al. 2024)."""
    return _smoothed(settings.beta * pairs.mean_difference, settings.label_smoothing)


def hinge(pairs: Pairs, settings: LossSettings) -> Tensor:
    """SLiC (Zhao et al. 2023)."""
    return torch.relu(1 - settings.beta * pairs.difference)


def ipo(pairs: Pairs, settings: LossSettings) -> Tensor:
    """IPO (Azar et al. 2023, equation 17) of log-ratios per token, as its authors have it."""
    return (pairs.mean_difference - 1 / (2 * settings.beta)) ** 2


def robust(pairs: Pairs, settings: LossSettings) -> Tensor:
    """Robust DPO (Chowdhury et al. 2024): unbiased where the share `label_smoothing` of the verdicts is wrong."""
    logits, wrong = settings.beta * pairs.difference, settings.label_smoothing
    return (-(1 - wrong) * F.logsigmoid(logits) + wrong * F.logsigmoid(-logits)) / (1 - 2 * wrong)


def exo_pair(pairs: Pairs, settings: LossSettings) -> Tensor:
    """EXO (Ji et al. 2024, equation 16); `label_smoothing` must be above 0."""
    logits, wrong = settings.beta * pairs.difference, torch.tensor(settings.label_smoothing)
    right = torch.sigmoid(logits) * (F.logsigmoid(logits) - torch.log1p(-wrong))
    return right + torch.sigmoid(-logits) * (F.logsigmoid(-logits) - torch.log(wrong))


def nca_pair(pairs: Pairs, settings: LossSettings) -> Tensor:
    """NCA (Chen et al. 2024)."""
    chosen, rejected = settings.beta * pairs.chosen_ratio, settings.beta * pairs.rejected_ratio
    return -F.logsigmoid(chosen) - 0.5 * F.logsigmoid(-chosen) - 0.5 * F.logsigmoid(-rejected)


def bco_pair(pairs: Pairs, settings: LossSettings) -> Tensor:
    """BCO (Jung et al. 2024) without its running mean of rewards."""
    return -F.logsigmoid(settings.beta * pairs.chosen_ratio) - F.logsigmoid(-settings.beta * pairs.rejected_ratio)


def sppo_hard(pairs: Pairs, settings: LossSettings) -> Tensor:
    """SPPO (Wu et al. 2024, equation 4.7) with probabilities 1 and 0."""
    target = 0.5 / settings.beta
    return (pairs.chosen_ratio - target) ** 2 + (pairs.rejected_ratio + target) ** 2


def apo_zero(pairs: Pairs, settings: LossSettings) -> Tensor:
    """APO (D'Oosterlinck et al. 2024, equation 7): for chosen answers that are better than the model's own."""
    return torch.sigmoid(-settings.beta * pairs.chosen_ratio) + torch.sigmoid(settings.beta * pairs.rejected_ratio)


def apo_down(pairs: Pairs, settings: LossSettings) -> Tensor:
    """APO (equation 8): for chosen answers that are worse than the model's own."""
    return torch.sigmoid(settings.beta * pairs.chosen_ratio) + torch.sigmoid(-settings.beta * pairs.difference)


def discopop(pairs: Pairs, settings: LossSettings) -> Tensor:
    """DiscoPOP (Lu et al. 2024, equation 5).

    The product of a vanishing share and exp(-logits) is one exponential here, or it would be 0 times infinity where
    the rejected answer is far ahead.
    """
    logits = settings.beta * pairs.difference
    scaled = logits / settings.discopop_tau
    return -F.logsigmoid(logits) * torch.sigmoid(-scaled) + torch.exp(F.logsigmoid(scaled) - logits)


def simpo(pairs: Pairs, settings: LossSettings) -> Tensor:
    """SimPO (Meng et al. 2024): log-probabilities per token, without a reference, `simpo_gamma` apart."""
    return _smoothed(settings.beta * pairs.mean_difference - settings.simpo_gamma, settings.label_smoothing)


def odds_ratio(pairs: Pairs, settings: LossSettings) -> Tensor:
    """The preference term of ORPO (Hong et al. 2024), `beta` in it; the cross-entropy of chosen answers is added."""
    return -settings.beta * F.logsigmoid(log_odds_ratio(pairs))


def log_odds_ratio(pairs: Pairs) -> Tensor:
    """(pairs,) ln of the odds of the chosen answers over those of the rejected ones, of probabilities per token."""
    chosen, rejected, *_ = pairs.per_token
    return chosen - rejected - (_log1mexp(chosen) - _log1mexp(rejected))


PairLoss = Callable[[Pairs, LossSettings], Tensor]

PAIR_LOSSES: Mapping[str, PairLoss] = MappingProxyType({
    "sigmoid": sigmoid, "hinge": hinge, "ipo": ipo, "robust": robust, "exo_pair": exo_pair, "nca_pair": nca_pair,
    "bco_pair": bco_pair, "sppo_hard": sppo_hard, "apo_zero": apo_zero, "apo_down": apo_down, "discopop": discopop,
    "sigmoid_norm": sigmoid_norm, "simpo": simpo, "odds_ratio": odds_ratio,
})  # fmt: skip
"""Each gives one loss a pair: (pairs,) float32."""


def pair_metrics(pairs: Pairs, settings: LossSettings) -> dict[str, Tensor]:
    """Sums over the pairs of what is shown of them, without gradient. A tie is no success: at the start all tie."""
    values = Pairs(*(tensor.detach() for tensor in pairs))
    chosen, rejected = settings.beta * values.chosen_ratio, settings.beta * values.rejected_ratio
    return {
        "rewards/chosen": chosen.sum(),
        "rewards/rejected": rejected.sum(),
        "rewards/accuracies": (chosen > rejected).float().sum(),
        "rewards/margins": (chosen - rejected).sum(),
        "logps/chosen": values.chosen.sum(),
        "logps/rejected": values.rejected.sum(),
    }


def odds_metrics(pairs: Pairs) -> dict[str, Tensor]:
    """Sums over the pairs of what ORPO shows beside `pair_metrics`, without gradient. Names are TRL's."""
    odds = log_odds_ratio(Pairs(*(tensor.detach() for tensor in pairs)))
    return {"log_odds_ratio": F.logsigmoid(odds).sum(), "log_odds_chosen": odds.sum()}


def _smoothed(logits: Tensor, wrong: float) -> Tensor:
    """-ln of the sigmoid where the verdict is right, of its counterpart in the share `wrong`."""
    loss = -F.logsigmoid(logits)
    return loss if not wrong else (1 - wrong) * loss - wrong * F.logsigmoid(-logits)


def _log1mexp(log_prob: Tensor) -> Tensor:
    """ln(1 - exp(x)) of x <= 0. At 0 the gradient of either branch would be infinite, and 0 times that is NaN."""
    x = log_prob.clamp(max=LARGEST)
    return torch.where(x < LN_HALF, torch.log1p(-torch.exp(x)), torch.log(-torch.expm1(x)))
