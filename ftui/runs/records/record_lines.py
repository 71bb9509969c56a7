"""The records of a run in plain lines: pure functions, all foreign text through `shown`."""

import shlex

from ftui import units
from ftui.measures import leading_measure
from ftui.runs.describe import (
    BESIDE_LOSS,
    OF_EVALUATIONS,
    count_rows,
    describe_rollout,
    evaluation_words,
    format_value,
    place,
    write_measures,
)
from ftui.runs.events import (
    Answered,
    AnyRecord,
    CheckpointRejected,
    CheckpointSaved,
    ControlApplied,
    ControlRefused,
    EvaluationDone,
    MicroBatchChanged,
    Noted,
    PhaseChanged,
    RunFailed,
    RunFinished,
    RunOpened,
    RunStarted,
    RunStopped,
    Sampled,
    StageBegan,
    Step,
    Warned,
)
from ftui.runs.records.health_records import HealthAlarm
from ftui.runs.records.hook_records import HookBegan, HookEnded, StopRecord
from ftui.runs.records.machine_stop import fold_stop
from ftui.runs.records.push_records import PushBegan, Pushed, PushFailed
from ftui.runs.records.rollout_records import RolloutMade
from ftui.runs.records.spending import BudgetUsed
from ftui.runs.records.supervisor_records import Adopted, EngineEnded, Restarting, Stalled
from ftui.runs.state import (
    RunState,
    eta_seconds,
    phase_word,
)
from ftui.runs.verbs import verb_name
from ftui.text import shown


def is_due(record: Step, state: RunState, logging_steps: int) -> bool:
    """Whether this step is printed, where each line stays (a pipe, a log)."""
    return record.step % logging_steps == 0 or record.step == state.max_steps


def event_lines(record: AnyRecord) -> list[str]:
    """The lines to print for a record; none for most kinds."""
    match record:
        case RunOpened():
            return [f"on {shown(record.host)}: {shown(record.device)}"]
        case RunStarted():
            return _plan(record)
        case Step() if not record.applied:
            names = " and ".join(record.non_finite) or "gradient"
            return [f"step {record.step}: {shown(names)} not finite, the step was not applied"]
        case EvaluationDone(requested=True) | ControlApplied(verb="answer" | "end_answer"):
            return []  # another record says it
        case EvaluationDone():
            best = " (best so far)" if record.best else ""
            others = [name for name in OF_EVALUATIONS if name != leading_measure(record)[0]]
            figures = ", ".join([evaluation_words(record), *write_measures(record.extras, others)])
            return [f"evaluation at step {record.step}: {figures}{best}"]
        case CheckpointSaved():
            size, seconds = units.size(record.num_bytes), units.duration(record.seconds)
            return [f"checkpoint at step {record.step} saved ({size} in {seconds})"]
        case CheckpointRejected():
            return [f"{shown(record.path)} is damaged ({shown(record.reason)}): moved to {shown(record.moved_to)}"]
        case Sampled():
            return [f"sample at step {record.step}: {shown(record.prompt)} -> {shown(record.completion)}"]
        case StageBegan():
            return [f"stage {record.number} of {record.of} from step {record.step} on: {shown(record.words)}"]
        case BudgetUsed(parks=False):
            return [f"warning: {record.message}"]
        case Warned():
            return lines_of(f"warning: {record.message}")
        case HealthAlarm():
            rule = record.rule.replace("_", " ")
            return lines_of(f"health, {record.level}: {rule}: {record.evidence}\n{record.suggestion}")
        case Noted():
            return lines_of(f"note: {record.message}")
        case Answered(num_tokens=number, seconds=seconds):
            return [f"answered at step {record.step}: {number} tokens, stood still for {units.duration(seconds)}"]
        case ControlApplied() | ControlRefused() | MicroBatchChanged():
            return lines_of(_answer(record))
        case Adopted() | Stalled() | Restarting():
            return lines_of(_supervision(record))
        case PushBegan() | Pushed() | PushFailed():
            return lines_of(_push(record))
        case HookBegan() | HookEnded():
            return lines_of(_hook(record))
        case _ if isinstance(record, StopRecord):
            return lines_of(f"then_stop: {fold_stop(record).words()}")
    return []


def step_lines(record: AnyRecord, state: RunState, logging_steps: int) -> list[str]:
    """The line of a step that is due in a log, `state` being what it led to; 80 columns with the time before it."""
    if not isinstance(record, Step) or not record.applied or not is_due(record, state, logging_steps):
        return []
    rates = [
        f"lr {units.rate(record.learning_rate)}",
        f"grad {format_value(record.grad_norm, 'grad_norm', record.non_finite)}",
    ]
    parts = [
        place(state),
        f"loss {format_value(record.loss, 'loss', record.non_finite)}",
        *(write_measures(record.extras, BESIDE_LOSS) or rates),
        f"{units.count(record.tokens_per_second)} tok/s",
    ]
    if eta := eta_seconds(state):  # none before the second step, 0 after the last
        parts.append(f"ETA {units.duration(eta)}")
    return [" ".join(parts)]


def rollout_lines(record: AnyRecord, logging_steps: int) -> list[str]:
    """The line of a rollout that is due in a log: one that the step after a multiple of `logging_steps` trains on."""
    if not isinstance(record, RolloutMade) or record.step % logging_steps:
        return []
    return [f"rollout {record.number}: {describe_rollout(record)}"]


def ending_lines(record: AnyRecord, state: RunState) -> list[str]:
    """The lines of a log for the end of an attempt."""
    match record:
        case RunFinished() | RunStopped():
            return lines_of(f"{phase_word(state.phase)} at {place(state)}: {record.reason}")
        case EngineEnded() if state.ended_by != "supervisor":
            return []  # the engine itself has said it
        case RunFailed() | EngineEnded() if state.message and state.ended_by:
            return lines_of("\n".join(filter(None, (f"{phase_word(state.phase)}: {state.message}", state.hint))))
    return []


def lines_of(text: str) -> list[str]:
    """Foreign text that may have several lines: the first as it is, the others indented below it."""
    first, *continuations = shown(text, newlines=True).splitlines() or [""]
    return [first, *(f"  {line}" for line in continuations)]


APPLIED = {
    "hold": "paused",
    "continue": "continued",
    "park": "parking",
    "checkpoint": "checkpoint asked for",
    "stop": "stopping",
    "abort": "aborting",
    "evaluate": "extra evaluation",
    "sample": "sample asked for",
    "set": "set",
    "pin": "pinned",
    "unpin": "unpinned",
    "delete_checkpoint": "deleted",
}
"""What each verb did, in words; an unknown verb stands for itself."""


def _answer(record: ControlApplied | ControlRefused | MicroBatchChanged) -> str:
    """What became of a control request, or of memory that ran out. Not yet safe to print: it may have several lines."""
    match record:
        case MicroBatchChanged():
            change = f"from {record.old} to {count_rows(record.new)}"
            return f"memory ran out in step {record.step} ({shown(record.place)}): micro-batches {change}"
        case ControlRefused():
            return f"{shown(verb_name(record.verb))} refused at step {record.step}: {shown(record.reason)}"
        case ControlApplied():
            action = APPLIED.get(record.verb, shown(record.verb))
            settings = ", ".join(f"{shown(name)} = {value:g}" for name, value in record.settings.items())
            detail = ": ".join(part for part in ("", settings, record.detail) if part)
            return f"{action} at step {record.step}" + (f": {detail}" if detail else "")


def _supervision(record: Adopted | Stalled | Restarting) -> str:
    """Not yet safe to print: an error may have several lines."""
    match record:
        case Adopted():
            return f"a new supervisor watches the engine (process {record.identity.pid})"
        case Stalled():
            seconds_still, limit = units.duration(record.seconds), units.duration(record.limit_seconds)
            return f"{phase_word(record.phase)} stood still for {seconds_still} (limit {limit}): the engine is killed"
        case Restarting(pause_seconds=0.0):
            return f"interrupted at step {record.step} ({record.error}): again when all nodes are here"
        case Restarting():
            again = f"again in {units.duration(record.pause_seconds)} (restart {record.number})"
            return f"crashed at step {record.step} ({record.error}): {again}"


def _push(record: PushBegan | Pushed | PushFailed) -> str:
    """Not yet safe to print: an error may have several lines."""
    match record:
        case PushBegan():
            return f"pushing {record.what} to {record.to}"
        case Pushed():
            how = "verified there" if record.verified else "nothing says whether all of it arrived"
            commit = f", commit {record.commit[:12]}" if record.commit else ""
            size = units.size(record.num_bytes)
            return f"pushed {record.what} to {record.place}: {record.num_files} files, {size}, {how}{commit}"
        case PushFailed():
            return "\n".join(filter(None, (f"push to {record.to} failed: {record.message}", record.hint)))


def _hook(record: HookBegan | HookEnded) -> str:
    match record:
        case HookBegan():
            return f"hooks.{record.event} at step {record.step}: {shlex.join(record.command)}"
        case HookEnded():
            return f"hooks.{record.event} {record.problem or f'has ended after {units.duration(record.seconds)}'}"


def _plan(record: RunStarted) -> list[str]:
    epoch, tail = ("a mean epoch", " in a mean epoch") if record.stages else ("an epoch", "")
    per_epoch = f"{record.steps_per_epoch} {epoch}" if record.steps_per_epoch else "as many prompts as they need"
    lines = [
        f"{shown(record.model)} · {shown(record.method)} · {shown(record.precision)}"
        f" · {units.count(record.trainable_parameters)} of {units.count(record.total_parameters)} parameters trained",
        f"{record.num_train_rows} rows · {units.count(record.num_train_tokens)} tokens"
        f" · {units.count(record.num_target_tokens)} target tokens{tail} · {record.num_eval_rows} rows to evaluate on",
        f"{record.max_steps} steps · {per_epoch} · {record.effective_batch} sequences a step",
    ]
    if record.resumed_from:
        end = f" · {record.reproducibility}" if record.reproducibility else ""
        lines.append(f"resumed from {shown(record.resumed_from)} at step {record.start_step}{end}")
    if record.reproducibility_reasons and record.reproducibility != "EXACT":
        lines.append("  because " + "; ".join(shown(reason) for reason in record.reproducibility_reasons))
    return lines


def phase_line(record: AnyRecord) -> list[str]:
    """A change of phase, where no progress line shows it; training shows by its steps, and by `rollout_lines`."""
    if not isinstance(record, PhaseChanged) or record.phase in ("training", "generating", "scoring"):
        return []
    word = phase_word(record.phase)
    return [f"{word} · {shown(record.detail)}" if record.detail else word]
