"""One sweep: its trials, rungs, the curves of its leaders, parallel coordinates, importance; live while it searches."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from textual.binding import Binding, BindingType

from ftui.errors import FtuiError, UsageError
from ftui.sweep.results.hand_over import write_best
from ftui.sweep.results.importance import Importance, ask_importance, judged_rung
from ftui.sweep.results.sweep_results import ResultRow, SweepView, leader_points, view_sweep
from ftui.sweep.stop_sweep import STOPPED, continue_sweep, pause_sweep, stop_sweep
from ftui.sweep.sweep_files import SweepFiles
from ftui.sweep.wake_sweeps import wake

from ...drawing.charts.axes import Scale
from ...drawing.sweeps.importance_view import importance_view
from ...drawing.sweeps.leader_curves import MOST_LEADERS, LeaderCurve, curves_view
from ...drawing.sweeps.parallel_coordinates import coordinates_view
from ...drawing.sweeps.rungs_view import rungs_view
from ...drawing.sweeps.trial_table import VIEWS, sweep_title, trial_details, trial_table
from ...key_table import CURSOR_KEYS, LEAVE, Meaning
from ...render.spans import Frame, Line
from ...stage import stage
from ..canvas_screen import ListScreen
from ..dialogs import confirm, prompt

GO_ON = ("go on", "Ask and promote trials again")


@dataclass(frozen=True)
class SweepLook:
    """What was read of a sweep."""

    view: SweepView
    leaders: Sequence[LeaderCurve]


@dataclass
class ShownImportance:
    """The newest importance, and of how many values at which rung it is. `problem`: why there is none."""

    of: tuple[int, int] | None = None
    found: Importance | None = None
    problem: str = ""


@dataclass
class SweepSettings:
    """What the keys change: the view, the rung of the coordinates, whether curves are logarithmic."""

    view: int = 0
    rung: int = 0
    log: bool = False
    scale: Scale = field(default_factory=Scale)


class SweepScreen(ListScreen[None]):
    """The cursor is on a trial in every view, whose details stand below."""

    HEADING = "a sweep"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open", "run", tooltip="Watch the run of this trial", id="open"),
        Binding("v", "view(1)", "view", tooltip="Trials, rungs, curves, coordinates, importance", id="view"),
        Binding("V", "view(-1)", "view before", show=False, tooltip="The view before", id="view-before"),
        *(
            Binding(str(at + 1), f"show({at})", name, show=False, tooltip=f"Show {name}", id=f"show-{name}")
            for at, name in enumerate(VIEWS)
        ),
        Binding("r", "rung", "rung", tooltip="Coordinates by the values at another rung", id="rung"),
        Binding("l", "log_axis", "log y", tooltip="Curves linear or logarithmic", id="log-axis"),
        Binding("c", "compare", "compare", tooltip="The runs of the leaders beside each other", id="compare"),
        Binding("b", "best", "best", tooltip="Write the profile of the best trial", id="best"),
        Binding("p", "pause", "pause", tooltip="No new trials; those on their way go on to their rung", id="pause"),
        Binding("x", "stop", "stop", tooltip="End the search now, park what is running; asks first", id="stop"),
        *CURSOR_KEYS,
        LEAVE,
    ]
    refresh_seconds = 2.0

    def __init__(self, files: SweepFiles) -> None:
        super().__init__()
        self._files = files
        self._look: SweepLook | None = None
        self._settings = SweepSettings()
        self._importance = ShownImportance()

    def on_mount(self) -> None:
        self.tick()

    # -- looking

    def tick(self) -> None:
        self.look_again(self._read)

    async def _read(self) -> None:
        try:
            self._look = await asyncio.to_thread(look_at_sweep, self._files)
        except (FtuiError, OSError) as error:  # it is tried again in a moment: no dialog
            stage(self).note(f"{self._files.name} cannot be read: {error}", "bad")
            return
        self.follow_cursor()
        self.draw()
        self._ask_importance()

    def _ask_importance(self) -> None:
        """Compute it where it is looked at and there are new values; one at a time."""
        if self._look is None or VIEWS[self._settings.view] != "importance":
            return
        view = self._look.view
        of = judged_rung(view.plan, view.ladder, view.state)
        if of != self._importance.of:
            self._importance.of = of
            self.run_worker(self._compute_importance(view), group="importance", exclusive=True)

    async def _compute_importance(self, view: SweepView) -> None:
        try:
            self._importance.found = await asyncio.to_thread(ask_importance, view)
            self._importance.problem = ""
        except FtuiError as error:
            self._importance.problem = f"{error.message} {error.hint}".rstrip()
        self.draw()

    @property
    def row(self) -> ResultRow | None:
        """The trial under the cursor."""
        return self._look.view.rows[self.cursor] if self._look is not None and self._look.view.rows else None

    def line_ids(self) -> Sequence[object]:
        return [] if self._look is None else [row.trial.number for row in self._look.view.rows]

    @property
    def key_meanings(self) -> Mapping[str, Meaning]:
        """What p does now."""
        state = None if self._look is None else self._look.view.state
        return {"pause": GO_ON} if state is not None and (state.is_paused or state.ended) else {}

    @property
    def hidden_keys(self) -> set[str]:
        """Keys of other views, and of a search that has ended."""
        name = VIEWS[self._settings.view]
        hidden = {"rung"} if name != "coordinates" else set()
        hidden |= {"log-axis"} if name != "curves" else set()
        ended = "" if self._look is None else self._look.view.state.ended
        return hidden | ({"stop"} if ended else set()) | ({"pause"} if ended and ended != STOPPED else set())

    def draw(self) -> None:
        look, settings, row, cursor = self._look, self._settings, self.row, self.cursor
        view = None if look is None else look.view
        stage(self).draw_keys()
        self.show(
            title=lambda frame: sweep_title(frame, self._files.name, view, settings.view),
            body=lambda frame: self._body(frame, look, cursor),
            details=lambda frame: trial_details(frame, view, row),
        )

    def _body(self, frame: Frame, look: SweepLook | None, cursor: int) -> list[Line]:
        if look is None:
            return [[], [("  Reading ...", "muted")]]
        settings, view, chosen = self._settings, look.view, None if self.row is None else self.row.trial.number
        match VIEWS[settings.view]:
            case "rungs":
                return rungs_view(frame, view, chosen)
            case "curves":
                return curves_view(frame, view, look.leaders, settings.scale, log=settings.log)
            case "coordinates":
                return coordinates_view(frame, view, settings.rung, chosen)
            case "importance":
                return importance_view(frame, view, self._importance.found, self._importance.problem)
        return trial_table(frame, view, cursor)

    # -- what is shown

    def action_view(self, by: int) -> None:
        self.action_show((self._settings.view + by) % len(VIEWS))

    def action_show(self, at: int) -> None:
        self._settings.view = at
        self.draw()
        self._ask_importance()

    def action_rung(self) -> None:
        if self._look is not None:
            self._settings.rung = (self._settings.rung + 1) % len(self._look.view.ladder.rungs)
            self.draw()

    def action_log_axis(self) -> None:
        self._settings.log = not self._settings.log
        self.draw()

    def action_open(self) -> None:
        if (row := self.row) is None:
            return
        run = self._files.run_of(row.trial.number)
        if run.facts.exists():
            stage(self).open_run(run)
        else:
            stage(self).say(f"{run.name} has no folder: it was not started yet, or somebody removed it.", "warn")

    def action_compare(self) -> None:
        from .compare import CompareScreen

        runs = [self._files.run_of(leader.row.trial.number) for leader in (self._look.leaders if self._look else ())]
        runs = [run for run in runs if run.facts.exists()]
        if len(runs) < 2:
            stage(self).say("A comparison takes two trials that have come to a rung.", "warn")
        else:
            self.app.push_screen(CompareScreen(runs))

    # -- changing

    def action_best(self) -> None:
        prompt(self, "The file to write the best trial's profile to", f"{self._files.name}-best.toml", _new_file,
               lambda path: self.change(lambda: self._write_best(path)))  # fmt: skip

    def _write_best(self, path: Path) -> str:
        write_best(view_sweep(self._files), path)
        return f"{path}: ftui run {path}"

    def action_pause(self) -> None:
        if "pause" not in self.hidden_keys:
            self.change(self._go_on if "pause" in self.key_meanings else self._pause)

    def _pause(self) -> str:
        pause_sweep(self._files)
        return f"{self._files.name} is paused: trials on their way go on to their rung."

    def _go_on(self) -> str:
        continue_sweep(self._files)
        wake(self._files)
        return f"{self._files.name} goes on."

    def action_stop(self) -> None:
        question = f"End the search {self._files.name} now? Trials that are running are parked; p lets it go on later."
        confirm(self, question, "end it", lambda: self.change(self._stop))

    def _stop(self) -> str:
        parked = stop_sweep(self._files)
        return f"{self._files.name} is stopped" + (f"; parked: {', '.join(parked)}." if parked else ".")


def look_at_sweep(files: SweepFiles) -> SweepLook:
    """Read a sweep and what its leaders' runs were evaluated to; its process is started where it is needed.

    Raises:
        ProfileError: somebody has edited its copies, and they are wrong now.
        OSError: the journal cannot be read.
    """
    wake(files)
    view = view_sweep(files)
    rows = [row for row in view.rows if row.rank is not None][:MOST_LEADERS]
    return SweepLook(view, [LeaderCurve(row, leader_points(view, row)) for row in rows])


def _new_file(text: str) -> Path:
    path = Path(text.strip()).expanduser()
    if not text.strip():
        raise UsageError("Give a file.")
    if path.exists():
        raise UsageError(f"{path} exists.", hint="Name a file that does not.")
    return path
