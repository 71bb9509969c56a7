"""What a rule of a run's health has found (ftui/runs/health/), as engine and supervisor write it."""

from typing import Literal

from ftui.runs.records.record import Record


class HealthAlarm(Record, frozen=True, tag="health_alarm"):
    """`rule` has found something at `step`: the evidence with its numbers, and one thing to do about it.

    `level`: red is certain, amber is likely (docs/health.md says how likely).
    """

    rule: str
    level: Literal["red", "amber"]
    step: int
    evidence: str
    suggestion: str
