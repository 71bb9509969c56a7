"""Talk with what a run has trained, beside its base where that is wished."""

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Input

from ftui.errors import FtuiError
from ftui.helper.chat_facts import ChatAnswer
from ftui.helper.chat_session import BASE, ChatSession
from ftui.helper.client import Helper
from ftui.launch.answering_sides import Addressee, plan_answering
from ftui.launch.prompt_file import Question, check_file
from ftui.launch.transcript import Exchange, add_exchange, describe_exchange, new_transcript
from ftui.runs.requests import SamplingKeys
from ftui.runs.run_folder import Run
from ftui.runs.status import is_running, read_status

from ..drawing.chat_lines import Said, conversation_lines, conversation_title, token_lines
from ..key_table import Meaning
from ..render.canvas import Canvas
from ..render.spans import Frame, Line, paragraph
from ..stage import stage
from .canvas_screen import CanvasScreen

PAGE = 10
SYSTEM = "/system"


class ChatScreen(CanvasScreen[None]):
    """A line of input below the conversation. `checkpoint`: which one answers; otherwise final/, or the newest."""

    HEADING = "a conversation"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+o", "beside", "base", key_display="^o", tooltip="The base beside it, or not", id="beside"),
        Binding("ctrl+t", "tokens", "tokens", key_display="^t", tooltip="How likely each token was", id="tokens"),
        Binding("ctrl+f", "file", "file", key_display="^f", tooltip="Ask the prompts of a file", id="file"),
        Binding("ctrl+n", "restart", "new", key_display="^n", tooltip="Begin again", id="new"),
        Binding("ctrl+g", "engine", "engine", key_display="^g", tooltip="The run itself answers, or not", id="engine"),
        Binding("pageup", f"scroll(-{PAGE})", "page up", show=False, tooltip=f"{PAGE} lines up", id="page-up"),
        Binding("pagedown", f"scroll({PAGE})", "page down", show=False, tooltip=f"{PAGE} lines down", id="page-down"),
        Binding("left", "token(-1)", "left", show=False, tooltip="The token before", id="left", priority=True),
        Binding("right", "token(1)", "right", show=False, tooltip="The next token", id="right", priority=True),
        Binding("escape", "leave", "back", key_display="esc", tooltip="End the answer; otherwise back", id="back"),
    ]  # fmt: skip

    def __init__(self, run: Run, checkpoint: str | None = None) -> None:
        super().__init__()
        self._run, self._checkpoint, self._against = run, checkpoint, ""
        self._through: str | None = None
        self._helper = Helper()
        self._session: ChatSession | None = None
        self._doing, self._problem = "starting ...", ""
        self._reason = ""  # why it is this one that answers, and what that costs
        self._said: list[Said] = []
        self._last: list[ChatAnswer] = []
        self._system: str | None = None
        self._is_answering = self._was_stopped = self._shows_tokens = False
        self._cursor = self._up = 0
        self._transcript = new_transcript(run)

    def compose(self) -> ComposeResult:
        look = stage(self).look
        yield Canvas(look, id="title")
        yield Canvas(look, id="body")
        field = Input(compact=True, id="entry", placeholder="what you say")
        field.cursor_blink = False  # 2 kB/s over the wire otherwise
        yield field
        yield Canvas(look, id="keys")

    def on_mount(self) -> None:
        self.query_one(Input).focus()
        self._open()

    def on_unmount(self) -> None:
        if self._is_answering and self._session is not None:
            with suppress(FtuiError):  # nobody is here to be told; training goes on after most_seconds anyway
                self._session.stop()
        self._helper.close()  # in the middle of its work too

    @property
    def key_meanings(self) -> dict[str, Meaning]:
        """What escape does."""
        return {"back": ("stop", "End the answer here")} if self._is_answering else {}

    # -- what answers

    def _open(self) -> None:
        self._session, self._problem, self._doing = None, "", "loading ..."
        self._show_tokens(is_shown=False)
        self.run_worker(self._load(), group="chat", exclusive=True)
        self.draw()

    async def _load(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            plan = await asyncio.to_thread(plan_answering, self._addressee())  # which reads all bytes of the weights
            session = await asyncio.to_thread(
                plan.open, self._helper, lambda detail: loop.call_soon_threadsafe(self._tell, detail)
            )
        except FtuiError as error:
            self._problem = f"{error.message} {error.hint}".strip()
        else:
            session.restart(self._system)
            self._session, self._said, self._last = session, [], []
            self._reason = plan.reason
        self._doing = ""
        if self.is_attached:
            self.draw()

    def _addressee(self) -> Addressee:
        return Addressee(self._run, self._checkpoint, self._against or None, through=self._through)

    def _tell(self, detail: str) -> None:
        self._doing = detail
        if self.is_attached:
            self.draw()

    # -- talking

    def type_ahead(self, character: str) -> None:
        """Take a key that was pressed before the line of input could have it."""
        self.call_later(lambda: self.query_one(Input).insert_text_at_cursor(character))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        text = event.value.strip()
        if not text or self._session is None or self._is_answering:
            return
        event.input.clear()
        word, _, rest = text.partition(" ")
        if word == SYSTEM:
            self._restart(rest.strip() or None)
            return
        self._is_answering, self._was_stopped, self._up = True, False, 0
        self._said.append(Said(text, ["" for _ in self._session.sides], [False for _ in self._session.sides]))
        self.run_worker(self._answer(self._session, text), group="answer")
        stage(self).draw_keys()
        self.draw()

    async def _answer(self, session: ChatSession, text: str) -> None:
        loop, sampling = asyncio.get_running_loop(), SamplingKeys()
        try:
            answers = await asyncio.to_thread(
                session.say, text, sampling, lambda texts: loop.call_soon_threadsafe(self._hear, texts)
            )
        except FtuiError as error:
            self._said.pop()
            if self.is_attached:
                stage(self).complain(error)
        else:
            cut = [not a.is_complete and not self._was_stopped for a in answers]
            self._said[-1] = Said(text, [a.text for a in answers], cut)
            self._last, self._cursor = answers, 0
            self._keep(describe_exchange(self._run.name, session, text, answers, sampling))
            if session.voice.cost and self.is_attached:
                stage(self).say(f"{session.voice.cost}.")
        finally:
            self._is_answering = False
            if self.is_attached:
                stage(self).draw_keys()
                self.draw()

    def _keep(self, exchange: Exchange) -> None:
        try:
            add_exchange(self._transcript, exchange, run=self._run)
        except FtuiError as error:  # a full disk, say: the conversation goes on
            if self.is_attached:
                stage(self).complain(error)

    def _hear(self, texts: list[str]) -> None:
        if self._is_answering and self.is_attached:
            self._said[-1].answers = texts
            self.draw()

    # -- keys

    def action_leave(self) -> None:
        if self._is_answering and self._session is not None:
            self._was_stopped = True
            try:
                self._session.stop()
            except FtuiError as error:  # a full disk takes no request
                stage(self).complain(error)
        elif self._shows_tokens:
            self.action_tokens()
        else:
            self.app.pop_screen()

    def action_restart(self) -> None:
        self._restart(self._system)

    def _restart(self, system: str | None) -> None:
        if self._session is not None and not self._is_answering:
            self._system, self._said, self._last = system, [], []
            self._show_tokens(is_shown=False)
            self._session.restart(system)
            self.draw()

    def action_file(self) -> None:
        from .answers import AnswersScreen  # which loads difflib
        from .dialogs import prompt

        def show(path: Path) -> None:
            question = Question(self._addressee(), path)
            self.app.push_screen(AnswersScreen(question, self._helper))

        if not self._is_answering:
            prompt(self, "A file of prompts, or of answers (JSON lines, or a prompt a line)", "", check_file, show)

    def action_beside(self) -> None:
        if not self._is_answering:
            self._against = "" if self._against else BASE
            if self._said:
                beside = "with the base beside it" if self._against else "without the base"
                stage(self).say(f"A new conversation begins, {beside}.")
            self._open()

    def action_engine(self) -> None:
        if not self._is_answering:
            if self._through is None and not is_running(read_status(self._run)):
                stage(self).say(f"{self._run.name} is not running: it cannot answer itself.")
                return
            self._through = None if self._through else "engine"
            self._open()

    def action_tokens(self) -> None:
        self._show_tokens(is_shown=not self._shows_tokens and bool(self._last))
        self.draw()

    def _show_tokens(self, *, is_shown: bool) -> None:
        """The line of input takes no keys while left and right move among the tokens."""
        entry = self.query_one(Input)
        self._shows_tokens = entry.disabled = is_shown
        if not is_shown:
            entry.focus()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Left and right are keys of the line of input, but where tokens are looked at."""
        return self._shows_tokens if action == "token" else True

    def action_token(self, by: int) -> None:
        self._cursor = max(0, min(self._cursor + by, len(self._last[0].tokens) - 1))
        self.draw()

    def action_scroll(self, by: int) -> None:
        self._up = max(0, self._up - by)
        self.draw()

    # -- drawing

    def draw(self) -> None:
        session, system = self._session, self._system or ""
        names = [] if session is None else [side.title for side in session.sides]
        where = "" if session is None else f"{session.facts.precision} on {session.facts.device}"
        self.show(title=lambda frame: conversation_title(frame, self._run.name, names, where, system), body=self._body)

    def _body(self, frame: Frame) -> list[Line]:
        if self._problem:
            return paragraph(self._problem, frame.width, "bad")
        if self._session is None:
            return [[(f" {self._doing}", "muted")]]
        if self._shows_tokens:
            return token_lines(frame, self._last[0].tokens, self._cursor)
        if not self._said:
            kind = "Say something." if self._session.facts.is_chat else "It goes on with your text: no chat template."
            return [*paragraph(self._reason, frame.width, "muted"), [(f" {kind}", "muted")]]
        lines = conversation_lines(frame, [side.title for side in self._session.sides], self._said)
        end = max(min(len(lines), frame.height), len(lines) - self._up)
        return lines[max(0, end - frame.height) : end]
