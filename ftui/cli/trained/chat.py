"""`ftui chat RUN`: talk with what a run has trained, and with its base or another checkpoint beside it."""

import sys
from collections.abc import Sequence
from contextlib import suppress
from threading import Thread

from ftui.cli.trained.answering import AnsweringOptions, answering
from ftui.errors import FINISHED, FtuiError
from ftui.helper.chat_facts import ChatAnswer
from ftui.helper.chat_session import ChatSession
from ftui.launch.transcript import add_exchange, describe_exchange, new_transcript
from ftui.runs.requests import SamplingKeys
from ftui.runs.run_folder import Run
from ftui.text import complaint, shown

HELP = (
    "Ctrl-C stops an answer, /new begins again, /system TEXT sets a system prompt, /tokens shows probabilities, /quit."
)


def chat(options: AnsweringOptions, system: str | None) -> int:
    """Read lines, answer each, until the input ends; the transcript is in the run's folder chats/.

    Raises:
        FtuiError: see `answering`.
    """
    with answering(options) as (run, session, sampling):
        session.restart(system)
        facts = session.facts
        sides = " and ".join(side.title for side in session.sides)
        print(f"{run.name}: {sides}, {facts.precision} on {shown(facts.device)}")
        if not facts.is_chat:
            print("It has no chat template: it goes on with your text.")
        print(HELP, flush=True)
        Conversation(run, session, sampling).read_lines()
    return FINISHED


class Conversation:
    """The lines of a person and the answers, on a terminal or through pipes."""

    def __init__(self, run: Run, session: ChatSession, sampling: SamplingKeys) -> None:
        self._run, self._session, self._sampling = run, session, sampling
        self._file = new_transcript(run)
        self._last: Sequence[ChatAnswer] = ()
        self._was_stopped = False

    def read_lines(self) -> None:
        """Answer until the input ends."""
        while True:
            try:
                line = input("> " if sys.stdin.isatty() else "")
            except EOFError:
                return
            except KeyboardInterrupt:
                print()
                continue
            word, _, rest = line.strip().partition(" ")
            if word == "/quit":
                return
            if word in ("/new", "/system"):
                self._session.restart(rest.strip() or None if word == "/system" else None)
                print("A new conversation.", flush=True)
            elif word == "/tokens":
                self._print_tokens()
            elif line.strip():
                self._answer(line)

    def _answer(self, text: str) -> None:
        try:
            self._last = self._say(text)
        except FtuiError as error:  # the template refuses a system prompt, say: the conversation goes on
            print(complaint(error.message, error.hint), file=sys.stderr, flush=True)
            return
        exchange = describe_exchange(self._run.name, self._session, text, self._last, self._sampling)
        try:
            add_exchange(self._file, exchange, run=self._run)
        except FtuiError as error:
            print(complaint(error.message, error.hint), file=sys.stderr, flush=True)
        for answer in exchange.answers if len(exchange.answers) > 1 else ():
            print(f"{answer.of}: {shown(answer.text.strip(), newlines=True)}")
        for answer in exchange.answers:
            if not answer.is_complete and not self._was_stopped:
                print(f"({answer.of} was cut off after {answer.num_tokens} tokens)")
        if self._session.voice.cost:
            print(f"({self._session.voice.cost})")
        sys.stdout.flush()

    def _say(self, text: str) -> list[ChatAnswer]:
        """One side is printed as it speaks; Ctrl-C ends its answer, not the conversation."""
        results: list[ChatAnswer | FtuiError] = []
        self._was_stopped = False
        printed = ""

        def print_more(texts: list[str]) -> None:
            nonlocal printed
            if len(texts) == 1 and texts[0].startswith(printed):
                sys.stdout.write(shown(texts[0][len(printed) :], newlines=True))
                sys.stdout.flush()
                printed = texts[0]

        def work() -> None:
            try:
                results.extend(self._session.say(text, self._sampling, print_more))
            except FtuiError as error:
                results.append(error)

        thread = Thread(target=work)
        thread.start()
        while thread.is_alive():
            try:
                thread.join()
            except KeyboardInterrupt:
                self._stop()
        answers = [result for result in results if isinstance(result, ChatAnswer)]
        if len(answers) < len(results):
            raise next(result for result in results if isinstance(result, FtuiError))
        print_more([answer.text for answer in answers])
        print()
        return answers

    def _stop(self) -> None:
        self._was_stopped = True
        try:
            self._session.stop()
        except FtuiError as error:  # a full disk takes no request
            print(complaint(error.message, error.hint), file=sys.stderr, flush=True)

    def _print_tokens(self) -> None:
        """Each token of the last answers with its probability, and what else was likely."""
        for side, answer in zip(self._session.sides, self._last, strict=False):
            print(side.title)
            for token in answer.tokens:
                others = ", ".join(f"{shown(text)!r} {share:.0%}" for text, share in token.likeliest)
                print(f"  {token.probability:6.1%}  {shown(token.text)!r:20} {others}")
        with suppress(BrokenPipeError):
            sys.stdout.flush()
