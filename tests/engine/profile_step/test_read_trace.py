"""What is made of a profiler's events: hand-made ones of a CPU and of a GPU, and real ones."""

from collections import defaultdict

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from ftui.engine.profile_step.marks import BACKWARD, DATA, FORWARD, STEPS, UPDATE
from ftui.engine.profile_step.read_trace import StepTimes, TraceEvent, divide_steps, events_of


def by_place(times: StepTimes) -> dict[tuple[str, str], int]:
    sums: dict[tuple[str, str], int] = defaultdict(int)
    for label, nanoseconds in times.times.items():
        sums[label.kind, label.phase] += nanoseconds
    return dict(sums)


def test_on_a_cpu_a_moment_is_the_innermost_operations() -> None:
    divided = divide_steps(
        [
            TraceEvent(STEPS, 0, 100),
            TraceEvent(DATA, 0, 10),
            TraceEvent("aten::mul", 2, 9, thread=1),  # in the thread that makes the next rows
            TraceEvent(FORWARD, 10, 40),
            TraceEvent("LoraProduct", 12, 30),
            TraceEvent("aten::matmul", 13, 26),
            TraceEvent("aten::mm", 15, 25),
            TraceEvent(BACKWARD, 45, 80),
            TraceEvent("aten::mul", 50, 60),
            TraceEvent("nobody::knows", 60, 64),
            TraceEvent(UPDATE, 80, 95),
            TraceEvent("aten::mul", 81, 91),
            TraceEvent("aten::mul", 200, 300),  # after the steps
        ]
    )
    assert by_place(divided) == {
        ("data", "rest"): 10,
        ("products", "forward"): 13,
        ("between", "forward"): 17,
        ("elementwise", "backward"): 10, ("other", "backward"): 4, ("between", "backward"): 21,
        ("optimizer", "update"): 10, ("between", "update"): 5,
        ("between", "rest"): 10,
    }  # fmt: skip
    assert divided.total == 100


def test_on_a_gpu_a_moment_is_a_kernels_and_else_it_is_idle() -> None:
    divided = divide_steps(
        [
            TraceEvent(STEPS, 0, 100),
            TraceEvent(DATA, 0, 10),
            TraceEvent(FORWARD, 10, 30),
            TraceEvent("aten::mm", 11, 14, number=1),
            TraceEvent("aten::mul", 15, 18, number=2),
            TraceEvent(BACKWARD, 30, 50),
            TraceEvent("aten::mm", 31, 34, thread=2, number=3),  # autograd has a thread for each GPU
            TraceEvent("gemm", 12, 40, thread=7, is_on_gpu=True, launcher=1),
            TraceEvent("vectorized", 40, 45, thread=7, is_on_gpu=True, launcher=2),  # runs while backward launches
            TraceEvent("gemm", 45, 70, thread=7, is_on_gpu=True, launcher=3),
            TraceEvent("ncclDevKernel_AllReduce", 60, 90, thread=8, is_on_gpu=True),  # 60 to 70 beside the products
            TraceEvent("Memcpy DtoH", 5, 8, thread=7, is_on_gpu=True),  # of the step before
        ]
    )
    assert by_place(divided) == {
        ("data", "rest"): 7, ("copies", "rest"): 3,
        ("between", "forward"): 2,
        ("products", "forward"): 28, ("elementwise", "forward"): 5,
        ("products", "backward"): 15, ("collectives", "rest"): 30,
        ("between", "rest"): 10,
    }  # fmt: skip
    assert divided.total == 100


def test_real_events_add_up_to_the_time_of_the_steps() -> None:
    weight = torch.rand(64, 64, requires_grad=True)
    with profile(activities=[ProfilerActivity.CPU]) as profiler, record_function(STEPS):
        for _ in range(3):
            with record_function(FORWARD):
                loss = (torch.rand(64, 64) @ weight).softmax(-1).mul(2).sum()
            with record_function(BACKWARD):
                loss.backward()
    events = events_of(profiler)
    divided = divide_steps(events)
    steps = next(event for event in events if event.name == STEPS)
    assert sum(divided.times.values()) == divided.total == steps.end - steps.start
    assert {("products", "forward"), ("products", "backward"), ("norms", "forward"), ("norms", "backward"),
            ("elementwise", "backward")} <= by_place(divided).keys()  # fmt: skip
    assert not any(label.kind == "other" for label in divided.times)
    assert sum(calls for label, calls in divided.calls.items() if label.name == "aten::mm") == 6
