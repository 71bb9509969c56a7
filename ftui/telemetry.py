"""What the machine is doing, as the supervisor samples it. A value that is hidden is `None`, never 0."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from ftui.events import Gpu, Telemetry

_SHORTEST_CPU_INTERVAL = 0.1  # seconds; below, utilisation since the last look is noise
_NOT_AVAILABLE = 2**64 - 1  # what NVML puts in place of a number of bytes it does not know
_CGROUP = Path("/sys/fs/cgroup")


class Sampler:
    """Looks at the hardware and at one engine process. `close()` lets go of NVML."""

    def __init__(self, engine_pid: int) -> None:
        self._engine_pid = engine_pid
        self._cgroup = cgroup_folder()
        self._gpus = Gpus()
        psutil.cpu_percent()  # utilisation is counted from the call before: the first answer means nothing
        self._last_look = time.monotonic()

    def sample(self) -> Telemetry:
        used, total = self._memory()
        return Telemetry(
            cpu_utilization=self._cpu(),
            memory_used=used,
            memory_total=total,
            engine_memory=resident_memory(self._engine_pid),
            gpus=self._gpus.sample(),
        )

    def close(self) -> None:
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


def oom_kills() -> int | None:
    """Processes of this control group the kernel has killed for want of memory; `None` where that is hidden."""
    return counter(cgroup_folder(), "memory.events", "oom_kill")


def cgroup_folder() -> Path | None:
    """This process's control group (version 2) as far as it can be seen from here; `None` where there is none."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return None
    inside = next((line.removeprefix("0::") for line in lines if line.startswith("0::")), None)
    if inside is None:
        return None
    folder = _CGROUP / inside.lstrip("/")
    # Inside a container the path may be the host's, and the container's own group stands at the mount point.
    return next((f for f in (folder, _CGROUP) if (f / "memory.events").is_file()), None)


def read_number(folder: Path | None, name: str) -> int | None:
    """The number in a file of a control group; `None` when hidden or `max`."""
    if folder is None:
        return None
    try:
        return int((folder / name).read_text())
    except (OSError, ValueError):
        return None


def counter(folder: Path | None, name: str, key: str) -> int | None:
    """One `key value` line of a file of a control group."""
    if folder is None:
        return None
    try:
        values = dict(line.split() for line in (folder / name).read_text().splitlines())
        return int(values[key])
    except (OSError, ValueError, KeyError):
        return None


class Gpus:
    """The GPUs NVML shows, each value asked for by itself: containers and MIG hide some of them."""

    def __init__(self) -> None:
        self._handles: list[Any] = []
        self._nvml: Any = None
        try:
            import pynvml
        except ImportError:
            return
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError:  # no driver, or none that this container may use
            return
        self._nvml = pynvml
        count = self._ask(pynvml.nvmlDeviceGetCount) or 0
        handles = [self._ask(pynvml.nvmlDeviceGetHandleByIndex, index) for index in range(count)]
        self._handles = [handle for handle in handles if handle is not None]

    def sample(self) -> list[Gpu]:
        return [self._gpu(handle) for handle in self._handles]

    def close(self) -> None:
        if self._nvml is not None:
            self._ask(self._nvml.nvmlShutdown)

    def _gpu(self, handle: Any) -> Gpu:
        nvml, ask = self._nvml, self._ask
        memory = ask(nvml.nvmlDeviceGetMemoryInfo, handle)
        rates = ask(nvml.nvmlDeviceGetUtilizationRates, handle)
        milliwatts = ask(nvml.nvmlDeviceGetPowerUsage, handle)
        return Gpu(
            name=ask(nvml.nvmlDeviceGetName, handle) or "GPU",
            memory_used=None if memory is None else _bytes(memory.used),
            memory_total=None if memory is None else _bytes(memory.total),
            utilization=None if rates is None else rates.gpu / 100,
            temperature=_number(ask(nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU)),
            power_watts=None if milliwatts is None else milliwatts / 1000,
        )

    def _ask(self, question: Callable[..., Any], *arguments: Any) -> Any:
        """NVML's answer, `None` for any of its errors (not supported, no permission, GPU lost)."""
        try:
            return question(*arguments)
        except self._nvml.NVMLError:
            return None


def _bytes(value: int) -> int | None:
    return None if value == _NOT_AVAILABLE else int(value)


def _number(value: Any) -> float | None:
    return None if value is None else float(value)
