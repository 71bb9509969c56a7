"""What a run has come to, as one frozen value. ftui/folding.py makes it from the run's records."""

from typing import Literal

import msgspec

from ftui.errors import STOPPED
from ftui.events import Badge, Phase
from ftui.identity import Identity


class Evaluation(msgspec.Struct, frozen=True):
    """An evaluation's loss; `None` when it was not finite."""

    step: int
    loss: float | None


class Checkpoint(msgspec.Struct, frozen=True):
    """`verified`: every byte was read back after it was written."""

    step: int
    path: str
    tags: list[str] = []
    verified: bool = False


class Sample(msgspec.Struct, frozen=True):
    step: int
    prompt: str
    completion: str


class Restart(msgspec.Struct, frozen=True):
    """A crash that another attempt followed. `number`: restarts in a row by then."""

    attempt: int
    step: int
    error: str
    number: int


class RunState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A run as its records tell it. Numbers of a step are those of this attempt: a new attempt begins without any."""

    phase: Phase = "queued"
    detail: str = ""
    attempt: int = 0
    token: str = ""
    """Of the process that makes this attempt: what another one wrote under its number is not believed."""
    engine: Identity | None = None
    host: str = ""
    device: str = ""

    model: str = ""
    method: str = ""
    precision: str = ""
    effective_batch: int | None = None
    max_steps: int | None = None
    logging_steps: int | None = None
    """Set by a letter; otherwise the profile's."""
    micro_batch: int | None = None
    """The newest size memory forced, in rows; `None` while it is the profile's."""
    micro_batch_step: int | None = None
    resumed_from: str | None = None
    badge: Badge | None = None
    badge_reasons: list[str] = []

    step: int = 0
    step_attempt: int = -1
    """The attempt that last said at which step the run is."""
    start_step: int | None = None
    started: float | None = None
    """Time of this attempt's run_started (Unix seconds)."""
    step_time: float | None = None
    """Time of this attempt's last step (Unix seconds)."""
    epoch: float | None = None
    loss: float | None = None
    learning_rate: float | None = None
    grad_norm: float | None = None
    tokens_per_second: float | None = None
    memory: int | None = None
    non_finite: list[str] = []

    first_evaluation: Evaluation | None = None
    evaluations: list[Evaluation] = []
    """The newest few, oldest first."""
    bests: list[Evaluation] = []
    """The newest few that were the best so far, oldest first."""
    checkpoints: list[Checkpoint] = []
    samples_before: list[Sample] = []
    samples_after: list[Sample] = []
    warning: str = ""
    has_verified: bool = False
    """Whether a checkpoint of this attempt was read back whole."""
    held_since: float | None = None
    """When the hold began (Unix seconds)."""
    leaving: str = ""
    """The letter (stop, park, abort) that this attempt obeys by ending."""
    stalled: str = ""
    """What stood still, in words, once the supervisor has had enough of it."""
    restarts: list[Restart] = []
    """The newest few, oldest first."""
    restarting: bool = False
    """This attempt crashed and the next is about to begin."""

    ended_by: Literal["", "engine", "supervisor"] = ""
    exit_code: int | None = None
    reason: str = ""
    message: str = ""
    hint: str = ""
    error: str = ""
    """What went wrong, the same text for the same fault."""
    again: bool = False
    """The engine itself holds that another attempt may succeed."""
    last_lines: list[str] = []
    """What the engine printed last, where it left no ending of its own."""
    final: str | None = None
    step_final: int | None = None
    loss_before: float | None = None
    loss_final: float | None = None

    @property
    def last_evaluation(self) -> Evaluation | None:
        return self.evaluations[-1] if self.evaluations else None

    @property
    def best_evaluation(self) -> Evaluation | None:
        return self.bests[-1] if self.bests else None

    @property
    def newest_checkpoint(self) -> Checkpoint | None:
        return max(self.checkpoints, key=lambda checkpoint: checkpoint.step, default=None)


def eta_seconds(state: RunState) -> float | None:
    """Seconds to the last step at the pace of this attempt, evaluations and saves included; `None` before its first."""
    if None in (state.started, state.step_time, state.start_step, state.max_steps) or state.exit_code is not None:
        return None
    assert state.started is not None and state.step_time is not None
    assert state.start_step is not None and state.max_steps is not None
    done = state.step - state.start_step
    spent = state.step_time - state.started
    return spent / done * (state.max_steps - state.step) if done > 0 and spent > 0 else None


def is_over(state: RunState) -> bool:
    """Whether the run came to an end that the same command does not continue: finished, or stopped on purpose."""
    return state.phase == "finished" or (state.phase == "stopped" and state.exit_code == STOPPED)
