"""A process that answers what only the training libraries know, for those that do not load them (the screens).

`ftui.engine.services.helper` is started with the first question and stays; questions and answers are lines of JSON on
its pipes.
"""

import contextlib
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from typing import IO, Any

import msgspec

from ftui.errors import FtuiError, error_with
from ftui.supervisor.process_tree import clean_environment

LAST_LINES = 5
COMMAND = [sys.executable, "-P", "-m", "ftui.engine.services.helper"]


class Asked(msgspec.Struct, frozen=True):
    """A question: its kind (engine/services/helper.py lists them) and what it is about."""

    id: int
    ask: str
    given: dict[str, Any]


class Problem(msgspec.Struct, frozen=True):
    message: str
    hint: str
    exit_code: int


class Answered(msgspec.Struct, frozen=True):
    """What came of the question with that id: an answer or a problem; before it, how far it is (`detail`)."""

    id: int
    answer: Any = None
    problem: Problem | None = None
    detail: str | None = None


class Helper:
    """One such process. Questions are answered one after the other; any thread may ask.

    `close()` ends it; so does the end of this process, and five minutes without a question.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._output: IO[bytes] | None = None  # what it prints, for the error when it dies
        self._last_id = 0
        self._is_closed = False

    def ask(self, question: str, *, on_detail: Callable[[str], object] | None = None, **given: Any) -> Any:
        """The answer, as plain values. Waits for it: 5 s and more for the first, while libraries are loaded.

        `on_detail` is told how far it is, in this thread.

        Raises:
            FtuiError: the helper's own, or that it died.
        """
        with self._lock:
            self._check_open()
            try:
                return self._asked(question, given, on_detail)
            except (BrokenPipeError, EOFError):  # it had ended before the question came: it waits five minutes
                self._end()
            self._check_open()
            try:
                return self._asked(question, given, on_detail)
            except (BrokenPipeError, EOFError) as error:
                self._check_open()
                raise FtuiError(f"The helper process ended:\n{self._last_words()}") from error

    def _check_open(self) -> None:
        if self._is_closed:
            raise FtuiError("Nobody waits for the answer any more.")

    def _asked(self, question: str, given: dict[str, Any], on_detail: Callable[[str], object] | None) -> Any:
        process = self._started()
        assert process.stdin is not None and process.stdout is not None, "both are pipes"
        self._last_id += 1
        process.stdin.write(msgspec.json.encode(Asked(self._last_id, question, given)) + b"\n")
        process.stdin.flush()
        while (line := process.stdout.readline()).endswith(b"\n"):  # half a line is one that it died in
            answered = msgspec.json.decode(line, type=Answered)
            if answered.id != self._last_id:
                continue
            if answered.detail is not None:
                if on_detail is not None:
                    on_detail(answered.detail)
                continue
            if answered.problem is not None:
                told = answered.problem
                raise error_with(told.exit_code, told.message, told.hint)
            return answered.answer
        raise EOFError

    def _started(self) -> "subprocess.Popen[bytes]":
        if self._process is not None and self._process.poll() is None:
            return self._process
        self._end()
        self._output = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            COMMAND,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._output,
            env=clean_environment(),
            start_new_session=True,  # Ctrl-C is not meant for it
        )
        return self._process

    def _last_words(self) -> str:
        assert self._output is not None, "it was started"
        self._output.seek(0)
        return "\n".join(self._output.read().decode(errors="backslashreplace").rstrip().split("\n")[-LAST_LINES:])

    def _end(self) -> None:
        process, output = self._process, self._output
        self._process = self._output = None
        if process is None or output is None:
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout, output):
            with contextlib.suppress(BrokenPipeError):  # half a question may be left in it
                pipe.close()  # type: ignore[union-attr]

    def close(self) -> None:
        """End it at once, in the middle of an answer too: whoever waits for that gets an error."""
        self._is_closed = True
        if (process := self._process) is not None:
            process.kill()
        with self._lock:  # its question ends at once: the process is gone, and no other one is started
            self._end()
