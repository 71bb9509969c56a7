"""How far the model has moved from its reference on mismatched answers: KTO's z0, before a step and an evaluation."""

from collections.abc import Iterable

import torch

from ..models.model_parts import ModelParts, autocast
from ..objectives.log_probs import target_log_probs
from ..objectives.loss import Batch


def sum_log_ratios(parts: ModelParts, batches: Iterable[Batch]) -> float:
    """The sum over all targets of the log-ratio (in nats) of model and reference; no gradient."""
    total = torch.zeros((), device=parts.device)
    for batch in batches:
        on_device = batch.to(parts.device)
        assert on_device.reference is not None, "mismatched answers have been measured"
        with torch.no_grad(), autocast(parts.hardware):
            total += (target_log_probs(parts.model, on_device).values - on_device.reference).sum()
    return float(total)
