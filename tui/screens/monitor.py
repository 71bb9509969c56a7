"""The live view of one run: watch it, steer it, leave it alone.

The screens that it opens are loaded when they are first asked for: the first frame must not wait for them.
"""

import asyncio
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.screen import Screen
from textual.timer import Timer

from ftui.errors import DiskError, FtuiError
from ftui.runs.curve_window import read_window
from ftui.runs.curves import Curves
from ftui.runs.requests import Continue, Pause, ControlRequest, Set
from ftui.runs.run_folder import Run
from ftui.runs.send_request import REQUESTS, parse_setting

from ..drawing.charts.loss_chart import ChartSettings, Scale, chart, panned, smoother, zoomed
from ..drawing.header import header
from ..drawing.panes import pane
from ..drawing.tiles import tiles
from ..render.canvas import Canvas
from ..stage import stage
from ..state.run_view import RunView
from .monitor_keys import BINDINGS, LEGEND, NEEDS_ENGINE, NEEDS_NO_ENGINE, QUESTIONS, SETTINGS_QUESTION

FINE_BYTES = 16 << 20  # of metrics.jsonl that a zoomed chart may read: about 30,000 steps, a third of a second
FAILURES = ("failed", "lost")
GOES_ON = {"resume": "goes on", "attach": "lives already", "start": "starts"}
"""What r does to a run that does not live, by what would happen."""


class MonitorScreen(Screen[None]):
    """Shows what the run's files say; every control is a letter, and its fate is shown."""

    HEADING = "a run"
    LEGEND = LEGEND
    BINDINGS: ClassVar[list[BindingType]] = BINDINGS

    def __init__(self, run: Run) -> None:
        super().__init__()
        self._run = run
        self.settings = ChartSettings()
        self._scale = Scale()
        self._fine: Curves | None = None
        self._shows_log = False
        self._timer: Timer | None = None
        self._has_told = False
        self._hidden: frozenset[str] = frozenset()

    def compose(self) -> ComposeResult:
        look = stage(self).look
        for name in ("header", "chart", "tiles", "pane", "keys"):
            yield Canvas(look, id=name)

    def on_mount(self) -> None:
        self.run_view = RunView(self._run, stage(self).clock)
        self._draw()
        stage(self).draw_keys()
        self._timer = self.set_interval(1 / stage(self).terminal.hz, self.tick)
        self._tell_of_failure()

    def on_screen_suspend(self) -> None:
        if self._timer is not None:
            self._timer.pause()

    def on_screen_resume(self) -> None:
        if self._timer is not None:
            self._timer.resume()
            self.tick()
        stage(self).draw_keys()

    def tick(self) -> None:
        """Look at the files; what has not changed is not painted (`Canvas` sees to that)."""
        try:
            self.run_view.look()
        except OSError as error:  # a volume that is away for a moment: what is known stays on the screen
            stage(self).say(f"The files of {self._run.name} cannot be read: {error}.", "bad")
            return
        self._draw()
        if self.hidden_keys != self._hidden:
            self._hidden = self.hidden_keys
            stage(self).draw_keys()
        self._tell_of_failure()

    def _tell_of_failure(self) -> None:
        """Once for each time the run fails."""
        failed = self.run_view.has_ended and self.run_view.state.phase in FAILURES
        if failed and not self._has_told:
            self.action_why()
        self._has_told = failed

    def _draw(self) -> None:
        run_view = self.run_view
        status, state = run_view.status, run_view.state
        show = {name: self.query_one(f"#{name}", Canvas).show for name in ("header", "chart", "tiles", "pane")}
        show["header"](lambda frame: header(frame, run_view.run.name, status, run_view.card, run_view.clock()))
        show["chart"](
            lambda frame: chart(
                frame, run_view.curves, run_view.history, state, self.settings, self._scale, fine=self._fine
            )
        )
        show["tiles"](lambda frame: tiles(frame, state, run_view.curves, list(run_view.machine.samples)))
        events, lines, request = run_view.history.events, run_view.log.lines, run_view.requests.newest
        show["pane"](lambda frame: pane(frame, events, lines, request, show_log=self._shows_log))

    @property
    def hidden_keys(self) -> frozenset[str]:
        """What the footer leaves out: controls while nobody would read a letter, resume while somebody would."""
        if self.run_view.is_running:
            return NEEDS_NO_ENGINE
        return NEEDS_ENGINE | NEEDS_NO_ENGINE if self.run_view.state.phase == "finished" else NEEDS_ENGINE

    # -- controls

    def action_order(self, verb: str) -> None:
        """Send a letter; what ends the run is asked first."""
        kind = REQUESTS[verb]
        if verb not in QUESTIONS:
            self._give(kind, {})
            return
        from .dialogs import ConfirmScreen

        question, yes = QUESTIONS[verb]

        def answered(said_yes: bool | None) -> None:
            if said_yes:
                self._give(kind, {})

        self.app.push_screen(ConfirmScreen(stage(self).look, question.format(self._run.name), yes), answered)

    def action_hold(self) -> None:
        self._give(Continue if self.run_view.state.phase == "held" else Pause, {})

    def action_change(self, text: str) -> None:
        from .dialogs import PromptScreen

        def entered(answer: str | None) -> None:
            if answer:
                self._give(Set, settings_in(answer))

        look = stage(self).look
        self.app.push_screen(PromptScreen(look, SETTINGS_QUESTION, text, settings_in, enter="send"), entered)

    def _give(self, kind: type[ControlRequest], fields: dict[str, object]) -> None:
        try:
            self.run_view.send(kind, fields)
        except FtuiError as error:
            stage(self).complain(error)
        self._draw()

    def action_resume(self) -> None:
        if self.run_view.is_running:
            stage(self).say(f"{self._run.name} lives; space goes on with a run that is held.")
            return
        stage(self).say(f"{self._run.name} is being started again ...", "loss")
        self.run_worker(self._resume(), exclusive=True)

    async def _resume(self) -> None:
        from ..state.launch_plan import LaunchOptions, carry_out, plan_launch  # pydantic, which watching does without

        def go_on() -> str:
            options = LaunchOptions(run=self._run)
            plan = plan_launch(options)
            if plan.act in GOES_ON:
                carry_out(options, plan)
            return plan.act

        try:
            act = await asyncio.to_thread(go_on)
        except FtuiError as error:
            stage(self).complain(error)
        except OSError as error:
            stage(self).complain(DiskError(f"{self._run.name} cannot be opened: {error}."))
        else:
            words = GOES_ON.get(act, "has finished; n on the list of runs starts another one")
            stage(self).say(f"{self._run.name} {words}.", "good")

    # -- what is shown

    def action_pane(self) -> None:
        self._shows_log = not self._shows_log
        self._draw()

    def action_log(self) -> None:
        from .log import LogScreen

        self.app.push_screen(LogScreen(self._run))

    def action_why(self) -> None:
        from .problem import ProblemScreen

        self.app.push_screen(ProblemScreen(self.run_view, self.action_resume))

    def action_checkpoints(self) -> None:
        from .checkpoints import CheckpointsScreen

        self.app.push_screen(CheckpointsScreen(self._run))

    def action_zoom(self, factor: float) -> None:
        self._set(zoomed(self.settings, self.run_view.state, factor))

    def action_pan(self, share: float) -> None:
        self._set(panned(self.settings, self.run_view.state, share))

    def action_all(self) -> None:
        self._set(ChartSettings(log=self.settings.log, smoothing=self.settings.smoothing))

    def action_smooth(self, by: int) -> None:
        self._set(smoother(self.settings, by))

    def action_log_axis(self) -> None:
        self._set(ChartSettings(not self.settings.log, self.settings.window, self.settings.smoothing))

    def _set(self, settings: ChartSettings) -> None:
        moved = settings.window != self.settings.window
        self.settings = settings
        if moved:
            self._fine = self._look_closer()
        self._draw()

    def _look_closer(self) -> Curves | None:
        """The exact steps of the window, where the curves hold them only in bunches."""
        if self.settings.window is None:
            return None
        first, last = self.settings.window
        return read_window(self._run, self.run_view.curves, int(first), int(last) + 1, most_bytes=FINE_BYTES)

    def action_detach(self) -> None:
        name, run_view = self._run.name, self.run_view
        goes_on = f"The run {name} goes on." if run_view.goes_on else f"{name} is {run_view.state.phase}."
        stage(self).leave([goes_on, f"  attach again   ftui attach {name}", f"  look           ftui status {name}"])

    def action_back(self) -> None:
        """To the list, also when the live view was opened first."""
        from .runs import RunsScreen  # it opens live views itself

        if any(isinstance(screen, RunsScreen) for screen in self.app.screen_stack):
            self.app.pop_screen()
        else:
            self.app.push_screen(RunsScreen())


def settings_in(text: str) -> dict[str, object]:
    """`key=value` words as the fields of a `set` letter.

    Raises:
        UsageError: one of them cannot be set.
    """
    return dict(parse_setting(word) for word in text.split())
