"""The live view of one run: watch it, control it, leave it alone.

The screens that it opens are loaded when they are first asked for: the first frame must not wait for them.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import ClassVar

from msgspec.structs import replace
from textual.binding import Binding, BindingType
from textual.events import Key

from ftui.errors import DiskError, FtuiError
from ftui.runs.curve_window import read_window
from ftui.runs.curves import Curves
from ftui.runs.requests import Abort, Continue, ControlRequest, Pause, Set, Stop
from ftui.runs.run_folder import Run
from ftui.runs.send_request import REQUESTS, end_push, parse_setting
from ftui.runs.state import ended_badly, phase_word, red_alarms
from ftui.runs.status import is_running, only_pushes, read_status

from ..drawing.charts.loss_chart import (
    ChartSettings,
    Scale,
    change_measure,
    change_smoothing,
    chart,
    first_measure,
    pan,
    zoom,
)
from ..drawing.header import header
from ..drawing.panes import Shows, next_pane, pane
from ..drawing.rank_lines import has_ranks, rank_lines
from ..drawing.tiles import tiles
from ..key_table import Meaning
from ..stage import stage
from ..state.run_view import RunView
from .canvas_screen import CanvasScreen

FINE_BYTES = 33 << 20  # of metrics.jsonl that a zoomed chart may read: two segments, since a part may lie across both
OUTCOMES = {"resume": "resumes", "attach": "is running already", "start": "starts"}
"""What r does to a run that is not running, by what would happen."""

PAUSE = "Pause the run and keep its GPU memory"
CONTINUE = ("continue", "Continue the paused run")
QUIT = ("quit", "Leave ftui")
FACTOR = "The planned learning rate times a factor, from now on"
LEGEND = {
    "loss chart": "dim dots: lowest to highest loss; bright line: the loss smoothed (debiased EMA); "
    "a dim line before it: the loss of the run it is a child of",
    "ranks": "the time of each in a step, over the last ten: passes, waiting for rows, waiting for others and sending; "
    "the slowest is marked",
    "signs": "evaluation {evaluation}  best {best}  checkpoint {checkpoint}  epoch {epoch}  attempt {attempt}",
}
"""What its help tells of the chart."""

NEEDS_ENGINE = frozenset({"pause", "park", "save", "stop", "evaluate", "lr", "change"})
ENDING_SECONDS = 10.0  # a run says how it ended a moment before its processes are gone
NEEDS_NO_ENGINE = frozenset({"resume"})

QUESTIONS = {
    "park": ("Park {}? It saves a checkpoint, frees the GPU and leaves. r continues from there.", "park it"),
    "stop": ("Stop {}? It saves a checkpoint, writes final/ and ends. `ftui resume` can continue it.", "stop it"),
    "abort": ("Abort {}? It ends at once; what came after the newest checkpoint is lost.", "abort it"),
}

SETTINGS_QUESTION = (
    "Change the run from its next step on: learning_rate_factor, max_steps, save_steps, eval_steps, logging_steps, "
    "each as key=value; decay=linear lets the learning rate fall to 0 by the end."
)


class MonitorScreen(CanvasScreen[None]):
    """Shows what the run's files say; each control key sends a request, and what becomes of it is shown."""

    HEADING = "a run"
    LEGEND = LEGEND
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space,h", "pause", "pause", key_display="space", tooltip=PAUSE, id="pause"),
        Binding("p", "request('park')", "park", tooltip="Save, free the GPU, leave; r resumes it later", id="park"),
        Binding("s", "request('checkpoint')", "save", tooltip="Save a checkpoint now, and keep it for good", id="save"),
        Binding("x", "request('stop')", "stop", tooltip="Save, write final/ and end the run", id="stop"),
        Binding("c", "checkpoints", "checkpoints", tooltip="The checkpoints of this run", id="checkpoints"),
        Binding("a", "rollouts", "answers", tooltip="The answers it learns from, and their rewards", id="rollouts"),
        Binding("r", "resume", "resume", tooltip="Resume a run that is not running", id="resume"),
        Binding("e", "request('evaluate')", "evaluate", tooltip="Evaluate now (extra)", id="evaluate"),
        Binding("f", "change('learning_rate_factor=0.5')", "lr", tooltip=FACTOR, id="lr"),
        Binding(
            "m", "change('max_steps=')", "change", tooltip="Change max_steps or save, eval, log steps", id="change"
        ),
        Binding("y", "measure(1)", "curve", tooltip="Draw another curve: accuracy, margin, rewards ...", id="curve"),
        Binding("Y", "measure(-1)", "curve before", show=False, tooltip="The curve before", id="curve-before"),
        Binding("l", "log_axis", "log y", tooltip="Linear or logarithmic loss axis", id="log-axis"),
        Binding("z", "zoom(0.5)", "zoom", tooltip="Half the steps, around the newest", id="zoom-in"),
        Binding("left_square_bracket", "smooth(-1)", "less smooth", show=False, tooltip="Smooth less", id="rougher"),
        Binding("right_square_bracket", "smooth(1)", "smoother", show=False, tooltip="Smooth more", id="smoother"),
        Binding("v", "pane", "log", tooltip="Events, what the engine printed, the ranks", id="pane"),
        Binding("b", "blame", "blame", tooltip="Which rows are behind a step, and which are never learned", id="blame"),
        Binding("Z", "zoom(2.0)", "zoom out", show=False, tooltip="Twice the steps", id="zoom-out"),
        Binding("left", "pan(-0.25)", "earlier", show=False, tooltip="A quarter back", id="earlier"),
        Binding("right", "pan(0.25)", "later", show=False, tooltip="A quarter on", id="later"),
        Binding("0", "all", "all steps", show=False, tooltip="All steps of the run", id="all"),
        Binding("L", "log", "whole log", show=False, tooltip="All the engine printed, to scroll through", id="log"),
        Binding("w", "why", "why", show=False, tooltip="How it ended or stands, and its last lines", id="why"),
        Binding("X", "request('abort')", "abort", show=False, tooltip="End the run at once; saves nothing", id="abort"),
        Binding("escape,backspace", "back", "runs", show=False, tooltip="To the list of runs", id="runs"),
        Binding("q", "detach", "detach", tooltip="Leave ftui; the run keeps running", id="back"),
    ]
    CANVASES: ClassVar[Sequence[str]] = ("header", "chart", "tiles", "pane")

    def __init__(self, run: Run) -> None:
        super().__init__()
        self._run = run
        self.settings = ChartSettings()
        self._has_measure = False
        self._scale = Scale()
        self._fine: Curves | None = None
        self._shows: Shows = "events"
        self._has_shown_failure = False
        self._told: tuple[str, ...] | None = None

    def on_mount(self) -> None:
        self.run_view = RunView(self._run, stage(self).clock)
        self.refresh_seconds = 1 / stage(self).terminal.hz

    def tick(self) -> None:
        """Look at the files; what has not changed is not painted (`Canvas` sees to that)."""
        try:
            has_news = self.run_view.look()
        except OSError as error:  # a volume that is away for a moment: what is known stays on the screen
            stage(self).note(f"The files of {self._run.name} cannot be read: {error}.", "bad")
            return
        if has_news:
            self.draw()
            stage(self).draw_keys()
        else:
            self._draw_header()
        self._show_countdown()
        self._show_failure()
        self._call()

    def _call(self) -> None:
        """Call for whoever looks elsewhere when the run ends, is paused or has another red alarm."""
        view, before = self.run_view, self._told
        state = view.state
        stands = state.phase if view.has_ended or state.phase == "held" else ""
        self._told = (stands, *red_alarms(state))
        if before is not None and (news := [word for word in self._told if word and word not in before]):
            stage(self).call(self._run.name, ", ".join(phase_word(word) for word in news))

    def _show_countdown(self) -> None:
        """Any key keeps a machine that the run is about to stop (`on_key`)."""
        stop = self.run_view.state.machine_stop
        left = None if stop is None else stop.seconds_left(self.run_view.clock())
        if left is not None:
            stage(self).note(f"This machine is stopped in {left:.0f} s: any key keeps it.", "bad")

    def on_key(self, event: Key) -> None:
        stop = self.run_view.state.machine_stop
        if stop is not None and stop.seconds_left(self.run_view.clock()):
            event.stop()
            event.prevent_default()
            self._keep()

    def _keep(self) -> None:
        from ftui.hooks.keep_machine import keep_machine

        try:
            stage(self).note(keep_machine(self._run), "good")
        except FtuiError as error:
            stage(self).complain(error)

    def _show_failure(self) -> None:
        """Once for each time the run fails."""
        failed = self.run_view.has_ended and ended_badly(self.run_view.state)
        if failed and not self._has_shown_failure:
            self.action_why()
        self._has_shown_failure = failed

    def _draw_header(self) -> None:
        """What changes with the time of day, too."""
        view, status = self.run_view, self.run_view.status
        self.show(header=lambda frame: header(frame, view.run.name, status, view.card, view.clock()))

    def draw(self) -> None:
        view, state, curves = self.run_view, self.run_view.state, self.run_view.curves
        if state.extras and not self._has_measure:
            self._has_measure, self.settings = True, replace(self.settings, measure=first_measure(state))
        settings = self.settings
        events, lines, request = view.history.events, view.log.lines, view.requests.newest
        ranks = partial(rank_lines, ranks=state.ranks, machines=view.machine.machines)
        self._draw_header()
        self.show(
            chart=lambda frame: chart(frame, curves, view.history, state, settings, self._scale, fine=self._fine),
            tiles=lambda frame: tiles(frame, state, curves, list(view.machine.samples)),
            pane=lambda frame: pane(frame, events, lines, request, ranks, shows=self._shows),
        )

    @property
    def hidden_keys(self) -> frozenset[str]:
        """What the footer leaves out: controls while no engine would answer, resume while one would."""
        state = self.run_view.state
        others = frozenset() if "reward" in state.extras or state.rollout is not None else frozenset({"rollouts"})
        if self.run_view.is_running:
            return others | NEEDS_NO_ENGINE
        return others | NEEDS_ENGINE | (NEEDS_NO_ENGINE if state.phase == "finished" else frozenset())

    @property
    def key_meanings(self) -> Mapping[str, Meaning]:
        """Space continues a paused run; q detaches from a run only while there is one to detach from."""
        meanings = {}
        if self.run_view.state.phase == "held":
            meanings["pause"] = CONTINUE
        if not self.run_view.keeps_running:
            meanings["back"] = QUIT
        return meanings

    # -- controls

    def action_request(self, verb: str) -> None:
        """Send a control request; what ends the run is asked first."""
        from .dialogs import confirm

        send = partial(self._send, REQUESTS[verb], {})
        if verb in QUESTIONS:
            question, yes = QUESTIONS[verb]
            confirm(self, question.format(self._run.name), yes, send)
        else:
            send()

    def action_pause(self) -> None:
        self._send(Continue if self.run_view.state.phase == "held" else Pause, {})

    def action_change(self, text: str) -> None:
        from .dialogs import prompt

        def send(settings: dict[str, object]) -> None:
            if settings:
                self._send(Set, settings)

        prompt(self, SETTINGS_QUESTION, text, parse_settings, send, enter="send")

    def _send(self, kind: type[ControlRequest], fields: dict[str, object]) -> None:
        if kind in (Stop, Abort) and only_pushes(self.run_view.status):
            end_push(self.run_view.status)
            return stage(self).say(f"The push ends; `ftui push {self._run.name}` goes on with it.")
        try:
            self.run_view.send(kind, fields)
        except FtuiError as error:
            stage(self).complain(error)
        self.draw()

    def action_resume(self) -> None:
        if self.run_view.keeps_running:
            stage(self).say(f"{self._run.name} is running; space continues a paused run.")
            return
        stage(self).note(f"{self._run.name} is being started again ...", "loss")
        self.run_worker(self._resume(), exclusive=True)

    async def _resume(self) -> None:
        # with pydantic, which watching does without
        from ..state.launch_plan import LaunchOptions, carry_out, fitting_options, plan_launch

        def resume() -> str | tuple[str, ...]:
            """What was done; or, of a run with more processes than this machine has GPUs, what to change."""
            deadline = time.monotonic() + ENDING_SECONDS
            while is_running(read_status(self._run)) and time.monotonic() < deadline:
                time.sleep(0.05)
            options = LaunchOptions(run=self._run)
            plan = plan_launch(options)
            if plan.act == "resume" and (changes := fitting_options(options, plan).overrides):
                return changes
            if plan.act in OUTCOMES:
                carry_out(options, plan)
            return plan.act

        try:
            act = await asyncio.to_thread(resume)
        except FtuiError as error:
            stage(self).complain(error)
        except OSError as error:
            stage(self).complain(DiskError(f"{self._run.name} cannot be opened: {error}."))
        else:
            if isinstance(act, tuple):
                return self._propose(act)
            words = OUTCOMES.get(act, "has finished; n on the list of runs starts another one")
            stage(self).say(f"{self._run.name} {words}.", "good")

    def _propose(self, changes: tuple[str, ...]) -> None:
        from .resolved import ResolvedScreen

        self.app.push_screen(ResolvedScreen(run=self._run, overrides=changes))
        stage(self).say("Fewer GPUs here than the run had. enter goes on with these.")

    # -- what is shown

    def action_pane(self) -> None:
        view = self.run_view
        with_ranks = has_ranks(view.state.ranks, view.machine.machines)
        self._shows = next_pane(self._shows, with_ranks=with_ranks, width=self.size.width)
        self.draw()

    def action_log(self) -> None:
        from .log import LogScreen

        self.app.push_screen(LogScreen(self._run))

    def action_why(self) -> None:
        from .problem import ProblemScreen

        self.app.push_screen(ProblemScreen(self.run_view, self.action_resume))

    def action_rollouts(self) -> None:
        from .rollouts.rollout_screen import RolloutsScreen

        self.app.push_screen(RolloutsScreen(self._run))

    def action_checkpoints(self) -> None:
        from .checkpoints import CheckpointsScreen

        self.app.push_screen(CheckpointsScreen(self._run))

    def action_blame(self) -> None:
        from .rows.blame import BlameScreen  # with pydantic, which watching does without

        self.app.push_screen(BlameScreen(self._run))

    def action_zoom(self, factor: float) -> None:
        self._set(zoom(self.settings, self.run_view.state, factor, self.run_view.history.origin))

    def action_pan(self, share: float) -> None:
        self._set(pan(self.settings, self.run_view.state, share))

    def action_all(self) -> None:
        self._set(replace(self.settings, window=None))

    def action_measure(self, by: int) -> None:
        self._scale = Scale()
        self._set(change_measure(self.settings, self.run_view.curves, by))

    def action_smooth(self, by: int) -> None:
        self._set(change_smoothing(self.settings, by))

    def action_log_axis(self) -> None:
        self._set(replace(self.settings, log=not self.settings.log))

    def _set(self, settings: ChartSettings) -> None:
        before, self.settings = self.settings, settings
        if (settings.window, settings.measure) != (before.window, before.measure):
            self._fine = self._look_closer()
        self.draw()

    def _look_closer(self) -> Curves | None:
        """The exact steps of the window, where the curves hold them only in bunches."""
        if self.settings.window is None:
            return None
        first, last = self.settings.window
        return read_window(
            self._run, self.run_view.curves, int(first), int(last) + 1, most_bytes=FINE_BYTES,
            quantity=self.settings.measure,
        )  # fmt: skip

    def action_detach(self) -> None:
        name, run_view = self._run.name, self.run_view
        standing = "keeps running" if run_view.keeps_running else f"is {phase_word(run_view.state.phase)}"
        ways_back = [f"  attach again   ftui attach {name}", f"  look           ftui status {name}"]
        stage(self).leave([f"The run {name} {standing}.", *ways_back])

    def action_back(self) -> None:
        """To the list, also when the live view was opened first."""
        from .runs import RunsScreen  # it opens live views itself

        if any(isinstance(screen, RunsScreen) for screen in self.app.screen_stack):
            self.app.pop_screen()
        else:
            self.app.push_screen(RunsScreen())


def parse_settings(text: str) -> dict[str, object]:
    """`key=value` words as the fields of a `set` request.

    Raises:
        UsageError: one of them cannot be set.
    """
    return dict(parse_setting(word) for word in text.split())
