"""Watches over one engine (`python -P -m ftui.supervisor RUN_DIR`): starts it, samples the hardware, records its end.

It stays small (no torch, no pydantic) because it lives as long as the run, and it never dies of a full disk: the engine
goes on, and whoever reads the files sees it.
"""

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

import msgspec

from ftui.errors import DiskError, FtuiError
from ftui.events import EngineEnded, EngineStarted, Record
from ftui.files import open_private, replace_file, try_lock
from ftui.identity import Identity, identity_of, is_alive, this_process
from ftui.journal import Writer
from ftui.run import Run
from ftui.status import Status, Watch
from ftui.telemetry import Sampler, oom_kills

TICK_SECONDS = 1.0
POLL_SECONDS = 0.05
LAST_LINES = 20
LONGEST_LINE = 500


def engine_command(run: Run) -> list[str]:
    return [sys.executable, "-P", "-m", "ftui.engine", str(run.folder)]


class Terminations:
    """Counts SIGTERM; the handler only counts, the watching loop forwards."""

    def __init__(self) -> None:
        self.pending = 0
        signal.signal(signal.SIGTERM, self._arrived)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def _arrived(self, number: int, frame: FrameType | None) -> None:
        self.pending += 1

    def forward(self, group: int) -> None:
        """Send each SIGTERM on to the engine's process group."""
        while self.pending:
            self.pending -= 1
            with contextlib.suppress(ProcessLookupError, PermissionError):  # only zombies are left (Linux, macOS)
                os.killpg(group, signal.SIGTERM)


class Attempt:
    """One engine process from its start to its recorded end."""

    def __init__(self, run: Run, watch: Watch) -> None:
        self._run = run
        self._watch = watch
        number, token = watch.state.attempt + 1, secrets.token_hex(8)
        self._environment = clean_environment() | {"FTUI_ATTEMPT": str(number), "FTUI_TOKEN": token}
        self._log = Writer(run.supervisor_log, attempt=number, token=token)
        self._telemetry = Writer(run.telemetry, attempt=number, token=token)

    def run_to_end(self, command: Sequence[str], terminations: Terminations) -> None:
        self._write_status()  # names this process before there is an engine to be watched
        kills_before = oom_kills()
        log_start = self._run.engine_log.stat().st_size if self._run.engine_log.exists() else 0
        engine = start_engine(self._run, command, self._environment)
        identity = identity_of(engine.pid) or Identity("", "", engine.pid, "")  # gone before it could be looked at
        self._record(self._log, EngineStarted(identity=identity))
        self._watch_over(engine, terminations)
        kills = oom_kills()
        ending = EngineEnded(
            code=engine.returncode if engine.returncode >= 0 else None,
            signal=signal_name(-engine.returncode) if engine.returncode < 0 else None,
            oom_kills=None if kills is None or kills_before is None else kills - kills_before,
            last_lines=last_lines(self._run.engine_log, log_start),
        )
        self._record(self._log, ending)
        self._write_status()

    def close(self) -> None:
        self._log.close()
        self._telemetry.close()

    def _watch_over(self, engine: "subprocess.Popen[bytes]", terminations: Terminations) -> None:
        """Tick once a second until the engine has ended; forward what arrives meanwhile."""
        sampler = Sampler(engine.pid)
        next_tick = time.monotonic()
        while engine.poll() is None:
            terminations.forward(engine.pid)
            now = time.monotonic()
            if now >= next_tick:
                next_tick = now + TICK_SECONDS
                self._record(self._telemetry, sampler.sample())
                self._write_status()
            time.sleep(POLL_SECONDS)
        sampler.close()

    def _record(self, writer: Writer, record: Record) -> None:
        try:
            writer.write(record)
        except DiskError as error:
            say(error.message)

    def _write_status(self) -> None:
        self._watch.read()
        state = self._watch.state
        status = Status(
            time=time.time(), state=state, supervisor=this_process(), engine=state.engine, offsets=self._watch.offsets
        )
        try:
            replace_file(self._run.status, msgspec.json.encode(status))
        except OSError as error:
            say(f"status.json could not be written: {error}.")


def say(line: str) -> None:
    """A line for supervisor.log (standard error)."""
    print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {line}", file=sys.stderr, flush=True)


def clean_environment() -> dict[str, str]:
    """This process's environment without the switches that change what accelerate does."""
    return {name: value for name, value in os.environ.items() if not name.startswith("ACCELERATE_")}


def start_engine(run: Run, command: Sequence[str], environment: dict[str, str]) -> "subprocess.Popen[bytes]":
    """The engine in a process group of its own, everything it prints appended to engine.log."""
    log = open_private(run.engine_log, os.O_WRONLY | os.O_APPEND)
    try:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=run.folder, env=environment, process_group=0
        )
    finally:
        os.close(log)


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # real-time signals have no name of their own
        return f"signal {number}"


def last_lines(log: Path, start: int) -> list[str]:
    """The last lines of a log after byte `start`, each cut to a bearable length."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(start, size - 4 * LAST_LINES * LONGEST_LINE))
            data = file.read()
    except OSError as error:
        return [f"engine.log cannot be read: {error}"]
    lines = data.decode(errors="backslashreplace").rstrip("\n").split("\n")
    return [line[:LONGEST_LINE] for line in lines[-LAST_LINES:] if line]


def supervise(run: Run, command: Sequence[str]) -> None:
    """Run one engine to its end. The caller holds supervisor.lock."""
    watch = Watch(run)
    watch.catch_up()
    if is_alive(watch.state.engine):
        say("An engine without a supervisor works on this run. It is left alone.")
        return
    attempt = Attempt(run, watch)
    try:
        attempt.run_to_end(command, Terminations())
    finally:
        attempt.close()


def main(arguments: Sequence[str]) -> int:
    """0 when an engine has been watched to its end, or another supervisor already does that."""
    if len(arguments) != 1:
        say("usage: python -P -m ftui.supervisor RUN_DIR")
        return 2
    run = Run(Path(arguments[0]).absolute())
    try:
        run.read_facts()
        lock = try_lock(run.supervisor_lock)
        if lock is not None:
            supervise(run, engine_command(run))
    except FtuiError as error:
        say(error.message)
        return error.exit_code
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
