"""A Ray cluster that is not there is named at once: Ray by itself tries for minutes."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from ftui.errors import ProfileError
from ftui.sweep.executors.executor import ExecutorError
from ftui.sweep.executors.ray_cluster import RayCluster
from ftui.sweep.executors.run_settings import RunSettings, host_and_port
from ftui.sweep.sweep_files import SweepFiles
from ftui.sweep.sweep_plan import plan_of
from tests.support.played_sweep import PLAN


@pytest.fixture
def closed() -> Iterator[str]:
    """An address that nobody else can have meanwhile, and at which nobody listens."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{held.getsockname()[1]}"


@pytest.mark.parametrize("key", ["address in [run]", "RAY_ADDRESS"])
def test_an_address_at_which_nobody_listens_is_named(
    key: str, closed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", closed if key == "RAY_ADDRESS" else "127.0.0.1:1")
    cluster = RayCluster(SweepFiles(tmp_path), RunSettings("ray", address="" if key == "RAY_ADDRESS" else closed))
    with pytest.raises(ExecutorError) as caught:
        cluster.find_sent()
    assert f"{key} is {closed}, and nothing answers there" in caught.value.message
    assert "HOST:PORT" in caught.value.hint


def test_a_name_that_no_host_can_have_is_named(tmp_path: Path) -> None:
    with pytest.raises(ExecutorError, match=r"address in \[run\] is head\.\.cluster:6379, and nothing answers"):
        RayCluster(SweepFiles(tmp_path), RunSettings("ray", address="head..cluster:6379")).find_sent()


@pytest.mark.parametrize(
    "address",
    ["10.0.0.5", "10.0.0.5:", ":6379", "head:ray", "head:0", "head:65536", "ray://head:10001", "a b:6379"],
)
def test_what_is_no_address_is_named_with_its_line(address: str, tmp_path: Path) -> None:
    with pytest.raises(ProfileError) as caught:
        plan_of(PLAN + f'[run]\nexecutor = "ray"\naddress = "{address}"\n', tmp_path / "lr.toml")
    line = len(PLAN.splitlines()) + 3
    assert f"lr.toml:{line}: run.address: cannot be '{address}'" in caught.value.message
    assert 'Write address = "10.0.0.5:6379"' in f"{caught.value.message} {caught.value.hint}"


def test_addresses() -> None:
    assert host_and_port("10.0.0.5:6379") == ("10.0.0.5", 6379)
    assert host_and_port("[fd00::5]:6379") == ("fd00::5", 6379)
    assert host_and_port("gpu-head.cluster:65535") == ("gpu-head.cluster", 65535)
