"""`hooks.then_stop`: stops this machine once the run has ended as wished, what is required is on record, and nothing
else runs here, after a countdown that anybody can cancel.

The command is on record before it runs, and never runs twice for one ending, whoever is killed in between.
"""

import time
from pathlib import Path

from ftui.errors import DiskError
from ftui.hooks.hook_events import ending_of, environment_of
from ftui.hooks.hook_settings import HookSettings
from ftui.hooks.run_command import run_command
from ftui.runs.events import AnyRecord
from ftui.runs.journal import Tail, Writer
from ftui.runs.manifest import read_manifest
from ftui.runs.records.hook_records import (
    JOURNAL,
    HookEnded,
    StopBegan,
    StopCancelled,
    StopEnded,
    StopPlanned,
    StopRecord,
    StopWaits,
)  # fmt: skip
from ftui.runs.records.push_records import PushBegan, Pushed, PushRecord
from ftui.runs.run_folder import Run, all_runs
from ftui.runs.state import RunState
from ftui.runs.status import is_running, read_status
from ftui.system.files import DAMAGED
from ftui.system.process_id import is_alive
from ftui.system.redact import redact

KEEP = "keep"  # a file in the folder `hooks`: somebody wants the machine to stay
POLL_SECONDS = 0.5
WAIT_SECONDS = 5.0


class ThenStop:
    """The chain for one ending of a run, whose `state` that is. The caller holds hooks/lock."""

    def __init__(self, run: Run, settings: HookSettings, writer: Writer, state: RunState) -> None:
        self._run, self._settings, self._writer, self._state = run, settings, writer, state

    def go(self) -> str:
        """Stop the machine, or say why not; returns that in words."""
        if not self._settings.then_stop:
            return "The profile of this run has no hooks.then_stop."
        if self._state.phase not in self._settings.after:
            return f"hooks.then_stop_after does not name a run that is {self._state.phase}."
        if self._has_begun():
            return "The command that stops this machine has run before."
        self._keep_file.unlink(missing_ok=True)  # of an earlier countdown
        while True:
            reason = self._wait_for_its_turn() or self._count_down()
            if reason is None:
                continue  # another run has begun meanwhile
            if reason:
                self._note(StopCancelled(reason=reason))
                return f"The machine stays: {reason}."
            return self._stop()

    def _wait_for_its_turn(self) -> str:
        """Wait until nothing is in the way; returns why the machine stays, where it does."""
        told = ""
        while True:
            if reason := self._cancelled() or ("" if self._is_pushing() else self._missing()):
                return reason
            waits = "the push is under way" if self._is_pushing() else what_runs_beside(self._run)
            if not waits:
                return ""
            if waits != told and self._note(StopWaits(reason=waits)):
                told = waits
            time.sleep(WAIT_SECONDS)

    def _count_down(self) -> str | None:
        """Why the machine stays; nothing when the time is over, and `None` when something is in the way again."""
        at = time.time() + self._settings.countdown_seconds
        deadline = time.monotonic() + self._settings.countdown_seconds
        if not self._note(StopPlanned(at=at, command=[*self._settings.then_stop])):
            time.sleep(WAIT_SECONDS)
            return None
        while True:
            if reason := self._cancelled() or self._missing():
                return reason
            if what_runs_beside(self._run):
                return None
            if time.monotonic() >= deadline:
                return ""
            time.sleep(POLL_SECONDS)

    def _stop(self) -> str:
        command = [*self._settings.then_stop]
        while not self._note(StopBegan(command=command)):
            if reason := self._cancelled():
                return f"The machine stays: {reason}."
            time.sleep(WAIT_SECONDS)
        variables = environment_of(self._run, ending_of(self._run, self._state))
        problem = run_command(command, variables, self._run.folder, self._settings.timeout_seconds)
        self._note(StopEnded(problem=problem))
        return f"The command that stops this machine {problem or 'has run'}."

    @property
    def _keep_file(self) -> Path:
        return self._run.hooks / KEEP

    def _cancelled(self) -> str:
        if self._keep_file.exists():
            self._keep_file.unlink(missing_ok=True)
            return "somebody has asked for it"
        status = read_status(self._run)
        return f"{self._run.name} goes on" if is_running(status) or status.state.attempt != self._state.attempt else ""

    def _has_begun(self) -> bool:
        return any(isinstance(record, StopBegan) for record in self._records())

    def _records(self) -> list[AnyRecord]:
        records = Tail(self._run.hooks / JOURNAL).read()
        return [record for record in records if record.attempt == self._state.attempt]

    def _missing(self) -> str:
        """What is required and not on record, in words."""
        required = self._settings.required(self._state.phase)
        if "hooks" in required:
            ends = [record for record in self._records() if isinstance(record, HookEnded) and record.event == "ended"]
            if not ends or ends[-1].problem:
                return "hooks.ended has not run without an error"
        push = self._last_push()
        if push is None and {"pushed", "verified"} & {*required}:
            return f"its result is not pushed (`ftui push {self._run.name}`, then `ftui then-stop {self._run.name}`)"
        if push is not None and not push.verified and "verified" in required:
            return "nothing says that all of the push has arrived"
        return ""

    def _last_push(self) -> Pushed | None:
        """The newest record that this very final/ has arrived."""
        try:
            seal = read_manifest(self._run.final).seal
        except (OSError, *DAMAGED):
            return None
        to = redact(self._settings.push_to or "")
        found = [one for one in Tail(self._run.pushes).read() if isinstance(one, Pushed)]
        return next((one for one in reversed(found) if (one.to, one.what, one.seal) == (to, "final", seal)), None)

    def _is_pushing(self) -> bool:
        newest = next((one for one in reversed(Tail(self._run.pushes).read()) if isinstance(one, PushRecord)), None)
        return isinstance(newest, PushBegan) and is_alive(newest.process)

    def _note(self, record: StopRecord) -> bool:
        """Put it on record; says whether that was possible."""
        self._writer.attempt = self._state.attempt
        try:
            self._writer.write(record, durable=True)
        except DiskError as error:
            print(error.message, flush=True)
            return False
        return True


def what_runs_beside(run: Run) -> str:
    """Another run that is running on this machine or waits in its queue, in words; nothing where there is none."""
    for other in all_runs():
        if other.folder == run.folder:
            continue
        status = read_status(other)
        if is_running(status):
            return f"{other.name} is running"
        if status.state.phase == "queued":
            return f"{other.name} waits in the queue"
    return ""
