"""Where the time of a training step goes, as values: what engine/services/profile_step.py has measured."""

from typing import Literal, get_args

import msgspec

Kind = Literal[
    "products", "attention", "norms", "elementwise", "copies", "dequantise", "optimizer", "collectives", "data",
    "between", "other",
]  # fmt: skip
Phase = Literal["forward", "backward", "update", "rest"]
KINDS: tuple[Kind, ...] = get_args(Kind)
PHASES: tuple[Phase, ...] = get_args(Phase)


class TimeShare(msgspec.Struct, frozen=True):
    """Seconds of a mean step that went into one kind of work in one phase of it."""

    kind: Kind
    phase: Phase
    seconds: float


class OpTime(msgspec.Struct, frozen=True):
    """Seconds and calls of one operation in a mean step; `name` as torch's profiler has it."""

    name: str
    kind: Kind
    seconds: float
    calls: float


class RolloutTime(msgspec.Struct, frozen=True, kw_only=True):
    """What a rollout took before the steps on it, in a stage that samples its answers.

    `num_tokens` are those of its answers, `num_steps` the steps that share it. `seconds` by phase: `generating`,
    `scoring`, and `log_probs` where something is measured of the answers.
    """

    num_answers: int
    num_tokens: int
    num_steps: int
    seconds: dict[str, float]


class StepProfile(msgspec.Struct, frozen=True, kw_only=True):
    """A few steps of a profile's training, measured; times and amounts are those of a mean step.

    Attributes:
        precision: type of the heavy arithmetic: `bf16`, `fp16` or `fp32`.
        step_seconds: without torch's profiler.
        profiled_seconds: with it; `shares` add up to this.
        cpu_share: of `step_seconds`, for which this process's thread had a core; `None` on a GPU.
        num_positions: with padding.
        lengths: tokens of every sequence in the steps, all steps together.
        product_rate: operations a second of large matrix products here, in `precision`.
        bandwidth: bytes a second that a copy reads and writes here.
        peak_rate: what the maker of the card promises of `product_rate`, where the card is known; set by the reader.
        rollout: of a stage that samples its answers; all else is of the steps on it.
    """

    device: str
    is_gpu: bool
    precision: Literal["bf16", "fp16", "fp32"]
    num_threads: int
    num_steps: int
    num_micro_batches: float
    step_seconds: float
    profiled_seconds: float
    cpu_share: float | None
    num_rows: float
    num_positions: float
    num_targets: float
    lengths: list[int]
    shares: list[TimeShare]
    operations: list[OpTime]
    product_rate: float
    bandwidth: float
    versions: dict[str, str]
    peak_rate: float | None = None
    rollout: RolloutTime | None = None

    @property
    def num_tokens(self) -> float:
        """Real tokens of a mean step."""
        return sum(self.lengths) / self.num_steps

    @property
    def num_computed(self) -> float:
        """The same, but the prompt of several answers counts once where it is computed once."""
        return min(self.num_tokens, self.num_positions)

    @property
    def padding(self) -> float:
        """Share of the computed places that hold no token."""
        return 1 - self.num_computed / self.num_positions

    def seconds(self, kind: Kind | None = None, phase: Phase | None = None) -> float:
        """Seconds of a mean step: of a kind, of a phase, of both, or all."""
        return sum(s.seconds for s in self.shares if kind in (None, s.kind) and phase in (None, s.phase))
