"""What the tests of sweeps share: a sweep's folder made by hand, a profile to search in."""

from collections.abc import Callable
from pathlib import Path

import pytest

from ftui.profile.layers import resolve
from ftui.profile.presets import find_profile
from ftui.profile.serialize import to_toml
from ftui.sweep.sweep_files import SWEEPS, SweepBegan, SweepFiles

PLAN = """
profile = "quickstart"
[search]
"train.learning_rate" = { low = 1e-5, high = 1e-3, log = true }
"adapter.r" = [8, 16, 32]
[search.derived]
"adapter.lora_alpha" = "2 * adapter.r"
[method]
sampler = "random"
scheduler = "asha"
rungs = [10, 30, 90]
eta = 2
[budget]
trials = 8
"""

MakeSweep = Callable[..., SweepFiles]


@pytest.fixture
def make_sweep(tmp_path: Path) -> MakeSweep:
    """Makes the folder of a sweep as its start does: `make_sweep(plan)`."""

    def make(plan: str = PLAN, name: str = "found", more: str = "") -> SweepFiles:
        files = SweepFiles(tmp_path / "runs" / SWEEPS / name)
        files.folder.mkdir(parents=True)
        profile = resolve(find_profile("quickstart"), overrides=["hardware.device=cpu"]).profile
        files.profile.write_text(to_toml(profile))
        files.plan_file.write_text(plan + more)
        with files.changing() as pen:
            pen.write(SweepBegan())
        return files

    return make
