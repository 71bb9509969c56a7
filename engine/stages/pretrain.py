"""Pretraining: every token of a text is learned. The loss is that of sft; the rows differ (data/encode.py)."""

from ftui.engine.stages import Stage, sft

STAGE = Stage("pretrain", sft.loss)
