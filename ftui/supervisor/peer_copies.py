"""Whether the GPUs of this machine copy rightly to each other: with some drivers and boards direct copies (P2P) arrive
changed, or never, and NCCL would train on what arrives.

They are compared once by a process of its own (engine/system/compare_copies.py), before a run's first attempt here.
"""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache

import msgspec

from ftui.supervisor.engine_process import clean_environment, signal_name
from ftui.system.files import DAMAGED

PROGRAM = (sys.executable, "-P", "-m", "ftui.engine.system.compare_copies")
SECONDS = 120.0  # torch is loaded, and each card is woken; the copies take less than one
VARIABLE = "NCCL_P2P_DISABLE"
INSTEAD = (
    f"the GPUs exchange their data through the host's memory ({VARIABLE}=1), which is slower. "
    "An IOMMU or PCIe's ACS that is switched on is the usual cause, or a card whose driver has no P2P"
)


class ComparedCopies(msgspec.Struct, frozen=True):
    """What the program has found: how many pairs copy directly, and which of them arrive changed."""

    compared: int
    wrong: list[tuple[int, int]]


def peer_copy_variables(num_ranks: int, environment: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Variables for the ranks of this machine, and warnings about them. `environment` names the run's GPUs; what
    somebody has set stays, and then nothing is compared."""
    gpus = environment.get("CUDA_VISIBLE_DEVICES", "")
    if num_ranks == 1 or gpus.count(",") == 0 or environment.get(VARIABLE):
        return {}, []
    return judge_copies(*run_comparison(PROGRAM, gpus))


@cache
def run_comparison(command: Sequence[str], gpus: str) -> tuple[int | None, str]:
    """Exit code (negative: a signal; `None`: it did not end) and last line of the program; once in this process."""
    environment = clean_environment() | {"CUDA_VISIBLE_DEVICES": gpus}
    try:
        ended = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS
        )
    except subprocess.TimeoutExpired:
        return None, ""
    lines = (ended.stdout if ended.returncode == 0 else ended.stderr).strip().splitlines()
    return ended.returncode, lines[-1] if lines else ""


def judge_copies(code: int | None, line: str) -> tuple[dict[str, str], list[str]]:
    """As `peer_copy_variables`, for how the program has ended and its last line."""
    off = {VARIABLE: "1"}
    if code is None:
        return off, [f"copies between the GPUs did not end within {SECONDS:.0f} s: {INSTEAD}"]
    if code < 0:
        return off, [f"a copy between the GPUs ended with {signal_name(-code)}: {INSTEAD}"]
    try:
        found = msgspec.json.decode(line, type=ComparedCopies)
    except DAMAGED:
        return {}, [f"copies between the GPUs were not compared: {line or f'exit code {code}'}"]
    if not found.wrong:
        return {}, []
    pairs = ", ".join(
        [f"{source} -> {target}" for source, target in found.wrong[:4]] + ["..."] * (len(found.wrong) > 4)
    )
    how_many = f"{len(found.wrong)} of {found.compared} pairs: {pairs}"
    return off, [f"what one GPU copies to another arrives changed ({how_many}): {INSTEAD}"]
