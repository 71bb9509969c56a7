"""`ftui --run P`: opens a run and follows it in plain lines. A reader only: whatever happens here, the run goes on."""

import os
import shlex
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from ftui import report
from ftui.errors import PREEMPTED_NOT_SAVED, FtuiError, ProfileError, UsageError
from ftui.events import AnyRecord, Step
from ftui.identity import is_alive
from ftui.opening import Opened, not_applied, open_run
from ftui.presets import find_profile
from ftui.profile import Profile, Resolved, resolve
from ftui.run import Run, check_name, find_run, name_from, runs_root
from ftui.runstate import RunState
from ftui.shown import cut, shown
from ftui.status import judge, lives, read_status
from ftui.supervisor import last_lines

LOOK_SECONDS = 0.25  # 4 Hz is as fast as anybody reads
JUDGE_SECONDS = 1.0  # looking at processes is dearer than looking at files
START_SECONDS = 30.0  # a supervisor writes its first line in a fraction of a second; a loaded pod may need more
LEAVE_SECONDS = 30.0  # an engine that has written its ending still has to let go of the GPU
DETACHED = 130


class Lines:
    """Standard output: plain lines and, on a terminal, one line below them that is drawn over."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.live = stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        self._drawn = ""

    def print(self, text: str) -> None:
        self.clear()
        self._stream.write(f"{text}\n")
        self._stream.flush()

    def draw(self, text: str) -> None:
        """Show `text` on the line that is drawn over, cut to the terminal's width."""
        text = cut(text, shutil.get_terminal_size().columns - 1)
        if self.live and text != self._drawn:
            self._stream.write(f"\r{text}\x1b[K")
            self._stream.flush()
            self._drawn = text

    def clear(self) -> None:
        if self._drawn:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
            self._drawn = ""


def run_headless(text: str, *, name: str | None, overrides: Sequence[str], again: bool, detach: bool) -> int:
    """Open the run that `text` (a profile or a run's name) means and follow it to its end; returns its exit code.

    Raises:
        FtuiError: it could not be opened.
    """
    folder, resolved = chosen(text, name, overrides)
    opened = open_run(folder, resolved, again=again)
    lines = Lines(sys.stdout)
    command = command_for(opened.run, text, overrides)
    try:
        return _attended(opened, resolved.profile, lines, command, detach=detach)
    except KeyboardInterrupt:
        lines.clear()
        lines.print("")
        for line in farewell(opened.run, command):
            lines.print(line)
        return DETACHED


def chosen(text: str, name: str | None, overrides: Sequence[str]) -> tuple[Path, Resolved]:
    """The run's folder and the profile: from a file, a shipped profile, or an existing run of that name."""
    try:
        path = find_profile(text)
    except ProfileError as no_profile:
        try:
            run = find_run(text)
        except UsageError:
            raise no_profile from None
        folder = runs_root() / check_name(name) if name else run.folder
        return folder, resolve(run.profile, overrides=overrides)
    resolved = resolve(path, overrides=overrides)
    own = name or resolved.profile.run.name
    return runs_root() / (check_name(own) if own else name_from(path.stem)), resolved


def command_for(run: Run, text: str, overrides: Sequence[str]) -> str:
    """The shortest command that opens this very run: its name, unless a profile is called like that."""
    try:
        find_profile(run.name)
    except ProfileError:
        return f"ftui --run {run.name}"
    words = ["ftui", "--run", text, "--name", run.name]
    for override in overrides:
        words += ["--set", override]
    return shlex.join(words)


def _attended(opened: Opened, profile: Profile, lines: Lines, command: str, *, detach: bool) -> int:
    run, state = opened.run, opened.before
    match opened.decision:
        case "finished":
            lines.print(f"{run.name} is over. `--again` starts a new run with the same profile.")
            return _conclude(run, state, profile, lines)
        case "attach":
            lines.print(f"attached to {run.name}: {report.history(state)}")
            if keys := not_applied(run, profile):
                lines.print(f"The profile has changed in {', '.join(keys)}: a living run keeps what it started with.")
        case "resume":
            lines.print(f"resuming {run.name}: {report.history(state)}")
        case "start":
            lines.print(f"starting {run.name} in {shown(str(run.folder))}")
    if not detach:
        return follow(opened, profile, lines)
    if opened.supervisor is not None:
        _wait_for_start(opened)
    for line in farewell(run, command):
        lines.print(line)
    return 0


def farewell(run: Run, command: str) -> list[str]:
    """What a person needs to know who leaves a run alone."""
    status = read_status(run)
    lines = [
        f"Detached: the run {run.name} goes on." if lives(status) else f"Detached from {run.name}.",
        f"  attach again   {shown(command)}",
        f"  look           ftui status {run.name}",
    ]
    if status.engine is not None and is_alive(status.engine):
        lines.append(f"  save and end   kill -TERM {status.engine.pid}")
    return lines


def _wait_for_start(opened: Opened) -> None:
    deadline = time.monotonic() + START_SECONDS
    while opened.watch.state.attempt <= opened.history:
        _check_start(opened, deadline)
        time.sleep(0.05)
        opened.watch.read()


def _check_start(opened: Opened, deadline: float) -> None:
    """Raises FtuiError when the supervisor we started left without a word, or is silent for too long."""
    supervisor = opened.supervisor
    code = None if supervisor is None else supervisor.poll()
    if not code and time.monotonic() < deadline:
        return
    lines = last_lines(opened.run.folder / "supervisor.log", 0)
    raise FtuiError(
        f"The run's supervisor did not start (exit code {code}).",
        hint="It wrote:\n" + "\n".join(f"  {line}" for line in lines) if lines else "",
    )


def follow(opened: Opened, profile: Profile, lines: Lines) -> int:
    """Print what happens until the run ends; returns its exit code."""
    run, watch = opened.run, opened.watch
    start_deadline = time.monotonic() + START_SECONDS
    next_judgement = time.monotonic() + JUDGE_SECONDS
    watched = True
    while True:
        for record, state in watch.read():
            for line in news(record, state, live=lines.live, logging_steps=profile.log.logging_steps):
                lines.print(line)
        lines.draw(report.progress(watch.state))
        if watch.state.attempt <= opened.history:
            _check_start(opened, start_deadline)
        elif watch.state.exit_code is not None:
            return _conclude(run, _left(opened), profile, lines)
        elif time.monotonic() >= next_judgement:
            next_judgement = time.monotonic() + JUDGE_SECONDS
            status = judge(run, watch)
            if status.state.phase == "lost":
                return _conclude(run, status.state, profile, lines)
            if status.unwatched and watched:
                lines.print("The run's supervisor is gone; the engine goes on without one.")
            watched = not status.unwatched
        time.sleep(LOOK_SECONDS)


def news(record: AnyRecord, state: RunState, *, live: bool, logging_steps: int) -> list[str]:
    """The lines to print for one record: events always, steps and phases only where no progress line shows them."""
    lines = report.event_lines(record)
    if live:
        return lines
    if isinstance(record, Step) and report.is_due(record, state, logging_steps):
        return [*lines, report.step_line(state)]
    return [*lines, *report.phase_line(record)]


def _left(opened: Opened) -> RunState:
    """The last state, once engine and supervisor have let go of the GPU and of their files."""
    deadline = time.monotonic() + LEAVE_SECONDS
    while lives(judge(opened.run, opened.watch)) and time.monotonic() < deadline:
        time.sleep(0.05)
        opened.watch.read()
    if opened.supervisor is not None:
        opened.supervisor.poll()
    opened.watch.read()
    return opened.watch.state


def _conclude(run: Run, state: RunState, profile: Profile, lines: Lines) -> int:
    lines.clear()
    if state.phase in ("failed", "lost"):
        print(report.failure(run, state), file=sys.stderr, flush=True)
    else:
        for line in report.summary(run, state, learning_rate=profile.train.learning_rate):
            lines.print(line)
    return PREEMPTED_NOT_SAVED if state.exit_code is None else state.exit_code
