"""Fixtures for tests that run the whole program."""

import signal
from pathlib import Path

import pytest

from tests.support.bench import Workbench, bench_at, make_bench

ROOT = Path(__file__).parent.parent
WHOLE_PROGRAMS = ("tests/e2e/", "tests/faults/")
SLOW = (
    *WHOLE_PROGRAMS,
    # these train, simulate, or run every combination
    "tests/engine/inspection/test_real_report.py",
    "tests/engine/models/test_performance.py",
    "tests/engine/published/",
    "tests/engine/simulate/",
    "tests/engine/training/test_matrix.py",
    "tests/engine/training/test_oracle_trainer.py",
    # these start processes and wait for them
    "tests/engine/data/stores/test_worker_pool.py",
    "tests/engine/data/test_sources.py",
    "tests/engine/trackers/",
    "tests/ftui/supervisor/",
    # these press keys through whole screens
    "tests/tui/screens/editor/test_editor.py",
    "tests/tui/screens/editor/test_leave.py",
    "tests/tui/screens/rows/test_rows.py",
    "tests/tui/screens/test_foreign_text.py",
)
"""What `pytest -m "not slow"` leaves out (`make fast`: two minutes). A slow test elsewhere has the marker."""


def pytest_configure() -> None:
    """A shell that starts pytest in the background has it ignore Ctrl-C, and so would all the programs under test."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark by folder, and run whole programs first: the longest takes minutes, and two workers must not end with it."""
    for item in items:
        place = item.path.relative_to(ROOT).as_posix()
        if place.startswith(SLOW):
            item.add_marker("slow")
        if place.startswith("tests/faults/"):
            item.add_marker("faults")
    items.sort(key=lambda item: (item.path.parent.name not in ("e2e", "faults"), "quickstart" not in item.path.name))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--trials", type=int, default=0, help="run this many trials of tests/faults/test_cuts.py")
    parser.addoption("--first-seed", type=int, default=0, help="seed of the first of them")
    parser.addoption("--published", help="JSON file of measurements for tests/engine/published, instead of its own")
    parser.addoption("--update-pictures", action="store_true", help="draw the pictures of the screens anew")


@pytest.fixture(scope="session")
def bench_source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """base/, rows.jsonl and held_out.jsonl, made once."""
    folder = tmp_path_factory.mktemp("bench")
    make_bench(folder)
    return folder


@pytest.fixture
def workbench(bench_source: Path, tmp_path: Path) -> Workbench:
    """A copy of them with its own runs, cache and home."""
    return bench_at(bench_source, tmp_path / "bench")
