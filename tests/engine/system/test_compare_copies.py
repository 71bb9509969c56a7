"""Copies between devices are compared: stand-ins on the CPU, since several GPUs are not here."""

import pytest
import torch
from torch import Tensor

from ftui.engine.system.compare_copies import compare_copies

CARDS = [torch.device("cpu")] * 3


def test_right_copies_of_all_pairs() -> None:
    assert compare_copies(CARDS, num_bytes=1000) == (6, [])


@pytest.mark.parametrize("only_second", [False, True])
def test_a_copy_that_arrives_changed_is_told_by_its_pair(only_second: bool) -> None:
    """Also where only every second one does. (Which pair it is: the n-th copy, in the order of pairs.)"""
    copies = 0

    def copy(data: Tensor, target: torch.device) -> Tensor:
        nonlocal copies
        arrived, copies = data.clone(), copies + 1
        if copies == 9 if only_second else copies % 6 == 3:
            arrived[-1] ^= 1
        return arrived

    assert compare_copies(CARDS, copy, num_bytes=1000) == (6, [(1, 0)])


def test_what_was_there_before_is_no_arrival() -> None:
    """A copy that does nothing, into memory that has the last round's bytes."""
    memory: dict[int, Tensor] = {}

    def copy(data: Tensor, target: torch.device) -> Tensor:
        return memory.setdefault(len(data), data)

    _, wrong = compare_copies(CARDS[:2], copy, num_bytes=1000)
    assert wrong == [(0, 1), (1, 0)]
