"""The cards of a run that is started by hand: taken before it starts, as the queue takes them."""

import contextlib
import os
from collections.abc import Iterator, Sequence
from typing import Literal

from ftui.errors import UsageError
from ftui.hardware.card_locks import card_id, find_holder, take_cards
from ftui.hardware.detect import Device, Machine, find_machine
from ftui.profile.schema import Profile
from ftui.supervisor.nodes.node_place import check_is_named, find_place
from ftui.system.files import Lock
from ftui.text import shown


def device_kind(profile: Profile, machine: Machine) -> Literal["cuda", "mps", "cpu"]:
    """What a run of the profile computes on here."""
    return machine.card.kind if profile.hardware.device == "auto" else profile.hardware.device


@contextlib.contextmanager
def claimed_cards(profile: Profile) -> Iterator[list[Lock]]:
    """Hold the first GPUs that no other run has, as many as the profile uses, of those this process sees.

    A supervisor that is started in the block gets the locks, and keeps them after it. A CPU serves any number of runs
    that are started by hand; a queue starts none beside them. Where this user's home cannot be written nobody can have
    a lock.

    Raises:
        UsageError: other runs have the GPUs, or it is not said which of several nodes this is.
    """
    check_is_named(profile.hardware.nodes, os.environ)
    locks = _claim(profile)
    try:
        yield locks
    finally:
        for lock in locks:
            lock.close()


def _claim(profile: Profile) -> list[Lock]:
    machine = find_machine()
    kind, number = device_kind(profile, machine), profile.hardware.num_processes
    if (place := find_place(profile.hardware.nodes, number, os.environ)) is not None:
        number //= place.num_nodes
    try:
        if kind != "cuda":
            return take_cards([card_id(kind)]) or []
        if number > len(machine.cards):
            return []  # the engine says what is missing
        return _take_free(machine.cards, number)
    except OSError:
        return []


def _take_free(devices: Sequence[Device], number: int) -> list[Lock]:
    locks: list[Lock] = []
    taken: list[Device] = []
    for device in devices:
        if one := take_cards([card_id("cuda", device.uuid, device.index)]):
            locks += one
        else:
            taken.append(device)
        if len(locks) == number:
            return locks
    for lock in locks:
        lock.close()
    raise UsageError(
        f"{_list_holders(taken)}: there {'is no GPU' if number == 1 else f'are not {number} GPUs'} left for this run.",
        hint="`ftui queue add` with the same profile starts it as soon as there is.",
    )


def _list_holders(devices: Sequence[Device]) -> str:
    holders = [find_holder(card_id("cuda", device.uuid, device.index)) for device in devices]
    return ", ".join(
        f"{'another run' if holder is None else shown(holder.name)} has GPU {device.index}"
        for device, holder in zip(devices, holders, strict=True)
    )
