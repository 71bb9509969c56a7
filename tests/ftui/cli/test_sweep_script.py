"""`ftui sweep FILE --print`: the script of a sweep's SLURM jobs, and nothing else."""

from pathlib import Path

import pytest

from ftui.cli.main import main
from ftui.errors import UsageError
from ftui.runs.run_folder import runs_root
from ftui.sweep.sweep_files import SWEEPS
from tests.support.played_sweep import PLAN


@pytest.fixture
def on_slurm(tmp_path: Path) -> Path:
    path = tmp_path / "lr.toml"
    path.write_text(PLAN + '[run]\nexecutor = "slurm"\ngpus = 2\ntime = "08:00:00"\nlines = ["module load cuda"]\n')
    return path


def test_the_script_is_printed_and_nothing_begins(on_slurm: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", str(on_slurm), "--print"]) == 0
    printed = capsys.readouterr()
    script = printed.out.splitlines()
    assert script[0] == "#!/bin/bash" and not printed.err
    assert {"#SBATCH --gpus-per-node=2", "#SBATCH --time=08:00:00", "module load cuda"} <= {*script}
    assert script[-1].endswith(f'{runs_root() / SWEEPS / "lr"} "$SLURM_ARRAY_TASK_ID"')
    assert not (runs_root() / SWEEPS).exists()


def test_the_executor_may_be_named_beside_it(on_slurm: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", str(on_slurm), "--print"]) == 0
    script = capsys.readouterr().out
    on_slurm.write_text(on_slurm.read_text().replace('"slurm"', '"ray"'))
    assert main(["sweep", str(on_slurm), "--print"]) == UsageError.exit_code
    refusal = capsys.readouterr()
    assert "only SLURM has a script" in refusal.err and not refusal.out
    assert main(["sweep", str(on_slurm), "--executor", "slurm", "--print"]) == 0, "the hint holds"
    assert capsys.readouterr().out == script
