"""The pure fold that makes a run's state from the records of its files.

Each of journal, metrics and supervisor file keeps its own order, but a reader meets them interleaved by chance. The
fold therefore gives the same state for every interleaving: what belongs to one attempt is guarded by its number.
"""

from msgspec.structs import replace

from ftui import units
from ftui.runs.endings import with_ending, with_engine_end, with_restart
from ftui.runs.events import (
    Adopted,
    AnyRecord,
    CheckpointRejected,
    CheckpointRemoved,
    CheckpointSaved,
    CheckpointTagged,
    CheckpointVerified,
    ControlApplied,
    EngineEnded,
    EngineStarted,
    EvaluationDone,
    MicroBatchChanged,
    PhaseChanged,
    Restarting,
    RunFailed,
    RunFinished,
    RunOpened,
    RunStarted,
    RunStopped,
    Sampled,
    StageBegan,
    Stalled,
    Step,
    Warned,
)
from ftui.runs.state import Checkpoint, Evaluation, RunState, Sample

LEAVING = ("stop", "park", "abort")  # letters an engine obeys by ending
EVALUATIONS_KEPT = 16  # enough to fall back on when a resume drops the newest; status.json is written every second
HOLDS_KEPT = 64


def fold(state: RunState, record: AnyRecord) -> RunState:
    """The state after one more record."""
    if record.attempt > state.attempt:
        state = _begun(state, record.attempt)
    elif record.attempt == state.attempt and state.token and record.token not in ("", state.token):
        if not isinstance(record, EngineStarted):
            return state
        state = _begun(state, record.attempt)  # without flock there can be a second writer: the later one stands
    match record:
        case Step():
            return _stepped(state, record)
        case RunStarted():
            return _started(state, record)
        case EvaluationDone() | Sampled():
            return _with_history(state, record)
        case CheckpointSaved() | CheckpointRemoved() | CheckpointRejected():
            return _with_checkpoints(state, record)
        case CheckpointTagged() | CheckpointVerified():
            return _with_checkpoint_news(state, record)
        case ControlApplied() | MicroBatchChanged():
            return _controlled(state, record)
        case Restarting():
            return with_restart(state, record)
        case _ if record.attempt < state.attempt:
            return state
        case _:
            return _of_this_attempt(state, record)


def _of_this_attempt(state: RunState, record: AnyRecord) -> RunState:
    """What only the newest attempt may say."""
    match record:
        case EngineStarted() | Adopted():
            return replace(state, engine=record.identity, token=record.token or state.token)
        case RunOpened():
            token = state.token or record.token
            return replace(state, engine=record.identity, token=token, host=record.host, device=record.device)
        case StageBegan():
            return replace(state, stage=f"{record.number}/{record.of}")
        case PhaseChanged() if not _is_closed(state):
            since = None if record.phase != "held" else record.time if state.held_since is None else state.held_since
            holds = state.holds
            if state.held_since is not None and since is None:
                holds = [*holds, (state.held_since, record.time)][-HOLDS_KEPT:]
            return replace(state, phase=record.phase, detail=record.detail, held_since=since, holds=holds)
        case Warned():
            return replace(state, warning=record.message)
        case Stalled():
            still, limit = units.duration(record.seconds), units.duration(record.limit_seconds)
            return replace(state, stalled=f"{record.phase} stood still for {still} (limit {limit})")
        case EngineEnded():
            return with_engine_end(state, record)
        case RunFinished() | RunStopped() | RunFailed():
            return with_ending(state, record)
    return state


def _is_closed(state: RunState) -> bool:
    """Whether this attempt has come to its end: no phase follows."""
    return bool(state.ended_by) or state.restarting


def _begun(state: RunState, attempt: int) -> RunState:
    """A new attempt: history stays, whatever told of the attempt before is gone."""
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
    )


def _stepped(state: RunState, record: Step) -> RunState:
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
        tokens_per_second=record.tokens_per_second,
        memory=record.memory,
        non_finite=record.non_finite,
        paced_from=record.time if state.paced_from is None else state.paced_from,
        paced_step=record.step if state.paced_step is None else state.paced_step,
        attempt_tokens=state.attempt_tokens + record.num_tokens,
        paced_tokens=0 if state.paced_from is None else state.paced_tokens + record.num_tokens,
    )


def _started(state: RunState, record: RunStarted) -> RunState:
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
        badge=record.badge,
        badge_reasons=record.badge_reasons,
    )
    return state if _is_closed(state) else replace(state, phase="training", detail="", held_since=None)


def _with_history(state: RunState, record: EvaluationDone | Sampled) -> RunState:
    match record:
        case EvaluationDone() | Sampled() if record.requested:
            return state  # stands beside the plan: it is neither the first, the last nor the best
        case EvaluationDone():
            evaluation = Evaluation(record.step, record.loss)
            return replace(
                state,
                first_evaluation=state.first_evaluation or evaluation,
                evaluations=[*state.evaluations, evaluation][-EVALUATIONS_KEPT:],
                bests=[*state.bests, evaluation][-EVALUATIONS_KEPT:] if record.best else state.bests,
            )
        case Sampled() if record.step == 0:
            return replace(state, samples_before=_renewed(state.samples_before, record))
        case Sampled():
            return replace(state, samples_after=_renewed(state.samples_after, record))


def _with_checkpoints(state: RunState, record: CheckpointSaved | CheckpointRemoved | CheckpointRejected) -> RunState:
    if isinstance(record, CheckpointSaved):
        kept = [c for c in state.checkpoints if c.step != record.step]
        return replace(state, checkpoints=[*kept, Checkpoint(record.step, record.path, record.tags)])
    return replace(state, checkpoints=[c for c in state.checkpoints if c.path != record.path])


def _with_checkpoint_news(state: RunState, record: CheckpointTagged | CheckpointVerified) -> RunState:
    """A checkpoint gained a tag, or was read back whole."""

    def renewed(checkpoint: Checkpoint) -> Checkpoint:
        if checkpoint.step != record.step:
            return checkpoint
        if isinstance(record, CheckpointVerified):
            return replace(checkpoint, verified=True)
        return checkpoint if record.tag in checkpoint.tags else replace(checkpoint, tags=[*checkpoint.tags, record.tag])

    state = replace(state, checkpoints=[renewed(checkpoint) for checkpoint in state.checkpoints])
    if isinstance(record, CheckpointVerified) and record.attempt == state.attempt:
        return replace(state, has_verified=True)
    return state


def _controlled(state: RunState, record: ControlApplied | MicroBatchChanged) -> RunState:
    """What letters and want of memory change; it holds on in the attempts that follow."""
    if isinstance(record, MicroBatchChanged):
        return replace(state, micro_batch=record.new, micro_batch_step=record.step)
    if "max_steps" in record.settings:
        state = replace(state, max_steps=int(record.settings["max_steps"]))
    if "logging_steps" in record.settings:
        state = replace(state, logging_steps=int(record.settings["logging_steps"]))
    if record.verb in LEAVING and record.attempt == state.attempt:
        return replace(state, leaving=record.verb)
    return state


def _renewed(samples: list[Sample], record: Sampled) -> list[Sample]:
    kept = [s for s in samples if s.prompt != record.prompt]
    return [*kept, Sample(record.step, record.prompt, record.completion)]
