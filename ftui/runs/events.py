"""What happens in a run, said once, typed, in the past tense. Every line of every log file is one of these, or of
those in ftui/runs/records/.

A record carries its kind, the version of its form, the wall-clock time (Unix seconds) and the attempt that wrote it.
Measured floats are `float | None`: `None` is "not measured" unless the field's name stands in `non_finite`.
"""

import msgspec

from ftui.runs.records.health_records import HealthAlarm
from ftui.runs.records.hook_records import HookRecord
from ftui.runs.records.push_records import PushRecord
from ftui.runs.records.record import Phase, Record, Reproducibility
from ftui.runs.records.rollout_records import RolloutRecord
from ftui.runs.records.signs_of_life import Beat, Telemetry
from ftui.runs.records.spending import BudgetUsed
from ftui.runs.records.supervisor_records import Adopted, EngineEnded, EngineStarted, Restarting, Stalled
from ftui.system.process_id import Identity


class RunOpened(Record, frozen=True, tag="run_opened"):
    """An engine begins an attempt: on which machine, with which library versions, torch threads and ranks.

    `dollars_per_hour`: of all its cards, as `price_basis` says (`None`: nobody has said). `max_money` (dollars) and
    `max_hours`: what all attempts together may cost and take.
    """

    host: str
    device: str
    driver: str | None
    versions: dict[str, str]
    num_threads: int
    world_size: int
    identity: Identity
    dollars_per_hour: float | None = None
    price_basis: str = ""
    max_money: float | None = None
    max_hours: float | None = None


class PhaseChanged(Record, frozen=True, tag="phase_changed"):
    """The engine enters a phase, or adds a detail (rows read, bytes loaded) to the one it is in."""

    phase: Phase
    detail: str = ""


class RunStarted(Record, frozen=True, tag="run_started"):
    """The plan is made and the first step comes next. Counts of tokens and rows are those of one epoch, but for
    `num_tokens_ahead`, which are those of all steps from here to `max_steps` (not in older runs). `num_sequences`
    are those of an epoch, packed ones counted once. `epoch_shift`: a fork's epochs beyond those of its own plan.
    `steps_per_epoch` is 0 where steps draw prompts as they need them.
    `stages` are the first steps of a curriculum's stages.

    `reproducibility`: how surely a resumed run equals an uninterrupted one (`None` for one never resumed).
    """

    start_step: int
    max_steps: int
    steps_per_epoch: int
    effective_batch: int
    num_train_rows: int
    num_train_tokens: int
    num_target_tokens: int
    num_eval_rows: int
    total_parameters: int
    trainable_parameters: int
    model: str
    method: str
    precision: str
    num_tokens_ahead: int | None = None
    num_sequences: int | None = None
    epoch_shift: float = 0.0
    stages: list[int] = []
    resumed_from: str | None = None
    reproducibility: Reproducibility | None = msgspec.field(default=None, name="badge")
    reproducibility_reasons: list[str] = msgspec.field(default_factory=list, name="badge_reasons")


class StageBegan(Record, frozen=True, tag="stage_began"):
    """Stage `number` of a curriculum's `of` begins with step `step`, or an attempt resumes within it."""

    step: int
    number: int
    of: int
    words: str


class RankSeconds(msgspec.Struct, frozen=True):
    """Seconds of a step by rank: passes, waiting for rows, and exchanges (waiting for slower ranks, sending)."""

    passes: list[float]
    data: list[float]
    communication: list[float]


class Step(Record, frozen=True, tag="step"):
    """One optimizer update. `loss` is the mean over the step's target tokens; `tokens_per_second` counts real ones.

    The seconds are those of rank 0; `ranks` has those of all, where there are several.
    """

    step: int
    epoch: float
    loss: float | None
    learning_rate: float
    grad_norm: float | None
    num_tokens: int
    num_target_tokens: int
    tokens_per_second: float
    data_seconds: float
    forward_backward_seconds: float
    optimizer_seconds: float
    rest_seconds: float
    memory: int | None = None
    applied: bool = True
    extras: dict[str, float | None] = {}
    non_finite: list[str] = []
    ranks: RankSeconds | None = None


class EvaluationDone(Record, frozen=True, tag="evaluation_done"):
    """An evaluation has ended. One that was `requested` is never the best and counts for no patience.

    `extras` are other measures of the stage by name: means over the evaluation rows.
    """

    step: int
    epoch: float
    loss: float | None
    num_target_tokens: int
    seconds: float
    best: bool
    requested: bool = False
    extras: dict[str, float | None] = {}
    non_finite: list[str] = []

    @property
    def is_measured(self) -> bool:
        """Whether it has what it is told by (`ftui.measures.leading_measure`), finite or not."""
        return self.loss is not None or bool(self.non_finite) or "reward" in self.extras


class CheckpointSaved(Record, frozen=True, tag="checkpoint_saved"):
    """The checkpoint of `step` is complete at `path`, below the run's folder; it has yet to be read back."""

    step: int
    path: str
    tags: list[str]
    num_bytes: int
    seconds: float


class CheckpointVerified(Record, frozen=True, tag="checkpoint_verified"):
    """Every byte of it was read back and hashed."""

    step: int


class CheckpointTagged(Record, frozen=True, tag="checkpoint_tagged"):
    """A checkpoint that was saved earlier is kept for one more reason."""

    step: int
    tag: str


class CheckpointRemoved(Record, frozen=True, tag="checkpoint_removed"):
    """Rotation or a request deleted a checkpoint. `path` is below the run's folder."""

    step: int
    path: str


class CheckpointRejected(Record, frozen=True, tag="checkpoint_rejected"):
    """A folder that is not a valid checkpoint was moved aside, with what is wrong with it."""

    path: str
    moved_to: str
    reason: str


class Sampled(Record, frozen=True, tag="sampled"):
    """The model answered a prompt; `requested`: by a request, beside the samples before and after training."""

    step: int
    prompt: str
    completion: str
    requested: bool = False


class Answered(Record, frozen=True, tag="answered"):
    """Training stood still for `seconds`, while the model answered whoever asked by `request`."""

    request: str
    step: int
    seconds: float
    num_tokens: int


class ControlApplied(Record, frozen=True, tag="control_applied"):
    """A request was applied. `step`: the last finished step then. `settings`: what a `set` changes from then on."""

    request: str = msgspec.field(name="letter")  # the name in files of the first format
    verb: str
    step: int
    detail: str = ""
    settings: dict[str, float] = {}


class ControlRefused(Record, frozen=True, tag="control_refused"):
    """A request was not obeyed, for `reason`. `step`: the last finished step then."""

    request: str = msgspec.field(name="letter")  # the name in files of the first format
    verb: str
    step: int
    reason: str


class MicroBatchChanged(Record, frozen=True, tag="micro_batch_changed"):
    """Memory ran out in step `step`: it and all later ones are taken in micro-batches of `new` rows."""

    step: int
    old: int
    new: int
    place: str


class Warned(Record, frozen=True, tag="warned"):
    """Something that a person should know and that does not end the run."""

    message: str


class Noted(Record, frozen=True, tag="noted"):
    """Something that looks odd and is usual, explained."""

    message: str


class RunFinished(Record, frozen=True, tag="run_finished"):
    """The plan is done, or early stopping ended it (`reason`). Evaluation losses of step 0 and of final/."""

    step: int
    reason: str
    final: str
    loss_before: float | None = None
    loss_final: float | None = None
    step_final: int | None = None
    exit_code: int = 0


class RunStopped(Record, frozen=True, tag="run_stopped"):
    """The engine ended on request or before its plan was done (stop, park, abort, SIGTERM, a disk that stayed full).

    `checkpoint` and `final` are paths below the run's folder, `None` where there is none.
    """

    step: int
    reason: str
    exit_code: int
    checkpoint: str | None = None
    final: str | None = None


class RunFailed(Record, frozen=True, tag="run_failed"):
    """The engine failed. `error`: the same text for the same fault. `again`: another attempt may well succeed."""

    message: str
    hint: str
    exit_code: int
    error: str
    again: bool = False


JournalRecord = (
    RunOpened | PhaseChanged | RunStarted | StageBegan | EvaluationDone | CheckpointSaved | CheckpointVerified
    | CheckpointTagged | CheckpointRemoved | CheckpointRejected | Sampled | Answered | ControlApplied
    | ControlRefused | MicroBatchChanged | Warned | Noted | HealthAlarm | RolloutRecord | BudgetUsed | RunFinished
    | RunStopped | RunFailed
)  # fmt: skip


SupervisorRecord = EngineStarted | Adopted | Stalled | EngineEnded | Restarting | Warned | HealthAlarm

AnyRecord = JournalRecord | Step | SupervisorRecord | PushRecord | HookRecord | Telemetry | Beat
