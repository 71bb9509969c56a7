"""What a run has answered, what it got for it, and how much better that was than its group."""

import asyncio
from collections.abc import Sequence
from typing import ClassVar, get_args

from textual.binding import Binding, BindingType

from ftui.errors import FtuiError
from ftui.rollouts.read_rollouts import NEWEST, Order, SeenGroup, find_groups, rollout_numbers
from ftui.runs.run_folder import Run

from ...drawing.rollouts.group_view import group_screen, rollouts_title
from ...key_table import BACK, step_keys
from ...render.spans import Frame, Line, paragraph
from ...stage import stage
from ..canvas_screen import ListScreen

PAGE = 10
ORDERS: tuple[Order, ...] = get_args(Order)


class RolloutsScreen(ListScreen[None]):
    """Groups of answers: of the newest rollout while the run makes more, of another one, or the best of many."""

    HEADING = "the answers a run learns from"
    LEGEND: ClassVar = {
        "prompts": "the lowest and the highest reward of its answers; dim where all are the same",
        "answers": "its reward, how much better than its group it is (its advantage), and what each function gave",
    }
    CANVASES: ClassVar[Sequence[str]] = ("title", "body")
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("o", "order(1)", "order", tooltip="The rollout's order, best, worst, longest first", id="order"),
        Binding("O", "order(-1)", "order before", show=False, tooltip="The order before", id="order-before"),
        Binding("left", "rollout(-1)", "earlier", key_display="left", tooltip="The rollout before", id="earlier"),
        Binding("right", "rollout(1)", "later", key_display="right", tooltip="The next rollout", id="later"),
        Binding("n", "newest", "newest", tooltip="The newest rollout, as the run makes more", id="newest"),
        Binding("pagedown,space", f"scroll({PAGE})", "scroll", key_display="pgdn", tooltip="Down", id="page-down"),
        Binding("pageup", f"scroll(-{PAGE})", "page up", show=False, tooltip="Up in the answers", id="page-up"),
        *step_keys("move", "prompt"),
        BACK,
    ]
    refresh_seconds = 2.0

    def __init__(self, run: Run) -> None:
        super().__init__()
        self._run = run
        self._order: Order = "newest"
        self._number: int | None = None  # `None`: the newest, whichever that is
        self._numbers: list[int] = []
        self._groups: list[SeenGroup] = []
        self._top, self._problem, self._is_reading, self._has_read = 0, "", False, False

    def on_mount(self) -> None:
        self._read()

    def tick(self) -> None:
        """A new rollout is shown, unless another one or the best ones are looked at."""
        if self._order == "newest" and self._number is None and rollout_numbers(self._run.rollouts) != self._numbers:
            self._read()

    def line_ids(self) -> Sequence[object]:
        return [(one.rollout, one.place) for one in self._groups]

    def _read(self) -> None:
        if not self._is_reading:
            self._is_reading = True
            self.run_worker(self._read_and_show(), group="read")

    async def _read_and_show(self) -> None:
        wanted = self._order, self._number
        try:
            self._numbers, self._groups = await asyncio.to_thread(read_rollouts, self._run, *wanted)
            self._problem = ""
        except FtuiError as error:
            self._numbers, self._groups, self._problem = [], [], f"{error.message} {error.hint}".strip()
        finally:
            self._is_reading, self._has_read = False, True
        self._top = 0
        self.set_cursor(0)
        self.draw()
        if wanted != (self._order, self._number):  # a key was quicker
            self._read()

    # -- keys

    def action_order(self, by: int) -> None:
        self._order = ORDERS[(ORDERS.index(self._order) + by) % len(ORDERS)]
        self._read()

    def action_rollout(self, by: int) -> None:
        numbers = self._numbers
        if not numbers:
            return
        at = numbers.index(self._number) if self._number in numbers else len(numbers) - 1
        if 0 <= at + by < len(numbers):
            self._number = numbers[at + by]
            self._read()

    def action_newest(self) -> None:
        self._order, self._number = "newest", None
        self._read()

    def action_move(self, by: int) -> None:
        self._top = 0
        super().action_move(by)

    def action_scroll(self, by: int) -> None:
        self._top = max(0, self._top + by)
        self.draw()

    # -- drawing

    def draw(self) -> None:
        if not self.is_attached:
            return
        stage(self).draw_keys()
        run, groups, order = self._run.name, self._groups, self._order
        self.show(title=lambda frame: rollouts_title(frame, run, groups, order, self._place), body=self._body)

    @property
    def _place(self) -> str:
        if not self._numbers:
            return ""
        last = self._numbers[-1]
        if self._number is not None:
            return f"rollout {self._number} of {last}"
        return f"rollout {last}, the newest" if self._order == "newest" else f"the newest {NEWEST} rollouts"

    def _body(self, frame: Frame) -> list[Line]:
        if self._problem:
            return paragraph(self._problem, frame.width, "bad")
        if not self._groups:
            return paragraph(NONE_YET if self._has_read else "reading the rollouts ...", frame.width, "muted")
        lines, self._top = group_screen(frame, self._groups, self.cursor, self._top)
        return lines


NONE_YET = "No rollouts yet. A run of stage grpo writes each of them before it trains on it."


def read_rollouts(run: Run, order: Order, number: int | None) -> tuple[list[int], list[SeenGroup]]:
    """The numbers of the rollouts that are there, and the groups asked for.

    Raises:
        FtuiError: there is no such rollout, or one cannot be read.
    """
    numbers = rollout_numbers(run.rollouts)
    return numbers, find_groups(run.rollouts, order, number) if numbers else []
