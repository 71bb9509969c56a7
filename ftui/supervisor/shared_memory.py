"""Whether ranks of this machine can talk through /dev/shm: many containers have 64 MB of it, where NCCL fails."""

import shutil
from collections.abc import Mapping
from pathlib import Path

from ftui import units
from ftui.hardware.nvml import Driver

FOLDER = Path("/dev/shm")
LEAST_BYTES = 1 << 30
VARIABLE = "NCCL_SHM_DISABLE"


def shared_memory_variables(num_ranks: int, environment: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Variables for the ranks of this machine, and warnings about them; none where NCCL is not used."""
    if num_ranks == 1 or not FOLDER.exists() or not Driver().handles:
        return {}, []
    return judge_shared_memory(shutil.disk_usage(FOLDER).total, environment)


def judge_shared_memory(num_bytes: int, environment: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """As `shared_memory_variables`, for that much of it. What somebody has set stays."""
    if num_bytes >= LEAST_BYTES or environment.get(VARIABLE):
        return {}, []
    message = (
        f"/dev/shm has {units.size(num_bytes)}, and NCCL needs {units.size(LEAST_BYTES)}: the GPUs exchange their data "
        f"without it ({VARIABLE}=1), which is slower. Start the container with --shm-size=8g"
    )
    return {VARIABLE: "1"}, [message]
