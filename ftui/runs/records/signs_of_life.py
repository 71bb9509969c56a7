"""Telemetry of the machines of a run, and the beat of its engine: rewritten, or kept for a while only."""

import msgspec

from ftui.runs.records.record import Phase, Record


class Gpu(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One GPU as NVML tells it; `None` where the driver hides a value. `rank`: which one of the run is on it.

    `throttle_reasons`: why its clock is lower than it could be, NVML's bits. `ecc_errors`: memory errors that it could
    not correct, since the driver was loaded. `xid`: the newest error of this number that NVML told while it was asked.
    """

    name: str
    rank: int | None = None
    memory_used: int | None = None
    memory_total: int | None = None
    utilization: float | None = None
    temperature: float | None = None
    power_watts: float | None = None
    throttle_reasons: int | None = None
    ecc_errors: int | None = None
    xid: int | None = None


class Telemetry(Record, frozen=True, tag="telemetry"):
    """One sample of machine `node` of a run (0: of rank 0; `host`, where there are several): bytes, shares of 1."""

    node: int = 0
    host: str = ""

    cpu_utilization: float | None = None
    memory_used: int | None = None
    memory_total: int | None = None
    engine_memory: int | None = None
    gpus: list[Gpu] = []
    others: list["Telemetry"] = []


class Beat(Record, frozen=True, tag="beat"):
    """The engine's sign of life. `progress` grows with every unit of work in any phase; a stall is a still counter."""

    phase: Phase
    step: int
    micro_step: int
    progress: int
