"""Activations in host memory: nothing of them stays on the device, no weight leaves it, and no bit changes."""

import weakref
from typing import Any

import pytest
import torch
from torch import Tensor

from ftui.engine.offload.stored_activations import LEAST_BYTES, HostCopy, HostStore

WIDTH = 64


class Twice(torch.autograd.Function):
    """Stores a transposed view and, again, the same input."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x.t(), x, x[1:], weight)
        return x @ weight

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        turned, x, rest, weight = ctx.saved_tensors
        assert turned.stride() == (1, WIDTH) and rest.storage_offset() == WIDTH
        assert turned.untyped_storage()._cdata == x.untyped_storage()._cdata
        assert torch.equal(rest, x[1:])
        return grads[0] @ weight.t(), turned @ grads[0]


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Bytes of each storage that goes to the host."""
    sizes: list[int] = []
    original = HostCopy.__init__

    def counting(self: HostCopy, storage: torch.UntypedStorage) -> None:
        sizes.append(storage.nbytes())
        original(self, storage)

    monkeypatch.setattr(HostCopy, "__init__", counting)
    return sizes


def test_a_storage_goes_once_comes_back_as_it_was_and_leaves_the_device_between(copies: list[int]) -> None:
    torch.manual_seed(0)
    layer = torch.nn.Linear(WIDTH, WIDTH, bias=False)
    start = torch.randn(WIDTH, WIDTH, requires_grad=True)
    twice: Any = Twice.apply
    expected = torch.autograd.grad(twice(start * 2, layer.weight).sum(), [start, layer.weight])
    with HostStore(layer):
        inside = start * 2
        output = twice(inside, layer.weight).sum()
    assert copies == [4 * WIDTH * WIDTH]
    device_copy = weakref.ref(inside.untyped_storage())
    del inside
    assert device_copy() is None
    got = torch.autograd.grad(output, [start, layer.weight])
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(got, expected, strict=True))


def test_small_ones_stay_and_what_was_written_to_goes_again(copies: list[int]) -> None:
    small = torch.ones(LEAST_BYTES // 4 - 1, requires_grad=True)
    large = torch.ones(LEAST_BYTES // 4)
    factor = torch.ones(LEAST_BYTES // 4, requires_grad=True)
    with HostStore(torch.nn.Identity()):
        (small * small).sum()
        assert copies == []
        first = (factor * large).sum()
        large.mul_(3)
        second = (factor * large).sum()
    one, other = torch.autograd.grad(first, factor, retain_graph=True), torch.autograd.grad(second, factor)
    assert one[0][0] == 1 and other[0][0] == 3
