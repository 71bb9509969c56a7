"""A trace with a part of the model elsewhere: what is divided among processes or lies in host memory is no block of it.

Where these bytes are depends on phase and layer only, so that they are taken off the trace, and what is gathered for a
moment is added to it, without being simulated.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch import nn

from ftui.estimate.placement.frozen_base import BasePlacement, FrozenBase, Rows, way_of
from ftui.estimate.result import Phase
from ftui.estimate.states import SLICE_BYTES
from ftui.profile.schema import Profile

from .depth import find_layers
from .meta_model import MetaModel
from .trace import Trace


@dataclass(frozen=True)
class Elsewhere:
    """Where a model's frozen base is, and the share of the optimizer's state that is on the device (1: all of it)."""

    base: BasePlacement
    moments_left: float
    moments_at_once: float

    def changes(self, moments: int, phase: Phase, layer: int | None) -> dict[str, int]:
        """Bytes to add to each part of a trace in which everything is on the device; `moments`: of the state."""
        if phase == "loading":  # layer by layer, and the state comes after it
            return {"weights": -self.base.away}
        present = self.moments_left + (self.moments_at_once if phase == "optimizer" else 0)
        return {
            "weights": -self.base.away,
            "gathered": self.base.gathered(phase, layer),
            "optimizer": round((present - 1) * moments),
        }


def find_elsewhere(profile: Profile, made: MetaModel) -> Elsewhere:
    """For a model at full depth, as the profile says."""
    hardware, number = profile.hardware, profile.hardware.num_processes
    way = way_of(hardware.shard, hardware.offload, number, is_lora=profile.adapter.is_lora)
    is_cpu = made.hardware.device.type == "cpu"
    placement = BasePlacement(_frozen(made), hardware.dp_shard_size or number, way, shares_memory=is_cpu)
    if "state" not in hardware.offload:
        return Elsewhere(placement, 1, 0)
    sizes = [_bytes(weight) for weight in made.model.parameters() if weight.requires_grad]
    at_once = max(SLICE_BYTES, max(sizes, default=0)) / max(1, sum(sizes))
    return Elsewhere(placement, 1 if is_cpu else 0, min(1.0, at_once))


def placed_peak(trace: Trace, elsewhere: Elsewhere) -> tuple[dict[str, int], Phase, int]:
    """Bytes by part where most are on the device, the phase, and how much more they are than at the trace's own peak.

    What is alive at a moment without an event is that of the event before it.
    """
    moments = _moments(trace)
    alive = top = highest = 0
    best: tuple[int, Phase, dict[str, int]] = (0, "loading", {})
    for begin, end, phase, layer in _ranges(trace):
        changes = elsewhere.changes(moments, phase, layer)
        change = sum(changes.values())
        for index in range(begin, end):
            alive += trace.events[index][1]
            highest = max(highest, alive)
            if alive + change > top:
                top, best = alive + change, (index, phase, changes)
    index, phase, changes = best
    parts = trace.breakdown(index)
    for part, size in changes.items():
        parts[part] = parts.get(part, 0) + size
    return parts, phase, top - highest


def _ranges(trace: Trace) -> Iterator[tuple[int, int, Phase, int | None]]:
    ends = [mark.index for mark in trace.marks[1:]] + [len(trace.events)]
    for mark, end in zip(trace.marks, ends, strict=True):
        phase: Phase = mark.phase  # type: ignore[assignment]
        yield mark.index, end, phase, mark.layer


def _moments(trace: Trace) -> int:
    """Bytes of the optimizer's state: it is allocated before the first pass."""
    first = next((mark.index for mark in trace.marks if mark.phase == "forward"), 0)
    return trace.breakdown(first - 1).get("optimizer", 0) if first else 0


def _frozen(made: MetaModel) -> FrozenBase:
    base: Any = made.base
    layers = tuple(
        tuple(_rows(weight) for weight in layer.parameters() if not weight.requires_grad) for layer in find_layers(base)
    )
    embeddings, head = base.get_input_embeddings().weight, base.get_output_embeddings()
    has_own_head = head is not None and head.weight is not embeddings
    return FrozenBase(layers, _end(embeddings), _end(head.weight) if has_own_head else None)


def _end(weight: nn.Parameter) -> Rows | None:
    return None if weight.requires_grad else _rows(weight)


def _rows(weight: nn.Parameter) -> Rows:
    rows = len(weight) if weight.dim() else 1
    return Rows(rows, _bytes(weight) // max(1, rows))


def _bytes(weight: nn.Parameter) -> int:
    return weight.numel() * weight.element_size()
