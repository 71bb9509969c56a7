"""Pretraining: the model trains on every token of a text. The loss is that of sft; only the rows differ."""

from dataclasses import replace

from . import Objective, sft


def stage(label_smoothing: float) -> Objective:
    """The objective `pretrain`. `label_smoothing`: share (0..1) of the probability spread over the vocabulary."""
    return replace(sft.stage(label_smoothing), name="pretrain")
