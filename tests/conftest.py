"""What is slow and what is not, how hard properties are tried, and fixtures for tests that run the whole program."""

import gc
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:  # it loads torch: 3 s that a test of the screens, and the controller of the workers, do without
    from tests.support.bench import Workbench

ROOT = Path(__file__).parent.parent
MEMORY = Path("/dev/shm")
OWN_ROOTS = Path.home() / ".local" / "state" / "ftui" / "roots"
PLACES = {"XDG_STATE_HOME": "state", "XDG_CONFIG_HOME": "config", "FTUI_CACHE": "cache"}
TEMPORARY = "ftui-tests-"
WHOLE_PROGRAMS = ("tests/attacks/", "tests/e2e/", "tests/faults/")
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
    "tests/tui/screens/rows/",
    "tests/tui/screens/test_foreign_text.py",
)
"""What `pytest -m "not slow"` leaves out (`make fast`: two minutes). A slow test elsewhere has the marker."""


# A busy machine is not a failure; and a change is judged by the same examples on every machine. --trials draws others.
settings.register_profile("whole", deadline=None, derandomize=True)
settings.register_profile("fast", deadline=None, derandomize=True, max_examples=25)
settings.register_profile("trials", deadline=None)


def is_room_in_memory() -> bool:
    return os.access(MEMORY, os.W_OK | os.X_OK) and shutil.disk_usage(MEMORY).free >= 1 << 30


def is_fast(config: pytest.Config) -> bool:
    return bool(config.option.markexpr == "not slow")


def pytest_configure(config: pytest.Config) -> None:
    """A shell that starts pytest in the background has it ignore Ctrl-C, and so would all the programs under test."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if is_fast(config) and is_room_in_memory():  # a fifth of the time of its tests is that of syncs
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))
    if not hasattr(config, "workerinput"):  # workers and the programs under test inherit the places
        _leave_home(config)
    settings.load_profile("trials" if config.option.trials else "fast" if is_fast(config) else "whole")
    gc.disable()  # until everything is imported: nothing of that is garbage


def _leave_home(config: pytest.Config) -> None:
    """What tests and the programs they start remember, cache and look up is in no folder of the person who runs them;
    a fixture or a test may choose other places."""
    folder = tempfile.mkdtemp(prefix=TEMPORARY, dir=MEMORY if is_room_in_memory() else None)
    os.environ |= {name: os.path.join(folder, place) for name, place in PLACES.items()}
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Modules in which all is slow are not even imported for the fast part."""
    place = os.path.relpath(collection_path, ROOT)
    return True if is_fast(config) and not {place, f"{place}/"}.isdisjoint(SLOW) else None


def pytest_collection_finish() -> None:
    """The collector of garbage need not walk through all of torch, transformers and the tests again and again."""
    gc.freeze()
    gc.enable()


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
    parser.addoption(
        "--examples", type=int, default=0, help="change each kind of file so often (test_mutated_files.py)"
    )
    parser.addoption("--first-seed", type=int, default=0, help="seed of the first of them")
    parser.addoption("--published", help="JSON file of measurements for tests/engine/published, instead of its own")
    parser.addoption("--update-pictures", action="store_true", help="draw the pictures of the screens anew")


def _own_roots() -> set[str]:
    return set(OWN_ROOTS.read_text(errors="replace").splitlines()) if OWN_ROOTS.is_file() else set()


@pytest.fixture(scope="session", autouse=True)
def own_roots_stay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """`ftui runs` of the person who runs the tests lists no run of theirs."""
    before, folders = _own_roots(), (str(tmp_path_factory.getbasetemp()), f"{TEMPORARY}{os.getpid()}-")
    yield
    added = [root for root in _own_roots() - before if any(folder in root for folder in folders)]
    assert not added, f"{OWN_ROOTS} lists runs of tests: {added}"


@pytest.fixture(scope="session")
def bench_source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """base/, rows.jsonl and held_out.jsonl, made once."""
    from tests.support.bench import make_bench

    folder = tmp_path_factory.mktemp("bench")
    make_bench(folder)
    return folder


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory, where there is room: each checkpoint is twenty files that are synced, and two workers on one
    disk wait for that longer than for anything else."""
    if not is_room_in_memory():
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(
        prefix=f"{TEMPORARY}{os.getpid()}-", dir=MEMORY, ignore_cleanup_errors=True
    ) as folder:
        yield Path(folder)


@pytest.fixture
def workbench(bench_source: Path, memory: Path) -> "Workbench":
    """A copy of them with its own runs, cache and home."""
    from tests.support.bench import bench_at

    return bench_at(bench_source, memory / "bench")
