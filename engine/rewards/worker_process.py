"""The worker of a reward function as the engine sees it: called with a deadline, started anew when it hangs or dies."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from ftui.errors import RewardError
from ftui.system.files import open_private, write_all

from .reward_specs import AnswersToScore, Judgement, RewardSpec
from .worker_program import LENGTH

LOOK_SECONDS = 0.25  # how often whoever waits for a function looks around
START_SECONDS = 120.0  # a person's file may import much
LONGEST_LOG = 4 << 20  # bytes of rewards.log; as much again stands in rewards.log.1
LONGEST_OUTPUT = 256 << 10  # bytes that one call may print
HIDDEN = {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "", "PYTHONIOENCODING": "utf-8:backslashreplace"}


class LostWorkerError(Exception):
    """The worker did not answer in time, or is gone; the message says which."""


class RewardLog:
    """rewards.log: what reward functions print, of each call at most `LONGEST_OUTPUT` bytes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()

    def write(self, data: bytes) -> None:
        """Append; what the disk does not take is lost, which no reward depends on."""
        with self._lock, contextlib.suppress(OSError):
            if self.path.exists() and self.path.stat().st_size + len(data) > LONGEST_LOG:
                self.path.replace(self.path.with_name(f"{self.path.name}.1"))
            descriptor = open_private(self.path, os.O_WRONLY | os.O_APPEND)
            try:
                write_all(descriptor, data)
            finally:
                os.close(descriptor)


class RewardWorker:
    """The process of one reward function, in a session of its own: what it starts is killed with it.

    Args:
        memory: bytes of address space that it may have; 0 is no limit.
        seconds: how long a call may take.
        while_waiting: called again and again while the function is at work; its own time does not count.
    """

    def __init__(
        self,
        spec: RewardSpec,
        log: RewardLog,
        *,
        memory: int,
        seconds: float,
        while_waiting: Callable[[], None] = lambda: None,
    ) -> None:
        self.spec, self._while_waiting = spec, while_waiting
        self._log, self._memory, self._seconds = log, memory, seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: socket.socket | None = None
        self._deadline = self._allowed = 0.0
        self._room = 0

    def start(self) -> None:
        """Start it if it is not running.

        Raises:
            RewardError: its function cannot be loaded, or no process be had.
        """
        if self._process is not None:
            return
        own, theirs = socket.socketpair()
        command = [sys.executable, "-P", "-m", "ftui.engine.rewards.worker_program"]
        try:
            self._process = subprocess.Popen(
                [*command, str(theirs.fileno()), str(self._memory)],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                pass_fds=[theirs.fileno()], start_new_session=True, env=os.environ | HIDDEN,
            )  # fmt: skip
        except OSError as error:
            own.close()
            raise RewardError(f"The process of reward {self.spec.name} cannot be started: {error.strerror}.") from error
        finally:
            theirs.close()
        self._connection, self._room = own, LONGEST_OUTPUT
        threading.Thread(target=self._keep_output, args=[self._process], daemon=True).start()
        try:
            self._send(self.spec, START_SECONDS)
            loaded = self._receive(0)
        except LostWorkerError as error:
            self.end()
            raise RewardError(f"The process of reward {self.spec.name} {error} as it loaded its function.") from error
        if loaded.error:
            self.end()
            raise RewardError(f"{loaded.error}.", hint=f"What it printed is in {self._log.path}.")

    def send(self, answers: AnswersToScore) -> None:
        """Ask; `receive` gets what it says. Between them others can be asked.

        Raises:
            RewardError: it cannot be started.
            LostWorkerError: it is gone.
        """
        self.start()
        self._room = LONGEST_OUTPUT
        try:
            self._send(answers, self._seconds)
        except LostWorkerError:
            self.end()
            raise

    def receive(self, number: int) -> Judgement:
        """What it says of the `number` answers it was asked about.

        Raises:
            LostWorkerError: it did not answer in time, or is gone; it will be started anew.
        """
        try:
            return self._receive(number)
        except LostWorkerError:
            self.end()
            raise

    def end(self) -> None:
        """Kill it, with what it started."""
        process, connection = self._process, self._connection
        self._process = self._connection = None
        if connection is not None:
            connection.close()
        if process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):  # gone; on macOS only zombies are left
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _send(self, value: object, seconds: float) -> None:
        self._deadline, self._allowed = time.monotonic() + seconds, seconds
        try:
            data = msgspec.msgpack.encode(value)
        except (UnicodeEncodeError, TypeError, OverflowError) as error:
            raise RewardError(f"Reward {self.spec.name} cannot be given these rows: {error}.") from error
        with self._talk() as connection:
            connection.sendall(LENGTH.pack(len(data)) + data)

    def _receive(self, number: int) -> Judgement:
        longest = 16 * number + (64 << 10)
        with self._talk() as connection:
            (size,) = LENGTH.unpack(self._read(connection, LENGTH.size))
            if size > longest:
                raise LostWorkerError("answered something else than rewards")
            try:
                judgement = msgspec.msgpack.decode(self._read(connection, size), type=Judgement)
            except msgspec.MsgspecError as error:
                raise LostWorkerError("answered something else than rewards") from error
        if judgement.values is not None and len(judgement.values) != number:
            raise LostWorkerError("answered something else than rewards")
        return judgement

    def _read(self, connection: socket.socket, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            connection.settimeout(min(max(self._deadline - time.monotonic(), 1e-3), LOOK_SECONDS))
            try:
                piece = connection.recv(size - len(data))
            except TimeoutError:
                before = time.monotonic()
                if before >= self._deadline:
                    raise
                self._while_waiting()
                self._deadline += time.monotonic() - before
                continue
            if not piece:
                raise ConnectionError
            data += piece
        return bytes(data)

    @contextlib.contextmanager
    def _talk(self) -> Iterator[socket.socket]:
        """The socket, for as long as there is time; what fails is said of the worker."""
        assert self._connection is not None, "it was started"
        self._connection.settimeout(max(self._deadline - time.monotonic(), 1e-3))
        try:
            yield self._connection
        except TimeoutError as error:
            raise LostWorkerError(f"gave no answer in {self._allowed:g} s") from error
        except OSError as error:
            raise LostWorkerError(self._ending()) from error

    def _ending(self) -> str:
        """How it ended, in words; a moment is left to it for that."""
        assert self._process is not None, "it was started"
        try:
            code = self._process.wait(1.0)
        except subprocess.TimeoutExpired:
            return "closed its connection"
        return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"

    def _keep_output(self, process: "subprocess.Popen[bytes]") -> None:
        """Of a thread: pass on what it prints, until all that have its output are gone."""
        assert process.stdout is not None, "it is a pipe"
        with process.stdout as output:
            while piece := os.read(output.fileno(), 1 << 16):
                kept = piece[: max(self._room, 0)]
                self._room -= len(piece)
                if kept:
                    self._log.write(kept)
                if len(kept) < len(piece) and self._room + len(piece) >= 0:
                    self._log.write(f"\n... {self.spec.name} prints more than is kept of a call\n".encode())
