"""What NCCL is told of copies between GPUs, and the program that compares them, as a whole."""

import re
import sys

import pytest

from ftui.supervisor import peer_copies
from ftui.supervisor.peer_copies import PROGRAM, judge_copies, peer_copy_variables, run_comparison

OFF = {"NCCL_P2P_DISABLE": "1"}


@pytest.mark.parametrize(
    ("code", "line", "variables", "words"),
    [
        (0, '{"compared": 2, "wrong": []}', {}, ""),
        (0, '{"compared": 2, "wrong": [[0, 1]]}', OFF, r"arrives changed \(1 of 2 pairs: 0 -> 1\).*NCCL_P2P_DISABLE=1"),
        (None, "", OFF, "did not end within 120 s.*IOMMU"),
        (-11, "", OFF, "ended with SIGSEGV"),
        (1, "ImportError: no torch", {}, "were not compared: ImportError: no torch"),
        (2, "", {}, "were not compared: exit code 2"),
    ],
)
def test_how_the_comparison_ends_decides(code: int | None, line: str, variables: dict[str, str], words: str) -> None:
    found, warnings = judge_copies(code, line)
    assert found == variables and bool(warnings) == bool(words)
    for warning in warnings:
        assert re.search(words, warning), warning


@pytest.mark.parametrize(
    ("num_ranks", "environment", "is_asked"),
    [
        (2, {"CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b"}, True),
        (1, {"CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b"}, False), (2, {"CUDA_VISIBLE_DEVICES": "GPU-a"}, False),
        (2, {}, False),  # on a CPU
        (2, {"CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b", "NCCL_P2P_DISABLE": "0"}, False),
    ],
)  # fmt: skip
def test_it_is_asked_where_several_gpus_train(
    num_ranks: int, environment: dict[str, str], is_asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_copies, "run_comparison", lambda command, gpus: (None, ""))
    assert peer_copy_variables(num_ranks, environment)[0] == (OFF if is_asked else {})


def test_a_program_that_hangs_or_dies_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    program = "import os, sys, time; print(os.environ['CUDA_VISIBLE_DEVICES']); {}"
    ends = {"": (0, "1,2"), "sys.exit('no card')": (1, "no card"), "os.kill(os.getpid(), 9)": (-9, "")}
    for how, expected in (ends | {"time.sleep(60)": (None, "")}).items():
        monkeypatch.setattr(peer_copies, "SECONDS", 0.5 if expected[0] is None else 60.0)
        assert run_comparison((sys.executable, "-S", "-c", program.format(how)), "1,2") == expected


@pytest.mark.slow
def test_the_program_compares_stand_ins() -> None:
    assert run_comparison((*PROGRAM, "cpu", "cpu"), "") == (0, '{"compared": 2, "wrong": []}')
