"""Small quantities side by side: name and current value, a spark of the run so far, and the range it moved in."""

from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from ftui.measures import MEASURES
from ftui.runs.curves import Curves
from ftui.runs.events import Gpu, Telemetry
from ftui.runs.state import RunState

from ..render.spans import Frame, Line, clipped, spread, width_of
from .charts.spark import extent, points, recent, spark
from .wording import figure, gib, norm, rate, short

GAP = 2
WIDE = 22  # columns from which names are written out
NARROWEST = 13
STYLES = {
    "rewards/accuracies": "good", "rewards/margins": "loss", "kl": "pink", "nll_loss": "eval", "rewards/chosen": "eval",
    "rewards/rejected": "violet", "mean_token_accuracy": "good",
}  # fmt: skip
"""Measures of stages that have a tile, with its style: those that matter most first."""
NUM_FIRST = 3
"""Of stages that compare answers, so many stand before the machine's; the others come last, where there is room."""


class Tile(msgspec.Struct, frozen=True):
    """One quantity as it is drawn. `bars`: the spark but for its last bar, and that."""

    name: str
    short_name: str
    value: str
    unit: str
    bars: tuple[str, str]
    foot: str
    style: str


def tiles(frame: Frame, state: RunState, curves: Curves, samples: Sequence[Telemetry]) -> list[Line]:
    """Three lines: as many tiles as there is room for."""
    gpu = samples[-1].gpus[0] if samples and samples[-1].gpus else None
    measures = [name for name in STYLES if name in state.extras]
    first = [name for name in measures if name != "mean_token_accuracy"][:NUM_FIRST]
    number = 4 + (gpu is not None) + len(measures)
    width = max(NARROWEST, (frame.width - 2 - GAP * (number - 1)) // number)
    number = min(number, max(1, (frame.width - 2 + GAP) // (width + GAP)))
    draw = partial(_curve_tile, frame, curves, width)
    gradient = "nan" if "grad_norm" in state.non_finite else norm(state.grad_norm)
    speed = "tok/s" if width >= WIDE else ""  # else it is the tile's name
    made = [
        draw("tokens_per_second", "throughput", "tok/s", short, short(state.tokens_per_second), "violet", unit=speed),
        draw("memory", "memory", "memory", gib, gib(state.memory), "good", unit="GiB"),
        draw("learning_rate", "learning rate", "lr", rate, rate(state.learning_rate), "loss"),
        draw("grad_norm", "gradient norm", "grad", norm, gradient, "eval"),
    ]
    if gpu is not None:
        made.append(_gpu(frame, gpu, samples, width))
        if gpu.memory_used is not None:
            made[1] = _gpu_memory(frame, gpu, state, samples, width)
    own = {
        name: draw(name, MEASURES[name].words, MEASURES[name].short, figure, figure(state.extras[name]), STYLES[name])
        for name in measures
    }
    made = [*(own.pop(name) for name in first), *made, *own.values()]
    lines: list[Line] = [[(" ", "text")], [(" ", "text")], [(" ", "text")]]
    for index, tile in enumerate(made[:number]):
        for line, part in zip(lines, _drawn(tile, width), strict=True):
            line += [(" " * GAP, "text")] * (index > 0) + part
    return lines


def _drawn(tile: Tile, width: int) -> tuple[Line, Line, Line]:
    name = tile.name if width >= WIDE else tile.short_name
    value: Line = [(tile.value, "number")]
    if tile.unit and width >= width_of([(name, ""), (tile.value, ""), (tile.unit, "")]) + 2:
        value.append((f" {tile.unit}", "muted"))
    head = spread(width, [(name, "muted")], value)
    body: Line = [(tile.bars[0], f"{tile.style}_dim"), (tile.bars[1], tile.style)]
    body.append((" " * (width - len(tile.bars[0]) - len(tile.bars[1])), "text"))
    return head, body, spread(width, [], clipped([(tile.foot, "faint")], width))


def _curve_tile(
    frame: Frame,
    curves: Curves,
    width: int,
    quantity: str,
    name: str,
    short_name: str,
    write: Callable[[float], str],
    value: str,
    style: str,
    unit: str = "",
) -> Tile:
    """A quantity of the curves, its newest `value` written by `write` as the ends of its range are."""
    start = curves.attempts[0].start_step if curves.attempts else 0
    bars, ends = spark(points(curves, quantity), width, frame.glyphs, start), extent(curves, quantity)
    foot = "" if ends is None else f"{write(ends[0])} {frame.glyphs.dash} {write(ends[1])}"
    return Tile(name, short_name, value, unit, bars, foot, style)


def _gpu_memory(frame: Frame, gpu: Gpu, state: RunState, samples: Sequence[Telemetry], width: int) -> Tile:
    """What the driver says is used, of how much, and the peak torch has reserved."""
    used = [sample.gpus[0].memory_used if sample.gpus else None for sample in samples]
    value = gib(gpu.memory_used) + (f"/{gpu.memory_total / 2**30:.0f}" if gpu.memory_total else "")
    foot = f"peak {gib(state.memory)} GiB" if state.memory is not None else ""
    return Tile("vram", "vram", value, "GiB", recent(used, width, frame.glyphs), foot, "good")


def _gpu(frame: Frame, gpu: Gpu, samples: Sequence[Telemetry], width: int) -> Tile:
    used = [sample.gpus[0].utilization if sample.gpus else None for sample in samples]
    value = "-" if gpu.utilization is None else f"{gpu.utilization:.0%}"
    figures = (gpu.temperature, "C"), (gpu.power_watts, "W")
    foot = " ".join(f"{figure:.0f} {unit}" for figure, unit in figures if figure is not None)
    return Tile("gpu", "gpu", value, "", recent(used, width, frame.glyphs), foot, "pink")
