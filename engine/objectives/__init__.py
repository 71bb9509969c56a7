"""The stages: each says how rows become a micro-batch and what their loss is."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from torch import Tensor, nn

from ftui.profile.schema import Profile

from .loss import Batch

MOST_NATS = 700.0  # e to the power of more is beyond all floats

Sum = TypeVar("Sum", Tensor, float)


def add_up(totals: dict[str, Sum], own: dict[str, Sum]) -> None:
    """Add each value to the total of its name."""
    for name, value in own.items():
        totals[name] = totals[name] + value if name in totals else value


@dataclass(frozen=True)
class Loss:
    """The loss of a micro-batch, as sums.

    `sums`: sums of losses (float32 scalars) by the amount of `Batch.amounts` that they are divided by. The loss of a
    step is the sum of each over all its micro-batches, divided by the step's own amount: so it does not depend on how
    the step is cut. `metrics`: what else is reported, sums over the micro-batch without gradient, by name. `each`: what
    the sums of the same names are made of, (targets,) or (examples,) float32 without gradient, before labels are
    smoothed; a stage that cannot tell has none.
    """

    sums: dict[str, Tensor]
    metrics: dict[str, Tensor] = field(default_factory=dict)
    each: dict[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class Objective:
    """One kind of training: its name and the loss of a micro-batch. Its metrics are means over the amount `per`; those
    in `others` are each over another one.
    """

    name: str
    loss: Callable[[nn.Module, Batch], Loss]
    per: str = "targets"
    others: Mapping[str, str] = field(default_factory=dict)

    def means(self, metrics: dict[str, float], amounts: dict[str, int]) -> dict[str, float | None]:
        """The metrics from their sums over as much as `amounts` says; `None` where there was nothing.

        Where chosen and rejected answers are not in pairs, their margin is the difference of both means. The sums of
        `perplexity` are nats: it is e to the power of their mean.
        """
        means: dict[str, float | None] = {}
        for name, value in metrics.items():
            number = amounts[self.others.get(name, self.per)]
            means[name] = value / number if number else None
        if (nats := means.get("perplexity")) is not None:
            means["perplexity"] = math.exp(nats) if nats < MOST_NATS else math.inf
        chosen, rejected = means.get("rewards/chosen"), means.get("rewards/rejected")
        if chosen is not None and rejected is not None:
            means.setdefault("rewards/margins", chosen - rejected)
        return means


def make_objective(profile: Profile) -> Objective:
    """The stage of the profile's `run.stage`."""
    from . import grpo, kto, pair_stages, ppo, pretrain, reward_model, sft

    stages = {"pretrain": pretrain.stage, "sft": sft.stage, "kto": kto.stage, "rm": reward_model.stage}
    stages |= {"grpo": grpo.stage, "ppo": ppo.stage}
    return stages.get(profile.run.stage, pair_stages.stage)(profile)
