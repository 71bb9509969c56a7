"""Proof at the start that this model keeps packed sequences apart; where it does not, packing is refused."""

import torch
from torch import Tensor
from transformers import PreTrainedModel

from ftui.errors import ModelError

from ..objectives.loss import in_one_row
from ..system.device import Hardware

TOLERANCE = 1e-3  # the same sequence after two different neighbours: equal but for the order of additions
ROUNDED = 3e-2  # the same in 16 bits, as a share of the largest logit


def check_packing(model: PreTrainedModel, hardware: Hardware | None = None) -> None:
    """The second sequence of a packed row must give the same logits whatever the first one is.

    With `hardware` it is checked where and in the type in which the model will be trained, since other kernels work
    there; the model is moved for that.

    Raises:
        ModelError: they see each other (an attention kernel or model type that ignores position_ids).
    """
    device, dtype = next(model.parameters()).device, torch.float32
    if hardware is not None:
        device, dtype = hardware.device, hardware.compute_dtype
        if next(model.parameters()).device.type != device.type:
            model.to(device)  # type: ignore[arg-type]
    model.eval()
    with torch.no_grad(), torch.autocast(device.type, dtype=dtype, enabled=dtype != torch.float32):
        logits, other_logits = (
            _second_logits(model, torch.tensor(first, device=device))
            for first in ([5, 6, 7, 8, 9], [15, 16, 17, 18, 19])
        )
    model.train()
    limit = TOLERANCE if logits.dtype == torch.float32 else ROUNDED * float(logits.abs().max())
    if float((logits - other_logits).abs().max()) > limit:
        raise ModelError(
            f"Packed sequences would see each other in this model ({model.config.model_type}).",
            hint="Set data.packing = false.",
        )


def _second_logits(model: PreTrainedModel, first: Tensor) -> Tensor:
    """Logits (3, vocabulary) of the second sequence of two equal rows, as the training loop would compute them."""
    second = torch.tensor([11, 12, 13], device=first.device)
    positions = torch.tensor([0, 1, 2, 3, 4, 0, 1, 2], device=first.device)
    rows = torch.cat([first, second]).expand(2, -1)
    inputs = {"input_ids": rows, "position_ids": positions.expand(2, -1)}
    logits: Tensor = model(**in_one_row(model, inputs), use_cache=False).logits
    return logits.reshape(16, -1)[-3:]
