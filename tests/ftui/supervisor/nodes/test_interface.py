"""The interface that leads to node 0, and no other."""

import socket
from collections import namedtuple

import psutil
import pytest

from ftui.errors import HardwareError
from ftui.supervisor.nodes import interface
from ftui.supervisor.nodes.interface import interface_of, interface_variables, leader_address, own_address

Entry = namedtuple("Entry", "family address")
MANY = {
    "lo": [Entry(socket.AF_INET, "127.0.0.1"), Entry(socket.AF_INET6, "::1")],
    "docker0": [Entry(socket.AF_INET, "172.17.0.1")],
    "eth0": [Entry(socket.AF_PACKET, "02:42:00:00:00:01"), Entry(socket.AF_INET, "10.0.0.2")],
    "ib0": [Entry(socket.AF_INET, "10.9.0.2"), Entry(socket.AF_INET6, "fe80::1%ib0")],
}


@pytest.mark.parametrize(
    ("address", "name"),
    [("10.0.0.2", "eth0"), ("10.9.0.2", "ib0"), ("172.17.0.1", "docker0"), ("127.0.0.1", "lo"), ("127.0.0.7", "lo"),
     ("fe80::1", "ib0"), ("::1", "lo")],
)  # fmt: skip
def test_the_interface_of_an_address(address: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: MANY)
    assert interface_of(address) == name


def test_an_address_of_no_interface(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: MANY)
    with pytest.raises(HardwareError, match=r"10\.0\.0\.3"):
        interface_of("10.0.0.3")


def test_the_way_to_this_machine_is_loopback() -> None:
    assert own_address("127.0.0.1") == "127.0.0.1" and leader_address("127.0.0.1") == "127.0.0.1"


@pytest.mark.parametrize(
    ("answers", "address"),
    [(["10.0.0.2"], "10.0.0.2"), (["127.0.1.1", "10.0.0.2"], "10.0.0.2"), (["127.0.1.1"], "10.9.0.2")],
)
def test_a_name_that_means_loopback_here_is_not_where_others_find_it(
    answers: list[str], address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Debian has the machine's own name as 127.0.1.1 in /etc/hosts."""
    found = [(0, 0, 0, "", (answer, 0)) for answer in answers]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *a, **k: found)
    monkeypatch.setattr(interface, "own_address", lambda to: "10.9.0.2" if to == interface.UNROUTED else to)
    assert leader_address("node0") == address


def test_a_name_that_nobody_knows() -> None:
    with pytest.raises(HardwareError, match=r"'nowhere\.invalid'"):
        leader_address("nowhere.invalid")


def test_what_somebody_has_set_stays() -> None:
    both = interface_variables("eth0", {})
    assert both == {"GLOO_SOCKET_IFNAME": "eth0", "NCCL_SOCKET_IFNAME": "=eth0"}
    assert interface_variables("eth0", {"NCCL_SOCKET_IFNAME": "ib0"}) == {"GLOO_SOCKET_IFNAME": "eth0"}
