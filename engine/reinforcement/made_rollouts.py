"""Rollouts that earlier attempts of a run have made: what was sampled by the same weights is not sampled again.

The journal has each of them with its hash, from before it was used. One is taken again only where the weights are those
that gave it, and the rewards those that scored it: a run that goes another way (a lower learning rate after it
diverged) makes its own.
"""

import hashlib
from pathlib import Path

import numpy as np
import torch
from torch import nn

from ftui.errors import DataError
from ftui.runs.journal import Tail
from ftui.runs.records.rollout_records import AnswersGenerated, RolloutMade
from ftui.runs.run_folder import Run

from ..distributed.sharded_base import own_part
from ..rollouts.rollout import Rollout
from ..rollouts.rollout_files import read_rollout

VALUES_OF_EACH = 256
"""Of each trained tensor, evenly spaced: an update of the optimizer changes nearly all of them."""


def weights_mark(model: nn.Module) -> str:
    """SHA-256 (hex) of some of the values of every trained tensor: another state of training has another one."""
    with torch.no_grad():
        parts = [
            own_part(weight).reshape(-1)[:: max(1, weight.numel() // VALUES_OF_EACH)].float()
            for _, weight in sorted(model.named_parameters())
            if weight.requires_grad
        ]
        values = torch.cat(parts) if parts else torch.zeros(0)
    return hashlib.sha256(np.ascontiguousarray(values.cpu().numpy()).tobytes()).hexdigest()


class MadeRollouts:
    """The newest record of each rollout in a run's journal."""

    def __init__(self, run: Run) -> None:
        self._folder: Path = run.rollouts
        self._answers: dict[int, AnswersGenerated] = {}
        self._scored: dict[int, RolloutMade] = {}
        for record in Tail(run.journal).records():
            if isinstance(record, AnswersGenerated):
                self._answers[record.number] = record
            elif isinstance(record, RolloutMade):
                self._scored[record.number] = record

    def find_scored(self, number: int, weights: str, rewards: str) -> tuple[Rollout, RolloutMade] | None:
        """Rollout `number`, if it was sampled by these weights and scored by these rewards, and is whole."""
        record = self._scored.get(number)
        if record is None or (record.weights, record.rewards) != (weights, rewards):
            return None
        rollout = self._read(number, record.hash, is_scored=True)
        return None if rollout is None else (rollout, record)

    def find_answers(self, number: int, weights: str) -> tuple[Rollout, AnswersGenerated] | None:
        """The answers of rollout `number`, if these weights gave them: they lack their rewards."""
        record = self._answers.get(number)
        if record is None or record.weights != weights:
            return None
        rollout = self._read(number, record.hash, is_scored=False)
        return None if rollout is None else (rollout, record)

    def _read(self, number: int, expected_hash: str, *, is_scored: bool) -> Rollout | None:
        try:
            return read_rollout(self._folder, number, expected_hash, is_scored=is_scored)
        except DataError:  # gone, or damaged: it is made again, and is the same
            return None
