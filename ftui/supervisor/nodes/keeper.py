"""The keeper of a node other than node 0: what `ftui --run P` is there. It starts this node's ranks when node 0 says
so, tells how they end, and ends them itself when it hears nothing any more. No torch, and nothing of the run is its own
to decide."""

import os
import secrets
import shutil
import signal
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType, MappingProxyType

from ftui.errors import EXIT_WORDS, PARKED, PREEMPTED_NOT_SAVED, error_with
from ftui.hardware.card_locks import RunCards
from ftui.runs.run_folder import Run
from ftui.supervisor.attempt import last_lines
from ftui.supervisor.engine_process import (
    KEEPER,
    OWN_FOLDER,
    EngineProcess,
    Meeting,
    clean_environment,
    kill_leftovers,
    send_group,
    start_engine,
)
from ftui.supervisor.nodes.announcement import (
    Announcement,
    node_versions,
    read_announcement,
    refusal_file,
    secret_in_environment,
)
from ftui.supervisor.nodes.channel import Channel, ChannelError, RefusedError, approach
from ftui.supervisor.nodes.interface import interface_of, interface_variables
from ftui.supervisor.nodes.node_group import BEAT_SECONDS, SILENCE_SECONDS
from ftui.supervisor.nodes.node_messages import (
    AnyMessage,
    Hello,
    KillRanks,
    NodeBeat,
    RanksEnded,
    Refused,
    RunOver,
    StartRanks,
    Terminate,
    Welcome,
)
from ftui.supervisor.nodes.node_place import NodePlace
from ftui.supervisor.shared_memory import shared_memory_variables
from ftui.supervisor.supervise import engine_command
from ftui.supervisor.telemetry import Sampler
from ftui.system.files import make_private_folder, replace_file

LOOK_SECONDS = 0.05
CONNECT_SECONDS = 0.5  # between two attempts to reach node 0
REACH_SECONDS = 3.0
SHARE_SECONDS = 10.0  # until a new file of node 0 is seen here: a network volume may remember that there is none
EMPTY: Mapping[str, str] = MappingProxyType({})
NO_WAY = (
    "No folder of the run is seen here. Either all nodes share one (FTUI_RUNS), or FTUI_NODE_SECRET and "
    "FTUI_NODE_PORT, the same on every node, say how to reach node 0."
)
NO_SECRET = (
    "Node 0 announces itself without its secret, on a volume that keeps no file modes. Set FTUI_NODE_SECRET here to "
    "what it is on node 0."
)


class Keeper:
    """Keeps one node of a run. `find_run` names the run's folder as it is now: node 0 may only be about to make it.

    Where node 0's folder is not seen here, the ranks work in one of this node's own (`own_folder`): they get the
    profile from node 0, and what they read of a checkpoint from rank 0 (engine/distributed/node_files.py).

    `exit_code_of` is the run's where node 0 would not go on with it; `cards` are those of this node, and `variables`
    what its ranks are told of them.
    """

    def __init__(
        self, find_run: Callable[[], Run], place: NodePlace, patience: float | None, say: Callable[[str], None], *,
        beat: float | None = None, silence: float | None = None,
        exit_code_of: Callable[[Run], int | None] = lambda run: None, cards: RunCards | None = None,
        variables: Mapping[str, str] = EMPTY,
    ) -> None:  # fmt: skip
        self._find_run, self._place, self._patience, self._say = find_run, place, patience, say
        self._beat, self._silence = beat or BEAT_SECONDS, silence or SILENCE_SECONDS
        self._exit_code_of, self._cards, self._variables = exit_code_of, cards, variables
        self._id = secrets.token_hex(8)
        self._seen = self._run = find_run()
        """The run's folder where it is on node 0, and the one that this node works in."""
        self._channel: Channel | None = None
        self._engine: EngineProcess | None = None
        self._start: StartRanks | None = None
        self._ended: RanksEnded | None = None
        self._sampler: Sampler | None = None
        self._log_start = 0
        self._begun = self._heard = self._next_connect = self._next_beat = time.monotonic()
        self._num_signals = self._num_sent = 0
        self._has_own_folder = self._has_said = False

    def keep(self) -> int:
        """Keep the node until the run is over; returns the exit code of the run.

        Raises:
            FtuiError: node 0 will not have this node.
        """
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._receive)
        self._say(f"This is node {self._place.rank} of {self._place.num_nodes}: it waits for node 0.")
        try:
            while (code := self._look()) is None:
                time.sleep(LOOK_SECONDS)
            return code
        finally:
            self.close()

    def close(self) -> None:
        """End the ranks at once, and let go of node 0."""
        self._kill()
        self._disconnect()

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self._num_signals += 1

    def _look(self) -> int | None:
        """One round; the exit code once the run is over for this node."""
        now = time.monotonic()
        self._look_at_ranks()
        if self._channel is None and now >= self._next_connect:
            self._next_connect = now + CONNECT_SECONDS
            self._connect()
            if self._channel is None and (code := self._exit_code_of(self._seen)) is not None:
                self._say(f"The run has ended: {EXIT_WORDS.get(code, code)}.")
                return code
        code = None if self._channel is None else self._exchange(now)
        if code is not None:
            return code
        if self._channel is None and self._num_signals:
            self._say("SIGTERM while node 0 is away: this node ends.")
            return PREEMPTED_NOT_SAVED
        silent = time.monotonic() - self._heard
        if silent > self._silence and self._engine is not None:
            self._say(f"Node 0 was not heard for {silent:.0f} s: the ranks of this node are ended, and it waits.")
            self._kill()
        if self._patience is not None and silent > self._patience:
            self._say(f"Node 0 was not heard for {silent / 60:.0f} minutes (hardware.node_patience_minutes).")
            return PARKED
        return None

    def _exchange(self, now: float) -> int | None:
        assert self._channel is not None
        try:
            for message in self._channel.receive():
                if (code := self._obey(message)) is not None:
                    return code
            self._heard = self._channel.heard
            if self._num_sent < self._num_signals:
                self._num_sent = self._num_signals
                self._say("SIGTERM: node 0 is told to save and end the run.")
                self._channel.send(Terminate())
            if now >= self._next_beat:
                self._next_beat = now + self._beat
                self._channel.send(NodeBeat(None if self._sampler is None else self._sampler.sample()))
            if now - self._heard > self._silence:
                raise ChannelError("silence")
        except ChannelError as error:
            self._say(f"The connection to node 0 is gone ({error}).")
            self._disconnect()
        return None

    def _obey(self, message: AnyMessage) -> int | None:
        match message:
            case StartRanks():
                self._start_ranks(message)
            case KillRanks() if self._start is not None and message.token == self._start.token:
                self._kill()
            case RunOver():
                if self._has_own_folder:
                    shutil.rmtree(self._run.checkpoints, ignore_errors=True)  # a copy of what node 0 has
                self._say(f"The run is over: {EXIT_WORDS.get(message.exit_code, message.exit_code)}.")
                return message.exit_code
            case Refused():
                raise error_with(message.exit_code, message.message, message.hint)
        return None

    def _connect(self) -> None:
        """Try once to reach node 0: where it announces itself (or that it refuses), else where the launcher says."""
        self._seen = self._find_run()
        files = (refusal_file(self._seen), self._seen.nodes)
        announced = [(file, found) for file in files if (found := read_announcement(file)) is not None]
        for file, announcement in announced:
            self._try_address((announcement.address, announcement.port), announcement, file)
            if self._channel is not None:
                return
        if announced or time.monotonic() - self._begun < SHARE_SECONDS:
            return
        self._try_address(None if self._place.port is None else (self._place.leader, self._place.port))

    def _try_address(
        self, address: tuple[str, int] | None, announcement: Announcement | None = None, file: Path | None = None
    ) -> None:
        secret = secret_in_environment() or ("" if announcement is None else announcement.secret)
        if address is None or not secret:
            if not self._has_said:
                self._has_said = True
                self._say(NO_WAY if announcement is None else NO_SECRET)
            return
        try:
            connection = socket.create_connection(address, REACH_SECONDS)
        except OSError:
            return
        try:
            self._join(connection, secret, announcement)
        except RefusedError as error:
            if file != refusal_file(self._seen) and read_announcement(self._seen.nodes) != announcement:
                return  # node 0 has announced itself anew since that was read
            raise error_with(error.refusal.exit_code, error.refusal.message, error.refusal.hint) from None
        except ChannelError:
            return
        finally:
            if self._channel is None:
                connection.close()

    def _join(self, connection: socket.socket, secret: str, announcement: Announcement | None) -> None:
        channel = approach(connection, secret)
        channel.send(self._hello(announcement))
        answer = channel.receive_first(REACH_SECONDS)
        if isinstance(answer, Refused):
            raise RefusedError(answer)
        if not isinstance(answer, Welcome):
            raise ChannelError("no welcome")
        self._channel, self._heard, self._num_sent = channel, channel.heard, 0
        self._run, self._has_own_folder = self._seen, announcement is None
        where = ""
        if self._has_own_folder:
            self._run = own_folder(self._seen, answer.name, self._place.rank)
            where = f" Node 0's folder is not seen here: this node works in {self._run.folder}."
        self._say(f"Joined node 0 at {channel.remote_address} for the run {answer.name}.{where}")
        if self._ended is not None:
            self._tell_end()

    def _hello(self, announcement: Announcement | None) -> Hello:
        return Hello(
            self._place.rank, self._place.num_nodes, socket.gethostname(), self._id, node_versions(),
            nonce="" if announcement is None else announcement.nonce,
            token="" if self._start is None else self._start.token,
            own_folder=announcement is None,
        )  # fmt: skip

    def _disconnect(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def _start_ranks(self, start: StartRanks) -> None:
        assert self._channel is not None
        self._kill()
        self._start, self._ended = start, None
        interface = interface_of(self._channel.local_address)
        environment = {**clean_environment(), **({} if self._cards is None else self._cards.environment)}
        environment |= self._variables
        environment |= interface_variables(interface, environment)
        variables, warnings = shared_memory_variables(start.number, environment)
        for warning in warnings:
            self._say(f"warning: {warning}")
        environment |= variables | {
            "FTUI_ATTEMPT": str(start.attempt),
            "FTUI_TOKEN": start.token,
            KEEPER: str(os.getpid()),
        }
        if self._has_own_folder:
            environment[OWN_FOLDER] = "1"
            replace_file(self._run.profile, start.profile.encode())
        meeting = Meeting(start.size, start.first, start.number, start.address, start.port)
        log = self._run.node_log(self._place.rank)
        self._log_start = log.stat().st_size if log.exists() else 0
        self._engine = start_engine(
            self._run, engine_command(self._run), environment, meeting=meeting, log=log,
            keep_open=() if self._cards is None else self._cards.descriptors,
        )  # fmt: skip
        last = start.first + start.number - 1
        self._sampler = Sampler(self._engine.identity.pid, range(start.first, last + 1), self._place.rank)
        ranks = f"rank {last}" if start.number == 1 else f"ranks {start.first} to {last}"
        self._say(f"Attempt {start.attempt}: {ranks} of {start.size} through {interface}.")

    def _look_at_ranks(self) -> None:
        if self._engine is None or not self._engine.has_ended():
            return
        assert self._start is not None
        kill_leftovers(self._engine)
        lines = last_lines(self._run.node_log(self._place.rank), self._log_start)
        self._ended = RanksEnded(self._start.token, self._engine.codes(), lines)
        self._engine = None
        if self._sampler is not None:
            self._sampler.close()
            self._sampler = None
        self._tell_end()

    def _tell_end(self) -> None:
        if self._channel is not None and self._ended is not None:
            try:
                self._channel.send(self._ended)
            except ChannelError:
                self._disconnect()

    def _kill(self) -> None:
        """End the ranks at once, and let go of what they have."""
        if self._engine is not None:
            send_group(self._engine, signal.SIGKILL)
            while not self._engine.has_ended():
                time.sleep(LOOK_SECONDS)
            self._look_at_ranks()


def own_folder(run: Run, name: str, node: int) -> Run:
    """The folder that a node works in where it does not see node 0's: beside its own runs, and none of them. It is
    made. What stands in it but the node's log can be had again from node 0."""
    folder = run.folder.with_name(f".{name}-node-{node}")
    make_private_folder(folder)
    return Run(folder)
