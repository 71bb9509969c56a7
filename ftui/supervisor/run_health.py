"""The supervisor's part of a run's health: the statistical rules over its steps, and those over its machine."""

import os
import time
from collections.abc import Iterable

from ftui.errors import DiskError
from ftui.runs.events import AnyRecord
from ftui.runs.health.health_rules import HealthFinding, level_of
from ftui.runs.health.step_monitor import StepMonitor
from ftui.runs.records.health_records import HealthAlarm
from ftui.runs.records.signs_of_life import Telemetry
from ftui.runs.requests import Park, Pause, new_id, write_request
from ftui.runs.run_folder import Run
from ftui.runs.state import RunState, eta_seconds
from ftui.supervisor.engine_process import say
from ftui.supervisor.machine_health import MachineHealth
from ftui.supervisor.settings import SupervisorSettings


class RunHealth:
    """Watches one attempt."""

    def __init__(self, run: Run, settings: SupervisorSettings) -> None:
        self._run, self._on_red = run, settings.on_red
        self._steps = StepMonitor(
            settings.thresholds, stage=settings.stage, max_grad_norm=settings.max_grad_norm, rules_off=settings.ignore
        )
        self._machine = MachineHealth(settings.thresholds, settings.ignore)

    def read(self, records: Iterable[AnyRecord]) -> list[HealthAlarm]:
        """The alarms after these records."""
        return [self._alarm(finding, step_of(record)) for record in records for finding in self._steps.read(record)]

    def look(self, sample: Telemetry, state: RunState) -> list[HealthAlarm]:
        """The alarms after one more sample of the machine."""
        findings = self._machine.look(
            sample, free_bytes=self._free_bytes(), to_end=eta_seconds(state), now=time.monotonic()
        )
        alarms = [self._alarm(finding, state.step) for finding in findings]
        if any(alarm.level == "red" for alarm in alarms):
            self._act(state)
        return alarms

    def _alarm(self, finding: HealthFinding, step: int) -> HealthAlarm:
        suggestion = finding.suggestion.format(run=self._run.name)
        return HealthAlarm(
            rule=finding.rule, level=level_of(finding.rule), step=step, evidence=finding.evidence,
            suggestion=suggestion,
        )  # fmt: skip

    def _act(self, state: RunState) -> None:
        """What health.on_red says is asked of the engine like any other request."""
        kinds: dict[str, type[Pause | Park]] = {"pause": Pause, "park": Park}
        if self._on_red not in kinds:
            return
        try:
            kind = kinds[self._on_red]
            write_request(self._run, kind(id=new_id(), attempt=state.attempt, token=state.token))
        except DiskError as error:
            say(f"The engine could not be asked to {self._on_red}: {error.message}")

    def _free_bytes(self) -> int | None:
        try:
            found = os.statvfs(self._run.folder)
        except OSError:  # a volume that does not answer now has nothing to forecast
            return None
        return found.f_bavail * found.f_frsize


def step_of(record: AnyRecord) -> int:
    """The step that a record is about; 0 where it is about none."""
    step = getattr(record, "step", 0)
    return step if isinstance(step, int) else 0
