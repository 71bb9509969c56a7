"""The ranks of a run side by side: what each does in a step, who is slowest, and the cards they are on."""

from collections.abc import Iterable, Sequence

from ftui.runs.events import RankSeconds
from ftui.runs.records.signs_of_life import Gpu, Telemetry
from ftui.runs.state import communication_share, own_seconds, slowest_rank

from ..render.spans import Frame, Line, clipped, spread, width_of
from .wording import count_words, gib

NARROWEST = 26  # columns of a rank: its number, a bar, two times
WITH_CARD = 56  # columns from which its card stands beside it
STYLES = {"passes": "good", "rows": "eval", "waiting": "muted"}


def rank_bars(frame: Frame, ranks: RankSeconds, width: int) -> Line:
    """A bar for each rank, as high as its own time in a step is long, the slowest marked.

    Where there are more ranks than columns, a bar is the slowest of neighbours.
    """
    own, (slowest, _) = own_seconds(ranks), slowest_rank(ranks)
    size = -(-len(own) // max(1, width))
    groups = [own[start : start + size] for start in range(0, len(own), size)]
    top, bars = max(own) or 1.0, frame.glyphs.bars
    signs = [bars[int(max(group) / top * (len(bars) - 1) + 0.5)] for group in groups]
    at = slowest // size
    return [("".join(signs[:at]), "violet_dim"), (signs[at], "warn"), ("".join(signs[at + 1 :]), "violet_dim")]


def rank_lines(frame: Frame, ranks: RankSeconds | None, machines: Iterable[Telemetry]) -> list[Line]:
    """A line about all of them, then the ranks in as many columns as it takes, then cards that no rank is on.

    Of more ranks than there is room for, those that were slowest.
    """
    cards = [gpu for machine in machines for gpu in machine.gpus]
    lines = [] if ranks is None else [_head(frame, ranks)]
    room = frame.height - len(lines)
    own = [] if ranks is None else own_seconds(ranks)
    others = [gpu for gpu in cards if gpu.rank is None or gpu.rank >= len(own)]
    number = len(own) + len(others)
    columns = max(1, min(frame.width // NARROWEST, -(-number // max(1, room))))
    width, place = frame.width // columns, columns * max(0, room)
    by_rank = {gpu.rank: gpu for gpu in cards if gpu.rank is not None}
    shown = sorted(range(len(own)), key=lambda rank: -own[rank])[: place if len(own) <= place else place - 1]
    cells = [] if ranks is None else [_rank(frame, width, rank, ranks, by_rank.get(rank)) for rank in sorted(shown)]
    if len(own) > len(shown):
        cells.append([(f"   {count_words(len(own) - len(shown), 'rank')} more, faster", "muted")])
    cells += [_card(width, gpu) for gpu in others[: max(0, place - len(cells))]]
    rows = -(-len(cells) // columns)
    for at in range(rows):
        line: Line = []
        for cell in cells[at::rows]:
            line += spread(width, clipped(cell, width - 1))
        lines.append(line)
    return lines


def _signs(frame: Frame) -> tuple[str, str, str]:
    """What the three parts of a bar are drawn with: they differ without colours, too."""
    return frame.glyphs.full, frame.glyphs.grid, frame.glyphs.rule


def _head(frame: Frame, ranks: RankSeconds) -> Line:
    rank, more = slowest_rank(ranks)
    left: Line = [(f" rank {rank}", "warn"), (f" slowest (+{more:.0%})", "muted")]
    left.append((f" {frame.glyphs.separator} {communication_share(ranks):.0%} in communication", "muted"))
    legend: Line = []
    for sign, (word, style) in zip(_signs(frame), STYLES.items(), strict=True):
        legend += [(f" {sign} ", style), (word, "faint")]
    fits = width_of(left) + width_of(legend) + 3 <= frame.width
    return spread(frame.width, left, [*legend, (" ", "text")] if fits else [])


def _rank(frame: Frame, width: int, rank: int, ranks: RankSeconds, gpu: Gpu | None) -> Line:
    """Its number, a bar of passes, waiting for rows, and for others; its own seconds and those it waited."""
    own, (slowest, _) = own_seconds(ranks), slowest_rank(ranks)
    style = "warn" if rank == slowest else "text"
    mark = frame.glyphs.cursor if rank == slowest else " "
    start: Line = [(f" {mark}{rank:>{len(str(len(own) - 1))}} ", style)]
    end: Line = [(f" {_seconds(own[rank]):>7}", style), (f" {_seconds(ranks.communication[rank]):>7}", "muted")]
    if width >= WITH_CARD and gpu is not None:
        end.append((f"  {_card_words(gpu)}", "faint"))
    room = max(0, width - 1 - width_of(start) - width_of(end))
    whole = max(a + b for a, b in zip(own, ranks.communication, strict=True)) or 1.0
    parts = (ranks.passes[rank], ranks.data[rank], ranks.communication[rank])
    ends = [round(sum(parts[: number + 1]) / whole * room) for number in range(3)]
    sizes = [ends[0], ends[1] - ends[0], ends[2] - ends[1]]
    bar: Line = [(sign * size, style) for sign, size, style in zip(_signs(frame), sizes, STYLES.values(), strict=True)]
    return [*start, *bar, (" " * (room - ends[2]), "text"), *end]


def _card(width: int, gpu: Gpu) -> Line:
    """A card on which no rank of this run computes."""
    return clipped([("    other card  ", "faint"), (f"{_card_words(gpu)}  {gpu.name}", "faint")], width - 1)


def _card_words(gpu: Gpu) -> str:
    """`97%  64.0/80 GiB  71 C`: what the driver does not hide."""
    words = [] if gpu.utilization is None else [f"{gpu.utilization:4.0%}"]
    if gpu.memory_used is not None:
        words.append(gib(gpu.memory_used) + (f"/{gpu.memory_total / 2**30:.0f}" if gpu.memory_total else "") + " GiB")
    if gpu.temperature is not None:
        words.append(f"{gpu.temperature:.0f} C")
    return " ".join(words)


def _seconds(seconds: float) -> str:
    return (
        f"{1000 * seconds:.0f} ms" if seconds < 0.9995 else f"{seconds:.2f} s" if seconds < 100 else f"{seconds:.0f} s"
    )


def has_ranks(ranks: RankSeconds | None, machines: Sequence[Telemetry]) -> bool:
    """Whether there is anything to see: several ranks, or several cards."""
    return ranks is not None or sum(len(machine.gpus) for machine in machines) > 1
