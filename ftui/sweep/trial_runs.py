"""The run that a trial is: made, given its next rung, and what it came to there."""

from dataclasses import dataclass

from ftui import units
from ftui.errors import (
    PREEMPTED_NOT_SAVED,
    PREEMPTED_SAVED,
    GpuMemoryError,
    HardwareError,
    HostMemoryError,
    NonFiniteError,
)
from ftui.estimate.api import Known, estimate
from ftui.estimate.measurements import read_probes
from ftui.hardware.devices import Card
from ftui.launch.manage_runs import unarchive
from ftui.launch.open_run import create, resume
from ftui.profile.consent import keep_consents
from ftui.profile.layers import ResolvedProfile, resolve
from ftui.profile.schema import Profile
from ftui.runs.journal import Tail
from ftui.runs.records.supervisor_records import EngineEnded, EngineStarted
from ftui.runs.run_folder import Run, RunFacts
from ftui.runs.state import RunState, phase_word
from ftui.runs.status import read_status
from ftui.sweep.sweep_files import SweepFiles, Trial
from ftui.sweep.sweep_plan import SweepPlan
from ftui.system.files import try_lock
from ftui.text import toml_value

IN_WORDS = {
    NonFiniteError.exit_code: "diverged",
    GpuMemoryError.exit_code: "out of memory",
    HostMemoryError.exit_code: "out of memory",
}


@dataclass(frozen=True)
class Outcome:
    """What a trial came to where it was sent: its step and value there. `ended`: why it goes no further, if so."""

    step: int
    value: float | None
    seconds: float
    ended: str = ""


def overrides_of(plan: SweepPlan, trial: Trial, target: int) -> list[str]:
    """What is set for a trial on its way to a rung, as `--set` has it."""
    values = dict(trial.values)
    if plan.rungs:
        values["train.max_steps"] = plan.rungs[-1]
        values["checkpoint.park_at_step"] = "none" if target == len(plan.rungs) - 1 else plan.rungs[target]
    return [f"{key}={toml_value(value)}" for key, value in values.items()]


def resolve_trial(files: SweepFiles, plan: SweepPlan, trial: Trial, target: int) -> ResolvedProfile:
    """The profile of a trial on its way to a rung.

    Raises:
        ProfileError: its values contradict each other, or what the profile says.
    """
    return resolve(files.profile, overrides=overrides_of(plan, trial, target))


def prepare(files: SweepFiles, plan: SweepPlan, trial: Trial, card: Card | None) -> bool:
    """Make a trial's run, or give it its next rung; whether that could be done: nobody else works on it.

    `card`: what it is for, where that is known.

    Raises:
        ProfileError: its values contradict each other.
        HardwareError: it cannot fit the card, however empty that is; nothing was made.
        DiskError: there is no room, or the volume refuses it.
    """
    assert trial.target is not None, "only a trial on its way has a place to come to"
    run = files.run_of(trial.number)
    resolved = resolve_trial(files, plan, trial, trial.target)
    if not run.facts.exists():
        if card is not None:
            _check_memory(resolved.profile, card)
        facts = RunFacts("", "", 0.0, plan.name, queued=True, sweep=plan.name, trial=trial.number)
        create(run, resolved, facts)
    elif not _send_on(run, resolved.profile):
        return False
    keep_consents(resolved.profile, run.read_facts().run_id)  # which the start of the sweep has checked
    return True


def _send_on(run: Run, profile: Profile) -> bool:
    """Give a parked run its next rung; whether it could be done: nobody else works on it."""
    lock = try_lock(run.supervisor_lock)
    if lock is None:
        return False
    try:
        resume(run, profile)
        unarchive(run)
    finally:
        lock.close()
    return True


def _check_memory(profile: Profile, card: Card) -> None:
    """Raises HardwareError where not even the low end of the estimate fits."""
    needed = estimate(profile, card, Known(probes=read_probes()))
    if needed.verdict == "no":
        low = "" if needed.memory is None else f": it needs {units.size(needed.memory.low)} or more"
        raise HardwareError(f"does not fit {card.title}{low}")


def was_cut_short(state: RunState) -> bool:
    """Whether a run that nobody works on was ended by its machine, with or without a word: it is to go on."""
    return state.exit_code in (None, PREEMPTED_SAVED, PREEMPTED_NOT_SAVED) or state.restarting


def find_outcome(plan: SweepPlan, profile: Profile, trial: Trial, run: Run, *, is_local: bool = True) -> Outcome | None:
    """What a trial's run, which nobody works on, came to; `None` where it has to be sent on its way (again).

    `is_local`: the queue has had it, and starts again by itself what was lost.
    """
    assert trial.target is not None
    state = read_status(run).state
    if not is_local and was_cut_short(state):
        return None
    step = plan.rungs[trial.target] if plan.rungs else None
    seconds = spent_seconds(run)
    if state.attempt > trial.attempts or state.phase == "finished":
        reached = next((one for one in reversed(state.evaluations) if one.step == (step or state.step)), None)
        is_there = state.phase == "finished" or (state.phase == "parked" and step is not None)
        if reached is not None and is_there:
            value = profile.resolved_eval.value_of(reached.loss, reached.extras)
            return Outcome(reached.step, value, seconds)
        if (why := _why_ended(state)) is not None:
            return Outcome(state.step, None, seconds, why)
    return None


def _why_ended(state: RunState) -> str | None:
    """Why a run that came not so far will not; `None` where the machine has ended it, so that it goes on."""
    if state.exit_code in (PREEMPTED_SAVED, PREEMPTED_NOT_SAVED):
        return None
    if state.phase == "parked":
        return "parked by hand"
    if state.phase == "stopped":
        return "stopped by hand"
    if state.phase == "finished":
        return "not evaluated"
    return IN_WORDS.get(state.exit_code or 0) or f"{phase_word(state.phase)}: {state.message or state.reason}".rstrip(
        ": "
    )


def spent_seconds(run: Run) -> float:
    """How long a run's engines have worked, all attempts together, as its supervisors saw them begin and end."""
    total, begun = 0.0, None
    for record in Tail(run.supervisor_log).read():
        if isinstance(record, EngineStarted):
            begun = record.time
        elif isinstance(record, EngineEnded) and begun is not None:
            total, begun = total + max(0.0, record.time - begun), None
    return total


def find_trial_run(files: SweepFiles, trial: Trial) -> Run | None:
    """A trial's run; `None` where there is none yet, or somebody has deleted it."""
    run = files.run_of(trial.number)
    return run if run.facts.exists() else None
