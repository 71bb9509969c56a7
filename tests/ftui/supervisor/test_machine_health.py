"""What is wrong with a machine, from made-up samples of it: no process, no driver, no clock."""

import pytest

from ftui.runs.health.health_rules import Thresholds
from ftui.runs.records.signs_of_life import Gpu, Telemetry
from ftui.supervisor.machine_health import MachineHealth

GIB = 1 << 30


def look(samples: list[Telemetry], *, free: list[int] | None = None, to_end: float | None = 3600.0) -> list[str]:
    """The evidence of all that is told, by samples of one a second."""
    health = MachineHealth(Thresholds())
    return [
        f"{second}: {finding.rule}: {finding.evidence}"
        for second, sample in enumerate(samples)
        for finding in health.look(
            sample, free_bytes=None if free is None else free[second], to_end=to_end, now=float(second)
        )
    ]


def gpus(*reasons: int | None, rank: int | None = 0, **fields: int) -> list[Telemetry]:
    return [
        Telemetry(gpus=[Gpu(name="H", rank=rank, throttle_reasons=one, temperature=90.0, **fields)]) for one in reasons
    ]


@pytest.mark.parametrize("bit", [0x8, 0x20, 0x40, 0x80])
def test_throttling_is_told_after_thirty_seconds_and_once(bit: int) -> None:
    (told,) = look(gpus(*[0] * 5, *[bit] * 100))
    assert told.startswith("35: throttling: GPU 0 (H) has lowered its clock for 30 s: ") and told.endswith("at 90 °C")


@pytest.mark.parametrize("reasons", [[0x4] * 100, [None] * 100, [0x1] * 100, [*[0x40] * 29, 0] * 4])
def test_a_power_cap_an_idle_clock_and_brief_heat_are_normal(reasons: list[int | None]) -> None:
    assert look(gpus(*reasons)) == []


def test_the_gpu_of_another_run_is_not_ours() -> None:
    assert look(gpus(*[0x40] * 100, rank=None, xid=79, ecc_errors=4)) == []


def test_errors_from_before_the_run_are_not_its_own() -> None:
    assert look([*gpus(0, ecc_errors=3), *gpus(0, ecc_errors=3)]) == []
    (told,) = look([*gpus(0, ecc_errors=3), *gpus(0, 0, ecc_errors=5)])
    assert told == "1: gpu_errors: GPU 0 (H) reports 2 memory errors that it could not correct since the run began"
    (told,) = look(gpus(0, xid=79))
    assert "XID 79" in told


def memory(*used: float) -> list[Telemetry]:
    return [Telemetry(memory_used=int(one * GIB), memory_total=64 * GIB) for one in used]


def test_memory_that_grows_without_end_is_forecast() -> None:
    """10 MiB a second: full in 80 minutes."""
    growing = memory(*[16 + second / 100 for second in range(1200)])
    (told,) = look(growing, to_end=2 * 3600.0)
    assert "host_memory" in told and "none in" in told and "if it goes on like that; the run takes 2h" in told
    assert look(growing, to_end=1800.0) == [], "the run ends before"
    assert look(growing, to_end=None) == [], "nobody knows when it ends"


@pytest.mark.parametrize(
    "used",
    [
        [16 + 8 * (second % 300 < 150) for second in range(1200)],
        [16 + min(second / 10, 20) for second in range(1200)],
        [40.0] * 1200,
    ],
    ids=["comes and goes", "grows at first", "stays"],
)
def test_memory_that_does_not_go_on_growing_is_no_matter(used: list[float]) -> None:
    assert look(memory(*used), to_end=1e6) == []


def test_memory_that_is_full_is_told_at_once() -> None:
    (told,) = look(memory(16, 63, 63))
    assert told.startswith("1: host_memory: 1.0 GiB of 64.0 GiB of host memory are free, almost nothing")


def test_a_disk_that_fills_is_forecast_and_one_that_rotates_is_not() -> None:
    idle = [Telemetry()] * 1500
    filling = [500 * GIB - second // 60 * GIB for second in range(1500)]
    rotating = [500 * GIB - 4 * GIB * (second % 120 > 100) for second in range(1500)]
    (told,) = look(idle, free=filling, to_end=40 * 3600.0)
    assert "disk: " in told and "of the disk of the run are free, none in" in told
    assert look(idle, free=rotating, to_end=40 * 3600.0) == []
