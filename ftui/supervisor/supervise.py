"""Watches one run (`python -P -m ftui.supervisor RUN_DIR [LOCK_FD [CARD_FD ...]]`): starts its engine, or adopts a
running one, records how it ends, and starts it again after a crash.

It stays small (no torch, no pydantic) because it runs as long as the run does, and no full disk ends it: the engine
continues, and whoever reads the files sees it.
"""

import os
import secrets
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from ftui.errors import PREEMPTED_NOT_SAVED, DiskError, FtuiError
from ftui.hardware.card_locks import RunCards
from ftui.runs.curves import CurveReader
from ftui.runs.records.supervisor_records import Restarting
from ftui.runs.run_folder import Run
from ftui.runs.status import Watch, last_seen, own_process
from ftui.supervisor.attempt import POLL_SECONDS, Attempt
from ftui.supervisor.companions import Companions
from ftui.supervisor.engine_process import Engine, say, send_group
from ftui.supervisor.nodes.announcement import forget_announcement, read_announcement
from ftui.supervisor.nodes.node_group import NodeGroup
from ftui.supervisor.nodes.node_place import NodePlace, find_place
from ftui.supervisor.push_at_end import push_at_end
from ftui.supervisor.settings import SupervisorSettings, read_settings
from ftui.system.files import Lock, lock_from, try_lock
from ftui.system.process_id import is_alive
from ftui.system.volume import is_disk_full

PACE = 1.0  # of the pauses before restarts; only tests are in more of a hurry


def engine_command(run: Run) -> list[str]:
    """The command line of a rank of the engine; which rank it is stands in its environment."""
    return [sys.executable, "-P", "-m", "ftui.engine", str(run.folder)]


class Terminations:
    """Counts SIGTERM; the handler only counts, the watching loop forwards."""

    def __init__(self) -> None:
        self.num_received = 0
        self._forwarded = 0
        signal.signal(signal.SIGTERM, self._receive)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self.num_received += 1

    def receive(self) -> None:
        """Another node was sent one: it counts as one of this process."""
        self.num_received += 1

    def was_received(self) -> bool:
        """Whether there ever was one."""
        return self.num_received > 0

    def forward(self, engine: Engine) -> bool:
        """Send each SIGTERM on to the engine's process group, unless it has ended; says whether there ever was one."""
        while self._forwarded < self.num_received and not engine.has_ended():
            self._forwarded += 1
            send_group(engine, signal.SIGTERM)
        return self.num_received > 0


def supervise(run: Run, command: Sequence[str], card_locks: Sequence[int] = ()) -> None:
    """Watch the run until its engine has ended for good. The caller holds supervisor.lock.

    `card_locks` are descriptors: its cards are the run's until then, with the pauses before restarts.
    """
    terminations = Terminations()
    watch = Watch(run)
    watch.catch_up()
    settings = read_settings(run)
    curves, cards = CurveReader(run), RunCards(run.folder, card_locks)
    companions = Companions(run, settings)
    place = place_of(run, settings, runs=is_alive(own_process(run, watch.state.engine)))
    nodes = None if place is None else NodeGroup(run, place, terminations.receive)
    reason = "its supervisor has failed"
    try:
        while True:
            verdict = _run_attempt(run, settings, watch, curves, companions, cards, command, terminations, nodes)
            if not isinstance(verdict, Restarting):
                reason = verdict
                break
            say(f"The engine crashed at step {verdict.step} ({verdict.error}): again in {verdict.pause_seconds:.0f} s.")
            if not (_wait(verdict.pause_seconds * PACE, terminations) and _take_cards(cards, terminations)):
                reason = "SIGTERM"
                return
    finally:
        say(f"The run is not started again: {reason}.")
        if nodes is not None:
            code = watch.state.exit_code
            nodes.close(PREEMPTED_NOT_SAVED if code is None else code)
    cards.release()
    if settings.pushes and watch.state.phase == "finished":
        push_at_end(run, terminations.was_received)


def place_of(run: Run, settings: SupervisorSettings, *, runs: bool) -> NodePlace | None:
    """Which node this is, `None` where there is one. `runs`: the engine has outlived its supervisor.

    The command that then starts another supervisor need not be the launcher's: what was announced counts.
    """
    place = find_place(settings.nodes, settings.num_processes, os.environ)
    if place is None and runs and settings.nodes != 1 and (announced := read_announcement(run.nodes)) is not None:
        place = NodePlace(0, announced.num_nodes, announced.address)
    if place is None:
        forget_announcement(run)  # of a time when it had several
    return place


def _run_attempt(
    run: Run,
    settings: SupervisorSettings,
    watch: Watch,
    curves: CurveReader,
    companions: Companions,
    cards: RunCards,
    command: Sequence[str],
    terminations: Terminations,
    nodes: NodeGroup | None,
) -> Restarting | str:
    state = watch.state
    engine_before = own_process(run, state.engine)
    adoptable = engine_before if is_alive(engine_before) else None
    seen_before = last_seen(run, state) if state.exit_code is None and not state.restarting else None
    number, token = state.attempt + 1, secrets.token_hex(8)
    if adoptable is not None:
        cards.adopt()
        number, token = state.attempt, state.token
    attempt = Attempt(run, settings, watch, curves, companions, number=number, token=token, nodes=nodes)
    try:
        engine: Engine | str
        if adoptable is not None:
            engine = attempt.adopt(adoptable)
        else:
            engine = attempt.start(command, cards, terminations.was_received, seen_before)
        return engine if isinstance(engine, str) else attempt.watch_to_end(engine, terminations.forward)
    finally:
        attempt.close()


def _take_cards(cards: RunCards, terminations: Terminations) -> bool:
    """Have the cards of an engine that was adopted, once no other run is on them; False as soon as SIGTERM arrives."""
    while not cards.take():
        if not _wait(1.0, terminations):
            return False
    return True


def _wait(seconds: float, terminations: Terminations) -> bool:
    """False as soon as SIGTERM arrives."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and not terminations.num_received:
        time.sleep(POLL_SECONDS)
    return not terminations.num_received


def main(arguments: Sequence[str]) -> int:
    """0 when the run has been watched to its end, or another supervisor already does that."""
    if not arguments or not all(text.isdecimal() for text in arguments[1:]):
        say("usage: python -P -m ftui.supervisor RUN_DIR [LOCK_FD [CARD_FD ...]]")
        return 2
    run = Run(Path(arguments[0]).absolute())
    try:
        run.read_facts()
        run.check()
        lock = _lock(run, arguments[1:2])
        if lock is not None:
            supervise(run, engine_command(run), [int(text) for text in arguments[2:]])
    except FtuiError as error:
        say(error.message)
        return error.exit_code
    except OSError as error:
        if not is_disk_full(error):
            raise
        say(f"There is no room for the files of {run.name}: {error}.")
        return DiskError.exit_code
    return 0


def _lock(run: Run, descriptors: Sequence[str]) -> Lock | None:
    """supervisor.lock, as the opener handed it on; without that, `None` when another supervisor holds it."""
    if not descriptors:
        return try_lock(run.supervisor_lock)
    try:
        return lock_from(int(descriptors[0]))
    except BlockingIOError:
        return None
