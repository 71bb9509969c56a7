"""Small quantities side by side: name and current value, a spark of the run so far, and the range it moved in."""

from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from ftui.measures import MEASURES
from ftui.runs.curves import Curves
from ftui.runs.events import RankSeconds
from ftui.runs.records.signs_of_life import Gpu, Telemetry
from ftui.runs.state import RunState, communication_share, slowest_rank

from ..render.spans import Frame, Line, clipped, spread, width_of
from .charts.spark import extent, points, recent, spark
from .rank_lines import rank_bars
from .wording import figure, gib, norm, rate, short

GAP = 2
WIDE = 22  # columns from which names are written out
NARROWEST = 13
STYLES = {
    "reward": "good", "completions/mean_length": "loss", "rewards/accuracies": "good", "rewards/margins": "loss",
    "kl": "pink", "nll_loss": "eval", "entropy": "eval", "completions/clipped_ratio": "violet",
    "num_groups_left_out": "violet",
    "rewards/chosen": "eval", "rewards/rejected": "violet", "mean_token_accuracy": "good",
}  # fmt: skip
"""Measures of stages that have a tile, with its style: those that matter most first."""
NUM_FIRST = 3
"""Of stages that compare answers, so many stand before the machine's; the others come last, where there is room."""
NUM_FIRST_OF_SAMPLED = 5
"""Of stages that learn from a reward: what says whether it is still the one that was meant."""


class Tile(msgspec.Struct, frozen=True):
    """One quantity as it is drawn. `bars`: the spark in its styles."""

    name: str
    short_name: str
    value: str
    unit: str
    bars: Line
    foot: str


def tiles(frame: Frame, state: RunState, curves: Curves, samples: Sequence[Telemetry]) -> list[Line]:
    """Three lines: as many tiles as there is room for."""
    gpu = _card(samples[-1]) if samples else None
    measures = [name for name in STYLES if name in state.extras]
    first = [name for name in measures if name != "mean_token_accuracy"][
        : NUM_FIRST_OF_SAMPLED if "reward" in state.extras else NUM_FIRST
    ]
    number = 4 + (gpu is not None) + (state.ranks is not None) + len(measures)
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
    if state.ranks is not None:
        made.insert(1, _ranks(frame, state.ranks, width))
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
    return head, spread(width, tile.bars), spread(width, [], clipped([(tile.foot, "faint")], width))


def _bars(bars: tuple[str, str], style: str) -> Line:
    """A spark but for its last bar, and that."""
    return [(bars[0], f"{style}_dim"), (bars[1], style)]


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
    return Tile(name, short_name, value, unit, _bars(bars, style), foot)


def _gpu_memory(frame: Frame, gpu: Gpu, state: RunState, samples: Sequence[Telemetry], width: int) -> Tile:
    """What the driver says is used, of how much, and the peak torch has reserved."""
    used = [card.memory_used for sample in samples if (card := _card(sample)) is not None]
    value = gib(gpu.memory_used) + (f"/{gpu.memory_total / 2**30:.0f}" if gpu.memory_total else "")
    foot = f"peak {gib(state.memory)} GiB" if state.memory is not None else ""
    return Tile("vram", "vram", value, "GiB", _bars(recent(used, width, frame.glyphs), "good"), foot)


def _gpu(frame: Frame, gpu: Gpu, samples: Sequence[Telemetry], width: int) -> Tile:
    used = [card.utilization for sample in samples if (card := _card(sample)) is not None]
    value = "-" if gpu.utilization is None else f"{gpu.utilization:.0%}"
    figures = (gpu.temperature, "C"), (gpu.power_watts, "W")
    foot = " ".join(f"{figure:.0f} {unit}" for figure, unit in figures if figure is not None)
    return Tile("gpu", "gpu", value, "", _bars(recent(used, width, frame.glyphs), "pink"), foot)


def _ranks(frame: Frame, ranks: RankSeconds, width: int) -> Tile:
    """The share of time that ranks wait for each other or send, a bar for each rank's own time, and the slowest one."""
    slowest, more = slowest_rank(ranks)
    value, foot = f"{communication_share(ranks):.0%}", f"rank {slowest} +{more:.0%}"
    return Tile("in communication", "comm", value, "", rank_bars(frame, ranks, width), foot)


def _card(sample: Telemetry) -> Gpu | None:
    """The GPU of rank 0; of older runs the first."""
    return next((gpu for gpu in sample.gpus if gpu.rank == 0), sample.gpus[0] if sample.gpus else None)
