"""What the tests of sweeps share: a sweep's folder made by hand."""

from collections.abc import Callable
from pathlib import Path

import pytest

from ftui.sweep.sweep_files import SweepFiles
from tests.support import played_sweep
from tests.support.played_sweep import PLAN

MakeSweep = Callable[..., SweepFiles]


@pytest.fixture
def make_sweep(tmp_path: Path) -> MakeSweep:
    """Makes the folder of a sweep as its start does: `make_sweep(plan)`."""

    def make(plan: str = PLAN, name: str = "found", more: str = "") -> SweepFiles:
        return played_sweep.make_sweep(tmp_path / "runs", plan + more, name)

    return make
