"""The statistical rules on runs that were really trained: sound ones, and ones with a real fault.

How fast steps are is left out: these runs shared two cores with others that came and went.
"""

from pathlib import Path

import pytest

from tests.bench.health.__main__ import EXPECTED, OF_A_SHARED_MACHINE, RECORDED, told_of

PATHS = sorted(RECORDED.glob("*.json"))


def told(path: Path) -> list[str]:
    return [rule for rule in told_of(path) if rule not in OF_A_SHARED_MACHINE]


def test_there_are_sound_runs_and_each_fault() -> None:
    names = [path.stem for path in PATHS]
    assert sum(name.startswith("healthy") for name in names) == 12
    assert all(any(name.startswith(fault) for name in names) for fault in EXPECTED)


@pytest.mark.parametrize("path", [path for path in PATHS if path.stem.startswith("healthy")], ids=lambda p: p.stem)
def test_a_sound_run_raises_no_alarm(path: Path) -> None:
    assert told(path) == []


@pytest.mark.parametrize("fault", ["rate-x30", "duplicated", "slow-loader"])
def test_a_real_fault_is_found_in_every_run(fault: str) -> None:
    paths = [path for path in PATHS if path.stem.startswith(fault)]
    assert [EXPECTED[fault] in told(path) for path in paths] == [True] * len(paths) and paths
