"""One engine from its start, or from the moment it was found alive, to its recorded end."""

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from ftui import units
from ftui.errors import PARKED, DiskError
from ftui.hardware.card_locks import RunCards
from ftui.hardware.cgroup import oom_kills
from ftui.runs.curves import CurveReader, write_curves
from ftui.runs.events import ControlApplied, ControlRefused, Warned
from ftui.runs.journal import Writer
from ftui.runs.records.record import Record
from ftui.runs.records.signs_of_life import Telemetry
from ftui.runs.records.supervisor_records import Adopted, EngineEnded, EngineStarted, Restarting
from ftui.runs.reduce import fold
from ftui.runs.requests import Park, read_requests, remove_request
from ftui.runs.restart_policy import decide
from ftui.runs.run_folder import Run
from ftui.runs.status import Status, Watch, is_frozen
from ftui.supervisor import stall
from ftui.supervisor.companions import Companions
from ftui.supervisor.engine_process import (
    AdoptedEngine,
    Engine,
    clean_environment,
    kill_leftovers,
    kill_with_stacks,
    say,
    start_engine,
)
from ftui.supervisor.nodes.node_group import NodeGroup
from ftui.supervisor.peer_copies import peer_copy_variables
from ftui.supervisor.run_health import RunHealth
from ftui.supervisor.settings import SupervisorSettings
from ftui.supervisor.shared_memory import shared_memory_variables
from ftui.supervisor.stall import StallDetector, read_beat
from ftui.supervisor.telemetry import Sampler
from ftui.system.files import open_plain, replace_file
from ftui.system.process_id import Identity, this_process
from ftui.system.redact import redact
from ftui.system.volume import release_reserve

TICK_SECONDS = 1.0
POLL_SECONDS = 0.05
STACKS_SECONDS = 2.0  # how long a stalled engine may take to write its stacks
CURVES_SECONDS = 10.0
SAY_SECONDS = 5.0  # nodes start together, give or take so much
LAST_LINES = 20
TELEMETRY_BYTES = 8 << 20  # of telemetry.jsonl: half a day of one machine
TELEMETRY_SEGMENTS = 8  # of that length, compressed to a tenth, stay beside it
LONGEST_LINE = 500


class Mark(NamedTuple):
    """A place in a log that may be moved aside meanwhile."""

    inode: int
    size: int


class Attempt:
    """Watches one engine. `forward` sends on each SIGTERM the supervisor got, and says whether it ever got one."""

    def __init__(
        self,
        run: Run,
        settings: SupervisorSettings,
        watch: Watch,
        curves: CurveReader,
        companions: Companions,
        *,
        number: int,
        token: str,
        nodes: NodeGroup | None = None,
    ) -> None:
        self._run = run
        self._settings = settings
        self._watch = watch
        self._curves = curves
        self._companions = companions
        self._number = number
        self._token = token
        self._nodes = nodes
        self._log = Writer(run.supervisor_log, attempt=number, token=self._token)
        self._health = RunHealth(run, settings)
        self._telemetry = Writer(
            run.telemetry, attempt=number, token=self._token, longest=TELEMETRY_BYTES, keep=TELEMETRY_SEGMENTS
        )
        self._log_start = mark(run.engine_log)
        self._kills_before = oom_kills()
        self._sampled = Telemetry()
        self._next_curves = time.monotonic() + CURVES_SECONDS

    def start(
        self,
        command: Sequence[str],
        cards: RunCards,
        has_terminated: Callable[[], bool],
        seen_before: float | None = None,
    ) -> Engine | str:
        """Start the engine on its cards and record it, once all nodes are here. `command` is run once for each rank.

        `seen_before`: see `EngineStarted`.

        Returns why nothing was started, where a node does not come or the run is to end.
        """
        self.write_status()  # names this process before there is an engine to be watched
        own = {"FTUI_ATTEMPT": str(self._number), "FTUI_TOKEN": self._token}
        environment = clean_environment() | cards.environment | own
        per_node = self._settings.num_processes // (1 if self._nodes is None else self._nodes.num_nodes)
        for find_variables in (shared_memory_variables, peer_copy_variables):
            variables, warnings = find_variables(per_node, environment)
            environment |= variables
            self._warn(warnings)
        starter = partial(start_engine, self._run, command, keep_open=cards.descriptors)
        if self._nodes is None:
            engine = starter(environment, size=self._settings.num_processes)
        elif ended := self._wait_for_nodes(self._nodes, has_terminated):
            self._record(self._log, ended)
            self.write_status()
            return ended.lost_node or "SIGTERM while it waited for a node"
        else:
            engine = self._nodes.start_engine(starter, environment, self._number, self._token, per_node)
        self._record(self._log, EngineStarted(identity=engine.identity, seen_before=seen_before))
        return engine

    def _wait_for_nodes(self, nodes: NodeGroup, has_terminated: Callable[[], bool]) -> EngineEnded | None:
        begun, next_tick, has_said = time.monotonic(), 0.0, False
        patience = self._settings.patience_seconds
        while missing := nodes.missing():
            waited = time.monotonic() - begun
            if has_terminated():
                return self._ending(None, "SIGTERM", stalled=False)
            away = "node " + " and ".join(map(str, missing)) + (" is away" if len(missing) == 1 else " are away")
            if self._is_asked_to_park(away):
                return self._ending(PARKED, None, stalled=False, lost_node=f"on request, while {away}")
            if patience is not None and waited > patience:
                return self._ending(PARKED, None, stalled=False, lost_node=f"{away} for {units.duration(patience)}")
            if waited >= SAY_SECONDS and not has_said:
                has_said = True
                ends = "" if patience is None else f", for {units.duration(patience)} at most"
                self._warn([f"{away}: the run waits for the same command there{ends}"])
            if waited >= next_tick:
                next_tick = waited + TICK_SECONDS
                self.write_status()
            time.sleep(POLL_SECONDS)
        return None

    def _is_asked_to_park(self, away: str) -> bool:
        """Answer what is asked of a run without an engine: it can be parked, and nothing else."""
        state, asked = self._watch.state, False
        own = {(state.attempt, state.token), (self._number, ""), (self._number, self._token)}
        for file in read_requests(self._run):
            request = file.request
            if request is None or (request.attempt, request.token) not in own:
                continue  # the engine says what is wrong with it
            answer: Record
            if isinstance(request, Park):
                asked = True
                answer = ControlApplied(request=request.id, verb=request.verb, step=state.step, detail=away)
            else:
                reason = f"{away}, and without it nothing runs; `ftui park {self._run.name}` ends the wait"
                answer = ControlRefused(request=request.id, verb=request.verb, step=state.step, reason=reason)
            if self._record(self._log, answer):
                remove_request(file)
        return asked

    def adopt(self, identity: Identity) -> Engine:
        """Watch an engine that runs already, and record that its supervisor is another one now."""
        self._log_start = Mark(0, 0)  # nobody knows where its lines begin
        self._record(self._log, Adopted(identity=identity))
        if self._nodes is not None:
            self._nodes.hold(self._token)
        self.write_status()
        return AdoptedEngine(identity)

    def watch_to_end(self, engine: Engine, forward: Callable[[Engine], bool]) -> Restarting | str:
        """Watch the engine until it has ended, record how; returns the restart that follows, or why none does."""
        stalled = self._watch_over(engine, forward)
        code, signal = engine.exit_status()
        lost_node = ""
        if self._nodes is not None:
            self._nodes.end_attempt(self._token)
            code, signal, lost_node = self._nodes.explain(code, signal)
        if num_left := kill_leftovers(engine):
            say(f"The engine has left {num_left} processes behind: killed.")
        ended = self._ending(code, signal, stalled=stalled, lost_node=lost_node)
        self._read_news()
        verdict = decide(fold(self._watch.state, ended), ended, terminated=forward(engine))
        is_recorded = self._record(self._log, ended)
        while not is_recorded and self._make_room():
            is_recorded = self._record(self._log, ended)
        if isinstance(verdict, Restarting) and not (is_recorded and self._record(self._log, verdict)):
            verdict = "the restart could not be recorded"  # and without a record nobody could count them
        self.write_status()
        self._finish_curves()
        if not isinstance(verdict, Restarting) and self._warn(self._companions.finish()):
            self.write_status()
        return verdict

    def close(self) -> None:
        """Close the record files of this attempt."""
        self._log.close()
        self._telemetry.close()

    def write_status(self) -> None:
        """Replace status.json by the state so far; a full disk is reported and does not end the watch."""
        self._read_news()
        state = self._watch.state
        status = Status(
            time=time.time(), state=state, supervisor=this_process(), engine=state.engine, offsets=self._watch.offsets
        )
        try:
            replace_file(self._run.status, msgspec.json.encode(status))
        except OSError as error:
            say(f"status.json could not be written: {error}.")

    def _watch_over(self, engine: Engine, forward: Callable[[Engine], bool]) -> bool:
        """Tick once a second until the engine has ended; returns whether it had to be ended because it stood still."""
        num_nodes = 1 if self._nodes is None else self._nodes.num_nodes
        sampler = Sampler(engine.identity.pid, range(self._settings.num_processes // num_nodes))
        stillness = StallDetector(
            self._settings.stall_seconds, token=self._token, tick=TICK_SECONDS, patience=stall.PATIENCE_SECONDS
        )
        stalled, behind = False, True
        last_tick = next_tick = time.monotonic()
        while not engine.has_ended():
            forward(engine)
            if self._nodes is not None:
                self._nodes.end_with_lost(engine)
            if (now := time.monotonic()) >= next_tick:
                elapsed, last_tick, next_tick = now - last_tick, now, now + TICK_SECONDS
                self._sample(sampler)
                self._warn(self._companions.look())
                self.write_status()
                behind = True  # most likely there are new steps
                beat, stopped = read_beat(self._run), is_frozen(engine.identity)
                stall_found = None if stalled else stillness.look(beat, elapsed, stopped=stopped)
                if stall_found is not None:
                    self._record(self._log, stall_found)
                    kill_with_stacks(engine, STACKS_SECONDS)
                    stalled = True
                    continue
            behind = behind and self._draw_curves()
            time.sleep(POLL_SECONDS)
        sampler.close()
        return stalled

    def _sample(self, sampler: Sampler) -> None:
        sample = sampler.sample()
        if self._nodes is not None:
            sample = msgspec.structs.replace(sample, others=self._nodes.samples())
        self._record(self._telemetry, sample)
        if sample.engine_memory is not None:
            self._sampled = sample
        for alarm in self._health.look(sample, self._watch.state):
            self._record(self._log, alarm)

    def _ending(self, code: int | None, signal: str | None, *, stalled: bool, lost_node: str = "") -> EngineEnded:
        kills = oom_kills()
        lines = last_lines(self._run.engine_log, after(self._run.engine_log, self._log_start))
        if self._nodes is not None:
            lines = [*lines, *self._nodes.last_lines()][-LAST_LINES:]
        return EngineEnded(
            attempt=self._number,
            token=self._token,
            code=code,
            signal=signal,
            oom_kills=None if kills is None or self._kills_before is None else kills - self._kills_before,
            last_lines=lines,
            engine_memory=self._sampled.engine_memory,
            memory_total=self._sampled.memory_total,
            stalled=stalled,
            lost_node=lost_node,
        )

    def _record(self, writer: Writer, record: Record) -> bool:
        try:
            writer.write(record)
        except DiskError as error:
            say(error.message)
            return False
        return True

    def _make_room(self) -> bool:
        """Give back some space: the reserve, which no engine needs now, or a file that can be made again."""
        if release_reserve(self._run.reserve):
            return True
        for path in (self._run.curves, self._run.status):
            with contextlib.suppress(OSError):
                path.unlink()
                return True
        return False

    def _warn(self, messages: Sequence[str]) -> bool:
        """Record each; says whether there was any."""
        for message in messages:
            self._record(self._log, Warned(message=message))
        return bool(messages)

    def _read_news(self) -> None:
        for alarm in self._health.read(record for record, _ in self._watch.read()):
            self._record(self._log, alarm)
        state = self._watch.state
        if state.start_step is not None:
            self._curves.begin(state.attempt, state.start_step)

    def _draw_curves(self) -> bool:
        """Take in one piece of metrics.jsonl (never long, whatever has piled up); False when there was none left.

        Whole curves are written now and then.
        """
        if self._curves.advance():
            return True
        if self._curves.has_changed and time.monotonic() >= self._next_curves:
            self._next_curves = time.monotonic() + CURVES_SECONDS
            self._write_curves()
        return False

    def _finish_curves(self) -> None:
        while self._curves.advance():
            continue
        if self._curves.has_changed:
            self._write_curves()

    def _write_curves(self) -> None:
        try:
            write_curves(self._run, self._curves)
        except OSError as error:
            say(f"curves.json could not be written: {error}.")


def mark(log: Path) -> Mark:
    """The end of a log; the beginning where there is none yet, or where it cannot be looked at."""
    try:
        stat = log.stat()
    except OSError:
        return Mark(0, 0)
    return Mark(stat.st_ino, stat.st_size)


def after(log: Path, start: Mark) -> int:
    """The byte at which what was written after `start` begins: the first one where the log was begun anew since."""
    return start.size if mark(log).inode == start.inode else 0


def last_lines(log: Path, start: int) -> list[str]:
    """The last lines of a log after byte `start` (of all of it where it is shorter), each cut to a bearable length."""
    try:
        with open(open_plain(log), "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(start if start <= size else 0, size - 4 * LAST_LINES * LONGEST_LINE))
            data = file.read()
    except OSError as error:
        return [f"engine.log cannot be read: {error}"]
    lines = redact(data.decode(errors="backslashreplace")).rstrip("\n").split("\n")
    return [line[:LONGEST_LINE] for line in lines[-LAST_LINES:] if line]
