"""The answers of an estimate as plain values: bytes, seconds, dollars, each with its basis."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Basis = Literal["closed form", "simulated", "measured here", "corrected here"]
"""The last: in closed form, times what a probe of another setting of that model, card and method was off."""
Verdict = Literal["fits", "likely", "tight", "no", "unknown"]
Phase = Literal["loading", "forward", "backward", "optimizer", "evaluation"]

PARTS = (
    "weights", "quantisation", "adapters", "gradients", "optimizer", "activations", "logits", "workspace",
    "fragmentation", "context",
)  # fmt: skip


@dataclass(frozen=True)
class Memory:
    """The peak of one device (each rank has one like it), in bytes.

    Attributes:
        allocated: by tensors, as `torch.cuda.max_memory_allocated` counts.
        reserved: by torch's allocator.
        process: what the driver's tool shows for the process: `reserved` and the context (on a CPU: resident memory).
        low, high: range of `process`; a measured value lies above `high` in few cases only.
        breakdown: bytes by part at the peak, the names of PARTS; they add up to `process`.
        phase: when the peak is reached.
        unvalidated: what of this setting has never been compared with a measurement, in words.
    """

    allocated: int
    reserved: int
    process: int
    low: int
    high: int
    breakdown: Mapping[str, int]
    phase: Phase
    basis: Basis
    unvalidated: tuple[str, ...] = ()


@dataclass(frozen=True)
class Duration:
    """Time and money of a run. `None`: unknown. `spread` is a share: 0.25 = give or take 25 %."""

    num_steps: int | None
    tokens_per_second: float | None
    step_seconds: float | None
    total_seconds: float | None
    dollars: float | None
    spread: float
    basis: Basis


@dataclass(frozen=True)
class Estimate:
    """All that is told about one profile on one kind of card.

    Attributes:
        card: name of the card.
        num_cards: how many of them the profile uses.
        memory: `None` for a model whose architecture is not known: never a guess.
        ram: bytes of the machine's memory at the peak of loading and training.
        disk: bytes of checkpoints and the result, at their most.
        num_parameters, num_trainable: of the model; `None` where unknown.
        notes: what a reader must know: what was assumed, what is not known.
        impossible: why the card cannot train it whatever its memory; empty where it can.
    """

    card: str
    num_cards: int
    verdict: Verdict
    memory: Memory | None
    duration: Duration
    ram: int | None
    disk: int | None
    num_parameters: int | None
    num_trainable: int | None
    notes: tuple[str, ...] = ()
    impossible: str = ""
