"""Scripts that start the same command on every node."""

import shlex
import subprocess
from pathlib import Path

import pytest
import yaml

from ftui.cli.cluster.print_script import ftui_command, sky_script, slurm_script
from ftui.cli.main import main
from ftui.errors import UsageError

COMMAND = ftui_command(Path("/shared/my profile.toml"), 8, ["train.seed=1"])


def test_the_command_is_one_for_a_shell() -> None:
    assert shlex.split(COMMAND) == [
        "ftui", "--run", "/shared/my profile.toml", "--set", "hardware.num_processes=8", "--set", "train.seed=1",
    ]  # fmt: skip


def test_a_script_for_slurm(tmp_path: Path) -> None:
    script = slurm_script("mine", COMMAND, 2, 4, "08:00:00", Path("/shared/the runs"))
    options = [line.removeprefix("#SBATCH --") for line in script.splitlines() if line.startswith("#SBATCH")]
    expected = {"nodes=2", "ntasks-per-node=1", "gpus-per-node=4", "time=08:00:00", "signal=TERM@120"}
    assert expected <= {*options}
    (tmp_path / "srun").write_text('#!/bin/sh\necho "$FTUI_RUNS|$@"\n')
    (tmp_path / "srun").chmod(0o755)
    path = f"{tmp_path}:/usr/bin:/bin"
    ran = subprocess.run(["bash", "-c", script], env={"PATH": path}, capture_output=True, text=True, check=True)
    assert ran.stdout.startswith("/shared/the runs|--kill-on-bad-exit=0 ftui --run /shared/my profile.toml")


@pytest.mark.parametrize(("time", "is_one"), [("30", True), ("2-00:00:00", True), ("8h", False), ("1:2", False)])
def test_times_that_slurm_reads(time: str, is_one: bool) -> None:
    if is_one:
        assert f"--time={time}\n" in slurm_script("n", "c", 2, 1, time, Path("r"))
    else:
        with pytest.raises(UsageError, match="--time"):
            slurm_script("n", "c", 2, 1, time, Path("r"))


def test_a_task_for_skypilot() -> None:
    task = yaml.safe_load(sky_script("mine", COMMAND, 2, 4, "H100", Path("/shared/runs")))
    assert (task["num_nodes"], task["resources"], task["envs"]) == (
        2, {"accelerators": "H100:4"}, {"FTUI_RUNS": "/shared/runs"},
    )  # fmt: skip
    assert shlex.split(task["run"]) == shlex.split(COMMAND)
    assert "constraints.txt" in task["setup"], "it is on no package index"


def test_the_command_of_ftui(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cluster", "slurm", "quickstart", "--nodes", "3", "--gpus", "2"]) == 0
    script = capsys.readouterr().out
    assert "--nodes=3\n" in script and "hardware.num_processes=6" in script
    number = ["--set", "hardware.num_processes=4"]
    assert main(["cluster", "slurm", "quickstart", *number]) == 0
    script = capsys.readouterr().out
    assert "--gpus-per-node=2\n" in script and script.count("hardware.num_processes=") == 1
    assert main(["cluster", "slurm", "quickstart", "--nodes", "3", *number]) == 2
    assert "--gpus N" in capsys.readouterr().err
    assert main(["cluster", "sky", "quickstart"]) == 2 and "--card" in capsys.readouterr().err
