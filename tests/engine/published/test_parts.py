"""The parts of the simulator by themselves: the allocator's rules, the choice of kernels, what the tracker follows."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from ftui.engine.simulate.allocator import Allocator
from ftui.engine.simulate.kernels import cpu_kernels, cuda_kernels
from ftui.engine.simulate.profile_memory import find_peak
from ftui.engine.simulate.sdpa_kernels import backend_for
from ftui.engine.simulate.trace import Trace
from ftui.engine.simulate.tracker import CLEAR
from ftui.hardware.devices import MiB
from tests.support.tracing import phase_peaks, trace


@pytest.mark.parametrize(
    ("sizes", "reserved"),
    [
        ([512], 2 * MiB),  # the pool of small blocks has segments of 2 MiB
        ([MiB] * 3, 4 * MiB),
        ([2 * MiB], 20 * MiB),  # from 1 to 10 MiB: segments of 20 MiB, shared
        ([9 * MiB, 9 * MiB, 2 * MiB], 20 * MiB),
        ([11 * MiB - 512], 12 * MiB),  # from 10 MiB on a segment of its own, in steps of 2 MiB
    ],
)
def test_segments(sizes: list[int], reserved: int) -> None:
    assert Allocator().replay(enumerate(sizes)).reserved == reserved


def test_what_is_free_is_used_again_and_joined() -> None:
    allocator = Allocator()
    allocator.replay([(0, 8 * MiB), (1, 8 * MiB), (0, -8 * MiB), (1, -8 * MiB), (2, 18 * MiB)])
    assert allocator.reserved == 20 * MiB
    assert allocator.allocated == 20 * MiB - 2 * MiB


def test_a_rest_of_up_to_a_mebibyte_is_not_split_off() -> None:
    """`memory_allocated` counts it: the block is as large as the hole it fills."""
    allocator = Allocator()
    allocator.replay([(0, 12 * MiB), (0, -12 * MiB), (1, 11 * MiB)])
    assert allocator.allocated == 12 * MiB


def test_holes_cost_and_an_emptied_cache_gives_back_whole_segments_only() -> None:
    events = [(0, 30 * MiB), (1, 40 * MiB), (0, -30 * MiB), (2, 35 * MiB)]
    allocator = Allocator()
    assert allocator.replay(events).reserved == 105 * MiB + MiB
    allocator.replay([CLEAR])
    assert allocator.reserved == 76 * MiB


@pytest.mark.parametrize(
    ("capability", "dtype", "heads", "masked", "backend"),
    [
        (75, torch.float16, 8, False, "efficient"),
        (75, torch.float16, 2, False, "math"),  # grouped heads without flash
        (75, torch.bfloat16, 8, False, "math"),
        (80, torch.bfloat16, 2, False, "flash"),
        (80, torch.bfloat16, 8, True, "efficient"),
        (80, torch.float32, 8, False, "efficient"),
        (90, torch.bfloat16, 2, True, "cudnn"),
        (0, torch.float32, 8, True, "cpu"),
    ],
)
def test_choice_of_attention(capability: int, dtype: torch.dtype, heads: int, masked: bool, backend: str) -> None:
    query, key = (torch.empty(2, number, 64, 64, dtype=dtype, device="meta") for number in (8, heads))
    mask = torch.empty(2, 1, 64, 64, dtype=torch.bool, device="meta") if masked else None
    assert backend_for(capability, query, key, key, mask, 0.0, not masked) == backend


def test_functions_are_put_back() -> None:
    before = (F.softmax, F.dropout, F.scaled_dot_product_attention)
    with cuda_kernels(80).chosen():
        assert F.softmax is not before[0]
    assert (F.softmax, F.dropout, F.scaled_dot_product_attention) == before


def _linear_step(bias: bool = False) -> Trace:
    model = nn.Linear(1024, 512, bias=bias, device="meta")

    def step(model: nn.Module, optimizer: torch.optim.Optimizer):  # type: ignore[no-untyped-def]
        yield "forward"
        loss = model(torch.empty(256, 1024, device="meta")).sum()
        yield "backward"
        loss.backward()
        del loss
        yield "optimizer"
        optimizer.step()
        optimizer.zero_grad()

    return trace(model, lambda weights: torch.optim.AdamW(weights, lr=1.0), step, cuda_kernels(80))


def test_a_traced_step_by_phase_and_part() -> None:
    found, weights = _linear_step(), 1024 * 512 * 4
    rest = sum(size for _, size in found.events)
    assert rest == 3 * weights + 2 * cuda_kernels(80).workspace  # the weight, its two moments
    index, phase = find_peak(found)
    parts = found.breakdown(index)
    assert phase == "optimizer" and sum(parts.values()) == phase_peaks(found)[phase]
    moments_and_update = 3 * weights
    assert (parts["weights"], parts["gradients"], parts["optimizer"]) == (weights, weights, moments_and_update)
    assert phase_peaks(found)["forward"] == rest + (256 * 1024 + 256 * 512) * 4 + 512  # input, output, loss


def test_the_cpu_takes_no_workspace() -> None:
    assert cpu_kernels().workspace == 0 and cpu_kernels().rounding == 64
