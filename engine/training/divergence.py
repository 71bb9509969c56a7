"""How far the model has moved from its reference on mismatched answers: KTO's z0, before a step and an evaluation."""

from collections.abc import Iterable

import torch

from ..models.model_parts import ModelParts
from ..objectives.log_probs import target_log_probs
from ..objectives.loss import Batch


def sum_log_ratios(parts: ModelParts, batches: Iterable[Batch]) -> float:
    """The sum over all targets of the log-ratio (in nats) of model and reference; no gradient."""
    total = torch.zeros((), device=parts.device)
    for batch in batches:
        on_device = batch.to(parts.device)
        with torch.no_grad(), parts.autocast():
            values = target_log_probs(parts.model, on_device).values
            total += (values if on_device.reference is None else values - on_device.reference).sum()
    return float(total)
