"""The pure fold that makes a run's state from the records of its files.

Each of journal, metrics and supervisor file keeps its own order, but a reader meets them interleaved by chance. The
fold therefore gives the same state for every interleaving: what belongs to one attempt is guarded by its number.
"""

from msgspec.structs import replace

from ftui.errors import BUG, EXIT_WORDS, FINISHED, PARKED, PREEMPTED_NOT_SAVED, HostMemoryError
from ftui.events import (
    AnyRecord,
    CheckpointRejected,
    CheckpointRemoved,
    CheckpointSaved,
    EngineEnded,
    EngineStarted,
    EvaluationDone,
    Phase,
    PhaseChanged,
    RunFailed,
    RunFinished,
    RunOpened,
    RunStarted,
    RunStopped,
    Sampled,
    Step,
    Warned,
)
from ftui.runstate import Checkpoint, Evaluation, RunState, Sample

EVALUATIONS_KEPT = 16  # enough to fall back on when a resume drops the newest; status.json is written every second


def fold(state: RunState, record: AnyRecord) -> RunState:
    """The state after one more record."""
    if record.attempt > state.attempt:
        state = _begun(state, record.attempt)
    match record:
        case Step():
            return _stepped(state, record)
        case RunStarted():
            return _started(state, record)
        case EvaluationDone() | CheckpointSaved() | CheckpointRemoved() | CheckpointRejected() | Sampled():
            return _with_history(state, record)
        case EngineEnded():
            return _engine_ended(state, record)
        case _ if record.attempt < state.attempt:
            return state
        case EngineStarted():
            return replace(state, engine=record.identity)
        case RunOpened():
            return replace(state, engine=record.identity, host=record.host, device=record.device)
        case PhaseChanged() if not state.ended_by:
            return replace(state, phase=record.phase, detail=record.detail)
        case Warned():
            return replace(state, warning=record.message)
        case RunFinished() | RunStopped() | RunFailed():
            return _ended(state, record)
    return state


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
    state = replace(state, start_step=start, started=record.time, resumed_from=record.resumed_from)
    return state if state.ended_by else replace(state, phase="training", detail="")


def _with_history(
    state: RunState, record: EvaluationDone | CheckpointSaved | CheckpointRemoved | CheckpointRejected | Sampled
) -> RunState:
    match record:
        case EvaluationDone():
            evaluation = Evaluation(record.step, record.loss)
            return replace(
                state,
                first_evaluation=state.first_evaluation or evaluation,
                evaluations=[*state.evaluations, evaluation][-EVALUATIONS_KEPT:],
                bests=[*state.bests, evaluation][-EVALUATIONS_KEPT:] if record.best else state.bests,
            )
        case CheckpointSaved():
            kept = [c for c in state.checkpoints if c.step != record.step]
            return replace(state, checkpoints=[*kept, Checkpoint(record.step, record.path)])
        case CheckpointRemoved() | CheckpointRejected():
            kept = [c for c in state.checkpoints if c.path != record.path]
            return replace(state, checkpoints=kept)
        case Sampled() if record.step == 0:
            return replace(state, samples_before=_renewed(state.samples_before, record))
        case Sampled():
            return replace(state, samples_after=_renewed(state.samples_after, record))


def _renewed(samples: list[Sample], record: Sampled) -> list[Sample]:
    kept = [s for s in samples if s.prompt != record.prompt]
    return [*kept, Sample(record.step, record.prompt, record.completion)]


def _ended(state: RunState, record: RunFinished | RunStopped | RunFailed) -> RunState:
    """The engine's own last word, which also stands over what its supervisor concluded."""
    state = replace(
        state, ended_by="engine", exit_code=record.exit_code, detail="", reason="", message="", hint="", last_lines=[]
    )
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
            phase: Phase = "parked" if record.exit_code == PARKED else "stopped"
            return replace(state, phase=phase, reason=record.reason)
        case RunFailed():
            return replace(state, phase="failed", message=record.message, hint=record.hint)


def _engine_ended(state: RunState, record: EngineEnded) -> RunState:
    if record.attempt < state.attempt or state.ended_by == "engine":
        return state
    message, exit_code = _last_words(record)
    return replace(
        state,
        ended_by="supervisor",
        phase="failed",
        detail="",
        exit_code=exit_code,
        message=message,
        hint="The same command continues from the newest checkpoint.",
        last_lines=record.last_lines,
    )


def _last_words(record: EngineEnded) -> tuple[str, int]:
    """What became of an engine that left no ending, and the exit code that stands for it."""
    if record.oom_kills:
        how = f"was killed ({record.signal})" if record.signal else f"ended (exit code {record.code})"
        return f"The engine {how}: the host ran out of memory.", HostMemoryError.exit_code
    if record.signal in ("SIGKILL", "SIGTERM", "SIGINT", "SIGHUP"):
        return f"The engine was killed ({record.signal}).", PREEMPTED_NOT_SAVED
    if record.signal:
        return f"The engine crashed ({record.signal}).", BUG
    code = record.code if record.code in EXIT_WORDS and record.code != FINISHED else BUG
    return f"The engine ended without a word (exit code {record.code}).", code
