"""The answers of an estimate as plain values (bytes, seconds, dollars, each with its basis), and whether a run fits."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from ftui.hardware.devices import Card

Basis = Literal["closed form", "simulated", "measured here", "corrected here"]
"""The last: in closed form, times what a probe of another setting of that model, card and method was off."""
Verdict = Literal["fits", "likely", "tight", "no", "unknown"]
Phase = Literal["loading", "forward", "backward", "optimizer", "generation", "evaluation"]
PHASES: dict[Phase, str] = {
    "loading": "while loading", "forward": "in a forward pass", "backward": "in a backward pass",
    "optimizer": "in an update", "generation": "while answers are generated", "evaluation": "in an evaluation",
}  # fmt: skip

PARTS = (
    "weights", "gathered", "quantisation", "adapters", "gradients", "optimizer", "activations", "logits", "workspace",
    "reward model", "fragmentation", "context",
)  # fmt: skip
"""What the bytes of a peak are for, in the same words by both ways (tests/engine/simulate/test_closed_form.py):
`weights` are the model's, with copies of them in the type of the arithmetic; `gathered` layers and ends that are whole
on the device for a moment only, else divided among processes or in host memory; `gradients` those that wait and those
just made; `optimizer` its state, and what an update needs; `logits` all that is as wide as the vocabulary;
`activations` what is kept for the backward pass, and what a layer needs while it computes; `workspace` cuBLAS's;
`reward model` the one that a run asks for rewards."""


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


MeasuredFirst = Literal["reference", "losses"]
"""What is measured before the first step: log-probabilities under the reference, or the base model's losses."""


@dataclass(frozen=True)
class Measuring:
    """Time and money of what is measured before the first step, both in those of the run; bytes of its file."""

    what: MeasuredFirst
    seconds: float | None
    dollars: float | None
    num_bytes: int | None


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
        rows: how the rows' lengths are known where no tokenizer counted them, for the lines with memory and time; else
            empty.
        warnings: what a run would warn of, of its rows and its values; empty where the rows were not read.
        measuring: what is measured before the first step, where something is.
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
    rows: str = ""
    warnings: tuple[str, ...] = ()
    measuring: Measuring | None = None


SAFE = 1.15
"""Of 135 published runs on a T4 and an L40S none took more than 15 % above what was simulated for it. Older runs of
other code did: 3 of Qwen's 12 by 21 to 24 %, 2 of litgpt's 14 by 17 and 23 % (tests/engine/published)."""
FIT: tuple[Verdict, ...] = ("fits", "likely")


def usable(card: Card) -> int:
    """Bytes a process may take on the card, its context counted.

    A hundredth of what the driver shows is left out, for what it keeps to itself: 1 to 2.5 % were seen, the context
    among them.
    """
    return int(card.memory * 0.99) if card.kind == "cuda" else card.memory


def verdict(memory: Memory | None, card: Card) -> Verdict:
    """`fits`: even 15 % more would; `likely`: the top of the range does; `tight`: only the estimate itself; else `no`.

    A measured value has a range of its own that needs no more room. Without an estimate, or where the card hides how
    much it has, it is `unknown`.
    """
    room = usable(card)
    if memory is None or room <= 0:
        return "unknown"
    safe = memory.high if memory.basis == "measured here" else max(memory.high, int(memory.process * SAFE))
    if safe <= room:
        return "fits"
    if memory.high <= room:
        return "likely"
    return "tight" if memory.process <= room else "no"


IN_WORDS: dict[Verdict, str] = {
    "fits": "with room for 15 % more",
    "likely": "so does the top of its range",
    "tight": "the top of its range would not fit",
    "no": "it needs more than there is",
    "unknown": "",
}
