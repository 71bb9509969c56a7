"""A chart as SVG: no script, no style, no outside reference; all text escaped. Sizes are in pixels of its view box."""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from xml.sax.saxutils import escape, quoteattr

from ftui.reports.charts import Chart, ChartLine
from ftui.reports.run_curves import CurvePart
from ftui.text import shown

WIDTH, HEIGHT = 860, 300
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 34, 44
LEGEND_ROW = 18
COLORS = ("#1463b8", "#a85b00", "#157a42", "#6a45c4", "#b0286f", "#c22b22")
"""Of six lines: each is told from the others by its dashes, too."""
DASHES = ("", "8 3", "2 3", "10 3 2 3", "5 2", "1 2")
BAND, GRID, FAINT, TEXT, EVALUATION, CHECKPOINT = "#b9cfe8", "#e3e6e6", "#626a75", "#2a3140", "#a85b00", "#157a42"
DIAMOND = "m0 -4.5l4.5 4.5l-4.5 4.5l-4.5 -4.5z"
FONT = "system-ui, sans-serif"


def draw_svg(chart: Chart, *, width: int = WIDTH, height: int = HEIGHT) -> str:
    """An `<svg>` element that stands for itself, as a file or within a page."""
    legend = _legend(chart)
    total = height + LEGEND_ROW * len(legend)
    plot = _Plot(chart, width, height)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {total}" width="{width}" height="{total}"'
        f' role="img" font-family={quoteattr(FONT)} font-size="12">',
        f"<title>{text_of(chart.title)}</title>",
        f'<rect width="{width}" height="{total}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="20" font-size="14" font-weight="600" fill="{TEXT}">{text_of(chart.title)}</text>',
        *plot.grid(),
        *(part for number, line in enumerate(chart.lines) for part in plot.line(number, line)),
        *(row for at, entry in enumerate(legend) for row in _legend_row(entry, height + LEGEND_ROW * at + 10)),
        "</svg>",
    ]
    return "\n".join(parts)


def text_of(text: str) -> str:
    """Foreign text within an element: nothing in it is markup, and no control character is left."""
    return escape(shown(text))


class _Plot:
    """Places values in the picture."""

    def __init__(self, chart: Chart, width: int, height: int) -> None:
        self._chart, self._width, self._height = chart, width, height

    def x(self, value: float) -> str:
        return f"{LEFT + self._chart.x.place(value) * (self._width - LEFT - RIGHT):.1f}"

    def y(self, value: float) -> str:
        return f"{TOP + (1 - self._chart.y.place(value)) * (self._height - TOP - BOTTOM):.1f}"

    def grid(self) -> Iterator[str]:
        """Lines and numbers of both axes."""
        right, bottom = self._width - RIGHT, self._height - BOTTOM
        for value, label in self._chart.y.ticks:
            y = self.y(value)
            yield f'<line x1="{LEFT}" y1="{y}" x2="{right}" y2="{y}" stroke="{GRID}"/>'
            yield f'<text x="{LEFT - 8}" y="{y}" dy="4" text-anchor="end" fill="{FAINT}">{text_of(label)}</text>'
        for value, label in self._chart.x.ticks:
            x = self.x(value)
            yield f'<line x1="{x}" y1="{bottom}" x2="{x}" y2="{bottom + 5}" stroke="{FAINT}"/>'
            yield f'<text x="{x}" y="{bottom + 19}" text-anchor="middle" fill="{FAINT}">{text_of(label)}</text>'
        yield f'<line x1="{LEFT}" y1="{bottom}" x2="{right}" y2="{bottom}" stroke="{FAINT}"/>'
        words = text_of(self._chart.x.words)
        yield f'<text x="{right}" y="{bottom + 36}" text-anchor="end" fill="{FAINT}">{words}</text>'

    def line(self, number: int, line: ChartLine) -> Iterator[str]:
        """The range of a line's steps, its average, its marks."""
        color = COLORS[number % len(COLORS)]
        dash = DASHES[number % len(DASHES)]
        if self._chart.has_band:
            for group in unbroken(line.parts, lambda part: part.low is not None):
                upper = [f"{self.x(part.last)},{self.y(part.high)}" for part in group if part.high is not None]
                lower = [f"{self.x(part.last)},{self.y(part.low)}" for part in group if part.low is not None]
                yield f'<polygon points="{" ".join([*upper, *reversed(lower)])}" fill="{BAND}"/>'
        for group in unbroken(line.parts, lambda part: part.average is not None):
            points = " ".join(f"{self.x(p.last)},{self.y(p.average)}" for p in group if p.average is not None)
            dashes = f' stroke-dasharray="{dash}"' if dash else ""
            yield f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="1.8"{dashes}/>'
        alone = len(self._chart.lines) == 1
        for at, value in line.evaluations:
            stroke = EVALUATION if alone else color
            yield f'<path d="M{self.x(at)} {self.y(value)}{DIAMOND}" fill="#ffffff" stroke="{stroke}"/>'
        for at in line.checkpoints if alone else ():
            yield f'<path d="M{self.x(at)} {self._height - BOTTOM - 8}l4 7h-8z" fill="{CHECKPOINT}"/>'


def unbroken(parts: Sequence[CurvePart], has_value: Callable[[CurvePart], bool]) -> Iterator[list[CurvePart]]:
    """The stretches in which every part has a value: no line leads across what was not measured."""
    for there, group in groupby(parts, has_value):
        if there:
            yield list(group)


Entry = tuple[str, str, str, str]
"""What is drawn (line, band, evaluation, checkpoint), its color, its dashes, its words."""


def _legend(chart: Chart) -> list[Entry]:
    if len(chart.lines) > 1:
        entries = [("line", COLORS[n % 6], DASHES[n % 6], line.name) for n, line in enumerate(chart.lines)]
        marked = any(line.evaluations for line in chart.lines)
        return [*entries, *([("evaluation", FAINT, "", "evaluations")] if marked else [])]
    (line,) = chart.lines
    entries = [("line", COLORS[0], "", chart.words)]
    if chart.has_band:
        entries.append(("band", BAND, "", "lowest to highest step"))
    if line.evaluations:
        entries.append(("evaluation", EVALUATION, "", "evaluations"))
    if line.checkpoints:
        entries.append(("checkpoint", CHECKPOINT, "", "checkpoints"))
    return entries


def _legend_row(entry: Entry, y: int) -> Iterator[str]:
    kind, color, dash, words = entry
    match kind:
        case "line":
            dashes = f' stroke-dasharray="{dash}"' if dash else ""
            yield f'<line x1="{LEFT}" y1="{y}" x2="{LEFT + 28}" y2="{y}" stroke="{color}" stroke-width="2"{dashes}/>'
        case "band":
            yield f'<rect x="{LEFT}" y="{y - 5}" width="28" height="10" fill="{color}"/>'
        case "evaluation":
            yield f'<path d="M{LEFT + 14} {y}{DIAMOND}" fill="#ffffff" stroke="{color}"/>'
        case _:
            yield f'<path d="M{LEFT + 14} {y - 4}l4 7h-8z" fill="{color}"/>'
    yield f'<text x="{LEFT + 36}" y="{y}" dy="4" fill="{TEXT}">{text_of(words)}</text>'
