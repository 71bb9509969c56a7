"""The cards of this machine as a queue sees them, and what its runs ask of them."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ftui.hardware.card_locks import card_id, find_holder, is_taken
from ftui.hardware.detect import Device, available_memory, find_machine, list_visible
from ftui.queue.admission import Admission, Need, Slot, choose
from ftui.queue.waiting_runs import Entry, Kind


def find_devices() -> tuple[list[Device], list[Slot]]:
    """Every GPU of this machine, hidden ones too, and the slots: one for each of them and one for the CPU."""
    machine = find_machine()
    devices = sorted((*machine.cards, *machine.hidden), key=lambda device: device.index)
    slots = [_slot(device) for device in devices]
    cpu = card_id("cpu")
    free = available_memory()
    title = machine.cpu.card.title
    slots.append(_with_holder(Slot(cpu, "cpu", title, machine.cpu.memory, free, is_taken(cpu))))
    return devices, slots


def _slot(device: Device) -> Slot:
    kind: Kind = "mps" if device.card.kind == "mps" else "cuda"
    card = card_id(kind, device.uuid, device.index)
    has_others = bool(device.processes)
    return _with_holder(Slot(card, kind, device.title, device.card.memory, device.free, is_taken(card), has_others))


def _with_holder(slot: Slot) -> Slot:
    holder = find_holder(slot.card) if slot.is_taken else None
    return slot if holder is None else replace(slot, holder=holder.name)


def choose_starts(entries: Sequence[Entry]) -> Admission:
    """What would be started now of these runs of the queue, in their order."""
    devices, slots = find_devices()
    return choose(list(needs_of(entries, devices)), slots)


def needs_of(entries: Iterable[Entry], devices: Sequence[Device]) -> Iterable[Need]:
    """What each run waits for; CUDA_VISIBLE_DEVICES where it was added says which cards it may use."""
    for entry in entries:
        added = entry.added
        cards = None
        if added.device == "cuda" and added.visible is not None:
            visible = list_visible(list(devices), added.visible)
            cards = frozenset(card_id("cuda", device.uuid, device.index) for device in visible)
        yield Need(added.run_id, added.device, added.num_cards, added.memory, cards)
