"""The simulator against published measurements: the code path of each row is run on `meta` and compared.

A few rows always; all of them with `--trials 1`, or those of another file with `--published FILE.json`.
"""

from pathlib import Path
from statistics import mean, median

import pytest

from tests.engine.published.architectures import MODELS, key_of
from tests.engine.published.report import (
    BOUND,
    FAILED,
    HIGH,
    LOW,
    Outcome,
    errors_of,
    group_of,
    ninth,
    outcomes_of,
    table,
)
from tests.engine.published.rows import Row, all_rows, rows_of
from tests.engine.published.running import CodePath, extrapolated, traced
from tests.engine.published.translate import NotReproduced, translate
from tests.support.tracing import phase_peaks

ENOUGH = 20  # rows of which a share or a percentile says something
EVERY = {"T4": 9, "PEFT LoRA and full": 2, "litgpt and torchtune": 30}  # which rows are always run, of each group
NUM_ROWS = 285


@pytest.fixture(scope="module")
def rows(request: pytest.FixtureRequest) -> list[Row]:
    other = request.config.getoption("--published")
    return rows_of(Path(other)) if other else all_rows()


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest, rows: list[Row]) -> list[Outcome]:
    whole = request.config.getoption("--trials") or request.config.getoption("--published")
    chosen = list(enumerate(rows)) if whole else _sample(rows)
    found = [outcome for number, row in chosen for outcome in outcomes_of(number, row)]
    manager = request.config.pluginmanager.getplugin("capturemanager")
    with manager.global_and_fixture_disabled():
        print("\n" + table(found))
    return found


def _sample(rows: list[Row]) -> list[tuple[int, Row]]:
    chosen: list[tuple[int, Row]] = []
    for group, step in EVERY.items():
        members = [(n, row) for n, row in enumerate(rows) if group_of(row) == group]
        chosen += [(n, row) for n, row in members if isinstance(translate(row), CodePath)][::step]
    return chosen


def _errors(outcomes: list[Outcome], group: str, quantity: str) -> list[float]:
    return errors_of([o for o in outcomes if (o.group, o.quantity) == (group, quantity)])


def test_every_row_is_listed(request: pytest.FixtureRequest, rows: list[Row]) -> None:
    """With a code path or with a reason; none is dropped."""
    translated = [translate(row) for row in rows]
    assert all(isinstance(way, CodePath) or way.reason for way in translated)
    if not request.config.getoption("--published"):
        assert len(rows) == NUM_ROWS
        assert sum(isinstance(way, CodePath) for way in translated if way) > 80
        assert all(isinstance(translate(row), CodePath) for row in rows if group_of(row) == "T4")


def test_an_unknown_model_is_refused_by_name(rows: list[Row]) -> None:
    stranger = Row(rows[0].source, "", "acme/Nonesuch-7B", "lora", 1.0, "allocated", "GiB")
    way = translate(stranger)
    assert isinstance(way, NotReproduced) and "Nonesuch-7B" in way.reason
    assert [key_of(name) for name in ("7B", "llama-2-8b", "qwen4-1b")] == [None, None, None]
    assert key_of("meta-llama/Llama-3.2-3B-Instruct") == "llama-3.2-3b"


def test_no_simulation_fails(outcomes: list[Outcome]) -> None:
    assert [outcome.line() for outcome in outcomes if outcome.reason.startswith(FAILED)] == []


def test_allocated_of_t4(outcomes: list[Outcome]) -> None:
    errors = [abs(error) for error in _errors(outcomes, "T4", "allocated")]
    assert not errors or mean(errors) <= 0.003, f"mean {mean(errors):.2%}"
    assert not errors or max(errors) <= 0.02, f"max {max(errors):.2%}"


def test_process_of_t4(outcomes: list[Outcome]) -> None:
    errors = _errors(outcomes, "T4", "process")
    if len(errors) >= ENOUGH:
        sizes = sorted(abs(error) for error in errors)
        assert median(sizes) <= 0.02 and ninth(sizes) <= 0.06, f"median {median(sizes):.2%}, p90 {ninth(sizes):.2%}"
        inside = [LOW <= 1 / (1 + error) <= HIGH for error in errors]
        assert sum(inside) >= 0.9 * len(inside), f"{sum(inside)} of {len(inside)} in the shown range"
    assert all(1 / (1 + error) <= BOUND for error in errors), "more was measured than the highest that is told"


def test_few_peaks_lie_above_what_fits_leaves_room_for(outcomes: list[Outcome]) -> None:
    """Of all rows that can be reproduced, those of old code among them."""
    ratios = [o.measured / o.predicted for o in outcomes if o.predicted is not None]
    assert sum(ratio <= BOUND for ratio in ratios) >= 0.9 * len(ratios) > 0


def test_reserved_of_peft(outcomes: list[Outcome]) -> None:
    errors = _errors(outcomes, "PEFT LoRA and full", "reserved")
    assert all(abs(error) <= 0.025 for error in errors), [f"{error:+.2%}" for error in errors]


def test_other_programs(outcomes: list[Outcome]) -> None:
    """Their own model code is stood in for by transformers'."""
    errors = [abs(error) for error in _errors(outcomes, "litgpt and torchtune", "allocated")]
    if len(errors) >= 5:
        assert mean(errors) <= 0.08, f"mean {mean(errors):.2%}"


@pytest.mark.parametrize("number", [3, 18, 24])
def test_one_and_two_layers_tell_all(number: int) -> None:
    """Peaks of each phase, from one and two layers, equal those of the whole depth to 0.1 %."""
    path = translate([row for row in all_rows() if group_of(row) == "T4"][number])
    assert isinstance(path, CodePath)
    whole = phase_peaks(traced(path, MODELS[path.model][4]))
    for phase, peak in extrapolated(path).items():
        assert peak == pytest.approx(whole[phase], rel=1e-3), phase
