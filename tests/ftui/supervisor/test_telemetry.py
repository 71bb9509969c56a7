"""Hardware that hides some or all of its values: None, never 0."""

import os
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ftui.supervisor import telemetry
from ftui.supervisor.telemetry import Gpus, Sampler, resident_memory


class NVMLError(Exception):
    pass


def unsupported(*_: Any) -> Any:
    raise NVMLError("Not Supported")


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A driver with one healthy GPU, one that hides everything but its name, one that cannot be opened."""

    def handle(index: int) -> int:
        return unsupported() if index == 2 else index

    def only_first(answer: Any) -> Any:
        return lambda handle, *_: answer if handle == 0 else unsupported()

    fake = SimpleNamespace(
        NVMLError=NVMLError,
        NVML_TEMPERATURE_GPU=0,
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetCount=lambda: 3,
        nvmlDeviceGetHandleByIndex=handle,
        nvmlDeviceGetName=lambda handle: f"GPU {handle}",
        nvmlDeviceGetMemoryInfo=only_first(SimpleNamespace(used=5, total=10)),
        nvmlDeviceGetUtilizationRates=only_first(SimpleNamespace(gpu=75)),
        nvmlDeviceGetPowerUsage=only_first(250_000),
        nvmlDeviceGetTemperature=only_first(60),
    )
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    return fake


def test_what_a_gpu_tells_and_what_it_hides(nvml: SimpleNamespace) -> None:
    gpus = Gpus()
    healthy, hidden = gpus.sample()
    assert (healthy.name, healthy.memory_used, healthy.memory_total) == ("GPU 0", 5, 10)
    assert (healthy.utilization, healthy.temperature, healthy.power_watts) == (0.75, 60.0, 250.0)
    assert hidden.name == "GPU 1"
    assert (hidden.memory_used, hidden.memory_total, hidden.utilization) == (None, None, None)
    assert (hidden.temperature, hidden.power_watts) == (None, None)
    gpus.close()


@pytest.mark.parametrize(
    ("visible", "ranks", "expected"),
    [
        (None, range(2), [0, 1]),
        (None, range(1), [0, None]),
        ("1", range(1), [None, 0]),
        ("1,0", range(4, 6), [5, 4]),
        ("GPU-b, GPU-a", range(2), [1, 0]),
        ("", range(2), [None, None]),
    ],
)  # fmt: skip
def test_each_card_has_the_rank_that_is_on_it(
    visible: str | None,
    ranks: range,
    expected: list[int | None],
    nvml: SimpleNamespace,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nvml.nvmlDeviceGetUUID = lambda handle: ("GPU-aaaa", "GPU-bbbb")[handle]
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert [gpu.rank for gpu in Gpus(ranks).sample()] == expected


def test_a_number_that_stands_for_unknown_is_unknown(nvml: SimpleNamespace) -> None:
    nvml.nvmlDeviceGetMemoryInfo = lambda handle: SimpleNamespace(used=2**64 - 1, total=10)
    assert Gpus().sample()[0].memory_used is None


def test_without_a_driver_there_are_no_gpus(nvml: SimpleNamespace) -> None:
    nvml.nvmlInit = unsupported
    gpus = Gpus()
    assert gpus.sample() == []
    gpus.close()


def test_without_the_binding_there_are_no_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert Gpus().sample() == []


def test_this_machine_can_be_sampled() -> None:
    sampler = Sampler(os.getpid())
    sample = sampler.sample()
    assert sample.cpu_utilization is None  # too soon to tell
    assert sample.memory_total and sample.memory_used and sample.memory_used <= sample.memory_total
    assert sample.engine_memory and sample.engine_memory > 1 << 20
    assert (sample.node, sample.host) == (0, "")
    sampler.close()


def test_another_node_names_itself() -> None:
    sampler = Sampler(os.getpid(), range(4, 8), node=1)
    sample = sampler.sample()
    sampler.close()
    assert (sample.node, sample.host) == (1, socket.gethostname())


def test_a_process_that_is_gone_or_a_zombie_has_no_memory() -> None:
    child = subprocess.Popen([sys.executable, "-S", "-c", ""])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert resident_memory(child.pid) is None
    child.wait()
    assert resident_memory(child.pid) is None


def test_a_container_shows_its_own_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "memory.max").write_text("1000000\n")
    (tmp_path / "memory.current").write_text("600000\n")
    (tmp_path / "memory.stat").write_text("anon 1\ninactive_file 100000\n")
    monkeypatch.setattr(telemetry, "cgroup_folder", lambda: tmp_path)
    sample = Sampler(os.getpid()).sample()
    assert (sample.memory_used, sample.memory_total) == (500_000, 1_000_000)
