"""What NCCL is told where /dev/shm is small."""

import shutil
from types import SimpleNamespace

import pytest

from ftui.supervisor import shared_memory
from ftui.supervisor.shared_memory import judge_shared_memory, shared_memory_variables

OFF = {"NCCL_SHM_DISABLE": "1"}


@pytest.mark.parametrize(
    ("num_bytes", "environment", "variables"),
    [(64 << 20, {}, OFF), ((1 << 30) - 1, {}, OFF), (1 << 30, {}, {}), (64 << 20, {"NCCL_SHM_DISABLE": "0"}, {})],
)
def test_little_shared_memory_is_not_used(
    num_bytes: int, environment: dict[str, str], variables: dict[str, str]
) -> None:
    found, warnings = judge_shared_memory(num_bytes, environment)
    assert found == variables and len(warnings) == len(variables)
    assert all("--shm-size" in warning and "/dev/shm" in warning for warning in warnings)


@pytest.mark.parametrize(("num_ranks", "num_gpus", "is_off"), [(2, 2, True), (1, 2, False), (2, 0, False)])
def test_it_matters_to_several_gpus_only(
    num_ranks: int, num_gpus: int, is_off: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_memory, "Driver", lambda: SimpleNamespace(handles=[object()] * num_gpus))
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(total=64 << 20))
    assert shared_memory_variables(num_ranks, {})[0] == (OFF if is_off else {})
