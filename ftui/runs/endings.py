"""How an attempt ends, as part of the fold: in the engine's words, in its supervisor's, or in a restart."""

import re

from msgspec.structs import replace

from ftui import units
from ftui.errors import (
    BUG,
    EXIT_WORDS,
    FINISHED,
    PARKED,
    PREEMPTED_NOT_SAVED,
    DiskError,
    HostMemoryError,
    StalledError,
)
from ftui.runs.events import EngineEnded, Phase, Restarting, RunFailed, RunFinished, RunStopped
from ftui.runs.state import Restart, RunState

RESTARTS_KEPT = 16  # more than follow one another
RANK_FAILED = re.compile(r"rank \d+ failed: ")
"""How a rank above 0, which writes no records, begins the line that says why it ended."""


def with_restart(state: RunState, record: Restarting) -> RunState:
    """The attempt has failed, the run has not: whatever told of an end is gone."""
    restart = Restart(record.attempt, record.step, record.error, record.number)
    state = replace(state, restarts=[*state.restarts, restart][-RESTARTS_KEPT:])
    if record.attempt < state.attempt:
        return state
    pause = units.duration(record.pause_seconds)
    return replace(
        state,
        restarting=True,
        phase="starting",
        detail=f"again in {pause} after a crash at step {record.step} (restart {record.number})",
        held_since=None,
        holds=[],
        ended_by="",
        exit_code=None,
        reason="",
        message="",
        hint="",
        error="",
        again=False,
        last_lines=[],
        final=None,
        step_final=None,
        loss_before=None,
        loss_final=None,
    )


def with_ending(state: RunState, record: RunFinished | RunStopped | RunFailed) -> RunState:
    """The engine's own last word, which also stands over what its supervisor concluded."""
    if state.restarting:
        return state
    state = replace(
        state,
        ended_by="engine",
        exit_code=record.exit_code,
        detail="",
        held_since=None,
        holds=[],
        reason="",
        message="",
        hint="",
        error="",
        last_lines=[],
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
            phase: Phase = "parked" if record.exit_code in (PARKED, DiskError.exit_code) else "stopped"
            return replace(state, phase=phase, reason=record.reason, final=record.final)
        case RunFailed():
            return replace(
                state,
                phase="failed",
                message=record.message,
                hint=record.hint,
                error=record.error,
                again=record.again,
            )


def with_engine_end(state: RunState, record: EngineEnded) -> RunState:
    if state.ended_by == "engine" or state.restarting:
        return state
    message, error, exit_code = _last_words(state, record)
    return replace(
        state,
        ended_by="supervisor",
        phase="failed",
        detail="",
        held_since=None,
        holds=[],
        exit_code=exit_code,
        message=message,
        hint="The same command continues from the newest checkpoint.",
        error=error,
        last_lines=record.last_lines,
    )


def _last_words(state: RunState, record: EngineEnded) -> tuple[str, str, int]:
    """What became of an engine that left no ending, its fault in a word, and the exit code that stands for it."""
    if record.stalled:
        message = f"The engine was killed: {state.stalled or 'it stood still'}."
        return message, "stalled", StalledError.exit_code
    if record.oom_kills:
        how = f"was killed ({record.signal})" if record.signal else f"ended (exit code {record.code})"
        message = f"The engine {how}: the host ran out of memory{_held(record)}."
        return message, "host memory", HostMemoryError.exit_code
    if record.signal in ("SIGKILL", "SIGTERM", "SIGINT", "SIGHUP"):
        held = _held(record) if record.signal == "SIGKILL" else ""
        return f"The engine was killed ({record.signal}){held}.", record.signal, PREEMPTED_NOT_SAVED
    if record.signal:
        return f"The engine crashed ({record.signal}).", record.signal, BUG
    if record.code is None:
        why = "its supervisor had been replaced, so its exit code is unknown"
        return f"The engine ended without a word ({why}).", "exit code unknown", BUG
    code = record.code if record.code in EXIT_WORDS and record.code != FINISHED else BUG
    if said := next((line for line in record.last_lines if RANK_FAILED.match(line)), ""):
        return said, f"exit code {record.code}", code
    return f"The engine ended without a word (exit code {record.code}).", f"exit code {record.code}", code


def _held(record: EngineEnded) -> str:
    """The memory it held when it was last looked at; nothing where that is not known."""
    if record.engine_memory is None or record.memory_total is None:
        return ""
    return f"; the engine held {units.size(record.engine_memory)} of {units.size(record.memory_total)}"
