"""Small quantities side by side: name and current value, a spark of the run so far, and the range it moved in."""

from collections.abc import Sequence
from dataclasses import dataclass

from ftui.runs.curves import Curves
from ftui.runs.events import Gpu, Telemetry
from ftui.runs.state import RunState

from ..render.spans import Frame, Line, clipped, spread, width_of
from .charts.spark import extent, points, recent, spark
from .wording import gib, norm, rate, short

GAP = 2
WIDE = 22  # columns from which names are written out
NARROWEST = 13


@dataclass(frozen=True)
class Tile:
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
    number = 4 + (gpu is not None)
    width = max(NARROWEST, (frame.width - 2 - GAP * (number - 1)) // number)
    number = min(number, max(1, (frame.width - 2 + GAP) // (width + GAP)))
    made = [_throughput(frame, state, curves, width), _memory(frame, state, curves, samples, gpu, width)]
    made += [_learning_rate(frame, state, curves, width), _gradient(frame, state, curves, width)]
    if gpu is not None:
        made.append(_gpu(frame, gpu, samples, width))
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


def _throughput(frame: Frame, state: RunState, curves: Curves, width: int) -> Tile:
    foot = _between(frame, extent(curves, "tokens_per_second"), short)
    bars = spark(points(curves, "tokens_per_second"), width, frame.glyphs)
    return Tile("throughput", "tok/s", short(state.tokens_per_second), "tok/s" * (width >= WIDE), bars, foot, "violet")


def _learning_rate(frame: Frame, state: RunState, curves: Curves, width: int) -> Tile:
    foot = _between(frame, extent(curves, "learning_rate"), rate)
    bars = spark(points(curves, "learning_rate"), width, frame.glyphs)
    return Tile("learning rate", "lr", rate(state.learning_rate), "", bars, foot, "loss")


def _gradient(frame: Frame, state: RunState, curves: Curves, width: int) -> Tile:
    value = "nan" if "grad_norm" in state.non_finite else norm(state.grad_norm)
    foot = _between(frame, extent(curves, "grad_norm"), norm)
    bars = spark(points(curves, "grad_norm"), width, frame.glyphs)
    return Tile("gradient norm", "grad", value, "", bars, foot, "eval")


def _memory(
    frame: Frame, state: RunState, curves: Curves, samples: Sequence[Telemetry], gpu: Gpu | None, width: int
) -> Tile:
    """On a GPU what the driver says is used, of how much, and the peak torch has reserved; else the engine's memory."""
    if gpu is None or gpu.memory_used is None:
        foot = _between(frame, extent(curves, "memory"), gib)
        bars = spark(points(curves, "memory"), width, frame.glyphs)
        return Tile("memory", "memory", gib(state.memory), "GiB", bars, foot, "good")
    used = [sample.gpus[0].memory_used if sample.gpus else None for sample in samples]
    value = gib(gpu.memory_used) + (f"/{gpu.memory_total / 2**30:.0f}" if gpu.memory_total else "")
    foot = f"peak {gib(state.memory)} GiB" if state.memory is not None else ""
    return Tile("vram", "vram", value, "GiB", recent(used, width, frame.glyphs), foot, "good")


def _gpu(frame: Frame, gpu: Gpu, samples: Sequence[Telemetry], width: int) -> Tile:
    used = [sample.gpus[0].utilization if sample.gpus else None for sample in samples]
    value = "-" if gpu.utilization is None else f"{gpu.utilization:.0%}"
    foot = " ".join(
        text
        for known, text in (
            (gpu.temperature, f"{gpu.temperature or 0:.0f} C"),
            (gpu.power_watts, f"{gpu.power_watts or 0:.0f} W"),
        )
        if known is not None
    )
    return Tile("gpu", "gpu", value, "", recent(used, width, frame.glyphs), foot, "pink")


def _between(frame: Frame, found: tuple[float, float] | None, write: object) -> str:
    if found is None or not callable(write):
        return ""
    return f"{write(found[0])} {frame.glyphs.dash} {write(found[1])}"
