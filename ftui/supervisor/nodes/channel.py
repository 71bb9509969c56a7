"""A connection between node 0 and a keeper: both prove that they know the run's secret, and every message has a mac.

Nothing is encrypted: what goes over it is no secret, but starts programs. So nobody may write to it who does not know
the secret, and nobody may play a message again.
"""

import hmac
import secrets
import socket
import struct
import time

import msgspec

from ftui.errors import HardwareError
from ftui.supervisor.nodes.node_messages import AnyMessage, Refused
from ftui.system.files import DAMAGED

LONGEST_MESSAGE = 1 << 20  # bytes
HANDSHAKE_SECONDS = 10.0  # for all of it: whoever sends a byte now and then holds nobody up
PREFIX = b"ftui nodes 1\n"
MAC_BYTES = 32
WRONG_SECRET = Refused(
    "Node 0 has another secret than this node.",
    "Both take it from nodes.json in the run's folder, or from FTUI_NODE_SECRET: is it the same on every node?",
    HardwareError.exit_code,
)

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(AnyMessage)


class ChannelError(Exception):
    """The connection is gone, or what comes over it cannot be trusted."""


class RefusedError(Exception):
    """The other side says why it will not have this one."""

    def __init__(self, refusal: Refused) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


class Channel:
    """One side of an open connection. Nothing waits: messages are few, and one that the system does not take means
    that the other side has long been silent."""

    def __init__(self, connection: socket.socket, key: bytes, *, leads: bool) -> None:
        connection.setblocking(False)
        self._connection = connection
        self._keys = (_mac(key, b"to keeper"), _mac(key, b"to leader"))
        self._leads = leads
        self._num_sent = self._num_received = 0
        self._buffer = bytearray()
        self._closed = ""
        """Why nothing comes any more."""
        self.heard = time.monotonic()
        """When something came last, a number of `time.monotonic()`."""

    @property
    def local_address(self) -> str:
        """The address of this machine that the connection uses."""
        return str(self._connection.getsockname()[0])

    @property
    def remote_address(self) -> str:
        """The address of the other machine."""
        return str(self._connection.getpeername()[0])

    def fileno(self) -> int:
        """For a selector."""
        return self._connection.fileno()

    def send(self, message: AnyMessage) -> None:
        """Send one message.

        Raises:
            ChannelError: the connection is gone.
        """
        payload = _encoder.encode(message)
        mac = _mac(self._keys[0 if self._leads else 1], struct.pack("!Q", self._num_sent) + payload)
        self._num_sent += 1
        try:
            self._connection.sendall(struct.pack("!I", len(payload)) + mac + payload)
        except OSError as error:
            raise ChannelError(str(error)) from error

    def receive(self) -> list[AnyMessage]:
        """The messages that have come. The last words of one that has closed are among them.

        Raises:
            ChannelError: the connection is gone, or somebody else has written to it.
        """
        self._read()
        messages = []
        while (message := self._next()) is not None:
            messages.append(message)
        if self._closed and not messages:
            raise ChannelError(self._closed)
        return messages

    def receive_first(self, seconds: float) -> AnyMessage:
        """The next message, which comes within so many seconds; those after it are left for `receive`.

        Raises:
            ChannelError: none comes.
        """
        deadline = time.monotonic() + seconds
        while (message := self._next()) is None:
            if self._closed or time.monotonic() > deadline:
                raise ChannelError(self._closed or "the other side is silent")
            time.sleep(0.02)
            self._read()
        return message

    def _read(self) -> None:
        while not self._closed and len(self._buffer) <= LONGEST_MESSAGE + 4 + MAC_BYTES:
            try:
                data = self._connection.recv(1 << 16)
            except BlockingIOError:
                return
            except OSError as error:  # it may come on the heels of a message, which counts
                self._closed = str(error)
                return
            if not data:
                self._closed = "the other side has closed it"
                return
            self.heard = time.monotonic()
            self._buffer += data

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _next(self) -> AnyMessage | None:
        if len(self._buffer) < 4 + MAC_BYTES:
            return None
        (length,) = struct.unpack("!I", self._buffer[:4])
        if length > LONGEST_MESSAGE:
            raise ChannelError(f"a message of {length} bytes")
        end = 4 + MAC_BYTES + length
        if len(self._buffer) < end:
            return None
        mac, payload = bytes(self._buffer[4 : 4 + MAC_BYTES]), bytes(self._buffer[4 + MAC_BYTES : end])
        expected = _mac(self._keys[1 if self._leads else 0], struct.pack("!Q", self._num_received) + payload)
        if not hmac.compare_digest(mac, expected):
            raise ChannelError("a message that is not from the other side")
        del self._buffer[:end]
        self._num_received += 1
        try:
            message: AnyMessage = _decoder.decode(payload)
        except DAMAGED as error:
            raise ChannelError(f"a message that cannot be read: {error}") from error
        return message


def welcome(connection: socket.socket, secret: str) -> Channel:
    """Node 0's side of a new connection.

    Raises:
        ChannelError: the other side does not know the secret (it is told so), or is no keeper.
    """
    connection.settimeout(HANDSHAKE_SECONDS)
    try:
        own = secrets.token_bytes(32)
        connection.sendall(PREFIX + own)
        answer = _read(connection, len(PREFIX) + 64)
        prefix, theirs, proof = answer[: len(PREFIX)], answer[len(PREFIX) : -32], answer[-32:]
        if prefix != PREFIX:
            raise ChannelError("no keeper of this version of ftui")
        if not hmac.compare_digest(proof, _mac(secret.encode(), b"keeper" + own + theirs)):
            connection.sendall(b"\0" * 32)
            raise ChannelError("a keeper with another secret")
        connection.sendall(_mac(secret.encode(), b"leader" + own + theirs))
    except OSError as error:
        raise ChannelError(str(error)) from error
    return Channel(connection, _mac(secret.encode(), b"session" + own + theirs), leads=True)


def approach(connection: socket.socket, secret: str) -> Channel:
    """A keeper's side of a new connection.

    Raises:
        RefusedError: node 0 has another secret.
        ChannelError: the connection breaks, or whoever listens there is not node 0.
    """
    connection.settimeout(HANDSHAKE_SECONDS)
    try:
        answer = _read(connection, len(PREFIX) + 32)
        prefix, theirs = answer[: len(PREFIX)], answer[len(PREFIX) :]
        if prefix != PREFIX:
            raise ChannelError("whoever listens there is not node 0 of this version of ftui")
        own = secrets.token_bytes(32)
        connection.sendall(PREFIX + own + _mac(secret.encode(), b"keeper" + theirs + own))
        proof = _read(connection, 32)
    except OSError as error:
        raise ChannelError(str(error)) from error
    if not hmac.compare_digest(proof, _mac(secret.encode(), b"leader" + theirs + own)):
        raise RefusedError(WRONG_SECRET)
    return Channel(connection, _mac(secret.encode(), b"session" + theirs + own), leads=False)


def _read(connection: socket.socket, length: int) -> bytes:
    data, deadline = b"", time.monotonic() + HANDSHAKE_SECONDS
    while len(data) < length:
        connection.settimeout(max(0.001, deadline - time.monotonic()))
        piece = connection.recv(length - len(data))
        if not piece:
            raise ChannelError("the other side has closed it")
        data += piece
    return data


def _mac(key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, "sha256")
