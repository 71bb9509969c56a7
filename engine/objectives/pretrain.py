"""Pretraining: every token of a text is learned. The loss is that of sft; the rows differ (data/tokens/encode.py)."""

from dataclasses import replace

from . import Stage, sft


def stage(label_smoothing: float) -> Stage:
    return replace(sft.stage(label_smoothing), name="pretrain")
