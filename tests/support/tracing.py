"""Training steps of a model on the `meta` device as a published program takes them, and the peaks of their trace."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from torch import nn

from ftui.engine.simulate.kernels import Kernels
from ftui.engine.simulate.trace import Loader, Trace, label_trained, mark_layer, note_model
from ftui.engine.simulate.tracker import MemoryTracker

Step = Callable[[nn.Module, Any], Iterator[str]]
"""One training step of a model with an optimizer: names each phase just before it begins."""


def phase_peaks(trace: Trace) -> dict[str, int]:
    """The most bytes alive at once in each phase of the last pass, and of loading."""
    last = trace.marks[-1].iteration
    bounds = [mark.index for mark in trace.marks[1:]] + [len(trace.events)]
    peaks: dict[str, int] = {}
    alive = 0
    for mark, end in zip(trace.marks, bounds, strict=True):
        top = alive
        for _, size in trace.events[mark.index : end]:
            alive += size
            top = max(top, alive)
        if mark.phase == "loading" or mark.iteration == last:
            peaks[mark.phase] = max(peaks.get(mark.phase, 0), top)
    return peaks


def trace(
    model: nn.Module,
    make_optimizer: Callable[[list[nn.Parameter]], Any],
    step: Step,
    kernels: Kernels,
    *,
    iterations: int = 2,
    load: Loader | None = None,
    layers: Sequence[nn.Module] = (),
    vocab_size: int = 0,
    truth: bool = True,
) -> Trace:
    """Take a model on `meta` through loading and `iterations` training steps.

    Args:
        make_optimizer: of the trained parameters.
        load: what loading takes; without it the weights just appear.
        layers: those whose events shall be told apart.
        vocab_size, truth: see Tracker.
    """
    tracker = MemoryTracker(kernels, vocab_size, truth)
    if load is not None:
        load(tracker, model)
    note_model(tracker, model)
    hooks = [hook for number, layer in enumerate(layers) for hook in mark_layer(tracker, number, layer)]
    trained_weights = [weight for weight in model.parameters() if weight.requires_grad]
    try:
        with tracker, kernels.chosen():
            optimizer = make_optimizer(trained_weights)
            for iteration in range(iterations):
                for phase in step(model, optimizer):
                    label_trained(tracker, trained_weights, optimizer)
                    tracker.enter(phase, iteration)
                label_trained(tracker, trained_weights, optimizer)
    finally:
        for hook in hooks:
            hook.remove()
    return Trace(tuple(tracker.events), tuple(tracker.parts), tuple(tracker.marks))
