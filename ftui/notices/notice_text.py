"""What people are told of a run, from its records: pure functions, all foreign text through `shown`."""

from typing import Literal

import msgspec

from ftui import units
from ftui.runs import describe
from ftui.runs.events import AnyRecord, CheckpointSaved, EvaluationDone, PhaseChanged, RunStarted
from ftui.runs.records.health_records import HealthAlarm
from ftui.runs.records.hook_records import HookEnded, StopCancelled, StopPlanned, StopWaits
from ftui.runs.records.machine_stop import fold_stop
from ftui.runs.records.push_records import Pushed, PushFailed
from ftui.runs.records.spending import BudgetUsed
from ftui.runs.records.supervisor_records import EngineEnded, Restarting
from ftui.runs.restart_policy import may_follow
from ftui.runs.state import RunState, how_to_continue, phase_word
from ftui.text import shown

Level = Literal["info", "success", "warning", "failure"]


class Notice(msgspec.Struct, frozen=True):
    """A message: which event it tells of (a word of notify.events), its title and its text."""

    event: str
    title: str
    body: str
    level: Level = "info"


def notice_of(name: str, record: AnyRecord, state: RunState) -> Notice | None:
    """What a record of the run `name` is worth telling, if anything; `state` is what it led to."""
    place = describe.place(state)
    match record:
        case RunStarted():
            resumed = f" from {shown(record.resumed_from)}" if record.resumed_from else ""
            return Notice("started", f"{name} is training{resumed}", _join(place, shown(state.device)))
        case CheckpointSaved():
            return Notice("checkpoint", f"{name}: checkpoint at step {record.step}", units.size(record.num_bytes))
        case EvaluationDone(best=True):
            figure = f"evaluation {describe.evaluation_words(record)}"
            return Notice("evaluation_best", f"{name}: best evaluation so far", f"{figure} at step {record.step}")
        case PhaseChanged(phase="held"):
            return Notice("paused", f"{name} is paused", _join(place, shown(record.detail)), "warning")
        case HealthAlarm(level=level):
            rule = record.rule.replace("_", " ")
            event, title = ("red_alarm", "red alarm") if level == "red" else ("alarm", "alarm")
            text = _join(f"step {record.step}", shown(record.evidence), shown(record.suggestion))
            return Notice(event, f"{name}: {title}: {rule}", text, "failure" if level == "red" else "warning")
        case BudgetUsed():
            return Notice("budget", f"{name}: budget", _join(place, shown(record.message)), "warning")
        case Restarting():
            pause = units.duration(record.pause_seconds)
            text = f"crashed at step {record.step}: {shown(record.error)}; again in {pause}"
            return Notice("restarted", f"{name} is started again", text, "warning")
        case EngineEnded() if not may_follow(state):
            return _ending(name, state)
    return _after_the_end(name, record)


def _ending(name: str, state: RunState) -> Notice:
    if state.phase in ("failed", "lost"):
        text = _join(describe.place(state), shown(state.message), shown(how_to_continue(state)))
        return Notice("failed", f"{name} has failed", text, "failure")
    trained, evaluated = describe.loss_figures(state)
    losses = f"train loss {trained}" + ("" if state.last_evaluation is None else f", evaluation loss {evaluated}")
    ended = "has finished" if state.phase == "finished" else f"is {phase_word(state.phase)}"
    text = _join(describe.place(state), losses, shown(state.reason), shown(state.message))
    return Notice("ended", f"{name} {ended}", text, "success" if state.phase == "finished" else "info")


def _after_the_end(name: str, record: AnyRecord) -> Notice | None:
    match record:
        case Pushed():
            how = "verified there" if record.verified else "not verified"
            return Notice(
                "pushed", f"{name}: {shown(record.what)} is pushed", _join(shown(record.place), how), "success"
            )
        case PushFailed():
            text = _join(shown(record.message), shown(record.hint))
            return Notice("push_failed", f"{name}: the push has failed", text, "failure")
        case HookEnded(problem=problem) if problem:
            text = f"hooks.{shown(record.event)} {shown(problem)}"
            return Notice("hook_failed", f"{name}: a hook has failed", text, "warning")
        case StopWaits() | StopPlanned() | StopCancelled():
            how = "" if isinstance(record, StopCancelled) else f"`ftui keep {name}` cancels it"
            text = _join(shown(fold_stop(record).words()), how)
            return Notice("then_stop", f"{name}: the end of this machine", text, "warning")
    return None


def _join(*parts: str) -> str:
    return "\n".join(filter(None, parts))
