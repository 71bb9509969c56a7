"""Prompts of a file and their answers, those of two sides beside each other: read from a file, or asked now."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import ClassVar

from textual.binding import Binding, BindingType

from ftui.errors import DataError, FtuiError, NonFiniteError
from ftui.helper.chat_session import ChatSession
from ftui.helper.client import Helper
from ftui.launch.answering_sides import AnsweringPlan, plan_answering
from ftui.launch.prompt_file import PromptLine, Question, find_answers, read_prompts_and_answers
from ftui.launch.transcript import add_exchange, describe_exchange, new_transcript

from ..drawing.answer_lines import answer_screen, answers_title
from ..key_table import Meaning, step_keys
from ..render.spans import Frame, Line, paragraph
from ..stage import stage
from ..state.answer_list import Asked, make_list
from .canvas_screen import ListScreen

PAGE = 10


class AnswersScreen(ListScreen[None]):
    """Asks what is not answered yet, as soon as it is open; what `out` holds of the same weights is not asked again.

    `helper`: of the screen below, which has the model in memory.
    """

    HEADING = "answers side by side"
    LEGEND: ClassVar = {
        "signs": "{alive} answered, {best} the answers differ, {cursor} being answered, {idle} not yet, ! refused",
        "words": "marked where the other side has none of them in that place",
    }
    CANVASES: ClassVar[Sequence[str]] = ("title", "body")
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "ask", "ask", tooltip="Ask what is not answered yet", id="ask"),
        Binding("n", "next_difference(1)", "next differing", tooltip="The next prompt whose answers differ", id="next"),
        Binding("N", "next_difference(-1)", "last differing", show=False, tooltip="The one before", id="before"),
        Binding("pagedown,space", f"scroll({PAGE})", "scroll", key_display="pgdn", tooltip="Down", id="page-down"),
        Binding("pageup", f"scroll(-{PAGE})", "page up", show=False, tooltip="Up in the answers", id="page-up"),
        *step_keys("move", "prompt"),
        Binding("escape,backspace,q", "leave", "back", key_display="esc", tooltip="Stop; otherwise back", id="back"),
    ]  # fmt: skip

    def __init__(self, question: Question, helper: Helper | None = None) -> None:
        super().__init__()
        self._question = question
        self._asked: list[Asked] = []
        self._helper, self._is_lent = helper or Helper(question.allow), helper is not None
        self._session: ChatSession | None = None
        self._out = question.out or new_transcript(question.whom.run)
        self._doing, self._problem, self._top = "", "", 0
        self._is_asking = self._is_stopping = False

    def on_mount(self) -> None:
        self.action_ask()

    def on_unmount(self) -> None:
        self._is_stopping = True
        if self._is_asking and self._session is not None:
            with suppress(FtuiError):  # nobody is here to be told; training goes on after most_seconds anyway
                self._session.stop()
        if not self._is_lent:
            self._helper.close()  # in the middle of an answer too

    @property
    def hidden_keys(self) -> Collection[str]:
        """Nothing is to be asked while something is, or once all is answered."""
        return ("ask",) if self._is_asking or (self._asked and not self._unanswered()) else ()

    @property
    def key_meanings(self) -> Mapping[str, Meaning]:
        """What escape does."""
        return {"back": ("stop", "Stop asking; what is answered stays")} if self._is_asking else {}

    def line_ids(self) -> Sequence[object]:
        return range(len(self._asked))

    def _unanswered(self) -> list[Asked]:
        return [one for one in self._asked if not one.is_answered and not one.problem]

    # -- asking

    def action_ask(self) -> None:
        if not self._is_asking:
            self._is_asking, self._is_stopping, self._problem = True, False, ""
            self.run_worker(self._ask_and_tell(), group="ask", exclusive=True)
            self.draw()

    async def _ask_and_tell(self) -> None:
        try:
            if not self._asked:
                await asyncio.to_thread(self._read)
                self.draw()
            if self._unanswered():
                if self._session is None:
                    self._session = await asyncio.to_thread(self._open, asyncio.get_running_loop())
                for one in self._unanswered():
                    if not self._is_stopping:
                        await self._ask(self._session, one)
        except FtuiError as error:
            if not self._asked:
                self._problem = f"{error.message} {error.hint}".strip()
            elif self.is_attached:
                stage(self).complain(error)
        finally:
            self._is_asking, self._doing = False, ""
            self.draw()

    def _read(self) -> None:
        """What is to be asked, of whom, and what is answered already."""
        question = self._question
        lines = read_prompts_and_answers(question.prompts)
        asked = make_list(lines)
        if all(isinstance(line, PromptLine) for line in lines):
            prompts = ((one.prompt, one.system) for one in asked)
            kept = find_answers(self._out, prompts, question.whom.run, self._plan.sides, question.sampling)
            for one, line in zip(asked, kept, strict=True):
                if line is not None:
                    one.take(line)
        self._asked = asked

    @cached_property  # all bytes of the weights are read for it
    def _plan(self) -> AnsweringPlan:
        return plan_answering(self._question.whom, self._question.sampling.max_new_tokens)

    def _open(self, loop: asyncio.AbstractEventLoop) -> ChatSession:
        if self._plan.reason:
            loop.call_soon_threadsafe(stage(self).note, self._plan.reason)
        return self._plan.open(self._helper, lambda detail: loop.call_soon_threadsafe(self._tell, detail))

    async def _ask(self, session: ChatSession, one: Asked) -> None:
        """One conversation of one turn; what was stopped in the middle is no answer."""
        loop, question = asyncio.get_running_loop(), self._question
        one.is_asked, one.sides = True, [side.title for side in session.sides]
        self._tell("answering")
        session.restart(one.system)
        try:
            answers = await asyncio.to_thread(
                session.say, one.prompt, question.sampling,
                lambda texts: loop.call_soon_threadsafe(self._hear, one, texts),
            )  # fmt: skip
        except (DataError, NonFiniteError) as error:  # the template refuses this one, say
            one.forget()
            one.problem = error.message
            return
        except FtuiError:
            one.forget()
            raise
        if self._is_stopping:
            one.forget()
            return
        exchange = describe_exchange(question.whom.run.name, session, one.prompt, answers, question.sampling)
        one.take(exchange)
        add_exchange(self._out, exchange, run=None if question.out else question.whom.run)
        self.draw()

    def _hear(self, one: Asked, texts: Sequence[str]) -> None:
        if one.is_asked:
            one.answers = texts
            self.draw()

    def _tell(self, detail: str) -> None:
        self._doing = detail
        self.draw()

    # -- keys

    def action_leave(self) -> None:
        if self._is_asking and not self._is_stopping:
            self._is_stopping = True
            self._tell("stopping")
            try:
                if self._session is not None:
                    self._session.stop()
            except FtuiError as error:  # a full disk takes no request
                stage(self).complain(error)
        elif len(self.app.screen_stack) > 1:
            self.app.pop_screen()
        else:
            stage(self).leave([])

    def action_move(self, by: int) -> None:
        self._top = 0
        super().action_move(by)

    def action_next_difference(self, by: int) -> None:
        number = len(self._asked)
        ways = ((self.cursor + by * step) % number for step in range(1, number + 1))
        if (found := next((at for at in ways if self._asked[at].differs), None)) is not None:
            self.action_move(found - self.cursor)

    def action_scroll(self, by: int) -> None:
        self._top = max(0, self._top + by)
        self.draw()

    # -- drawing

    def draw(self) -> None:
        if self.is_attached:
            stage(self).draw_keys()
            question, asked, doing = self._question, self._asked, self._doing
            where = " to ".join(path.name for path in (question.prompts, question.out) if path is not None)
            self.show(
                title=lambda frame: answers_title(frame, question.whom.run.name, asked, where, doing), body=self._body
            )

    def _body(self, frame: Frame) -> list[Line]:
        if self._problem:
            return paragraph(self._problem, frame.width, "bad")
        if not self._asked:
            return [[(" reading the prompts ...", "muted")]]
        lines, self._top = answer_screen(frame, self._asked, self.cursor, self._top)
        return lines
