"""What a training run holds while it trains: the assembled parts, and the small state that a checkpoint remembers."""

from dataclasses import dataclass
from typing import Any

import msgspec
import torch
from torch import nn
from transformers import PreTrainedModel

from ftui.profile.schema import Profile
from ftui.runs.run_folder import Run

from ..distributed.process_group import Ranks
from ..objectives import Loss, Stage
from ..runtime.control_flags import Control
from ..runtime.disk_wait import Space
from ..runtime.event_writer import Logbook
from ..runtime.live_overrides import Setting
from ..system.device import Hardware
from .prepare import Prepared


class TrainState(msgspec.Struct):
    """Where a run stands after `step` finished steps; with weights, optimizer and generators it is all of the run.

    `loss_scale` and the two after it are those of fp16 (engine/optim/loss_scaler.py), `plateau` is
    engine/optim/plateau.py's.
    `evaluated_step` is the last step that was evaluated (-1: none), so that a run saved between a step and its
    evaluation evaluates when it is resumed. `loss_before` and `samples_before` are those of step 0. `other_machine` and
    `other_content` say what has changed at any resume so far (engine/checkpoints/reproducibility.py).
    """

    step: int = 0
    num_tokens: int = 0
    num_target_tokens: int = 0
    evaluated_step: int = -1
    loss_before: float | None = None
    last_loss: float | None = None
    best_loss: float | None = None
    best_step: int | None = None
    bad_evaluations: int = 0
    bad_steps: int = 0
    loss_scale: float | None = None
    steps_since_overflow: int = 0
    num_overflows: int = 0
    plateau: dict[str, float] = {}
    samples_before: list[str] = []
    settings: list[Setting] = []
    other_machine: list[str] = []
    other_content: list[str] = []


class LossModule(nn.Module):
    """The one module accelerate places and wraps: a micro-batch in, (sum, weight, extras) out.

    It casts by itself: accelerate's bf16 returns float32 logits, and its fp16 refuses a CPU.
    """

    def __init__(self, model: nn.Module, stage: Stage, hardware: Hardware) -> None:
        super().__init__()
        self.model = model
        self._stage = stage
        self._hardware = hardware

    def forward(self, batch: Any) -> Loss:
        with autocast(self._hardware):
            return self._stage.loss(self.model, batch)


def autocast(hardware: Hardware) -> torch.autocast:
    """A block whose heavy arithmetic is done in the hardware's precision."""
    low = hardware.precision != "fp32"
    return torch.autocast(hardware.device.type, dtype=hardware.compute_dtype if low else None, enabled=low)


@dataclass(frozen=True)
class Training:
    """The parts of a run, put together by the recipe. `module` is the wrapped LossModule around `model`."""

    run: Run
    profile: Profile
    hardware: Hardware
    prepared: Prepared
    stage: Stage
    model: PreTrainedModel
    module: nn.Module
    optimizer: torch.optim.Optimizer
    logbook: Logbook
    control: Control
    space: Space
    ranks: Ranks
    state: TrainState
    fingerprints: dict[str, str]
    environment: dict[str, str]

    @property
    def is_adapter(self) -> bool:
        return self.profile.adapter.is_lora
