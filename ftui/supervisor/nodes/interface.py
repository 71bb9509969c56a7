"""The one network interface that leads to the other nodes. Left to themselves gloo and NCCL take the first that looks
right: loopback, or the bridge of a container."""

import ipaddress
import socket
from collections.abc import Mapping

import psutil

from ftui.errors import HardwareError

UNROUTED = "192.0.2.1"  # an address of no machine (RFC 5737): the way to it is the default one
ANY_PORT = 9  # nothing is sent: the system only says which way it would go


def resolve_address(name: str) -> str:
    """The IPv4 or IPv6 address of a name; one that is not loopback where it has several.

    Raises:
        HardwareError: nobody knows the name.
    """
    try:
        answers = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise HardwareError(
            f"The name of node 0, {name!r}, has no address here: {error}.", hint="Name its IP address (MASTER_ADDR)."
        ) from None
    addresses = [str(answer[4][0]) for answer in answers]
    return min(addresses, key=lambda address: (is_loopback(address), ":" in address))


def is_loopback(address: str) -> bool:
    """Whether an address is reached on this machine only."""
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


def own_address(towards: str) -> str:
    """The address of this machine on the way to another; its own one where it is asked for the way to itself.

    Raises:
        HardwareError: there is no way.
    """
    family = socket.AF_INET6 if ":" in towards else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((towards, ANY_PORT))
        except OSError as error:
            raise HardwareError(f"No network of this machine leads to {towards}: {error}.") from None
        return str(probe.getsockname()[0])


def leader_address(name: str) -> str:
    """The address at which node 0 is reached, seen from itself.

    Many machines have their own name in /etc/hosts as 127.0.1.1: then it is that of the default way out.
    """
    address = resolve_address(name)
    if not is_loopback(address) or name == address:
        return own_address(address)
    try:
        return own_address(UNROUTED)
    except HardwareError:
        return address  # no network at all


def interface_of(address: str) -> str:
    """The interface that has an address of this machine; loopback has all of 127.0.0.0/8.

    Raises:
        HardwareError: none has.
    """
    for name, entries in psutil.net_if_addrs().items():
        for entry in entries:
            own = str(entry.address).partition("%")[0]
            if own == address or (is_loopback(address) and entry.family == socket.AF_INET and is_loopback(own)):
                return name
    raise HardwareError(f"No network interface of this machine has the address {address}.")


def interface_variables(interface: str, environment: Mapping[str, str]) -> dict[str, str]:
    """What tells gloo and NCCL to use that interface alone; what somebody has set already stays."""
    own = {"GLOO_SOCKET_IFNAME": interface, "NCCL_SOCKET_IFNAME": f"={interface}"}  # "=": not eth01 for eth0
    return {name: value for name, value in own.items() if not environment.get(name)}
