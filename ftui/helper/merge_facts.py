"""What is sent between whoever merges what a run has trained and the process that does it."""

from typing import Literal

import msgspec

DType = Literal["bf16", "fp16", "fp32"]
Into = Literal["dequantised", "original"]

MOST_LOGIT_DIFFERENCE = 1e-3
MOST_KL = 1e-4
LEAST_TOP1 = 0.99
MOST_LOSS_DIFFERENCE = 0.002
MOST_SCORE_DIFFERENCE = 0.05


class MergeChoice(msgspec.Struct, frozen=True):
    """What is merged, and how.

    `source` is the folder of the weights (final/, a checkpoint), `title` its name, `target` where the result will be.
    `into`: a quantised base as the run computed with it (`dequantised`), or as its files are. `num_rows` are compared.
    `mark` says what is made of which weights, for `check_export`; `replaces`: it is there already. `wider` is the
    command that keeps more digits, where there is one.
    """

    run: str
    source: str
    title: str
    target: str
    dtype: DType
    into: Into = "dequantised"
    num_rows: int = 16
    mark: str = ""
    replaces: bool = False
    wider: str = ""


class Agreement(msgspec.Struct, frozen=True):
    """How a merged model agrees with base and adapter on some rows, both computed in float32.

    Logits are compared at `num_positions` tokens that are trained on, `num_rows` rows have `num_targets` of them.
    `mean_kl` is in nats, from base and adapter to the merged model; `top1` is the share of positions with the same
    likeliest token. Of a reward model there are scores instead: `logit_difference` is the largest of theirs. Losses
    are means over the targets (of a reward model: over the pairs).
    """

    num_rows: int
    num_positions: int
    num_targets: int
    logit_difference: float
    loss_adapter: float
    loss_merged: float
    mean_kl: float | None = None
    top1: float | None = None

    def misses(self, dtype: DType) -> list[str]:
        """What is beyond its limit, in words."""
        found = []
        loss = abs(self.loss_merged - self.loss_adapter)
        if dtype == "fp32" and not self.logit_difference <= MOST_LOGIT_DIFFERENCE:
            found.append(
                f"largest difference of logits {self.logit_difference:.2g} (at most {MOST_LOGIT_DIFFERENCE:g})"
            )
        if self.mean_kl is None and not self.logit_difference <= MOST_SCORE_DIFFERENCE:
            found.append(
                f"largest difference of scores {self.logit_difference:.2g} (at most {MOST_SCORE_DIFFERENCE:g})"
            )
        if dtype != "fp32" and self.mean_kl is not None and not self.mean_kl <= MOST_KL:
            found.append(f"mean KL {self.mean_kl:.2g} (at most {MOST_KL:g})")
        if dtype != "fp32" and self.top1 is not None and not self.top1 >= LEAST_TOP1:
            found.append(f"same likeliest token {self.top1:.1%} (at least {LEAST_TOP1:.0%})")
        if not loss <= MOST_LOSS_DIFFERENCE:
            found.append(
                f"evaluation loss {self.loss_merged:.4f} for {self.loss_adapter:.4f} (within {MOST_LOSS_DIFFERENCE:g})"
            )
        return found


class Certificate(msgspec.Struct, frozen=True, kw_only=True):
    """`certificate.json` of a merged model: what was merged into what, and how the result agrees with it.

    `rows` are evaluation or training rows of the run. `into_dequantised`: the agreement of the other merge, where the
    base of a quantised run was taken as its files are: `agreement` is then only measured, and has no limit.
    """

    run: str
    source: str
    source_seal: str
    base: str
    base_fingerprint: str
    dtype: DType
    into: Into | None
    rows: str
    device: str
    agreement: Agreement
    into_dequantised: Agreement | None = None
    versions: dict[str, str] = {}
    arithmetic: str = "float32"


class MergeResult(msgspec.Struct, frozen=True):
    """A merged model that is published: weights that were changed and only stored, bytes of all its files."""

    folder: str
    certificate: Certificate
    num_changed: int
    num_copied: int
    num_bytes: int
    is_untied: bool


def agreement_rows(agreement: Agreement) -> list[tuple[str, str]]:
    """The figures of an agreement with their names."""
    rows = [("loss", f"{agreement.loss_merged:.4f}, of base and adapter {agreement.loss_adapter:.4f}")]
    if agreement.mean_kl is not None and agreement.top1 is not None:
        rows.append(("KL", f"{agreement.mean_kl:.2g} nats in the mean, same likeliest token {agreement.top1:.1%}"))
    what = "scores" if agreement.mean_kl is None else "logits"
    return [*rows, ("difference", f"{agreement.logit_difference:.2g} at most, of {what}")]
