"""Node 0's side: takes in the keepers of the other nodes, has them start their ranks, and knows which of them is lost.

A thread reads and beats, so that nothing that keeps the supervisor busy makes it look dead.
"""

import contextlib
import selectors
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ftui.errors import HardwareError, UsageError
from ftui.runs.records.signs_of_life import Telemetry
from ftui.runs.run_folder import Run
from ftui.supervisor.engine_process import (
    LINGER_SECONDS,
    LOST_RANK,
    Engine,
    EngineProcess,
    ExitStatus,
    Meeting,
    send_group,
    signal_name,
)
from ftui.supervisor.nodes.announcement import (
    announce,
    forget_announcement,
    new_secret,
    node_versions,
    refusal_file,
)
from ftui.supervisor.nodes.channel import Channel, ChannelError, welcome
from ftui.supervisor.nodes.interface import interface_of, interface_variables, leader_address
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

BEAT_SECONDS = 1.0
SILENCE_SECONDS = 30.0  # after which a node is lost: its ranks are taken to be ended, and its keeper has ended them
LOOK_SECONDS = 0.1
HELLO_SECONDS = 10.0
MOST_STRANGERS = 64  # connections that have not proved yet who they are
LEAVE_SECONDS = 10.0  # how long the ranks of other nodes may take to end once those of node 0 have


@dataclass
class Member:
    """What node 0 knows of another node. `token`: the attempt that it was told to start ranks for."""

    node: int
    hello: Hello | None = None
    channel: Channel | None = None
    heard: float = 0.0
    token: str = ""
    codes: list[int] | None = None
    ended: float = 0.0
    last_lines: list[str] = field(default_factory=list)
    sample: Telemetry | None = None
    loss: str = ""

    @property
    def name(self) -> str:
        """How a person knows it."""
        return f"node {self.node}" + (f" ({self.hello.host})" if self.hello else "")


class NodeGroup:
    """The other nodes of a run. `on_terminate` is called when a keeper was sent SIGTERM."""

    def __init__(
        self, run: Run, place: NodePlace, on_terminate: Callable[[], None], *,
        beat: float | None = None, silence: float | None = None,
    ) -> None:  # fmt: skip
        self._run, self._run_id = run, run.read_facts().run_id
        self.num_nodes = place.num_nodes
        self._on_terminate = on_terminate
        self._beat, self._silence = beat or BEAT_SECONDS, silence or SILENCE_SECONDS
        self._members = {node: Member(node) for node in range(1, place.num_nodes)}
        self._lock = threading.RLock()
        self._ends = threading.Event()
        self._is_broken = False
        self._admissions = threading.Semaphore(MOST_STRANGERS)
        self.address = leader_address(place.leader)
        self.interface = interface_of(self.address)
        self._listener = listen(self.address, place.port or 0)
        port = self._listener.getsockname()[1]
        self._announcement = announce(run.nodes, self.address, port, place.num_nodes, new_secret())
        refusal_file(run).unlink(missing_ok=True)  # of a command that was killed as it told the nodes of a refusal
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self, exit_code: int) -> None:
        """Tell all keepers that the run is over, and stop listening."""
        with self._lock:
            for member in self._members.values():
                self._send(member, RunOver(exit_code))
        self._ends.set()
        self._thread.join()
        forget_announcement(self._run)

    def missing(self) -> list[int]:
        """The nodes that have not joined, or are silent."""
        with self._lock:
            return [m.node for m in self._members.values() if m.channel is None]

    def samples(self) -> list[Telemetry]:
        """What the machines of the other nodes were doing when they were last heard."""
        with self._lock:
            return [m.sample for m in self._members.values() if m.sample is not None and m.channel is not None]

    def start_engine(
        self, start: Callable[..., EngineProcess], environment: Mapping[str, str], attempt: int, token: str,
        per_node: int,
    ) -> EngineProcess:  # fmt: skip
        """Start the ranks of all nodes, `per_node` on each; returns those of this one."""
        size = self.num_nodes * per_node
        environment = {**environment, **interface_variables(self.interface, environment)}
        with listen(self.address) as meeting_point, self._lock:
            port = meeting_point.getsockname()[1]
            self._is_broken = False
            for m in self._members.values():
                m.token, m.codes, m.last_lines, m.loss = token, None, [], ""
                profile = self._run.profile.read_text() if m.hello is not None and m.hello.own_folder else ""
                start_ranks = StartRanks(attempt, token, m.node * per_node, per_node, size, self.address, port, profile)
                self._send(m, start_ranks)
            meeting = Meeting(size, 0, per_node, self.address, port)
            return start(environment, meeting=meeting, listener=meeting_point)

    def hold(self, token: str) -> None:
        """The ranks of this attempt run already: they were started by the supervisor before this one."""
        with self._lock:
            for member in self._members.values():
                member.token, member.heard = token, time.monotonic()

    def loss(self) -> str:
        """Which node is lost, and how that was noticed; "" while all are there."""
        with self._lock:
            return next((m.loss for m in self._members.values() if m.loss), "")

    def end_with_lost(self, engine: Engine) -> None:
        """Kill the ranks of this node once another one is lost, or its ranks have failed: these would wait for them,
        for ten minutes where they have not met yet."""
        with self._lock:
            failed = [m.ended for m in self._members.values() if any(m.codes or [])]
        has_failed = bool(failed) and time.monotonic() - min(failed) > LINGER_SECONDS
        if (self.loss() or has_failed) and not self._is_broken:
            self._is_broken = send_group(engine, signal.SIGKILL)

    def explain(self, code: int | None, ended_by: str | None) -> tuple[int | None, str | None, str]:
        """How the attempt ended, and which node was lost, for ranks of this node that ended so."""
        if code != LOST_RANK and not self._is_broken:
            return code, ended_by, ""
        other = self._failure()
        if other != (None, None):
            return *other, ""
        return code, ended_by, self.loss() or "the connection between the nodes broke"

    def _failure(self) -> ExitStatus:
        """How the first rank of another node ended that did not end well; a lost rank is only a consequence."""
        with self._lock:
            codes = [code for m in self._members.values() for code in m.codes or []]
        code = next((code for code in codes if code not in (0, LOST_RANK)), None)
        return (code, None) if code is None or code >= 0 else (None, signal_name(-code))

    def last_lines(self) -> list[str]:
        """What was last printed by the ranks of a node that did not end well."""
        with self._lock:
            return next((m.last_lines for m in self._members.values() if any(m.codes or [])), [])

    def end_attempt(self, token: str) -> None:
        """Wait until the ranks of all other nodes have ended; what has not by then is killed."""
        deadline = time.monotonic() + LEAVE_SECONDS
        for has_killed in (False, True):
            while self._is_working() and time.monotonic() < deadline:
                time.sleep(LOOK_SECONDS)
            with self._lock:
                for member in self._members.values():
                    if not has_killed and member.codes is None:
                        self._send(member, KillRanks(token))
            deadline = time.monotonic() + LEAVE_SECONDS
        with self._lock:
            for member in self._members.values():
                member.token = ""

    def _is_working(self) -> bool:
        with self._lock:
            return any(m.codes is None and m.channel is not None and not m.loss for m in self._members.values())

    def _serve(self) -> None:
        with self._listener, selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            next_beat = last_look = time.monotonic()
            while not self._ends.is_set():
                if selector.select(LOOK_SECONDS):
                    self._accept()
                now = time.monotonic()
                with self._lock:
                    for member in self._members.values():
                        self._hear(member)
                        self._judge(member, now, slept=now - last_look > self._silence / 2)
                        if now >= next_beat:
                            self._send(member, NodeBeat())
                next_beat = now + self._beat if now >= next_beat else next_beat
                last_look = now
            for member in self._members.values():
                self._drop(member)

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:  # it has left already
            return
        if not self._admissions.acquire(blocking=False):
            connection.close()  # a keeper tries again, and no number of strangers can use up threads and descriptors
            return
        threading.Thread(target=self._admit, args=(connection,), daemon=True).start()

    def _hear(self, member: Member) -> None:
        if member.channel is None:
            return
        try:
            messages = member.channel.receive()
        except ChannelError:
            self._drop(member)
            return
        member.heard = member.channel.heard
        for message in messages:
            self._take(member, message)

    def _take(self, member: Member, message: AnyMessage) -> None:
        match message:
            case NodeBeat():
                member.sample = message.sample or member.sample
            case RanksEnded() if message.token == member.token:
                member.codes, member.last_lines = message.codes, message.last_lines
                member.ended = time.monotonic()
            case Terminate():
                self._on_terminate()

    def _judge(self, member: Member, now: float, *, slept: bool) -> None:
        """Lose a node that is silent for too long. Time in which this machine slept is none."""
        if slept:
            member.heard = now
        if now - member.heard <= self._silence:
            return
        self._drop(member)
        if member.token and member.codes is None and not member.loss:
            member.loss = f"{member.name} was not heard for {self._silence:.0f} s"

    def _drop(self, member: Member) -> None:
        if member.channel is not None:
            member.channel.close()
            member.channel = None

    def _send(self, member: Member, message: AnyMessage) -> None:
        if member.channel is None:
            return
        try:
            member.channel.send(message)
        except ChannelError:
            self._drop(member)

    def _admit(self, connection: socket.socket) -> None:
        """In a thread of its own: whoever connects may be slow, or nobody of ours."""
        with contextlib.ExitStack() as stack:
            stack.callback(connection.close)
            stack.callback(self._admissions.release)
            try:
                channel = welcome(connection, self._announcement.secret)
                hello = channel.receive_first(HELLO_SECONDS)
                if not isinstance(hello, Hello):
                    return
                if refusal := self._objection(hello):
                    channel.send(refusal)
                    return
                channel.send(Welcome(self._run_id, self._run.name))
            except ChannelError:
                return
            stack.pop_all()
            self._admissions.release()
            with self._lock:
                self._join(self._members[hello.node], channel, hello)

    def _objection(self, hello: Hello) -> Refused | None:
        """Why a keeper may not join."""
        own = node_versions()
        for name, version in hello.versions.items():
            if version != own.get(name):
                message = f"Node {hello.node} ({hello.host}) has {name} {version}, and node 0 has {own.get(name)}."
                return Refused(message, f"Install the same {name} on all nodes.", HardwareError.exit_code)
        if hello.num_nodes != self.num_nodes or hello.node not in self._members:
            message = f"This is node {hello.node} of {hello.num_nodes}; node 0 waits for {self.num_nodes} nodes."
            return Refused(message, "Start the same command with the same settings everywhere.", UsageError.exit_code)
        if hello.nonce != self._announcement.nonce and not hello.own_folder:
            message = f"Node {hello.node} ({hello.host}) sees another folder of a run {self._run.name} than node 0."
            hint = (
                f"Put the folder of runs on a volume that all nodes share (FTUI_RUNS); here it is {self._run.folder}. "
                "Or give node 0's name to no other run there: then that node works in a folder of its own."
            )
            return Refused(message, hint, UsageError.exit_code)
        return None

    def _join(self, member: Member, channel: Channel, hello: Hello) -> None:
        if member.channel is not None and member.hello is not None and member.hello.keeper != hello.keeper:
            text = f"Another command has joined as node {hello.node} (on {hello.host})."
            self._send(member, Refused(text, "Each node needs its own number.", UsageError.exit_code))
        self._drop(member)
        member.hello, member.channel, member.heard = hello, channel, channel.heard
        if member.token and member.codes is None and hello.token != member.token and not member.loss:
            member.loss = f"{member.name} has come back without its ranks"


def listen(address: str, port: int = 0) -> socket.socket:
    """A socket that listens on that address only; port 0: one that is free.

    Raises:
        HardwareError: it cannot.
    """
    listener = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen(64)
    except OSError as error:
        listener.close()
        raise HardwareError(f"Node 0 cannot listen on {address}, port {port or 'any'}: {error}.") from None
    return listener
