"""What people are told of, and in which words: every event of notify.events has a record, and nothing else is told."""

from typing import Any, get_args

import pytest

from ftui.notices.notice_text import notice_of
from ftui.profile.sections.around.notify import NoticeEvent
from ftui.runs.events import CheckpointSaved, EvaluationDone, Noted, PhaseChanged, RunStarted
from ftui.runs.records.health_records import HealthAlarm
from ftui.runs.records.hook_records import HookBegan, HookEnded, StopCancelled, StopPlanned
from ftui.runs.records.push_records import Pushed, PushFailed
from ftui.runs.records.spending import BudgetUsed
from ftui.runs.records.supervisor_records import EngineEnded, Restarting
from ftui.runs.state import RunState

FINISHED = RunState(
    phase="finished", step=9, max_steps=9, exit_code=0, ended_by="engine", reason="all 9 steps are done"
)
FAILED = RunState(
    phase="failed", step=4, max_steps=9, exit_code=31, ended_by="engine", message="no rows", hint="Add some."
)
STARTED = RunStarted(
    start_step=4, max_steps=9, steps_per_epoch=9, effective_batch=1, num_train_rows=9, num_train_tokens=9,
    num_target_tokens=9, num_eval_rows=0, total_parameters=1, trainable_parameters=1, model="m", method="lora",
    precision="fp32", resumed_from="checkpoints/checkpoint-4",
)  # fmt: skip


def evaluated(*, best: bool) -> EvaluationDone:
    return EvaluationDone(step=4, epoch=0.1, loss=1.25, num_target_tokens=1, seconds=0.1, best=best)


def alarm(level: Any) -> HealthAlarm:
    return HealthAlarm(rule="zero_loss", level=level, step=4, evidence="the loss is 0", suggestion="Look at the rows.")


PUSHED = Pushed(to="t", what="final", seal="s", place="P", num_files=1, num_bytes=1, verified=True)
ENDED = EngineEnded(code=0, signal=None, oom_kills=None, last_lines=[])
TOLD = [
    (STARTED, RunState(max_steps=9), "started", "mine is training from checkpoints/checkpoint-4"),
    (CheckpointSaved(step=4, path="p", tags=[], num_bytes=1 << 20, seconds=0.1), RunState(), "checkpoint", "1.0 MiB"),
    (evaluated(best=True), RunState(), "evaluation_best", "evaluation loss 1.2500 at step 4"),
    (PhaseChanged(phase="held", detail="the disk is full"), RunState(), "paused", "the disk is full"),
    (ENDED, FINISHED, "ended", "mine has finished"),
    (ENDED, RunState(phase="parked", exit_code=11, ended_by="engine"), "ended", "mine is parked"),
    (ENDED, FAILED, "failed", "no rows"),
    (Restarting(step=4, error="CUDA", number=1, pause_seconds=5.0), RunState(), "restarted", "crashed at step 4: CUDA"),
    (alarm("red"), RunState(), "red_alarm", "mine: red alarm: zero loss"),
    (BudgetUsed(limit="max_money", allowed=9.0, spent=8.0, message="80 %"), RunState(), "budget", "80 %"),
    (alarm("amber"), RunState(), "alarm", "the loss is 0"),
    (PUSHED, FINISHED, "pushed", "P"),
    (PushFailed(to="t", what="final", message="no room", hint="h"), FINISHED, "push_failed", "no room"),
    (HookEnded(event="ended", step=9, seconds=1.0, problem="exit code 3"), FINISHED, "hook_failed", "code 3"),
    (StopPlanned(at=1.0, command=["x"]), FINISHED, "then_stop", "`ftui keep mine` cancels it"),
    (StopCancelled(reason="nothing is pushed"), FINISHED, "then_stop", "the machine stays: nothing is pushed"),
]  # fmt: skip


@pytest.mark.parametrize(("record", "state", "event", "words"), TOLD)
def test_what_is_told(record: Any, state: RunState, event: str, words: str) -> None:
    notice = notice_of("mine", record, state)
    assert notice is not None and notice.event == event and words in f"{notice.title}\n{notice.body}"
    assert notice.title.startswith("mine")


def test_every_event_of_the_profile_has_a_record() -> None:
    assert {event for _, _, event, _ in TOLD} == set(get_args(NoticeEvent))


@pytest.mark.parametrize(
    "record",
    [
        evaluated(best=False), PhaseChanged(phase="training"), Noted(message="x"),
        HookBegan(event="ended", step=1, command=["x"]), HookEnded(event="ended", step=1, seconds=1.0),
    ],
)  # fmt: skip
def test_what_is_not_told(record: Any) -> None:
    assert notice_of("mine", record, FINISHED) is None


def test_a_crash_that_is_started_again_is_no_failure() -> None:
    crashed = RunState(phase="failed", exit_code=139, ended_by="supervisor", again=True, step=4, attempt=1)
    assert notice_of("mine", ENDED, crashed) is None


def test_foreign_text_is_made_safe() -> None:
    notice = notice_of("mine", PhaseChanged(phase="held", detail="\x1b]0;evil\x07 \u202e"), RunState())
    assert notice is not None and "\x1b" not in notice.body and "\u202e" not in notice.body
