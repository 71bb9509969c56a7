"""What this machine has to train on: GPUs and slices of them, Apple's GPU, the CPU; and which tier suits it."""

import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import psutil

from ftui.hardware.cgroup import cgroup_folder, counter, read_number
from ftui.hardware.cpu import cpu_flags, has_fast_bf16, processor_name
from ftui.hardware.devices import BY_NAME, NEAR, TIERS, Card, GiB, card_for
from ftui.hardware.nvml import Driver

MOST_SLICES = 8  # more than any card can be cut into; the driver knows the true number
# What Metal lends to a GPU of the memory it shares with the CPU (recommendedMaxWorkingSetSize) only Metal knows.
# People's logs show two thirds of it up to 36 GiB and three quarters above; Apple documents neither.
SMALL_MAC, SMALL_SHARE, LARGE_SHARE = 36 * GiB, 2 / 3, 3 / 4


@dataclass(frozen=True)
class Device:
    """One device of this machine; of a slice (MIG) `index` is that of its card, and `uuid` its own.

    `free`: bytes of its memory that nobody used when it was looked at; `processes`: how many computed on it. `None`
    where that is hidden.
    """

    card: Card
    title: str
    uuid: str = ""
    index: int = 0
    free: int | None = None
    processes: int | None = None


@dataclass(frozen=True)
class Cpu:
    """The CPU: bytes of RAM this process may use, and its units for 16-bit arithmetic (`AMX`, ...)."""

    card: Card
    memory: int
    units: tuple[str, ...]
    has_fast_bf16: bool


@dataclass(frozen=True)
class MachineRoom:
    """What a machine has for a run on cards of one kind: how many of them, bytes of RAM."""

    num_cards: int
    memory: int


@dataclass(frozen=True)
class Machine:
    """The devices of this machine: `cards`, which this process sees (CUDA_VISIBLE_DEVICES), and `hidden` ones."""

    cards: tuple[Device, ...]
    cpu: Cpu
    hidden: tuple[Device, ...] = ()

    @property
    def card(self) -> Card:
        """The card that a run would be on: the first device, else the CPU."""
        return self.cards[0].card if self.cards else self.cpu.card

    def room_for(self, card: Card | None) -> MachineRoom | None:
        """What it has for a run on that card; `None` where the card is not in it."""
        number = sum(device.card == card for device in self.cards)
        return MachineRoom(max(1, number), self.cpu.memory) if number or card == self.cpu.card else None

    @property
    def proposed(self) -> str:
        """Name of the tier that suits it."""
        return nearest_tier(self.card)[0]

    @property
    def reason(self) -> str:
        """Why that tier, in words."""
        return nearest_tier(self.card)[1]


def find_machine() -> Machine:
    """Look at the hardware. What hides itself is left out or `None`; nothing of it is an error."""
    cpu = _cpu()
    driver = Driver()
    try:
        devices = [
            device for index, handle in enumerate(driver.handles) for device in _list_devices(driver, handle, index)
        ]
    finally:
        driver.close()
    visible = list_visible(devices, os.environ.get("CUDA_VISIBLE_DEVICES"))
    hidden = tuple(device for device in devices if device not in visible)
    if not devices and sys.platform == "darwin" and platform.machine() == "arm64":
        visible = [_apple()]
    return Machine(tuple(visible), cpu, hidden)


def _list_devices(driver: Driver, handle: Any, index: int) -> Iterator[Device]:
    """A GPU, or instead of it the slices it is cut into (MIG): a process can use those only."""
    title = driver.ask("nvmlDeviceGetName", handle) or "GPU"
    major, minor = driver.ask("nvmlDeviceGetCudaComputeCapability", handle) or (0, 0)
    capability = 10 * major + minor
    current, _ = driver.ask("nvmlDeviceGetMigMode", handle) or (0, 0)
    if not current:
        used, memory = driver.memory(handle)
        uuid = driver.ask("nvmlDeviceGetUUID", handle) or ""
        free, processes = _free(used, memory), _count_processes(driver, handle)
        yield Device(card_for(title, memory, capability), title, uuid, index, free, processes)
        return
    for number in range(driver.ask("nvmlDeviceGetMaxMigDeviceCount", handle) or MOST_SLICES):
        piece = driver.ask("nvmlDeviceGetMigDeviceHandleByIndex", handle, number)
        if piece is None:
            continue
        used, memory = driver.memory(piece)
        name, uuid = _slice_name(driver, piece, title, memory), driver.ask("nvmlDeviceGetUUID", piece) or ""
        free, processes = _free(used, memory), _count_processes(driver, piece)
        yield Device(card_for(name, memory, capability), name, uuid, index, free, processes)


def _count_processes(driver: Driver, handle: Any) -> int | None:
    processes = driver.ask("nvmlDeviceGetComputeRunningProcesses", handle)
    return None if processes is None else len(processes)


def _free(used: int | None, total: int | None) -> int | None:
    return None if used is None or total is None else total - used


def _slice_name(driver: Driver, piece: Any, title: str, memory: int | None) -> str:
    """`NVIDIA A100-SXM4-40GB MIG 1g.5gb`: what the driver calls it, or put together from its parts."""
    name = driver.ask("nvmlDeviceGetName", piece)
    if name and "MIG" in name:
        return str(name)
    parts = driver.ask("nvmlDeviceGetAttributes_v2", piece)
    size = [] if parts is None else [f"{parts.gpuInstanceSliceCount}g"]
    size += [] if memory is None else [f"{-(-memory // GiB)}gb"]
    return " ".join([title, "MIG", ".".join(size)]).rstrip()


def list_visible(devices: list[Device], setting: str | None) -> list[Device]:
    """The devices that CUDA_VISIBLE_DEVICES names by numbers or starts of UUIDs, up to the first wrong name.

    Numbers are taken for the driver's, which CUDA's own are where the cards are alike or CUDA_DEVICE_ORDER=PCI_BUS_ID.
    """
    if setting is None:
        return devices
    visible: list[Device] = []
    for entry in (part.strip() for part in setting.split(",")):
        fits = [
            device for device in devices
            if (device.index == int(entry) if entry.isdecimal() else bool(entry) and device.uuid.startswith(entry))
        ]  # fmt: skip
        if not fits or fits[0] in visible:
            break
        visible.append(fits[0])
    return visible


def _apple() -> Device:
    memory = psutil.virtual_memory().total
    share = SMALL_SHARE if memory <= SMALL_MAC else LARGE_SHARE
    title = f"{_sysctl('machdep.cpu.brand_string') or 'Apple'} GPU (MPS)"
    return Device(replace(BY_NAME["mps"], title=title, memory=int(memory * share)), title)


def _sysctl(name: str) -> str:
    try:
        process = subprocess.run(["sysctl", "-n", name], capture_output=True, text=True, check=False, timeout=5)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return process.stdout.strip()


def _cpu() -> Cpu:
    memory, flags = usable_memory(), cpu_flags()
    units = {"AMX": "amx_bf16", "AVX512-BF16": "avx512_bf16", "BF16": "bf16"}
    card = replace(BY_NAME["cpu"], title=processor_name() or "CPU", memory=memory)
    return Cpu(card, memory, tuple(u for u, flag in units.items() if flag in flags), has_fast_bf16())


def usable_memory() -> int:
    """Bytes of RAM this process may use: the machine's, or what its control group allows."""
    total = int(psutil.virtual_memory().total)
    limit = read_number(cgroup_folder(), "memory.max")
    return total if limit is None else min(limit, total)


def available_memory() -> int:
    """Bytes of RAM that nobody uses, of what this process may use; files that the kernel keeps count as free."""
    free, folder = int(psutil.virtual_memory().available), cgroup_folder()
    limit, used = read_number(folder, "memory.max"), read_number(folder, "memory.current")
    if limit is None or used is None:
        return free
    files = sum(counter(folder, "memory.stat", kind) or 0 for kind in ("active_file", "inactive_file"))
    return min(free, limit - used + files)


def nearest_tier(card: Card) -> tuple[str, str]:
    """Name of the tier that suits a card, and why: its own, else the largest that its memory holds."""
    if card.name in TIERS:
        return card.name, f"{card.title} has a tier of its own" if card.kind == "cuda" else f"it trains on {card.title}"
    tiers = [BY_NAME[name] for name in TIERS if BY_NAME[name].kind == "cuda"]
    smallest = min(tiers, key=lambda tier: tier.memory)
    if not card.memory:
        return smallest.name, f"{card.title} hides its memory; {smallest.name} asks for the least"
    fitting = [tier for tier in tiers if tier.memory * (1 - NEAR) <= card.memory]
    size = f"{card.memory / GiB:.0f} GiB"
    if not fitting:
        return smallest.name, f"{card.title} has {size}, less than any tier wants; {smallest.name} asks for the least"
    most = max(tier.memory for tier in fitting)
    alike = [tier for tier in fitting if tier.memory >= most * (1 - NEAR)]
    nearest = min(alike, key=lambda tier: abs(tier.capability - card.capability))  # of equals the first
    return nearest.name, f"{card.title} has no tier of its own; its {size} hold what {nearest.name} asks for"
