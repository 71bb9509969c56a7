"""The time of steps, divided by kind of work and phase, from what torch's profiler recorded of them."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch.autograd import DeviceType  # type: ignore[attr-defined]

from ftui.estimate.step.step_profile import Kind, Phase

from .marks import DATA, PHASES, STEPS
from .op_kinds import kind_in, kind_of, kind_of_kernel
from .timeline import Span, divide_time, label_at

ON_CPU = DeviceType.CPU


@dataclass(frozen=True)
class TraceEvent:
    """An operation or a mark on a thread, or (`is_on_gpu`) what a GPU did; times in nanoseconds.

    `number` is that of an operation, `launcher` that of the operation which launched a kernel.
    """

    name: str
    start: int
    end: int
    thread: int = 0
    is_on_gpu: bool = False
    number: int = 0
    launcher: int = 0


class Label(NamedTuple):
    """What a moment of a step was spent on."""

    name: str
    kind: Kind
    phase: Phase


@dataclass(frozen=True)
class StepTimes:
    """Nanoseconds of each label; they add up to `total`. `calls` counts what has a label."""

    total: int
    times: dict[Label, int]
    calls: Counter[Label]


def events_of(profiler: Any) -> list[TraceEvent]:
    """What a `torch.profiler.profile` recorded. A GPU's copy of a mark is left out."""
    return [
        TraceEvent(
            event.name(), event.start_ns(), event.end_ns(), event.start_thread_id(),
            event.device_type() != ON_CPU, event.correlation_id(), event.linked_correlation_id(),
        )
        for event in profiler.profiler.kineto_results.events()
        if event.device_type() == ON_CPU or not event.is_user_annotation()
    ]  # fmt: skip


def divide_steps(events: Sequence[TraceEvent]) -> StepTimes:
    """Divide the time under the mark STEPS.

    Without a GPU's events each moment is the innermost operation's on the thread that took the steps, and what is
    between operations is Python's. With them it is what the GPU did, and what is between its kernels is idle.
    """
    steps = next(event for event in events if event.name == STEPS)
    own = [event for event in events if not event.is_on_gpu and event.thread == steps.thread]
    on_gpu = [event for event in events if event.is_on_gpu]
    phases = sorted((Span(PHASES[e.name], e.start, e.end) for e in own if e.name in PHASES), key=lambda s: s.start)
    marks = [event for event in own if event.name in PHASES]
    spans = [_own_span(event, phases) for event in (marks if on_gpu else own) if event is not steps]
    spans += _gpu_spans(on_gpu, events, phases)
    times = divide_time(spans, steps.start, steps.end, Label("", "between", "rest"))
    return StepTimes(steps.end - steps.start, times, Counter(span.label for span in spans))


def _own_span(event: TraceEvent, phases: Sequence[Span[Phase]]) -> Span[Label]:
    phase: Phase = label_at(phases, event.start, "rest")
    kind: Kind = "data" if event.name == DATA else kind_in(phase, kind_of(event.name))
    return Span(Label(event.name, kind, phase), event.start, event.end)


def _gpu_spans(
    on_gpu: Iterable[TraceEvent], events: Iterable[TraceEvent], phases: Sequence[Span[Phase]]
) -> list[Span[Label]]:
    """Kernels belong to the phase that launched them, however much later they ran."""
    by_number = {event.number: event for event in events if not event.is_on_gpu and event.number}
    spans = []
    for event in on_gpu:
        launcher = by_number.get(event.launcher)
        phase: Phase = label_at(phases, (launcher or event).start, "rest")
        op = "" if launcher is None else launcher.name
        kind = kind_in(phase, kind_of_kernel(event.name, op))
        spans.append(Span(Label(op or event.name, kind, phase), event.start, event.end, layer=1))
    return spans
