"""What a run has come to, as one frozen value. ftui/runs/reduce.py makes it from the run's records."""

from statistics import median_low
from typing import Literal

import msgspec

from ftui.errors import STOPPED, DiskError, DiskFullError
from ftui.measures import leading_measure
from ftui.runs.events import RankSeconds
from ftui.runs.records.machine_stop import MachineStop
from ftui.runs.records.record import Phase, Reproducibility
from ftui.runs.records.rollout_records import RolloutMade, time_left_by_rollouts, working_seconds
from ftui.runs.records.spending import Spending
from ftui.system.process_id import Identity, is_alive

PAUSES_KEPT = 64
STEPS_OF_RANKS = 10


class Evaluation(msgspec.Struct, frozen=True):
    """An evaluation's loss (`None` when it was not finite) and other measures. `requested`: an extra one."""

    step: int
    loss: float | None
    requested: bool = False
    extras: dict[str, float | None] = {}

    @property
    def is_bad(self) -> bool:
        """Whether its loss was not finite."""
        return leading_measure(self) == ("loss", None)


class SavedCheckpoint(msgspec.Struct, frozen=True):
    """A saved checkpoint. `path` is below the run's folder; `verified`: every byte was read back after the save."""

    step: int
    path: str
    tags: list[str] = []
    verified: bool = False


class SampleAnswer(msgspec.Struct, frozen=True):
    """The model's answer to a sample prompt after `step` steps."""

    step: int
    prompt: str
    completion: str


class Restart(msgspec.Struct, frozen=True):
    """A crash that another attempt followed. `number`: restarts in a row by then."""

    attempt: int
    step: int
    error: str
    number: int


class Alarm(msgspec.Struct, frozen=True):
    """What a rule of the run's health has found; `time` in Unix seconds."""

    time: float
    rule: str
    level: Literal["red", "amber"]
    step: int
    evidence: str
    suggestion: str


class Push(msgspec.Struct, frozen=True):
    """The newest push of `what` to `to`: `problem` says why it failed, `place` where all of it is by now.

    `process` sends it, or did until it was killed.
    """

    to: str
    what: str
    place: str = ""
    commit: str = ""
    problem: str = ""
    process: Identity | None = None

    @property
    def is_pending(self) -> bool:
        """Whether it has begun and not ended: it is at work, or was killed."""
        return not self.place and not self.problem

    @property
    def is_at_work(self) -> bool:
        """Whether it has not ended and its process lives, seen from this boot and pid namespace."""
        return self.is_pending and is_alive(self.process)

    @property
    def words(self) -> str:
        """What became of it. Not yet safe to print."""
        if self.place:
            return f"pushed to {self.place}"
        standing = "push failed" if self.problem else "pushing" if self.is_at_work else "push cut short"
        return f"{standing}: {self.what} to {self.to}"


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
    """Set by a request; otherwise the profile's."""
    micro_batch: int | None = None
    """The newest size memory forced, in rows; `None` while it is the profile's."""
    micro_batch_step: int | None = None
    resumed_from: str | None = None
    reproducibility: Reproducibility | None = msgspec.field(default=None, name="badge")
    reproducibility_reasons: list[str] = msgspec.field(default_factory=list, name="badge_reasons")

    step: int = 0
    step_attempt: int = -1
    """The attempt that last said at which step the run is."""
    start_step: int | None = None
    started: float | None = None
    """Time of this attempt's run_started (Unix seconds)."""
    step_time: float | None = None
    """Time of this attempt's last step (Unix seconds)."""
    tokens_ahead: int | None = None
    """Tokens of all steps of this attempt, to `ahead_to`; `None` in older runs."""
    ahead_to: int | None = None
    """The last step of the plan when this attempt began."""
    attempt_tokens: int = 0
    """Tokens of this attempt's steps."""
    paced_from: float | None = None
    """Time of this attempt's first step (Unix seconds)."""
    paced_step: int | None = None
    """The number of that step."""
    paced_tokens: int = 0
    """Tokens of this attempt's steps, without its first."""
    epoch: float | None = None
    stage: str = ""
    """Which one of a curriculum, as `2/3`."""
    loss: float | None = None
    learning_rate: float | None = None
    grad_norm: float | None = None
    extras: dict[str, float | None] = {}
    """Other measures of the stage, by name."""
    tokens_per_second: float | None = None
    memory: int | None = None
    non_finite: list[str] = []
    ranks: RankSeconds | None = None
    """Means over about the last ten steps, where there are several ranks: those of one step jump about."""

    first_evaluation: Evaluation | None = None
    evaluations: list[Evaluation] = []
    """The newest few, oldest first, extra ones among them; one a step."""
    bests: list[Evaluation] = []
    """The newest few that were the best so far, oldest first."""
    checkpoints: list[SavedCheckpoint] = []
    samples_before: list[SampleAnswer] = []
    samples_after: list[SampleAnswer] = []
    pushes: list[Push] = []
    """The newest few, oldest first; one for each target and each thing that was pushed."""
    rollout: RolloutMade | None = None
    """The newest of this attempt: what its steps train on (stage grpo)."""
    first_rollout: RolloutMade | None = None
    """Of this attempt."""
    spending: Spending = Spending()
    machine_stop: MachineStop | None = None
    """How the command that stops this machine stands, once the run has ended."""
    warning: str = ""
    alarms: list[Alarm] = []
    """The newest few of this attempt, oldest first."""
    has_verified: bool = False
    """Whether a checkpoint of this attempt was read back whole."""
    paused_since: float | None = msgspec.field(default=None, name="held_since")
    """When the pause began (Unix seconds)."""
    pauses: list[tuple[float, float]] = msgspec.field(default_factory=list, name="holds")
    """When this attempt's newest pauses began and ended (Unix seconds), oldest first; without one that lasts."""
    leaving: str = ""
    """The request (stop, park, abort) that this attempt obeys by ending."""
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
        """The newest evaluation of the plan; `None` before the first."""
        return self.evaluations[-1] if self.evaluations else None

    @property
    def best_evaluation(self) -> Evaluation | None:
        """The best evaluation so far, by eval.metric_for_best_model; `None` before the first after step 0."""
        return self.bests[-1] if self.bests else None

    @property
    def newest_checkpoint(self) -> SavedCheckpoint | None:
        """The saved checkpoint of the highest step, verified or not."""
        return max(self.checkpoints, key=lambda checkpoint: checkpoint.step, default=None)


class Losses(msgspec.Struct, frozen=True):
    """The two losses of a run: the same figures in every list, view and command.

    `train`: of the newest step of this attempt. `eval`: of the newest evaluation, planned or extra, at `eval_step`.
    `None` where there is none, or where it was not finite: then `non_finite` names it.
    """

    train: float | None
    eval: float | None
    eval_step: int | None
    non_finite: list[str]


def read_losses(state: RunState) -> Losses:
    """The losses of a run as they are shown, whether it is running or has ended."""
    last = state.last_evaluation
    not_finite = {"train": "loss" in state.non_finite, "eval": last is not None and last.is_bad}
    names = [name for name, bad in not_finite.items() if bad]
    return Losses(state.loss, last.loss if last else None, last.step if last else None, names)


def mean_seconds(before: RankSeconds | None, newest: RankSeconds | None) -> RankSeconds | None:
    """The moving mean of the times by rank, after one more step."""
    if before is None or newest is None or len(before.passes) != len(newest.passes):
        return newest

    def mean(olds: list[float], news: list[float]) -> list[float]:
        return [round(old + (new - old) / STEPS_OF_RANKS, 5) for old, new in zip(olds, news, strict=True)]

    return RankSeconds(
        mean(before.passes, newest.passes),
        mean(before.data, newest.data),
        mean(before.communication, newest.communication),
    )


def own_seconds(ranks: RankSeconds) -> list[float]:
    """How long each rank is at work in a step by itself: what the others wait for."""
    return [passes + data for passes, data in zip(ranks.passes, ranks.data, strict=True)]


def slowest_rank(ranks: RankSeconds) -> tuple[int, float]:
    """The rank that took longest by itself, and how much longer than the median rank, as a share.

    Of an even number of ranks the median is the faster one of the middle two.
    """
    own = own_seconds(ranks)
    usual = median_low(own)
    return max(range(len(own)), key=own.__getitem__), max(own) / usual - 1 if usual else 0.0


def communication_share(ranks: RankSeconds) -> float:
    """The share of all ranks' time in a step that was waiting for others, or sending."""
    exchanged = sum(ranks.communication)
    return exchanged / (exchanged + sum(own_seconds(ranks)) or 1.0)


def rank_words(ranks: RankSeconds) -> str:
    """`rank 3 slowest (+12%), 18% in communication`."""
    rank, more = slowest_rank(ranks)
    return f"rank {rank} slowest (+{more:.0%}), {communication_share(ranks):.0%} in communication"


def with_pause(state: RunState, begin: float, end: float) -> RunState:
    """One more time in which no step was taken; where there are many, the two oldest become one that is as long."""
    pauses = [*state.pauses, (begin, end)]
    if len(pauses) > PAUSES_KEPT:
        (first, first_end), (second, second_end), *others = pauses
        pauses = [(second - (first_end - first), second_end), *others]
    return msgspec.structs.replace(state, pauses=pauses)


def eta_seconds(state: RunState) -> float | None:
    """Seconds to the last step at the pace of this attempt, evaluations and saves included; `None` before its second.

    The pace is that of tokens, as a step of long rows takes longer, without the first step, which pays for kernels and
    caches: after 20 of 216 steps of a run on a quiet machine it was 1 % off (with steps alone: 16 %).
    Where steps share rollouts it is that of rollouts (`time_left_by_rollouts`).
    """
    if None in (state.step_time, state.paced_from, state.paced_step, state.max_steps) or state.exit_code is not None:
        return None
    assert state.step_time is not None and state.paced_from is not None
    assert state.paced_step is not None and state.max_steps is not None
    if state.rollout is not None and state.first_rollout is not None:
        made = state.first_rollout, state.rollout
        return time_left_by_rollouts(*made, state.step_time, state.max_steps, state.pauses)
    steps_left, steps_done = state.max_steps - state.step, state.step - state.paced_step
    spent = working_seconds(state.paced_from, state.step_time, state.pauses)
    if steps_done <= 0 or spent <= 0:
        return None
    tokens = _tokens_left(state)
    if tokens is None or not state.paced_tokens:
        return spent / steps_done * steps_left
    return spent / state.paced_tokens * tokens


def _tokens_left(state: RunState) -> float | None:
    """Those of the plan's steps that are to come, exactly; where a request moved its end, with a mean for what it moved
    by."""
    if None in (state.tokens_ahead, state.ahead_to, state.start_step, state.max_steps):
        return None
    assert state.tokens_ahead is not None and state.ahead_to is not None
    assert state.start_step is not None and state.max_steps is not None
    if state.max_steps <= state.step or state.ahead_to <= state.start_step:
        return 0.0 if state.max_steps <= state.step else None
    ahead = state.tokens_ahead - state.attempt_tokens
    if state.max_steps == state.ahead_to:
        return ahead
    if state.max_steps < state.ahead_to:
        return ahead * (state.max_steps - state.step) / (state.ahead_to - state.step)
    return ahead + state.tokens_ahead / (state.ahead_to - state.start_step) * (state.max_steps - state.ahead_to)


def phase_word(phase: str) -> str:
    """A phase as people read it: the stored value `held` is shown as `paused`."""
    return "paused" if phase == "held" else phase


def alarm_name(alarm: Alarm) -> str:
    """The name of an alarm's rule as people read it."""
    return alarm.rule.replace("_", " ")


def red_alarms(state: RunState) -> list[str]:
    """What is certainly wrong with this attempt while it is running, each once, by name."""
    return [] if state.exit_code is not None else list(dict.fromkeys(
        alarm_name(alarm) for alarm in state.alarms if alarm.level == "red"
    ))  # fmt: skip


def has_begun(state: RunState) -> bool:
    """Whether training began in any attempt: from then on the run has its name for good."""
    return state.max_steps is not None


def how_to_continue(state: RunState) -> str:
    """The hint for a run that failed or was lost; what was ended from outside could not say what to do."""
    if state.ended_by != "supervisor" and state.phase != "lost":
        return state.hint
    return "The same command " + (
        "continues from the newest checkpoint." if state.checkpoints else "starts it again: it has saved nothing yet."
    )


def disk_trouble(state: RunState) -> str:
    """`disk full` or `disk error` where that parked the run, else nothing."""
    if state.phase != "parked" or state.exit_code != DiskError.exit_code:
        return ""
    is_full = state.ended_by != "supervisor" and (not state.message or state.error.startswith(DiskFullError.__name__))
    return "disk full" if is_full else "disk error"


def ended_badly(state: RunState) -> bool:
    """Whether something went wrong that a person must see: it failed, was lost, or its disk parked it with an error."""
    return state.phase in ("failed", "lost") or bool(state.message)


def is_pushing(state: RunState) -> bool:
    """Whether something of the run is being pushed now."""
    return bool(state.pushes) and state.pushes[-1].is_at_work


def has_ended(state: RunState) -> bool:
    """Whether the run came to an end that the same command does not continue: finished, or stopped on purpose."""
    return state.phase == "finished" or (state.phase == "stopped" and state.exit_code == STOPPED)
