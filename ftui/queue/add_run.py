"""Put a run into the queue: all that can be wrong with it is found now, while somebody is there to mend it."""

import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from ftui.errors import HardwareError, UsageError
from ftui.estimate.api import Known, estimate
from ftui.estimate.measurements import read_probes
from ftui.estimate.result import Estimate
from ftui.estimate.simulation import with_libraries
from ftui.hardware.detect import Machine, find_machine
from ftui.hardware.devices import Card
from ftui.helper.checks import find_refusal
from ftui.helper.client import Helper
from ftui.launch.check_start import check_may_start
from ftui.launch.claim_cards import device_kind
from ftui.launch.manage_runs import unarchive
from ftui.launch.open_run import (
    Decision,
    check_files,
    check_moved_files,
    create,
    decide,
    resume,
)
from ftui.profile.consent import keep_consents
from ftui.profile.layers import ResolvedProfile
from ftui.profile.schema import Profile
from ftui.queue.queue_files import QueueFiles
from ftui.queue.waiting_runs import Added, Kind
from ftui.runs.run_folder import Run, RunFacts
from ftui.runs.status import read_status
from ftui.system.files import try_lock
from ftui.text import shown


@dataclass(frozen=True)
class Candidate:
    """A run that may be added: where, whether it begins or goes on, what it computes on, what is known of it."""

    run: Run
    decision: Decision
    resolved: ResolvedProfile
    device: Kind
    card: Card
    known: Known
    estimate: Estimate
    attempts: int = 0
    """How many it had when it was looked at."""


def find_candidate(
    helper: Helper, folder: Path, resolved: ResolvedProfile, allow: Collection[str] = (), *, again: bool = False
) -> Candidate:
    """Look at all that a run of the profile in `folder` would be refused for later.

    Raises:
        FtuiError: it would be, or it needs more than this machine has; or it is running, has ended or waits already.
    """
    run, decision = decide(folder, again=again, resume_stopped=True)
    _refuse_by_decision(run, decision)
    attempts = read_status(run).state.attempt if decision == "resume" else 0
    check_may_start(resolved.profile, allow, run if decision == "resume" else None)
    if decision == "resume":
        check_moved_files(resolved, "ftui", "queue", "add", run.name)
    else:
        check_files(resolved)
    machine, profile = find_machine(), resolved.profile
    device = device_kind(profile, machine)
    card = machine.cpu.card if device == "cpu" else machine.card
    _check_number(profile, device, machine)
    if (refusal := find_refusal(helper, profile)) is not None:
        raise refusal
    known = with_libraries(helper, profile, card, Known(probes=read_probes()))
    if known.refusal is not None:
        raise known.refusal
    result = estimate(profile, card, known)
    if result.verdict == "no":
        raise HardwareError(
            f"{run.name} does not fit {card.title}: {result.impossible or _needs(result)}.",
            hint="`ftui estimate --fit` with the same profile shows what would.",
        )
    return Candidate(run, decision, resolved, device, card, known, result, attempts)


def _refuse_by_decision(run: Run, decision: Decision) -> None:
    if decision == "attach":
        raise UsageError(f"{shown(run.name)} is running already.", hint=f"ftui attach {shown(run.name)}")
    if decision == "finished":
        hint = "--again adds NAME-2, NAME-3 ...; --name gives it another name."
        raise UsageError(f"{shown(run.name)} has ended.", hint=hint)
    if decision == "resume":
        queue = QueueFiles(run.folder.parent).read()
        if queue.place_of(run.read_facts().run_id) is not None:
            hint = f"`ftui queue move {shown(run.name)} 1` starts it next; --name adds another."
            raise UsageError(f"{shown(run.name)} waits in the queue already.", hint=hint)


def _check_number(profile: Profile, device: Kind, machine: Machine) -> None:
    number = profile.hardware.num_processes
    if (profile.hardware.nodes or 1) > 1:
        raise HardwareError(
            f"hardware.nodes = {profile.hardware.nodes}: a queue has the cards of one machine.",
            hint="Give `ftui run` with the same profile on each machine.",
        )
    if device == "cuda" and number > len(machine.cards):
        there = f"this machine has {len(machine.cards)} GPUs"
        raise HardwareError(
            f"hardware.num_processes = {number}: {there}, and the run would never start.",
            hint=f"--set hardware.num_processes={max(1, len(machine.cards))}",
        )


def _needs(result: Estimate) -> str:
    from ftui.units import size

    assert result.memory is not None
    return f"it needs about {size(result.memory.process)}"


def add(candidate: Candidate) -> int:
    """Make the run's folder, note the run in the queue of the folder of runs, and say how many wait before it.

    Raises:
        UsageError: somebody else has just made a run of that name, or started the run.
        DiskError: there is no room, or the volume refuses it.
    """
    run, resolved, memory = candidate.run, candidate.resolved, candidate.estimate.memory
    if candidate.decision == "resume":
        _prepare_again(candidate)
    elif not create(run, resolved, RunFacts("", "", 0.0, shown(resolved.path.stem), queued=True)):
        raise UsageError(f"{shown(run.name)} was opened by another process in this moment.", hint="Try it again.")
    run_id = run.read_facts().run_id
    keep_consents(resolved.profile, run_id)
    hardware = resolved.profile.hardware
    added = Added(
        run_id=run_id, name=run.name, device=candidate.device,
        num_cards=hardware.num_processes if candidate.device == "cuda" else 1,
        memory=None if memory is None else memory.high, visible=os.environ.get("CUDA_VISIBLE_DEVICES"),
        attempts=candidate.attempts,
    )  # fmt: skip
    with QueueFiles(run.folder.parent).changing() as pen:
        pen.write(added)
        return pen.queue.place_of(run_id) or 0


def _prepare_again(candidate: Candidate) -> None:
    """Give a run that goes on its new values. Rows are counted for minutes: somebody may have started it meanwhile."""
    run = candidate.run
    lock = try_lock(run.supervisor_lock)
    try:
        if lock is None or read_status(run).state.attempt != candidate.attempts:
            hint = f"ftui attach {shown(run.name)}"
            raise UsageError(f"{shown(run.name)} was started by another process meanwhile.", hint=hint)
        resume(run, candidate.resolved.profile)
        unarchive(run)
    finally:
        if lock is not None:
            lock.close()
