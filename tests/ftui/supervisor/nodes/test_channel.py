"""The connection between node 0 and a keeper: only who knows the secret may speak, and nothing can be slipped in."""

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from ftui.supervisor.nodes import channel as channels
from ftui.supervisor.nodes.channel import PREFIX, Channel, ChannelError, RefusedError, approach, welcome
from ftui.supervisor.nodes.node_messages import AnyMessage, KillRanks, NodeBeat, RunOver, StartRanks

SECRET = "a secret of the run"


@pytest.fixture
def wires() -> Iterator[tuple[socket.socket, socket.socket]]:
    pair = socket.socketpair()
    yield pair
    for one in pair:
        one.close()


def meet(wires: tuple[socket.socket, socket.socket], secret: str = SECRET) -> tuple[Channel | Exception, ...]:
    """Both sides' channels, or what they raised; the keeper has `secret`."""
    ends: list[Channel | Exception] = [ValueError(), ValueError()]

    def take(place: int, act: Callable[[socket.socket, str], Channel], secret: str) -> None:
        try:
            ends[place] = act(wires[place], secret)
        except (ChannelError, RefusedError) as error:
            ends[place] = error

    threads = [threading.Thread(target=take, args=(0, welcome, SECRET)),
               threading.Thread(target=take, args=(1, approach, secret))]  # fmt: skip
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return tuple(ends)


def joined(wires: tuple[socket.socket, socket.socket]) -> tuple[Channel, Channel]:
    leader, keeper = meet(wires)
    assert isinstance(leader, Channel) and isinstance(keeper, Channel)
    return leader, keeper


def test_messages_arrive_whole_and_in_order(wires: tuple[socket.socket, socket.socket]) -> None:
    leader, keeper = joined(wires)
    start = StartRanks(1, "token", 2, 2, 4, "10.0.0.1", 4711)
    sent: list[AnyMessage] = [start, NodeBeat(), RunOver(20)]
    for message in sent:
        leader.send(message)
    assert keeper.receive_first(1.0) == start and keeper.receive() == sent[1:] and keeper.receive() == []
    keeper.send(NodeBeat())
    assert leader.receive_first(1.0) == NodeBeat()
    leader.close()
    with pytest.raises(ChannelError, match="closed"):
        keeper.receive()


def test_a_wrong_secret_is_refused_in_a_sentence(wires: tuple[socket.socket, socket.socket]) -> None:
    leader, keeper = meet(wires, "another secret")
    assert isinstance(leader, ChannelError) and isinstance(keeper, RefusedError)
    assert "another secret" in keeper.refusal.message and "FTUI_NODE_SECRET" in keeper.refusal.hint


def test_the_secret_itself_is_never_sent(wires: tuple[socket.socket, socket.socket]) -> None:
    """A listener that only collects what a keeper says to it."""
    ours, theirs = wires
    theirs.sendall(PREFIX + bytes(32))
    theirs.shutdown(socket.SHUT_WR)
    with pytest.raises(ChannelError):
        approach(ours, SECRET)
    assert SECRET.encode() not in theirs.recv(1 << 16)


@pytest.mark.parametrize("how", ["another byte", "again", "not ours", "too long"])
def test_nothing_can_be_slipped_in(how: str, wires: tuple[socket.socket, socket.socket]) -> None:
    leader, keeper = joined(wires)
    leader.send(KillRanks("token"))
    time.sleep(0.01)
    keeper_wire = wires[1]
    data = keeper_wire.recv(1 << 16, socket.MSG_PEEK)
    if how == "again":
        assert keeper.receive_first(1.0) == KillRanks("token")
    else:
        keeper_wire.recv(len(data))
    wires[0].sendall(
        {"another byte": data[:-1] + bytes([data[-1] ^ 1]), "again": data, "not ours": data[:4] + bytes(32) + data[36:],
         "too long": struct.pack("!I", 1 << 31) + bytes(32)}[how]
    )  # fmt: skip
    with pytest.raises(ChannelError):
        keeper.receive_first(1.0)


def test_a_scanner_is_no_keeper(wires: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = wires
    theirs.sendall(b"GET / HTTP/1.1\r\nHost: node0\r\n\r\n".ljust(200))
    with pytest.raises(ChannelError, match="no keeper"):
        welcome(ours, SECRET)


def test_the_last_words_of_a_side_that_is_gone_arrive() -> None:
    """Node 0 leaves with a beat of the keeper unread: the system then answers with a reset, right behind RunOver."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = socket.create_connection(listener.getsockname())
        theirs, _ = listener.accept()
    leader, keeper = joined((theirs, ours))
    keeper.send(NodeBeat())
    time.sleep(0.05)
    leader.send(RunOver(20))
    leader.close()
    time.sleep(0.05)
    assert keeper.receive() == [RunOver(20)]
    with pytest.raises(ChannelError):
        keeper.receive()
    keeper.close()


def test_one_that_sends_a_byte_now_and_then_is_let_go(
    wires: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channels, "HANDSHAKE_SECONDS", 0.1)
    ours, theirs = wires
    ends = threading.Event()

    def drip() -> None:
        while not ends.wait(0.03):
            theirs.send(b"f")

    thread = threading.Thread(target=drip)
    thread.start()
    begun = time.monotonic()
    with pytest.raises(ChannelError):
        welcome(ours, SECRET)
    assert time.monotonic() - begun < 1.5, "77 bytes would take 2.3 s"
    ends.set()
    thread.join()


def test_what_is_not_taken_out_is_not_read_either(wires: tuple[socket.socket, socket.socket]) -> None:
    """Whoever sends without end fills no memory and holds nobody up."""
    _, keeper = joined(wires)
    wires[0].setblocking(True)
    thread = threading.Thread(target=flood, args=(wires[0],))
    thread.start()
    with pytest.raises(ChannelError, match="not from the other side"):
        while True:
            keeper.receive()
    assert len(keeper._buffer) <= channels.LONGEST_MESSAGE + (1 << 17)
    keeper.close()
    thread.join()


def flood(wire: socket.socket) -> None:
    """Sixteen times the longest message, or until the other side has closed."""
    data = struct.pack("!I", channels.LONGEST_MESSAGE) + bytes(16 * channels.LONGEST_MESSAGE)
    with contextlib.suppress(OSError):
        wire.sendall(data)
