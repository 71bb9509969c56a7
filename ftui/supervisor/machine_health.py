"""What is wrong with the machine of a run, from the supervisor's samples: one a second."""

from collections import deque
from collections.abc import Iterable

from ftui import units
from ftui.runs.health.forecasts import seconds_left
from ftui.runs.health.health_rules import HealthFinding, Thresholds
from ftui.runs.health.step_monitor import Reported
from ftui.runs.records.signs_of_life import Gpu, Telemetry

THROTTLING = {0x8: "hardware slowdown", 0x20: "heat (software)", 0x40: "heat (hardware)", 0x80: "power brake"}
"""NVML's reasons that say something is wrong. 0x4, a power cap, is how a GPU at work usually runs."""
SAMPLE_SECONDS = 5.0
"""Between two samples that a forecast is made of."""
SAMPLES_KEPT = 360
ALMOST_FULL = 0.03


class MachineHealth:
    """Takes in a sample a second. Its memory does not grow."""

    def __init__(self, thresholds: Thresholds, rules_off: Iterable[str] = ()) -> None:
        self._limits = thresholds
        self._reported = Reported(rules_off)
        self._throttled: dict[int, float] = {}  # by GPU, since when
        self._first_errors: dict[int, int] = {}
        self._memory: deque[tuple[float, float]] = deque(maxlen=SAMPLES_KEPT)
        self._disk: deque[tuple[float, float]] = deque(maxlen=SAMPLES_KEPT)

    def look(
        self, sample: Telemetry, *, free_bytes: int | None, to_end: float | None, now: float
    ) -> list[HealthFinding]:
        """What is to be told after one more sample.

        Args:
            free_bytes: on the disk of the run.
            to_end: seconds that the run has still to go, where that is known.
            now: a clock of seconds that nobody sets.
        """
        found = [*self._gpu_findings(sample.gpus, now), *self._memory_findings(sample, to_end, now)]
        if free_bytes is not None:
            found += self._disk_findings(free_bytes, to_end, now)
        return self._reported.choose(found, now)

    def _gpu_findings(self, gpus: list[Gpu], now: float) -> list[HealthFinding]:
        found = []
        for number, gpu in enumerate(gpus):
            if gpu.rank is None:
                continue  # another run's
            found += self._errors_of(number, gpu)
            reasons = [words for bit, words in THROTTLING.items() if (gpu.throttle_reasons or 0) & bit]
            if not reasons:
                self._throttled.pop(number, None)
                continue
            seconds = now - self._throttled.setdefault(number, now)
            if seconds >= self._limits.throttling:
                at = "" if gpu.temperature is None else f", at {gpu.temperature:.0f} °C"
                found.append(HealthFinding(
                    "throttling",
                    f"GPU {number} ({gpu.name}) has lowered its clock for {units.duration(seconds)}: "
                    f"{', '.join(reasons)}{at}",
                    "The machine cools or feeds it too little: `ftui park {run}`, and `ftui resume {run}` on another.",
                ))  # fmt: skip
        return found

    def _errors_of(self, number: int, gpu: Gpu) -> list[HealthFinding]:
        errors, found = gpu.ecc_errors, []
        if errors is not None:
            before = self._first_errors.setdefault(number, errors)
            if errors > before:
                found.append(f"{errors - before} memory errors that it could not correct")
        if gpu.xid is not None:
            found.append(f"XID {gpu.xid}")
        if not found:
            return []
        return [HealthFinding(
            "gpu_errors",
            f"GPU {number} ({gpu.name}) reports {' and '.join(found)} since the run began",
            "Its results cannot be relied on: `ftui park {run}`, and `ftui resume {run}` on another machine.",
        )]  # fmt: skip

    def _memory_findings(self, sample: Telemetry, to_end: float | None, now: float) -> list[HealthFinding]:
        if sample.memory_used is None or not sample.memory_total:
            return []
        free = sample.memory_total - sample.memory_used
        words = _will_be_full(self._memory, free, sample.memory_total, to_end, now)
        if not words:
            return []
        return [HealthFinding(
            "host_memory",
            f"{units.size(free)} of {units.size(sample.memory_total)} of host memory are free, {words}",
            "A new engine begins with as little as the first did: `ftui park {run}`, then `ftui resume {run}`.",
        )]  # fmt: skip

    def _disk_findings(self, free: int, to_end: float | None, now: float) -> list[HealthFinding]:
        words = _will_be_full(self._disk, free, None, to_end, now)
        if not words:
            return []
        return [HealthFinding(
            "disk",
            f"{units.size(free)} of the disk of the run are free, {words}",
            "Delete what is not needed there: `ftui checkpoints {run}` lists checkpoints, `ftui runs` other runs.",
        )]  # fmt: skip


def _will_be_full(
    samples: deque[tuple[float, float]], free: int, total: int | None, to_end: float | None, now: float
) -> str:
    """When nothing will be free, in words; "" where the run ends before, or nothing tells."""
    if not samples or now - samples[-1][0] >= SAMPLE_SECONDS:
        samples.append((now, float(free)))
    if total is not None and free < ALMOST_FULL * total:
        return "almost nothing"
    times, values = zip(*samples, strict=True)
    left = seconds_left(times, values)
    if left is None or to_end is None or left >= to_end:
        return ""
    return f"none in {units.duration(left)} if it goes on like that; the run takes {units.duration(to_end)} more"
