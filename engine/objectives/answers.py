"""From numbers of single tokens to numbers of whole answers.

A micro-batch has its answers in order: the tokens of answer 0, then those of answer 1 and so on (`Batch.target_ids`).
Of pair i the chosen answer is 2i and the rejected one 2i + 1.
"""

import torch
from torch import Tensor


def sum_by_sequence(values: Tensor, sequence_of: Tensor, number: int) -> Tensor:
    """(targets,) values and the answer (int64) of each -> (number,) sums, float32, the same in each run.

    Neighbours in the micro-batch change no bit but by chance: sums are made in float64 where the device has it. A
    table of (answers x targets) costs less memory than a chunk of logits; `index_add_` would add in random order on a
    GPU, and `cumsum` is refused there by `train.full_determinism`.
    """
    wide = torch.float32 if values.device.type == "mps" else torch.float64
    mine = _is_mine(sequence_of, number)
    return torch.where(mine, values.to(wide), 0).sum(1).float()


def answer_lengths(sequence_of: Tensor, number: int) -> Tensor:
    """(number,) target tokens of each answer, float32."""
    return _is_mine(sequence_of, number).sum(1).float()


def length_weights(sequence_of: Tensor, number: int, ld_alpha: float) -> Tensor:
    """(targets,) float32: what a token counts in LD-DPO (Liu et al. 2024).

    1 as far as both answers of its pair reach, `ld_alpha` beyond. Model and reference are weighted alike.
    """
    first = torch.searchsorted(sequence_of, torch.arange(number + 1, device=sequence_of.device))
    shared = first.diff().view(-1, 2).amin(1).repeat_interleave(2)
    place = torch.arange(len(sequence_of), device=sequence_of.device) - first[sequence_of]
    return torch.where(place < shared[sequence_of], 1.0, ld_alpha)


def policy_weights(log_probs: Tensor, squares: Tensor, sequence_of: Tensor, number: int) -> Tensor:
    """(pairs,) float32, no gradient: how much the model itself would say both answers (WPO, Zhou et al. 2024).

    From the log-probability of each target and ln of the sum over the vocabulary of the squared probabilities.
    """
    aligned = sum_by_sequence((log_probs - squares).detach(), sequence_of, number)
    means = aligned / answer_lengths(sequence_of, number)
    return means.view(-1, 2).sum(1).exp()


def _is_mine(sequence_of: Tensor, number: int) -> Tensor:
    """(number, targets) bool: whether a target is a token of an answer."""
    return sequence_of == torch.arange(number, device=sequence_of.device)[:, None]
