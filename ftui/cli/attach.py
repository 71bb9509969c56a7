"""`ftui attach`: which run is meant, and the same facts as lines for whoever cannot use a screen."""

import time

from ftui.errors import INTERRUPTED, PREEMPTED_NOT_SAVED, UsageError
from ftui.runs import describe
from ftui.runs.run_folder import Run, all_runs, find_run
from ftui.runs.status import Watch, is_final, is_running, judge, read_status
from ftui.supervisor.spawn import ensure_supervised
from ftui.text import shown

LOOK_SECONDS = 0.5
LOGGING_STEPS = 10  # between two printed steps, unless a request has set it


def run_to_attach(name: str | None) -> Run:
    """The run of that name; without one the newest that is running, else the newest.

    Raises:
        UsageError: there is none.
    """
    if name is not None:
        return find_run(name)
    runs = sorted(all_runs(), key=opened_at, reverse=True)
    if not runs:
        raise UsageError("There is no run to attach to.", hint="`ftui --run quickstart` starts a small one.")
    return next((run for run in runs if is_running(read_status(run))), runs[0])


def opened_at(run: Run) -> float:
    """Unix time at which a run was opened; 0 where its run.json is damaged."""
    try:
        return run.read_facts().created
    except UsageError:
        return 0.0


def attach_plain(run: Run) -> int:
    """Print how the run stands, then what happens until it ends; Ctrl-C leaves it alone. Returns the exit code."""
    from ftui.cli import runs as listing
    from ftui.cli.follow import news  # 12 MiB: it knows profiles, which the screens do without

    watch = Watch(run)
    watch.catch_up()
    status = ensure_supervised(run, judge(run, watch))
    for label, value in listing.facts(run, status):
        print(f"{label:<18}{value}")
    try:
        while is_running(status) or not (is_final(status) or status.state.phase == "lost"):
            for record, state in watch.read():
                for line in news(record, state, live=False, logging_steps=state.logging_steps or LOGGING_STEPS):
                    print(line, flush=True)
            time.sleep(LOOK_SECONDS)
            status = ensure_supervised(run, judge(run, watch))
    except KeyboardInterrupt:
        print(f"Detached: {describe.history(status.state)}")
        return INTERRUPTED
    for line in last_words(run, status.state.phase):
        print(line)
    return PREEMPTED_NOT_SAVED if status.state.exit_code is None else status.state.exit_code


def last_words(run: Run, phase: str) -> list[str]:
    """What is printed when the run has ended."""
    state = read_status(run).state
    if phase in ("failed", "lost"):
        return describe.failure(run, state).split("\n")
    return [f"{shown(run.name)}: {describe.history(state)}"]
