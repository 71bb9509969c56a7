"""Follows a run in plain lines until it ends. A reader only: whatever happens here, the run keeps running."""

import sys
import time

from ftui.cli.terminal import LiveOutput
from ftui.errors import PREEMPTED_NOT_SAVED
from ftui.launch.open_run import START_SECONDS, OpenedRun, check_start
from ftui.launch.push_job import describe_push
from ftui.profile.schema import Profile
from ftui.runs import describe
from ftui.runs.events import AnyRecord, Step
from ftui.runs.records import record_lines, result_lines
from ftui.runs.run_folder import Run
from ftui.runs.state import RunState, ended_badly, is_pushing
from ftui.runs.status import Watch, is_running, judge
from ftui.supervisor.spawn import ensure_supervised

LOOK_SECONDS = 0.25  # 4 Hz is as fast as anybody reads
JUDGE_SECONDS = 1.0  # looking at processes is dearer than looking at files
LEAVE_SECONDS = 30.0  # an engine that has written its ending still has to let go of the GPU


def follow(opened: OpenedRun, profile: Profile, lines: LiveOutput) -> int:
    """Print what happens until the run ends; returns its exit code."""
    run, watch = opened.run, opened.watch
    start_deadline = time.monotonic() + START_SECONDS
    next_judgement = time.monotonic() + JUDGE_SECONDS
    leave_deadline = None
    while True:
        _print_news(watch, profile, lines)
        if watch.state.attempt <= opened.history:
            check_start(opened, start_deadline)
        elif watch.state.exit_code is not None:
            leave_deadline = leave_deadline or time.monotonic() + LEAVE_SECONDS
            is_late = time.monotonic() > leave_deadline and not is_pushing(watch.state)
            if is_late or not is_running(judge(run, watch)):
                _print_news(watch, profile, lines)
                if watch.state.exit_code is not None:  # or it is being started again
                    return conclude(run, watch.state, profile, lines)
        elif time.monotonic() >= next_judgement:
            next_judgement, leave_deadline = time.monotonic() + JUDGE_SECONDS, None
            status = judge(run, watch)
            if status.state.phase == "lost":
                return conclude(run, status.state, profile, lines)
            if status.unwatched:
                lines.print("The run's supervisor is gone: another one is started.")
                ensure_supervised(run, status)
        time.sleep(LOOK_SECONDS)


def _print_news(watch: Watch, profile: Profile, lines: LiveOutput) -> None:
    for record, state in watch.read():
        for line in news(
            record, state, live=lines.live, logging_steps=state.logging_steps or profile.log.logging_steps
        ):
            lines.print(line)
    lines.draw(describe.progress(watch.state))


def news(record: AnyRecord, state: RunState, *, live: bool, logging_steps: int) -> list[str]:
    """The lines to print for one record: events always, steps and phases only where no progress line shows them."""
    lines = record_lines.event_lines(record)
    if live:
        return lines
    lines += record_lines.rollout_lines(record, logging_steps)
    if isinstance(record, Step) and record_lines.is_due(record, state, logging_steps):
        return [*lines, describe.step_line(state)]
    return [*lines, *record_lines.phase_line(record)]


def conclude(run: Run, state: RunState, profile: Profile, lines: LiveOutput) -> int:
    """The last lines about a run that ended; returns its exit code."""
    lines.clear()
    if ended_badly(state):
        print(result_lines.failure(run, state), file=sys.stderr, flush=True)
    else:
        rate, scores = profile.train.learning_rate, profile.gives_scores
        for line in result_lines.summary(run, state, learning_rate=rate, gives_scores=scores):
            lines.print(line)
        for line in describe_push(run, state, profile.push.to):
            lines.print(line)
    if profile.hooks.then_stop and state.phase in profile.hooks.then_stop_after:
        lines.print(f"  then_stop   this machine is about to be stopped: `ftui keep {run.name}` cancels it")
    return PREEMPTED_NOT_SAVED if state.exit_code is None else state.exit_code
