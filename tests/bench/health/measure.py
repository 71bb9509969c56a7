"""What each rule finds in courses of runs: false alarms in sound ones, and how many faults, how soon."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from ftui.runs.events import AnyRecord, Step
from ftui.runs.health.health_rules import HealthFinding, Thresholds
from ftui.runs.health.step_monitor import StepMonitor
from tests.bench.health.curves import FAULTS, Curve

MAX_GRAD_NORM = 1.0


def findings(
    records: Iterable[AnyRecord], thresholds: Thresholds, *, stage: str = "sft", max_grad_norm: float = MAX_GRAD_NORM
) -> list[tuple[int, HealthFinding]]:
    """Every finding that would be told, with the step it was told at."""
    monitor, step, told = StepMonitor(thresholds, stage=stage, max_grad_norm=max_grad_norm), 0, []
    for record in records:
        if isinstance(record, Step):
            step = record.step
        told += [(step, finding) for finding in monitor.read(record)]
    return told


@dataclass(frozen=True)
class Sound:
    """False alarms in sound runs: by rule, how many runs had one; in how many any; steps of all runs."""

    by_rule: dict[str, int]
    any_rule: int
    num_alarms: dict[str, int]
    num_runs: int
    num_steps: int


@dataclass(frozen=True)
class Found:
    """Of runs with a fault: how many the rule found, and the median number of steps it took."""

    fault: str
    rule: str
    num_runs: int
    num_found: int
    delay: float | None


def measure_sound(seeds: Sequence[int], thresholds: Thresholds) -> Sound:
    """False alarms of all rules in made-up sound runs."""
    by_rule: dict[str, int] = {}
    alarms: dict[str, int] = {}
    alarmed = steps = 0
    for seed in seeds:
        curve = Curve(seed)
        told = findings(curve.records(), thresholds)
        steps += curve.num_steps
        for rule in {finding.rule for _, finding in told}:
            by_rule[rule] = by_rule.get(rule, 0) + 1
        for _, finding in told:
            alarms[finding.rule] = alarms.get(finding.rule, 0) + 1
        alarmed += bool(told)
    return Sound(by_rule, alarmed, alarms, len(seeds), steps)


def measure_fault(fault: str, seeds: Sequence[int], thresholds: Thresholds) -> Found:
    """How many made-up runs with this fault its rule finds."""
    rule, change = FAULTS[fault]
    delays = []
    for seed in seeds:
        curve = Curve(seed)
        start = change(curve)
        times = [step for step, finding in findings(curve.records(), thresholds) if finding.rule == rule]
        if after := [step for step in times if step >= start]:
            delays.append(after[0] - start)
    return Found(fault, rule, len(seeds), len(delays), median(delays) if delays else None)
