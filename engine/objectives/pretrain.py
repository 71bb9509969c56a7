"""Pretraining: the model trains on every token of a text. The loss is that of sft; only the rows differ."""

from dataclasses import replace

from ftui.profile.schema import Profile

from . import Objective, sft


def stage(profile: Profile) -> Objective:
    """The objective `pretrain`; its keys are those of `sft`."""
    return replace(sft.stage(profile), name="pretrain")
