"""What each rule suggests: its keys and commands exist, and where it is obeyed the alarm is gone."""

import ast
import random
import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from ftui.cli.arguments import parser
from ftui.profile.schema import Profile
from ftui.runs.events import AnyRecord, Step
from ftui.runs.health.health_rules import RULES, HealthFinding, Thresholds
from ftui.runs.health.paired_rows import overfitting
from ftui.runs.records.signs_of_life import Telemetry
from ftui.supervisor.machine_health import MachineHealth
from tests.bench.health.curves import Curve, clipped, known_by_heart, spiked, starved
from tests.bench.health.measure import findings
from tests.support.events import make_run_started, make_step

ROOT = Path(__file__).parents[4]
LIMITS = Thresholds()
KEY = re.compile(r"\b([a-z]+)\.([a-z_]+)\b(?!/)")
ALONE = {"preview"}  # "`ftui preview` with this profile"
SECTIONS = set(Profile.model_fields)


def _text_of(node: ast.expr) -> str:
    """A text as it is told, any number in the place of what is put in."""
    if isinstance(node, ast.JoinedStr):
        parts = (part.value if isinstance(part, ast.Constant) else "7" for part in node.values)
        return "".join(str(part) for part in parts)
    return str(node.value) if isinstance(node, ast.Constant) else ""


def suggestions() -> dict[str, list[str]]:
    """By rule: every suggestion in the source."""
    found: dict[str, list[str]] = {}
    for path in (*ROOT.glob("ftui/runs/health/*.py"), *ROOT.glob("ftui/supervisor/*.py"), *ROOT.glob("engine/*/*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "HealthFinding":
                rule, suggestion = (_text_of(node.args[at]) for at in (0, 2))
                found.setdefault(rule, []).append(suggestion)
    return found


def test_every_rule_suggests_something_that_can_be_done() -> None:
    found = suggestions()
    assert set(RULES) <= set(found), "a rule of the machine may be told in one place only"
    for suggestion in (text for texts in found.values() for text in texts):
        assert suggestion.endswith("."), suggestion
        for section, key in KEY.findall(re.sub(r"`[^`]*`", "", suggestion)):
            assert section in SECTIONS, suggestion
            assert key in Profile.model_fields[section].annotation.model_fields, suggestion  # type: ignore[union-attr]
        for command in re.findall(r"`ftui ([^`]*)`", suggestion.replace("{run}", "mine")):
            words = command.split()
            if words != [words[0]] or words[0] not in ALONE:
                parser(words[0]).parse_args(words)


def told(rule: str, records: Iterable[AnyRecord], **options: float) -> list[HealthFinding]:
    return [finding for _, finding in findings(records, LIMITS, **options) if finding.rule == rule]  # type: ignore[arg-type]


def descent(rate: float, seed: int = 4) -> list[AnyRecord]:
    """A quadratic loss under noisy gradient descent: above a rate of 2 it diverges, far below it learns nothing."""
    dice, weight = random.Random(seed), 1.0
    course: list[AnyRecord] = [make_run_started(max_steps=600, time=0.0)]
    for number in range(1, 601):
        loss = min(1.0 + weight**2 + dice.gauss(0, 0.02), 30.0)
        weight = max(-5.0, min(5.0, weight - rate * weight * (1 + dice.gauss(0, 0.05))))
        course.append(make_step(number, time=float(number), loss=loss, learning_rate=rate, grad_norm=0.5))
    return course


@pytest.mark.parametrize(("rate", "factor", "rule"), [(2.2, 0.3, "divergence"), (1e-7, 1e4, "plateau")])
def test_another_learning_rate_ends_a_divergence_and_a_plateau(rate: float, factor: float, rule: str) -> None:
    assert told(rule, descent(rate)) and not told(rule, descent(rate * factor))


def test_the_length_that_is_suggested_clips_no_longer() -> None:
    curve = Curve(5)
    clipped(curve)
    (found, *_) = told("clipping", curve.records())
    match = re.search(r"train\.max_grad_norm = ([\d.]+)", found.suggestion)
    assert match is not None and not told("clipping", curve.records(), max_grad_norm=float(match[1]))


def test_without_the_row_that_is_named_there_is_no_spike() -> None:
    with_row, without = Curve(5), Curve(5)
    start = spiked(20, range(3, 4))(with_row)
    (found, *_) = told("spike", with_row.records())
    match = re.search(r"`ftui blame \{run\} (\d+)`", found.suggestion)
    assert match is not None and start <= int(match[1]) <= start + 3, "the step whose rows it are"
    assert not told("spike", without.records())


def test_rows_on_a_local_disk_end_the_waiting() -> None:
    slow, local = Curve(5), Curve(5)
    starved(slow)
    assert told("data_starvation", slow.records()) and not told("data_starvation", local.records())


def test_fewer_epochs_are_not_known_by_heart() -> None:
    curve = Curve(5)
    start = known_by_heart(curve)
    course = curve.records()
    assert told("memorisation", course)
    assert not told("memorisation", [one for one in course if not isinstance(one, Step) or one.step <= start])


def last_alarm(*, obeyed: bool) -> tuple[int, float]:
    """An engine that leaks 8 MiB a second of 16 GiB, in a run that takes an hour: how often that is told, and the least
    that was ever free; `obeyed`: at each alarm it is parked and resumed."""
    health, gib = MachineHealth(LIMITS), 1 << 30
    used, num_told, least = 2 * gib, 0, 16 * gib
    for second in range(3600):
        used += 8 << 20
        least = min(least, 16 * gib - used)
        sample = Telemetry(memory_used=min(used, 16 * gib), memory_total=16 * gib)
        if health.look(sample, free_bytes=None, to_end=3600.0 - second, now=float(second)):
            num_told += 1
            if obeyed:
                health, used = MachineHealth(LIMITS), 2 * gib
    return num_told, least / gib


def test_a_new_engine_has_memory_to_the_end() -> None:
    assert last_alarm(obeyed=False)[1] < 0
    num_told, least = last_alarm(obeyed=True)
    assert 1 <= num_told <= 6 and least > 1


def test_what_is_deleted_in_time_lets_the_run_end() -> None:
    """A disk with 40 GiB that fills by 20 MiB a second; half of it is other runs' checkpoints."""
    health, free, told_at = MachineHealth(LIMITS), 40 << 30, list[int]()
    for second in range(2400):
        free -= 20 << 20
        to_end = 2400.0 - second
        if health.look(Telemetry(), free_bytes=free, to_end=to_end, now=float(second)):
            told_at.append(second)
            free += 20 << 30
    assert len(told_at) == 1 and told_at[0] < 1200 and free > 0


def test_the_best_step_is_not_overfitted() -> None:
    best = [2.0 + n / 100 for n in range(40)]
    later = [loss + 0.1 + n % 3 / 100 for n, loss in enumerate(best)]
    found = overfitting(100, best, 300, later, LIMITS.overfitting)
    assert found is not None and "final/ is made of step 100" in found.suggestion
    assert overfitting(100, best, 100, best, LIMITS.overfitting) is None
    untrained = overfitting(0, best, 300, later, LIMITS.overfitting)
    assert untrained is not None and "a tenth of train.learning_rate" in untrained.suggestion, "no step is any good"
