"""A chart as PNG, by matplotlib, which is there at wish."""

import io
from typing import Any

from ftui.errors import UsageError
from ftui.reports.charts import Chart, ChartLine
from ftui.reports.svg_chart import BAND, CHECKPOINT, COLORS, EVALUATION, HEIGHT, WIDTH, unbroken
from ftui.text import shown

INCH = 100  # pixels of the SVG; each becomes two
STYLES = ("-", "--", ":", "-.", (0, (5, 2)), (0, (1, 2)))


def draw_png(chart: Chart) -> bytes:
    """The same lines, marks and numbers as in the SVG.

    Raises:
        UsageError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        hint = "pip install matplotlib; --svg needs nothing."
        raise UsageError("A PNG is drawn by matplotlib, which is not installed.", hint=hint) from error
    figure = Figure(figsize=(WIDTH / INCH, (HEIGHT + 80) / INCH), dpi=2 * INCH, layout="constrained")
    axes: Any = figure.add_subplot()
    for number, line in enumerate(chart.lines):
        _draw(axes, chart, number, line)
    axes.set(xlim=(chart.x.low, chart.x.high), ylim=(chart.y.low, chart.y.high))
    axes.set_xticks([value for value, _ in chart.x.ticks], [_plain(label) for _, label in chart.x.ticks])
    axes.set_yticks([value for value, _ in chart.y.ticks], [_plain(label) for _, label in chart.y.ticks])
    axes.set_xlabel(chart.x.words)
    axes.set_title(_plain(chart.title), loc="left")
    axes.grid(axis="y", color="#e3e6e6")
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.legend(frameon=False, fontsize="small")
    picture = io.BytesIO()
    figure.savefig(picture, format="png", metadata={"Software": "ftui"})
    return picture.getvalue()


def _draw(axes: Any, chart: Chart, number: int, line: ChartLine) -> None:
    alone = len(chart.lines) == 1
    color = COLORS[number % len(COLORS)]
    if chart.has_band:
        for at, group in enumerate(unbroken(line.parts, lambda part: part.low is not None)):
            lows, highs = [part.low for part in group], [part.high for part in group]
            words = "_" if at else "lowest to highest step"
            axes.fill_between([part.last for part in group], lows, highs, color=BAND, linewidth=0, label=words)
    for at, group in enumerate(unbroken(line.parts, lambda part: part.average is not None)):
        words = "_" if at else chart.words if alone else _plain(line.name)
        values = [part.average for part in group]
        axes.plot(
            [part.last for part in group], values, color=color, linestyle=STYLES[number % len(STYLES)], label=words
        )
    if line.evaluations:
        places, losses = zip(*line.evaluations, strict=True)
        edge = EVALUATION if alone else color
        words = "evaluations" if number == 0 else "_"
        axes.plot(
            places, losses, "D", markerfacecolor="white", markeredgecolor=edge, markersize=5, clip_on=False, label=words
        )
    if line.checkpoints and alone:
        feet = [chart.y.low] * len(line.checkpoints)
        axes.plot(line.checkpoints, feet, "^", color=CHECKPOINT, markersize=6, clip_on=False, label="checkpoints")


def _plain(text: str) -> str:
    """Text in which matplotlib sees no formula."""
    return shown(text).replace("$", r"\$")
