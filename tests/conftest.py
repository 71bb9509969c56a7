"""Fixtures for tests that run the whole program."""

import signal
from pathlib import Path

import pytest

from tests.support.bench import Workbench, bench_at, make_bench


def pytest_configure() -> None:
    """A shell that starts pytest in the background has it ignore Ctrl-C, and so would all the programs under test."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whole programs first: the longest of them takes minutes, and must not be what two workers end with."""
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
