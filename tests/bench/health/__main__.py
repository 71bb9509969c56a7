"""How often the rules of a run's health are wrong, and what they find: the table of docs/health.md.

    python -m tests.bench.health [--seeds 200]

From the top of the repository; it takes a quarter of an hour on one core. Exact rules are not here: they are never
wrong about what they say, and tests/engine/health shows them to find each fault.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ftui.runs.events import AnyRecord
from ftui.runs.health.health_rules import AMBER, Thresholds
from tests.bench.health.curves import FAULTS
from tests.bench.health.measure import findings, measure_fault, measure_sound
from tests.support.events import make_evaluation, make_run_started, make_step

RECORDED = Path(__file__).parents[2] / "fixtures" / "health"
SOUND_FROM = 10_000
"""Seeds of sound runs begin here: none of them was looked at while the limits were chosen."""
EXPECTED = {
    "rate-x30": "divergence", "corrupt-row": "", "shuffled": "", "duplicated": "memorisation",
    "slow-loader": "data_starvation", "rate-too-low": "plateau", "frozen-b": "plateau", "fp16-overflow": "",
}  # fmt: skip
"""The statistical rule that has to find the fault of a recorded run; "": the fault is one that none can see in sums."""
OF_A_SHARED_MACHINE = ("slow_steps",)
"""The recorded runs shared their two cores with others that came and went: these alarms are true there."""


def recorded_course(path: Path) -> list[AnyRecord]:
    """The records of a run that was recorded."""
    kept: dict[str, Any] = json.loads(path.read_text())
    evaluations, columns = dict(kept["evaluations"]), kept["steps"]
    course: list[AnyRecord] = [make_run_started(max_steps=kept["max_steps"], time=0.0)]
    if 0 in evaluations:
        course.append(make_evaluation(0, loss=evaluations[0], time=0.0))
    for index, number in enumerate(columns["step"]):
        fields = {name: values[index] for name, values in columns.items() if name != "step"}
        course.append(make_step(number, time=kept["times"][index], **fields))
        if number in evaluations:
            course.append(make_evaluation(number, loss=evaluations[number], time=kept["times"][index]))
    return course


def told_of(path: Path) -> list[str]:
    """The rules that tell something of a recorded run."""
    told = {finding.rule for _, finding in findings(recorded_course(path), Thresholds())}
    return sorted(told)


def sound_lines(seeds: int) -> Iterator[str]:
    """False alarms in made-up sound runs, and in recorded ones."""
    sound = measure_sound(range(SOUND_FROM, SOUND_FROM + seeds), Thresholds())
    paths = sorted(RECORDED.glob("healthy-*.json"))
    told = [told_of(path) for path in paths]
    yield (
        f"| rule | made-up runs alarmed ({sound.num_runs}) | alarms per 1,000 steps "
        f"| recorded runs alarmed ({len(paths)}) |"
    )
    yield "|---|---|---|---|"
    measured = [rule for rule in AMBER if rule not in ("overfitting", "throttling", "host_memory", "disk")]
    for rule in measured:
        share, rate = sound.by_rule.get(rule, 0) / sound.num_runs, sound.num_alarms.get(rule, 0) / sound.num_steps
        shared = " (the machine was shared)" if rule in OF_A_SHARED_MACHINE else ""
        yield f"| `{rule}` | {share:.1%} | {1000 * rate:.2f} | {sum(rule in one for one in told)}{shared} |"
    any_recorded = sum(any(rule not in OF_A_SHARED_MACHINE for rule in one) for one in told)
    yield f"| any | {sound.any_rule / sound.num_runs:.1%} | | {any_recorded} but for those |"


def fault_lines(seeds: int) -> Iterator[str]:
    """What of made-up faults is found."""
    yield "| fault | rule | found | after steps (median) |"
    yield "|---|---|---|---|"
    for fault in FAULTS:
        found = measure_fault(fault, range(seeds), Thresholds())
        delay = "" if found.delay is None else f"{found.delay:.0f}"
        yield f"| {fault} | `{found.rule}` | {found.num_found / found.num_runs:.1%} | {delay} |"


def recorded_lines() -> Iterator[str]:
    """What of the faults of recorded runs is found."""
    yield "| recorded fault | runs | rule | found | other alarms |"
    yield "|---|---|---|---|---|"
    for fault, rule in EXPECTED.items():
        told = [told_of(path) for path in sorted(RECORDED.glob(f"{fault}*.json"))]
        if not told:
            continue
        others = sorted({f"`{name}`" for one in told for name in one if name not in (rule, *OF_A_SHARED_MACHINE)})
        found = f"{sum(rule in one for one in told)} of {len(told)}" if rule else ""
        wanted = f"`{rule}`" if rule else "none can"
        yield f"| {fault} | {len(told)} | {wanted} | {found} | {', '.join(others)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=200, help="made-up runs, sound ones and of each fault")
    seeds = parser.parse_args().seeds
    for lines in (sound_lines(seeds), fault_lines(seeds), recorded_lines()):
        print("\n".join(lines), end="\n\n", flush=True)


if __name__ == "__main__":
    main()
