"""Proof at the start that this model keeps packed sequences apart; where it does not, packing is refused."""

import torch
from transformers import PreTrainedModel

from ftui.errors import ModelError

TOLERANCE = 1e-3  # the same sequence after two different neighbours: equal but for the order of additions


def check_packing(model: PreTrainedModel) -> None:
    """The second sequence of a packed row must give the same logits whatever the first one is.

    Raises:
        ModelError: they see each other (an attention kernel or model type that ignores position_ids).
    """
    first, second = torch.tensor([[5, 6, 7, 8, 9]]), torch.tensor([[11, 12, 13]])
    changed = torch.tensor([[15, 16, 17, 18, 19]])
    positions = torch.tensor([[0, 1, 2, 3, 4, 0, 1, 2]])
    model.eval()
    with torch.no_grad():
        together, other = (
            model(input_ids=torch.cat([left, second], dim=1), position_ids=positions, use_cache=False).logits[0, 5:]
            for left in (first, changed)
        )
    model.train()
    if float((together - other).abs().max()) > TOLERANCE:
        raise ModelError(
            f"Packed sequences would see each other in this model ({model.config.model_type}).",
            hint="Set data.packing = false.",
        )
