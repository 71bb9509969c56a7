"""What the machine is doing, as the supervisor samples it. A value that is hidden is `None`, never 0."""

import os
import socket
import time
from typing import Any

import psutil

from ftui.hardware.cgroup import cgroup_folder, counter, read_number
from ftui.hardware.nvml import Driver
from ftui.runs.records.signs_of_life import Gpu, Telemetry

_SHORTEST_CPU_INTERVAL = 0.1  # seconds; below, utilisation since the last look is noise
_UNCORRECTED, _SINCE_THE_DRIVER = 1, 0  # NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC
_TEMPERATURE_OF_THE_GPU = 0  # NVML_TEMPERATURE_GPU


class Sampler:
    """Looks at the hardware and at one engine process. `close()` lets go of NVML."""

    def __init__(self, engine_pid: int, ranks: range = range(1), node: int = 0) -> None:
        """`ranks`: those of the run on this machine; `node`: its number among those of the run."""
        self._engine_pid = engine_pid
        self._node, self._host = node, socket.gethostname() if node else ""
        self._cgroup = cgroup_folder()
        self._gpus = Gpus(ranks)
        psutil.cpu_percent()  # utilisation is counted from the call before: the first answer means nothing
        self._last_look = time.monotonic()

    def sample(self) -> Telemetry:
        """The state of the machine now: bytes, and utilization 0..1 since the last call."""
        used_bytes, total_bytes = self._memory()
        return Telemetry(
            node=self._node,
            host=self._host,
            cpu_utilization=self._cpu(),
            memory_used=used_bytes,
            memory_total=total_bytes,
            engine_memory=resident_memory(self._engine_pid),
            gpus=self._gpus.sample(),
        )

    def close(self) -> None:
        """Shut NVML down."""
        self._gpus.close()

    def _cpu(self) -> float | None:
        """Share of all cores in use since the last look, 0..1."""
        now = time.monotonic()
        if now - self._last_look < _SHORTEST_CPU_INTERVAL:
            return None
        self._last_look = now
        return psutil.cpu_percent() / 100

    def _memory(self) -> tuple[int, int]:
        """Bytes used and bytes there are: the container's own where it has a limit, else the host's."""
        host = psutil.virtual_memory()
        limit, current = (read_number(self._cgroup, name) for name in ("memory.max", "memory.current"))
        if limit is None or current is None or limit > host.total:
            return host.used, host.total
        cache = counter(self._cgroup, "memory.stat", "inactive_file") or 0  # given back when memory is short
        return max(0, current - cache), limit


def resident_memory(pid: int) -> int | None:
    """Bytes of RAM a process holds; `None` when it is gone or not ours to look at."""
    try:
        return psutil.Process(pid).memory_info().rss or None  # a zombie holds 0
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return None


class Gpus:
    """The GPUs the driver shows; a value that it hides is `None`. `ranks`: those of the run, each on a GPU it sees.

    Which GPU that is, is told by CUDA_VISIBLE_DEVICES as `start_engine` deals it out: numbers are the driver's, as in
    `list_visible`.
    """

    def __init__(self, ranks: range = range(1)) -> None:
        self._driver = Driver()
        names = os.environ.get("CUDA_VISIBLE_DEVICES")
        numbers = (str(number) for number in range(len(self._driver.handles)))
        visible = list(numbers) if names is None else [name.strip() for name in names.split(",") if name.strip()]
        self._ranks = dict(zip(visible, ranks, strict=False))

    def sample(self) -> list[Gpu]:
        """One value for each GPU: bytes, utilization 0..1, degrees Celsius, watts."""
        return [self._gpu(index, handle) for index, handle in enumerate(self._driver.handles)]

    def close(self) -> None:
        """Shut NVML down."""
        self._driver.close()

    def _rank(self, index: int, handle: Any) -> int | None:
        uuid = self._driver.ask("nvmlDeviceGetUUID", handle) or ""
        fits = (rank for name, rank in self._ranks.items() if name == str(index) or (uuid and uuid.startswith(name)))
        return next(fits, None)

    def _gpu(self, index: int, handle: Any) -> Gpu:
        ask = self._driver.ask
        used_bytes, total_bytes = self._driver.memory(handle)
        rates = ask("nvmlDeviceGetUtilizationRates", handle)
        milliwatts = ask("nvmlDeviceGetPowerUsage", handle)
        return Gpu(
            name=ask("nvmlDeviceGetName", handle) or "GPU",
            rank=self._rank(index, handle),
            memory_used=used_bytes,
            memory_total=total_bytes,
            utilization=None if rates is None else rates.gpu / 100,
            temperature=_number(ask("nvmlDeviceGetTemperature", handle, _TEMPERATURE_OF_THE_GPU)),
            power_watts=None if milliwatts is None else milliwatts / 1000,
            throttle_reasons=self._driver.throttle_reasons(handle),
            ecc_errors=ask("nvmlDeviceGetTotalEccErrors", handle, _UNCORRECTED, _SINCE_THE_DRIVER),
            xid=self._driver.newest_xid(handle),
        )


def _number(value: Any) -> float | None:
    return None if value is None else float(value)
