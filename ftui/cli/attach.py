"""`ftui` and `ftui attach`: the screens, or the same facts as lines where there is no terminal to draw on."""

import time

from ftui.cli.runs import created, facts, print_runs
from ftui.cli.terminal import has_screen
from ftui.errors import INTERRUPTED, PREEMPTED_NOT_SAVED, UsageError
from ftui.runs import describe
from ftui.runs.records import result_lines
from ftui.runs.run_folder import Run, all_runs, find_run
from ftui.runs.state import ended_badly
from ftui.runs.status import Watch, is_final, is_running, judge, read_status
from ftui.supervisor.spawn import ensure_supervised
from ftui.text import shown

START_PAGE = """\
ftui fine-tunes language models. A run keeps running when the terminal is closed.

  ftui                              every run on one screen: watch them, control them, start new ones
  ftui attach [RUN]                 watch and control one (--plain: as lines)
  ftui run quickstart               train a small model (a few minutes on a CPU)
  ftui run PROFILE                  train with a profile (TOML) of your own
  ftui run PROFILE --dry-run        show what it would do, start nothing
  ftui runs                         list the runs
  ftui log RUN                      the course of a run as lines (-f: follow it)
  ftui chat RUN                     talk with what it has trained (a file of prompts: ftui ask)
  ftui evaluate RUN --data FILE     measure it on rows (then: merge, export, push)
  ftui remove RUN                   delete it: says what is freed, asks (also: archive, rename)
  ftui pause | park | stop RUN      control a running run (ftui --help lists all)
  ftui profiles                     list the profiles that come with ftui
  ftui estimate PROFILE             what it will take: memory, time, disk, money
  ftui preview PROFILE              its rows as the model will see them
  ftui split FILE --eval 10%        split a file into rows to train on and rows to evaluate on
"""

LOOK_SECONDS = 0.5
LOGGING_STEPS = 10  # between two printed steps, unless a request has set it


def open_front() -> int:
    """`ftui` alone: the list of runs on a screen, or as lines."""
    if not has_screen():
        print(START_PAGE)
        return print_runs() if all_runs() else 0
    from ftui.tui.open_screens import open_screens

    return open_screens()


def attach(name: str | None, plain: bool) -> int:
    """`ftui attach [RUN]`: the live view of a run, or plain lines."""
    run = run_to_attach(name)
    if plain or not has_screen():
        return attach_plain(run)
    from ftui.tui.open_screens import open_screens

    return open_screens(run)


def run_to_attach(name: str | None) -> Run:
    """The run of that name; without one the newest that is running, else the newest.

    Raises:
        UsageError: there is none.
    """
    if name is not None:
        return find_run(name)
    runs = sorted(all_runs(), key=lambda run: created(run) or 0.0, reverse=True)
    if not runs:
        raise UsageError("There is no run to attach to.", hint="`ftui --run quickstart` starts a small one.")
    return next((run for run in runs if is_running(read_status(run))), runs[0])


def attach_plain(run: Run) -> int:
    """Print how the run stands, then what happens until it ends; Ctrl-C leaves it alone. Returns the exit code."""
    from ftui.cli.follow import news  # 12 MiB: it knows profiles, which the screens do without

    watch = Watch(run)
    watch.catch_up()
    status = ensure_supervised(run, judge(run, watch))
    for label, value in facts(run, status):
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
    if phase == "lost" or ended_badly(state):
        return result_lines.failure(run, state).split("\n")
    return [f"{shown(run.name)}: {describe.history(state)}"]
