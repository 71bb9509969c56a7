"""Whether a run that crashed is started again by itself, and after which pause: pure, from its state and its ending."""

from collections.abc import Sequence

from ftui.errors import (
    BUG,
    PARKED,
    PREEMPTED_NOT_SAVED,
    PREEMPTED_SAVED,
    STOPPED,
    DataError,
    DiskError,
    HardwareError,
    LostRunError,
    ModelError,
    NonFiniteError,
    ProfileError,
    UsageError,
)
from ftui.runs.records.supervisor_records import EngineEnded, Restarting
from ftui.runs.state import Restart, RunState

MOST_IN_A_ROW = 5
ASKED_TO_END = ("SIGTERM", "SIGINT", "SIGHUP")  # whoever sends these wants it gone
EXPLAINED = {
    STOPPED,
    PARKED,
    PREEMPTED_SAVED,
    PREEMPTED_NOT_SAVED,
    *(
        kind.exit_code
        for kind in (
            UsageError,
            ProfileError,
            DataError,
            ModelError,
            HardwareError,
            DiskError,
            NonFiniteError,
            LostRunError,
        )
    ),
}


def decide(state: RunState, ending: EngineEnded, *, terminated: bool) -> Restarting | str:
    """The restart that follows the ending of an attempt, or why there is none, in words.

    `state` has seen all records of the attempt, `ending` among them; `terminated`: its supervisor was sent SIGTERM.
    """
    if reason := _reason_against(state, ending, terminated=terminated):
        return reason
    step, error = crash_step(state), state.error
    row = row_before(state.restarts, state.attempt)
    if ending.lost_node:  # no fault of the run
        return Restarting(step=step, error=ending.lost_node, number=row[-1].number if row else 0, pause_seconds=0.0)
    if any((restart.step, restart.error) == (step, error) for restart in row):
        return f"it crashed a second time at step {step} with the same error: {error}"
    number = row[-1].number + 1 if row and not state.has_verified else 1
    if number > MOST_IN_A_ROW:
        return f"it crashed after {MOST_IN_A_ROW} restarts in a row without a new verified checkpoint"
    return Restarting(step=step, error=error, number=number, pause_seconds=2.0 ** (number - 1))


def may_follow(state: RunState) -> bool:
    """Whether a supervisor may yet start this run again although its attempt has ended: a reader waits for its word."""
    if state.exit_code is None or state.leaving:
        return False
    if state.ended_by == "engine":
        return _is_crash(state)
    return state.error not in (*ASKED_TO_END, *(f"exit code {code}" for code in EXPLAINED))


def _reason_against(state: RunState, ending: EngineEnded, *, terminated: bool) -> str:
    if terminated:
        return "it was ended by SIGTERM"
    if state.attempt != ending.attempt or state.token not in ("", ending.token):
        return "the run's records do not show this attempt (a full disk, or another supervisor)"
    if not may_follow(state):
        return "its ending is not a crash"
    return ""


def _is_crash(state: RunState) -> bool:
    return state.phase == "failed" and (state.again or state.exit_code == BUG)


def crash_step(state: RunState) -> int:
    """The last finished step; before this attempt has a plan, the step it would begin from."""
    if state.step_attempt == state.attempt:
        return state.step
    newest = state.newest_checkpoint
    return newest.step if newest else 0


def row_before(restarts: Sequence[Restart], attempt: int) -> list[Restart]:
    """The restarts that led to this attempt without a pause for people: one attempt after another, oldest first."""
    row: list[Restart] = []
    for restart in reversed([restart for restart in restarts if restart.attempt < attempt]):
        if restart.attempt != attempt - len(row) - 1:
            break
        row.insert(0, restart)
    return row
