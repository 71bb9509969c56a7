"""What the tests of executors share: a stand-in cluster."""

import os
from pathlib import Path

import pytest

from tests.support.stand_in_slurm import install


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a stand-in SLURM whose programs are found by PATH."""
    folder = install(tmp_path / "slurm")
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("STAND_IN_SLURM", str(folder))
    return folder
