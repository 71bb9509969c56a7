"""Two to six runs beside each other: their curves, and what differs between them."""

import asyncio
from collections.abc import Sequence
from typing import ClassVar

from msgspec.structs import replace
from textual.binding import Binding, BindingType

from ftui.errors import FtuiError
from ftui.reports.run_curves import AXES, Axis, read_run_curves
from ftui.reports.run_differences import check_number, compare
from ftui.reports.run_record import read_records
from ftui.reports.smoothing import SMOOTHINGS
from ftui.runs.run_folder import Run
from ftui.runs.status import is_running

from ...drawing.charts.axes import Scale
from ...drawing.many.comparison_view import (
    TITLES,
    ComparedRuns,
    CompareSettings,
    comparison_view,
    num_hidden,
    table_lines,
)
from ...key_table import BACK, SCROLL_KEYS
from ...render.spans import Frame, Line
from ...stage import stage
from ..canvas_screen import CanvasScreen


class CompareScreen(CanvasScreen[None]):
    """The runs are read by a thread, again while one of them is running."""

    HEADING = "the comparison of runs"
    CANVASES: ClassVar[Sequence[str]] = ("body",)
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("x", "axis(1)", "axis", tooltip="Over steps, epochs, target tokens, time or money", id="axis"),
        Binding("X", "axis(-1)", "axis before", show=False, tooltip="The axis before", id="axis-before"),
        Binding("y", "measure(1)", "curve", tooltip="Draw another curve: gradient norm, accuracy ...", id="curve"),
        Binding("Y", "measure(-1)", "curve before", show=False, tooltip="The curve before", id="curve-before"),
        Binding("l", "log_axis", "log y", tooltip="Linear or logarithmic", id="log-axis"),
        Binding("left_square_bracket", "smooth(-1)", "less smooth", tooltip="Smooth less", id="rougher"),
        Binding("right_square_bracket", "smooth(1)", "smoother", tooltip="Smooth more", id="smoother"),
        *SCROLL_KEYS,
        BACK,
    ]
    refresh_seconds = 10.0

    def __init__(self, runs: Sequence[Run]) -> None:
        super().__init__()
        self._runs = list(runs)
        self._compared: ComparedRuns | None = None
        self._settings = CompareSettings()
        self._scale = Scale()
        self._is_reading = False

    def on_mount(self) -> None:
        self._look()

    def tick(self) -> None:
        """Read again what may have gone on."""
        if self._compared is None or any(is_running(record.status) for record in self._compared.records):
            self._look()

    def _look(self) -> None:
        if not self._is_reading:
            self._is_reading = True
            self.run_worker(self._read(), group="read")

    async def _read(self) -> None:
        try:
            self._compared = await asyncio.to_thread(read_compared, self._runs)
        except FtuiError as error:
            stage(self).complain(error)
            return
        except OSError as error:  # it is tried again in a moment
            stage(self).note(f"Not all runs can be read: {error}.", "bad")
            return
        finally:
            self._is_reading = False
        self.draw()

    def draw(self) -> None:
        compared, settings, scale = self._compared, self._settings, self._scale

        def paint(frame: Frame) -> list[Line]:
            if compared is None:
                return [[], [("  Reading the runs ...", "muted")]]
            return comparison_view(frame, compared, settings, scale)

        self.show(body=paint)

    def action_axis(self, by: int) -> None:
        """The next axis that one of the runs has."""
        if self._compared is None:
            return
        known: list[Axis] = [axis for axis in AXES if any(axis in c.positions for c in self._compared.curves)]
        if not known:
            stage(self).say("No step has been taken yet.", "warn")
            return
        at = known.index(self._settings.axis) if self._settings.axis in known else 0
        axis = known[(at + by) % len(known)]
        self._change(replace(self._settings, axis=axis))
        missing = [
            c.run.name
            for c, p in zip(self._compared.records, self._compared.curves, strict=True)
            if axis not in p.positions
        ]
        if missing:
            stage(self).say(f"{TITLES[axis].capitalize()} is not known of {', '.join(missing)}.", "warn")

    def action_measure(self, by: int) -> None:
        if self._compared is None:
            return
        names = list(dict.fromkeys(name for curve in self._compared.curves for name in curve.measures()))
        if names:
            at = names.index(self._settings.measure) if self._settings.measure in names else 0
            self._change(replace(self._settings, measure=names[(at + by) % len(names)]))

    def action_log_axis(self) -> None:
        self._change(replace(self._settings, log=not self._settings.log))

    def action_smooth(self, by: int) -> None:
        smoothing = min(max(0, self._settings.smoothing + by), len(SMOOTHINGS) - 1)
        self._change(replace(self._settings, smoothing=smoothing))

    def action_scroll(self, by: int) -> None:
        if self._compared is None:
            return
        height = self.size.height - 1
        frame = Frame(self.size.width, height, stage(self).look.glyphs)
        most = num_hidden(height, len(table_lines(frame, self._compared.comparison)), len(self._runs))
        self._change(replace(self._settings, top=max(0, min(most, self._settings.top + by))))

    def _change(self, settings: CompareSettings) -> None:
        self._settings = settings
        self.draw()


def read_compared(runs: Sequence[Run]) -> ComparedRuns:
    """Their records and curves; it takes seconds where they are long.

    Raises:
        FtuiError: they are too many or too few, or one cannot be read.
    """
    check_number(len(runs))
    records = read_records(list(runs))
    curves = [read_run_curves(record) for record in records]
    return ComparedRuns(records, curves, compare(records, curves))
