"""What the tests of the screens share: private places, a frozen time zone, recorded runs, pictures to compare with."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ftui.hardware.devices import find_card
from ftui.launch import open_run
from ftui.runs.run_folder import Run, runs_root
from ftui.supervisor import spawn
from ftui.tui.form import estimates
from ftui.tui.screens.editor import path_lookup
from ftui.tui.screens.rows import rows_screen
from tests.support.idle import make_pilot_quick
from tests.support.replayed import replay, time_of_last_record
from tests.support.rows_helper import StandIn

PICTURES = Path(__file__).parent / "pictures"

Recorded = Callable[..., Run]


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No test sees the runs of the person who runs it, starts a supervisor, or knows what time it is there."""
    for name, place in (("FTUI_RUNS", "runs"), ("XDG_STATE_HOME", "state"), ("FTUI_CACHE", "cache")):
        monkeypatch.setenv(name, str(tmp_path / place))
    for room in (rows_screen, path_lookup):
        monkeypatch.setattr(room, "Helper", StandIn)
    for room in (open_run, spawn):
        monkeypatch.setattr(room, "launch", lambda run, lock=None, cards=(): None)
    cards = estimates.MachineCards(find_card("rtx4090"), find_card("cpu"))
    monkeypatch.setattr(estimates, "detect_cards", lambda: cards)
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    before = os.umask(0o022)
    yield
    os.umask(before)
    monkeypatch.undo()
    time.tzset()


@pytest.fixture(autouse=True)
def no_sleeping(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key costs what the application does about it."""
    make_pilot_quick(monkeypatch)


@pytest.fixture
def recorded() -> Recorded:
    """Puts a recorded run into the runs root: `recorded("wiki-style-lora", living=True)`."""

    def put(name: str, *, living: bool = False) -> Run:
        return replay(name, runs_root(), living=living)

    return put


@pytest.fixture
def clock() -> Callable[[], float]:
    """The time at which the recordings ended, a little later."""
    found = [time_of_last_record(Run(path.parent)) for path in runs_root().glob("*/run.json")]
    end = max(found, default=0.0) + 3
    return lambda: end


@pytest.fixture
def same_picture(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compares a screen with its picture in tests/tui/pictures; `--update-pictures` draws them anew."""

    def compare(name: str, picture: str) -> None:
        path = PICTURES / f"{name}.txt"
        if request.config.getoption("--update-pictures"):
            PICTURES.mkdir(exist_ok=True)
            path.write_text(picture, encoding="utf-8")
        assert path.is_file(), f"there is no picture {name}: look at the screen, then --update-pictures"
        assert picture.splitlines() == path.read_text(encoding="utf-8").splitlines()

    return compare
