"""What a machine has: cards, slices of cards, what a process may see of them; and the tier that is proposed."""

import platform
import sys
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from ftui.hardware import cpu as processor
from ftui.hardware import detect
from ftui.hardware.detect import find_machine, nearest_tier
from ftui.hardware.devices import MiB, card_for


class NVMLError(Exception):
    pass


def unsupported(*_: Any) -> Any:
    raise NVMLError("Not Supported")


# Title, MiB (None: hidden), capability, UUID, slices (their MiB).
Gpu = tuple[str, int | None, tuple[int, int] | None, str, tuple[int, ...]]
A100: Gpu = ("NVIDIA A100-SXM4-40GB", 40960, (8, 0), "GPU-aa", ())
SLICED: Gpu = ("NVIDIA A100-SXM4-80GB", 81920, (8, 0), "GPU-bb", (19968, 40192))
T4: Gpu = ("Tesla T4", 15360, (7, 5), "GPU-cc", ())
HIDDEN: Gpu = ("GRID V100", None, None, "", ())


def driver(monkeypatch: pytest.MonkeyPatch, *gpus: Gpu) -> SimpleNamespace:
    """NVML over these cards. A handle is a number of a card, or a number of a card and of a slice."""

    def slice_of(handle: int, number: int) -> tuple[int, int]:
        return (handle, number) if number < len(gpus[handle][4]) else unsupported()

    def memory(handle: Any) -> SimpleNamespace:
        card, number = handle if isinstance(handle, tuple) else (handle, None)
        size = gpus[card][1] if number is None else gpus[card][4][number]
        return unsupported() if size is None else SimpleNamespace(used=0, total=size * MiB)

    def title(handle: Any) -> str:
        return gpus[handle][0] if isinstance(handle, int) else unsupported()

    fake = SimpleNamespace(
        NVMLError=NVMLError,
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetCount=lambda: len(gpus),
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetName=title,
        nvmlDeviceGetMemoryInfo=memory,
        nvmlDeviceGetCudaComputeCapability=lambda handle: gpus[handle][2] or unsupported(),
        nvmlDeviceGetUUID=lambda h: f"MIG-{gpus[h[0]][3]}{h[1]}" if isinstance(h, tuple) else gpus[h][3],
        nvmlDeviceGetMigMode=lambda handle: (1, 1) if gpus[handle][4] else unsupported(),
        nvmlDeviceGetMaxMigDeviceCount=lambda handle: 7,
        nvmlDeviceGetMigDeviceHandleByIndex=slice_of,
        nvmlDeviceGetAttributes_v2=lambda handle: SimpleNamespace(gpuInstanceSliceCount=2 + handle[1]),
    )
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return fake


def test_cards_and_slices_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    driver(monkeypatch, A100, SLICED, HIDDEN)
    machine = find_machine()
    assert [(found.title, found.index, found.uuid) for found in machine.cards] == [
        ("NVIDIA A100-SXM4-40GB", 0, "GPU-aa"),
        ("NVIDIA A100-SXM4-80GB MIG 2g.20gb", 1, "MIG-GPU-bb0"),
        ("NVIDIA A100-SXM4-80GB MIG 3g.40gb", 1, "MIG-GPU-bb1"),
        ("GRID V100", 2, ""),
    ]
    assert [found.card.memory // MiB for found in machine.cards] == [40960, 19968, 40192, 0]
    assert [found.card.capability for found in machine.cards] == [80, 80, 80, 0]
    assert (machine.card.name, machine.proposed) == ("a100-40", "a100-40")


@pytest.mark.parametrize(
    ("wanted", "seen"),
    [
        ("1", ["MIG-GPU-bb0"]),
        ("2,0", ["GPU-cc", "GPU-aa"]),
        ("GPU-c", ["GPU-cc"]),
        ("MIG-GPU-bb1", ["MIG-GPU-bb1"]),
        ("0,7,2", ["GPU-aa"]),  # what follows a wrong one is lost
        ("", []),
        ("-1", []),
        ("0,0", ["GPU-aa"]),
    ],
)
def test_what_the_process_may_not_see_is_hidden(monkeypatch: pytest.MonkeyPatch, wanted: str, seen: list[str]) -> None:
    driver(monkeypatch, A100, SLICED, T4)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", wanted)
    machine = find_machine()
    assert [found.uuid for found in machine.cards] == seen
    assert len(machine.cards) + len(machine.hidden) == 4
    assert machine.card.kind == ("cuda" if seen else "cpu")


def test_without_a_driver_there_is_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    driver(monkeypatch).nvmlInit = unsupported
    machine = find_machine()
    assert (machine.cards, machine.proposed, machine.card) == ((), "cpu", machine.cpu.card)
    assert machine.cpu.memory > 1 << 28


def test_an_older_binding_knows_no_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = driver(monkeypatch, A100)
    del fake.nvmlDeviceGetMigMode, fake.nvmlDeviceGetCudaComputeCapability
    assert (find_machine().card.name, find_machine().card.capability) == ("a100-40", 80)


def test_a_container_has_the_memory_it_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    driver(monkeypatch)
    monkeypatch.setattr(detect, "read_number", lambda folder, name: {"memory.max": 3 << 30}[name])
    assert find_machine().cpu.memory == find_machine().card.memory == 3 << 30
    monkeypatch.setattr(detect, "read_number", lambda folder, name: 1 << 60)
    assert find_machine().cpu.memory < 1 << 60


def test_the_units_of_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    driver(monkeypatch)
    for flags, units, is_fast in (
        ({"avx2"}, (), False),
        ({"avx512_bf16"}, ("AVX512-BF16",), False),
        ({"amx_bf16", "avx512_bf16"}, ("AMX", "AVX512-BF16"), True),
        ({"bf16", "asimd"}, ("BF16",), True),
    ):
        monkeypatch.setattr(processor, "cpu_flags", lambda flags=flags: flags)
        monkeypatch.setattr(detect, "cpu_flags", lambda flags=flags: flags)
        cpu = find_machine().cpu
        assert (cpu.units, cpu.has_fast_bf16) == (units, is_fast)


def test_an_apple_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    driver(monkeypatch).nvmlInit = unsupported
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    monkeypatch.setattr(detect, "_sysctl", lambda name: {"machdep.cpu.brand_string": "Apple M4 Max"}[name])
    for memory, usable in ((24 << 30, 16 << 30), (64 << 30, 48 << 30)):
        monkeypatch.setattr(psutil, "virtual_memory", lambda memory=memory: SimpleNamespace(total=memory))
        machine = find_machine()
        assert (machine.card.title, machine.card.memory, machine.proposed) == (
            "Apple M4 Max GPU (MPS)", usable, "mps",
        )  # fmt: skip


@pytest.mark.parametrize(
    ("title", "mebibytes", "capability", "tier", "words"),
    [
        ("NVIDIA A40", 46068, 86, "a40", "a tier of its own"),
        ("NVIDIA RTX A6000", 49140, 86, "a40", "48 GiB hold what a40 asks for"),
        ("NVIDIA RTX 6000 Ada Generation", 49140, 89, "l40s", "48 GiB"),
        ("NVIDIA RTX A5000", 24564, 86, "rtx3090", "24 GiB"),
        ("NVIDIA B200", 183359, 100, "h200", "179 GiB"),
        ("NVIDIA GeForce RTX 3060", 12288, 86, "t4", "less than any tier wants"),
        ("NVIDIA A100-SXM4-80GB MIG 3g.40gb", 40192, 80, "a100-40", "39 GiB"),
        ("GRID V100", None, 0, "t4", "hides its memory"),
    ],
)
def test_another_card_gets_the_nearest_tier_and_the_reason(
    title: str, mebibytes: int | None, capability: int, tier: str, words: str
) -> None:
    name, reason = nearest_tier(card_for(title, None if mebibytes is None else mebibytes * MiB, capability))
    assert name == tier and words in reason and title in reason
