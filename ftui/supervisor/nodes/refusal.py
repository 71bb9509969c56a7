"""Node 0 will not begin or go on with the run: before there is a supervisor nobody listens to the keepers of the other
nodes, which would wait for as long as their patience lasts. So the command itself tells them why."""

import contextlib
import socket
import time

from ftui.errors import FtuiError, UsageError
from ftui.runs.run_folder import Run
from ftui.supervisor.nodes.announcement import announce, new_secret, refusal_file
from ftui.supervisor.nodes.channel import ChannelError, welcome
from ftui.supervisor.nodes.interface import leader_address
from ftui.supervisor.nodes.node_group import HELLO_SECONDS, listen
from ftui.supervisor.nodes.node_messages import Hello, Refused
from ftui.supervisor.nodes.node_place import NodePlace

TELL_SECONDS = 45.0  # nodes start together, give or take so much; a keeper looks for a shared folder for ten of them


def tell_refusal(run: Run, place: NodePlace, refusal: Refused) -> list[int]:
    """Tell every keeper that comes within the time why there is no run; returns the nodes that did not come.

    It is announced beside the run's folder, which may be that of an older run, or not exist.
    """
    untold = set(range(1, place.num_nodes))
    with contextlib.ExitStack() as stack:
        try:
            listener = stack.enter_context(listen(leader_address(place.leader), place.port or 0))
        except FtuiError:  # it may be what the refusal is about
            return sorted(untold)
        address, port = listener.getsockname()[:2]
        secret = new_secret()
        stack.callback(refusal_file(run).unlink, missing_ok=True)
        with contextlib.suppress(
            OSError, UsageError
        ):  # no folder, no room, no modes: then only those are told who know the port
            announce(refusal_file(run), address, port, place.num_nodes, secret)
        deadline = time.monotonic() + TELL_SECONDS
        while untold and (left := deadline - time.monotonic()) > 0:
            listener.settimeout(left)
            with contextlib.suppress(OSError):
                connection, _ = listener.accept()
                untold.discard(_tell_one(connection, secret, refusal))
    return sorted(untold)


def _tell_one(connection: socket.socket, secret: str, refusal: Refused) -> int:
    """The number of the node that was told; -1 where it was no keeper of this run."""
    with connection:
        try:
            channel = welcome(connection, secret)
            hello = channel.receive_first(HELLO_SECONDS)
            channel.send(refusal)
        except ChannelError:
            return -1
    return hello.node if isinstance(hello, Hello) else -1
