"""A trial on a node of a cluster (`python -P -m ftui.sweep.executors SWEEP TRIAL [--until-eof]`): starts the run's
supervisor, unless somebody else works on the run or nothing is left to do for it, and stays until that has ended.

A scheduler may start this twice, or again after a node was lost: the sweep's journal and the run's own files say what
is due, and the run's lock lets one of them do it. SIGTERM is passed on: the run saves and ends, and is sent again.
With `--until-eof` the end of stdin is the same: whoever started this is gone.
"""

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from ftui.errors import FINISHED, PARKED, PREEMPTED_NOT_SAVED, PREEMPTED_SAVED, FtuiError, HardwareError, UsageError
from ftui.hardware.detect import find_machine
from ftui.launch.claim_cards import claimed_cards, device_kind
from ftui.launch.manage_runs import unarchive
from ftui.launch.open_run import stored_profile
from ftui.profile.consent import keep_consents
from ftui.profile.schema import Profile
from ftui.runs.run_folder import Run
from ftui.runs.state import RunState
from ftui.runs.status import is_running, read_status, refuse_if_elsewhere
from ftui.supervisor.engine_process import say
from ftui.supervisor.nodes.node_place import RANK_VARIABLES
from ftui.supervisor.spawn import launch
from ftui.sweep.sweep_files import SweepFiles, Trial
from ftui.sweep.trial_runs import was_cut_short
from ftui.system.files import try_lock

UNTIL_EOF = "--until-eof"
LOOK_SECONDS = 0.2
CARD_SECONDS = 60.0  # a run that was told to leave this card has saved by then
WELL = (FINISHED, PARKED, PREEMPTED_SAVED, PREEMPTED_NOT_SAVED)


class Ending:
    """Whether this is to end: SIGTERM has come, or whoever started it is gone."""

    def __init__(self, *, until_eof: bool) -> None:
        self.is_due = False
        self._until_eof = until_eof
        signal.signal(signal.SIGTERM, self._receive)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self.is_due = True

    def wait(self, seconds: float) -> bool:
        """Wait a while, and say whether it is to end."""
        if not self._until_eof:
            time.sleep(seconds)
        elif select.select([sys.stdin], [], [], seconds)[0] and not os.read(sys.stdin.fileno(), 1):
            self.is_due, self._until_eof = True, False
        return self.is_due


def is_due(trial: Trial, state: RunState) -> bool:
    """Whether a run whose lock is ours is to be started: it has not been since it was sent, or something has cut it
    short."""
    if trial.target is None:
        return False
    return state.attempt <= trial.attempts or was_cut_short(state)


def start_trial(files: SweepFiles, number: int) -> "subprocess.Popen[bytes] | None":
    """Start the run of a trial; `None` where there is nothing to do, which is said.

    Raises:
        LostRunError: another machine works on it.
        UsageError: other runs have the cards.
        HardwareError: there is no GPU, and the trial is to have one.
    """
    run = files.run_of(number)
    profile = stored_profile(run)
    _check_gpus(files, profile)
    with claimed_cards(profile) as cards:
        if (lock := try_lock(run.supervisor_lock)) is None:
            say(f"{run.name}: another process works on it.")
            return None
        try:
            state = files.read()
            trial = state.trials[number]
            status = read_status(run)
            if state.ended or is_running(status) or not is_due(trial, status.state):
                say(f"{run.name}: there is nothing left to do{f': {state.ended}' if state.ended else ''}.")
                return None
            run.check()
            refuse_if_elsewhere(run, status)
            keep_consents(profile, run.read_facts().run_id)  # the start of the sweep has checked them
            unarchive(run)
            return launch(run, lock, cards)
        finally:
            os.close(lock.descriptor)  # the supervisor has its own copy


def _check_gpus(files: SweepFiles, profile: Profile) -> None:
    asked = files.read_plan().run.gpus_of(profile)
    if asked and profile.hardware.device == "auto" and device_kind(profile, find_machine()) == "cpu":
        raise HardwareError(
            f"{os.uname().nodename} shows no GPU, and a trial is to have {asked}: it would be trained on the CPU.",
            hint="Look at nvidia-smi in a job of the cluster; [run] gpus = 0 is for nodes without GPUs.",
        )


def stay(run: Run, supervisor: "subprocess.Popen[bytes] | None", ending: Ending) -> None:
    """Wait until the run has ended; pass on that this is to end, once. An engine that loses its supervisor gets
    another."""
    while supervisor is not None:
        has_told = False
        while supervisor.poll() is None:
            if ending.wait(LOOK_SECONDS) and not has_told:
                has_told = True
                supervisor.send_signal(signal.SIGTERM)
        supervisor = None
        if read_status(run).unwatched and (lock := try_lock(run.supervisor_lock)) is not None:
            supervisor = launch(run, lock)
            os.close(lock.descriptor)


def run_trial(files: SweepFiles, number: int, ending: Ending) -> int:
    """Have a trial's run do what is due; 0 where the sweep goes on from what it came to."""
    run, deadline = files.run_of(number), time.monotonic() + CARD_SECONDS
    while True:
        try:
            supervisor = start_trial(files, number)
            break
        except UsageError as error:  # of a run that leaves the card
            if time.monotonic() > deadline or ending.wait(1.0):
                raise HardwareError(error.message) from error
    if supervisor is None:
        return 0
    say(f"{run.name} is started on {os.uname().nodename}.")
    stay(run, supervisor, ending)
    code = read_status(run).state.exit_code
    say(f"{run.name} has ended with exit code {code}.")
    return 0 if code in WELL else code or 1


def leave_parent() -> None:
    """Go on in a process whose parent is gone: Ray kills the children of a worker as it ends, and this is to tell the
    run first. Nothing else has begun here yet."""
    if os.fork():
        os._exit(0)


def main(arguments: Sequence[str]) -> int:
    """0 when the run has come as far as it was to, was cut short, or there was nothing to do; else its exit code."""
    words = [word for word in arguments if word != UNTIL_EOF]
    if len(words) != 2 or not words[1].isdecimal():
        say("usage: python -P -m ftui.sweep.executors SWEEP TRIAL [--until-eof]")
        return 2
    until_eof = UNTIL_EOF in arguments
    if until_eof:
        leave_parent()
    for name in RANK_VARIABLES:  # the scheduler has started one task for this run, which has one node
        os.environ.pop(name, None)
    files, number = SweepFiles(Path(words[0]).absolute()), int(words[1])
    try:
        if number >= len(files.read().trials):
            say(f"{files.name} has not asked trial {number} yet: `ftui sweep FILE` does, and sends it.")
            return 2
        return run_trial(files, number, Ending(until_eof=until_eof))
    except FtuiError as error:
        say(f"{Run(files.run_of(number).folder).name}: {error.message} {error.hint}".rstrip())
        return error.exit_code
