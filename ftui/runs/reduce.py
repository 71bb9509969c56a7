"""Makes a run's state from the records of its files: a pure function of state and record.

Each of journal, metrics and supervisor file keeps its own order, but a reader meets them interleaved by chance. The
fold therefore gives the same state for every interleaving: what belongs to one attempt is guarded by its number.
"""

from msgspec.structs import replace

from ftui import units
from ftui.errors import PARKED, DiskError
from ftui.runs.events import (
    Answered,
    AnyRecord,
    CheckpointRejected,
    CheckpointRemoved,
    CheckpointSaved,
    CheckpointTagged,
    CheckpointVerified,
    ControlApplied,
    EvaluationDone,
    MicroBatchChanged,
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
from ftui.runs.health.kept_alarms import add_alarm
from ftui.runs.records.engine_end import explain_end
from ftui.runs.records.health_records import HealthAlarm
from ftui.runs.records.hook_records import HookEnded, StopRecord
from ftui.runs.records.machine_stop import fold_stop
from ftui.runs.records.push_records import PushBegan, Pushed, PushFailed, PushRecord
from ftui.runs.records.record import Phase
from ftui.runs.records.rollout_records import RolloutMade
from ftui.runs.records.spending import BudgetUsed, add_sign, change_span, with_budget
from ftui.runs.records.supervisor_records import Adopted, EngineEnded, EngineStarted, Restarting, Stalled
from ftui.runs.state import (
    Evaluation,
    Push,
    Restart,
    RunState,
    SampleAnswer,
    SavedCheckpoint,
    mean_seconds,
    with_pause,
)

LEAVING = ("stop", "park", "abort")  # requests that end the attempt
EVALUATIONS_KEPT = 16  # enough to fall back on when a resume drops the newest; status.json is written every second
RESTARTS_KEPT = 16  # more than follow one another
PUSHES_KEPT = 8


def fold(state: RunState, record: AnyRecord) -> RunState:
    """The state after one more record."""
    if isinstance(record, PushRecord):
        return _with_push(state, record)
    before = state
    if record.attempt > state.attempt:
        state = _begin_attempt(state, record.attempt)
    elif record.attempt == state.attempt and state.token and record.token not in ("", state.token):
        if not isinstance(record, EngineStarted):
            return state
        # Without flock there can be a second writer: the later one stands.
        state = _begin_attempt(state, record.attempt)
    state = _with_sign(before, state, record)
    match record:
        case Step():
            return _with_step(state, record)
        case RunStarted():
            return _with_plan(state, record)
        case EvaluationDone() | Sampled():
            return _with_history(state, record)
        case CheckpointSaved() | CheckpointRemoved() | CheckpointRejected():
            return _with_checkpoints(state, record)
        case CheckpointTagged() | CheckpointVerified():
            return _with_checkpoint_news(state, record)
        case ControlApplied() | MicroBatchChanged():
            return _with_control(state, record)
        case Restarting():
            return _with_restart(state, record)
        case _ if record.attempt < state.attempt:
            return state
        case _:
            return _fold_newest(state, record)


def _fold_newest(state: RunState, record: AnyRecord) -> RunState:
    """Records that count only for the newest attempt."""
    match record:
        case EngineStarted() | Adopted():
            return replace(state, engine=record.identity, token=record.token or state.token)
        case RunOpened():
            token = state.token or record.token
            limits = replace(
                state.spending, price_basis=record.price_basis, max_money=record.max_money, max_hours=record.max_hours,
                reached=None, reserve_seconds=0.0,
            )  # fmt: skip
            return replace(
                state, engine=record.identity, token=token, host=record.host, device=record.device, spending=limits
            )
        case BudgetUsed():
            warning = state.warning if record.parks else record.message
            return replace(state, spending=with_budget(state.spending, record), warning=warning)
        case StageBegan():
            return replace(state, stage=f"{record.number}/{record.of}")
        case PhaseChanged() if not _is_closed(state):
            paused = record.time if state.paused_since is None else state.paused_since
            since = paused if record.phase == "held" else None
            if state.paused_since is not None and since is None:
                state = with_pause(state, state.paused_since, record.time)
            return replace(state, phase=record.phase, detail=record.detail, paused_since=since)
        case Answered():
            return with_pause(state, record.time - record.seconds, record.time)
        case HookEnded() if record.problem:
            return replace(state, warning=f"hooks.{record.event}: {record.problem}")
        case _ if isinstance(record, StopRecord):
            return replace(state, machine_stop=fold_stop(record))
        case Warned():
            return replace(state, warning=record.message)
        case RolloutMade():
            return replace(state, rollout=record, first_rollout=state.first_rollout or record)
        case HealthAlarm():
            return replace(state, alarms=add_alarm(state.alarms, record))
        case Stalled():
            seconds_still, limit = units.duration(record.seconds), units.duration(record.limit_seconds)
            return replace(state, stalled=f"{record.phase} stood still for {seconds_still} (limit {limit})")
        case EngineEnded():
            return _with_engine_end(state, record)
        case RunFinished() | RunStopped() | RunFailed():
            return _with_ending(state, record)
    return state


def _is_closed(state: RunState) -> bool:
    """Whether this attempt has ended: no phase follows."""
    return bool(state.ended_by) or state.restarting


def _begin_attempt(state: RunState, attempt: int) -> RunState:
    """A new attempt: history stays, everything about the attempt before goes."""
    return RunState(
        phase="starting",
        attempt=attempt,
        step=state.step,
        step_attempt=state.step_attempt,
        model=state.model,
        method=state.method,
        precision=state.precision,
        effective_batch=state.effective_batch,
        max_steps=state.max_steps,
        logging_steps=state.logging_steps,
        micro_batch=state.micro_batch,
        micro_batch_step=state.micro_batch_step,
        restarts=state.restarts,
        first_evaluation=state.first_evaluation,
        evaluations=state.evaluations,
        bests=state.bests,
        checkpoints=state.checkpoints,
        samples_before=state.samples_before,
        samples_after=state.samples_after,
        pushes=state.pushes,
        spending=add_sign(state.spending, state.attempt, state.paced_from, state.step_time),
    )


def _with_sign(before: RunState, state: RunState, record: AnyRecord) -> RunState:
    """The record shows its attempt alive; the steps of the newest one say that by `step_time`."""
    spending = state.spending
    if not isinstance(record, Step) or record.attempt < before.attempt:
        spending = add_sign(spending, record.attempt, record.time)
    match record:
        case EngineStarted(seen_before=float(seen)):
            spending = add_sign(spending, record.attempt - 1, min(seen, record.time))
        case RunOpened():
            spending = change_span(spending, record.attempt, dollars_per_hour=record.dollars_per_hour)
        case Restarting():
            spending = change_span(spending, record.attempt, pause_seconds=record.pause_seconds)
    return state if spending is state.spending else replace(state, spending=spending)


def _with_push(state: RunState, record: PushRecord) -> RunState:
    """The newest word on one target stands."""
    others = [push for push in state.pushes if (push.to, push.what) != (record.to, record.what)]
    match record:
        case PushBegan():
            push = Push(record.to, record.what, process=record.process)
        case Pushed():
            push = Push(record.to, record.what, place=record.place, commit=record.commit)
        case PushFailed():
            push = Push(record.to, record.what, problem=record.message)
    return replace(state, pushes=[*others, push][-PUSHES_KEPT:])


def _with_step(state: RunState, record: Step) -> RunState:
    if record.attempt < state.step_attempt:
        return state
    state = replace(state, step=record.step, step_attempt=record.attempt)
    if record.attempt < state.attempt:
        return state
    return replace(
        state,
        step_time=record.time,
        epoch=record.epoch,
        loss=record.loss,
        learning_rate=record.learning_rate,
        grad_norm=record.grad_norm,
        extras=record.extras,
        tokens_per_second=record.tokens_per_second,
        memory=record.memory,
        non_finite=record.non_finite,
        ranks=mean_seconds(state.ranks, record.ranks),
        paced_from=record.time if state.paced_from is None else state.paced_from,
        paced_step=record.step if state.paced_step is None else state.paced_step,
        attempt_tokens=state.attempt_tokens + record.num_tokens,
        paced_tokens=0 if state.paced_from is None else state.paced_tokens + record.num_tokens,
    )


def _with_plan(state: RunState, record: RunStarted) -> RunState:
    """Attempts before this one no longer count above its first step."""
    start = record.start_step
    first = state.first_evaluation
    state = replace(
        state,
        model=record.model,
        method=record.method,
        precision=record.precision,
        max_steps=record.max_steps,
        effective_batch=record.effective_batch,
        first_evaluation=first if first and first.step <= start else None,
        evaluations=[e for e in state.evaluations if e.step <= start],
        bests=[e for e in state.bests if e.step <= start],
        checkpoints=[c for c in state.checkpoints if c.step <= start],
        samples_before=[s for s in state.samples_before if s.step <= start],
        samples_after=[s for s in state.samples_after if s.step <= start],
    )
    if record.attempt > state.step_attempt:
        state = replace(state, step=start, step_attempt=record.attempt)
    if record.attempt < state.attempt:
        return state
    state = replace(
        state,
        start_step=start,
        started=record.time,
        tokens_ahead=record.num_tokens_ahead,
        ahead_to=record.max_steps,
        resumed_from=record.resumed_from,
        reproducibility=record.reproducibility,
        reproducibility_reasons=record.reproducibility_reasons,
    )
    return state if _is_closed(state) else replace(state, phase="training", detail="", paused_since=None)


def _with_history(state: RunState, record: EvaluationDone | Sampled) -> RunState:
    match record:
        case EvaluationDone():
            return _with_evaluation(state, record)
        case Sampled() if record.requested:
            return state  # neither before nor after training
        case Sampled() if record.step == 0:
            return replace(state, samples_before=_with_answer(state.samples_before, record))
        case Sampled():
            return replace(state, samples_after=_with_answer(state.samples_after, record))


def _with_evaluation(state: RunState, record: EvaluationDone) -> RunState:
    """An extra one counts as the last, but is neither the first nor the best, nor does it replace a planned one."""
    if not record.is_measured:
        return state  # it did not fit into memory
    evaluation = Evaluation(record.step, record.loss, record.requested, record.extras)
    last = state.last_evaluation
    if last is not None and last.step == record.step:
        if record.requested and not last.requested:
            return state
        state = replace(state, evaluations=state.evaluations[:-1])
    state = replace(state, evaluations=[*state.evaluations, evaluation][-EVALUATIONS_KEPT:])
    if record.requested:
        return state
    bests = [*state.bests, evaluation][-EVALUATIONS_KEPT:] if record.best else state.bests
    return replace(state, first_evaluation=state.first_evaluation or evaluation, bests=bests)


def _with_checkpoints(state: RunState, record: CheckpointSaved | CheckpointRemoved | CheckpointRejected) -> RunState:
    if isinstance(record, CheckpointSaved):
        others = [c for c in state.checkpoints if c.step != record.step]
        return replace(state, checkpoints=[*others, SavedCheckpoint(record.step, record.path, record.tags)])
    return replace(state, checkpoints=[c for c in state.checkpoints if c.path != record.path])


def _with_checkpoint_news(state: RunState, record: CheckpointTagged | CheckpointVerified) -> RunState:
    """A checkpoint gained a tag, or was read back whole."""

    def renewed(checkpoint: SavedCheckpoint) -> SavedCheckpoint:
        if checkpoint.step != record.step:
            return checkpoint
        if isinstance(record, CheckpointVerified):
            return replace(checkpoint, verified=True)
        return checkpoint if record.tag in checkpoint.tags else replace(checkpoint, tags=[*checkpoint.tags, record.tag])

    state = replace(state, checkpoints=[renewed(checkpoint) for checkpoint in state.checkpoints])
    if isinstance(record, CheckpointVerified) and record.attempt == state.attempt:
        return replace(state, has_verified=True)
    return state


def _with_control(state: RunState, record: ControlApplied | MicroBatchChanged) -> RunState:
    """What requests and running out of memory change; it stays in force in later attempts."""
    if isinstance(record, MicroBatchChanged):
        return replace(state, micro_batch=record.new, micro_batch_step=record.step)
    if "max_steps" in record.settings:
        state = replace(state, max_steps=int(record.settings["max_steps"]))
    if "logging_steps" in record.settings:
        state = replace(state, logging_steps=int(record.settings["logging_steps"]))
    if record.verb in LEAVING and record.attempt == state.attempt:
        return replace(state, leaving=record.verb)
    return state


def _with_answer(samples: list[SampleAnswer], record: Sampled) -> list[SampleAnswer]:
    others = [s for s in samples if s.prompt != record.prompt]
    return [*others, SampleAnswer(record.step, record.prompt, record.completion)]


def _with_restart(state: RunState, record: Restarting) -> RunState:
    """The attempt has failed, the run has not: nothing that says it ended stays."""
    restart = Restart(record.attempt, record.step, record.error, record.number)
    state = replace(state, restarts=[*state.restarts, restart][-RESTARTS_KEPT:])
    if record.attempt < state.attempt:
        return state
    detail = f"waiting for a node since step {record.step}"
    if record.pause_seconds:
        pause = units.duration(record.pause_seconds)
        detail = f"again in {pause} after a crash at step {record.step} (restart {record.number})"
    return replace(_without_ending(state), restarting=True, phase="starting", detail=detail)


def _without_ending(state: RunState) -> RunState:
    """Whatever an ending says, or that it ends, back to what a new run has."""
    return replace(
        state, detail="", paused_since=None, pauses=[], ended_by="", exit_code=None, reason="", message="", hint="",
        error="", again=False, last_lines=[], final=None, step_final=None, loss_before=None, loss_final=None,
    )  # fmt: skip


def _with_ending(state: RunState, record: RunFinished | RunStopped | RunFailed) -> RunState:
    """The engine's own last word, which also stands over what its supervisor concluded."""
    if state.restarting:
        return state
    state = replace(_without_ending(state), ended_by="engine", exit_code=record.exit_code)
    match record:
        case RunFinished():
            return replace(
                state,
                phase="finished",
                reason=record.reason,
                final=record.final,
                step_final=record.step_final,
                loss_before=record.loss_before,
                loss_final=record.loss_final,
            )
        case RunStopped():
            phase: Phase = "parked" if record.exit_code in (PARKED, DiskError.exit_code) else "stopped"
            return replace(state, phase=phase, reason=record.reason, final=record.final)
        case RunFailed():
            return replace(
                state, phase=_failed(record.exit_code), message=record.message, hint=record.hint, error=record.error,
                again=record.again,
            )  # fmt: skip


def _failed(exit_code: int) -> Phase:
    """A disk that is full or fails harms no checkpoint, nor does a node that is away: later the run continues."""
    return "parked" if exit_code in (DiskError.exit_code, PARKED) else "failed"


def _with_engine_end(state: RunState, record: EngineEnded) -> RunState:
    """The supervisor's word on an engine that left none of its own."""
    if state.ended_by == "engine" or state.restarting:
        return state
    message, error, exit_code = explain_end(record, state.stalled)
    hint = "The same command continues from the newest checkpoint, or starts it again if it has saved none."
    return replace(
        _without_ending(state), ended_by="supervisor", phase=_failed(exit_code), exit_code=exit_code, message=message,
        hint=hint, error=error, last_lines=record.last_lines,
    )  # fmt: skip
