"""Which part of a step is an exchange."""

import time
from typing import Any

import pytest
import torch
import torch.distributed as dist

from ftui.engine.distributed.rank_clock import CountedGather, RankClock, RankTime

CPU = torch.device("cpu")


def test_what_is_no_exchange_is_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    clock = RankClock(CPU, is_needed=True)
    for _ in range(2):  # a step that memory ran out in is taken again: nothing of it is left
        clock.begin()
        for seconds in (0.5, 0.25):
            now[0] += 1
            with clock.exchange():
                now[0] += seconds
    assert clock.read(2.75, 0.125, 64) == RankTime(passes=2.0, data=0.125, communication=0.75, places=64)


def test_on_a_gpu_the_time_is_that_between_marks_in_its_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host is ahead: its own clock says nothing."""
    reached = iter([10.0, 510.0, 600.0, 850.0])  # milliseconds

    class Event:
        def __init__(self, enable_timing: bool) -> None:
            assert enable_timing

        def record(self) -> None:
            self.at = next(reached)

        def elapsed_time(self, later: "Event") -> float:
            return later.at - self.at

    monkeypatch.setattr(torch.cuda, "Event", Event)
    clock = RankClock(torch.device("cuda"), is_needed=True)
    for _ in range(2):
        with clock.exchange():
            pass
    assert clock.read(2.0, 0.0, 64) == RankTime(1.25, 0.0, 0.75, 64)


def test_one_rank_exchanges_nothing() -> None:
    clock = RankClock(torch.device("cuda"), is_needed=False)  # no mark: this machine has no GPU
    with clock.exchange():
        pass
    assert clock.read(2.0, 0.0, 64) == RankTime(2.0, 0.0, 0.0, 64)


def test_gathering_a_layer_inside_a_pass_is_an_exchange(monkeypatch: pytest.MonkeyPatch) -> None:
    now, gathered = [100.0], []

    def gather(output: torch.Tensor, own: torch.Tensor, group: Any, async_op: bool) -> str:
        now[0] += 0.5
        gathered.append((output, own, group, async_op))
        return "work"

    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(dist, "all_gather_into_tensor", gather)
    clock = RankClock(CPU, is_needed=True)
    counted = CountedGather(clock)
    room = counted.allocate((8,), dtype=torch.uint8, device=CPU)
    assert room.shape == (8,) and room.dtype == torch.uint8
    now[0] += 1
    assert counted(room, room[:4], "group", async_op=True) == "work"
    assert len(gathered) == 1 and gathered[0][2:] == ("group", True)
    assert clock.read(1.5, 0.0, 8) == RankTime(1.0, 0.0, 0.5, 8)
