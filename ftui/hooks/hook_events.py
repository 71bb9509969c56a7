"""The events of a run that have hooks, from its records: pure functions."""

from dataclasses import dataclass, field
from pathlib import Path

from ftui.measures import leading_measure
from ftui.runs.events import AnyRecord, CheckpointSaved, EvaluationDone, RunStarted
from ftui.runs.run_folder import Run
from ftui.runs.state import RunState


@dataclass(frozen=True)
class HookEvent:
    """Something that happened in an attempt at a step; `variables` tell its command more, by their names."""

    name: str
    attempt: int
    step: int
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, int, int]:
        """What makes it the same event when the records are read again."""
        return self.name, self.attempt, self.step


def event_of(run: Run, record: AnyRecord) -> HookEvent | None:
    """The event that a record of a running run is, if it is one."""
    match record:
        case RunStarted():
            return HookEvent("started", record.attempt, record.start_step)
        case CheckpointSaved():
            folder = {"FTUI_CHECKPOINT": str(run.folder / record.path)}
            return HookEvent("checkpoint", record.attempt, record.step, folder)
        case EvaluationDone():
            name, value = leading_measure(record)
            figure = {} if value is None else {f"FTUI_EVAL_{name.upper()}": repr(value)}
            return HookEvent("evaluated", record.attempt, record.step, figure)
    return None


def ending_of(run: Run, state: RunState) -> HookEvent:
    """The end of a run that is not started again by itself."""
    variables = {"FTUI_PHASE": state.phase, "FTUI_EXIT": str(state.exit_code)}
    if state.phase == "finished" and run.final.is_dir():
        variables["FTUI_FINAL"] = str(run.final)
    return HookEvent("failed" if state.phase == "failed" else "ended", state.attempt, state.step, variables)


def environment_of(run: Run, event: HookEvent) -> dict[str, str]:
    """What the event's command finds in its environment beside what this process has."""
    return {
        "FTUI_RUN": str(run.folder), "FTUI_NAME": run.name, "FTUI_EVENT": event.name,
        "FTUI_ATTEMPT": str(event.attempt), "FTUI_STEP": str(event.step), **event.variables,
    }  # fmt: skip


def is_outdated(event: HookEvent, newest_attempt: int) -> bool:
    """Whether nobody wants it any more: an attempt that has long ended, a checkpoint that is gone."""
    if event.name == "checkpoint":
        return not Path(event.variables["FTUI_CHECKPOINT"]).is_dir()
    return event.name == "started" and event.attempt != newest_attempt
