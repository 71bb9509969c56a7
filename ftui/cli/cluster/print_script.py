"""`ftui cluster slurm|sky P`: a script that starts the same command on every node."""

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from ftui.errors import UsageError
from ftui.profile.layers import resolve
from ftui.profile.presets import find_profile
from ftui.runs.run_folder import name_from, runs_root

PROCESSES = "hardware.num_processes"
GRACE_SECONDS = 120  # before SLURM's limit of time: enough to save


def print_script(
    kind: str, profile: str, nodes: int | None, gpus: int | None, time: str, card: str | None, overrides: Sequence[str]
) -> int:
    """`ftui cluster`: print the script."""
    path = find_profile(profile).absolute()
    resolved = resolve(path, overrides=overrides).profile
    num_nodes = nodes or resolved.hardware.nodes or 2
    processes = resolved.hardware.num_processes
    if gpus is None and processes > 1 and processes % num_nodes:
        raise UsageError(
            f"hardware.num_processes is {processes}: {num_nodes} nodes cannot have the same number of them.",
            hint="--gpus N says how many each has.",
        )
    per_node = gpus or max(1, processes // num_nodes)
    if num_nodes < 1 or per_node < 1:
        raise UsageError("--nodes and --gpus are numbers from 1.")
    others = [override for override in overrides if override.partition("=")[0].strip() != PROCESSES]
    command = ftui_command(path, num_nodes * per_node, others)
    name = resolved.run.name or name_from(path.stem)
    if kind == "slurm":
        print(slurm_script(name, command, num_nodes, per_node, time, runs_root()), end="")
    elif card is None:
        raise UsageError("SkyPilot needs the card: --card H100, as `sky show-gpus` names it.")
    else:
        print(sky_script(name, command, num_nodes, per_node, card, runs_root()), end="")
    return 0


def ftui_command(profile: Path, num_processes: int, overrides: Sequence[str]) -> str:
    """The command of every node, for a shell."""
    words = ["ftui", "--run", str(profile), "--set", f"{PROCESSES}={num_processes}"]
    for override in overrides:
        words += ["--set", override]
    return shlex.join(words)


def slurm_script(name: str, command: str, num_nodes: int, gpus: int, time: str, runs: Path) -> str:
    """A script for sbatch. The same job again goes on where the last one ended.

    Raises:
        UsageError: `time` is none that SLURM reads.
    """
    if not re.fullmatch(r"(\d+-)?\d{1,3}(:\d\d){0,2}", time):
        raise UsageError(f"--time {time!r} is no time that SLURM reads.", hint="08:00:00, or 2-00:00:00 for two days.")
    return f"""#!/bin/bash
#SBATCH --job-name={name}
#SBATCH --nodes={num_nodes}
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node={gpus}
#SBATCH --exclusive
#SBATCH --time={time}
#SBATCH --signal=TERM@{GRACE_SECONDS}
# {GRACE_SECONDS} s before its time is over the run saves and ends (exit code 20): sbatch the same script to go on.
# The folder of runs is best on a volume that all nodes share. Where it is not, node 0 has the run, and the others reach
# it by the port and the secret.
export FTUI_RUNS={shlex.quote(str(runs))}
export FTUI_NODE_PORT=${{FTUI_NODE_PORT:-29544}}
export FTUI_NODE_SECRET=$(openssl rand -hex 32)
srun --kill-on-bad-exit=0 {command}
"""


def sky_script(name: str, command: str, num_nodes: int, gpus: int, card: str, runs: Path) -> str:
    """A task for `sky launch`. The volume with profile, rows and runs is the user's own: it is named, not made."""
    return f"""name: {name}
num_nodes: {num_nodes}
resources:
  accelerators: {card}:{gpus}
envs:
  FTUI_RUNS: {runs}
# Mount one volume that all nodes share where profile, rows and FTUI_RUNS are (file_mounts or volumes). Or copy profile
# and rows to each node (file_mounts), add FTUI_NODE_PORT: 29544 to the envs, and launch with
# --secret FTUI_NODE_SECRET=$(openssl rand -hex 32): then the first node has the run.
# Put a clone of ftui there, too, and its folder here.
setup: |
  cd /path/to/ftui && pip install -c constraints.txt .
run: |
  {command}
"""
