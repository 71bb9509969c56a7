"""Asks a process that has the training libraries, for processes that do not load them (screens and commands).

`ftui.engine.services.server` starts with the first request and stays for the next ones.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import msgspec

from ftui.errors import FtuiError
from ftui.helper.protocol import STOP, Request, Response
from ftui.profile.consent import check_remote_code
from ftui.profile.schema import Profile
from ftui.profile.serialize import to_toml
from ftui.supervisor.engine_process import clean_environment
from ftui.system.scratch import make_scratch

COMMAND = [sys.executable, "-P", "-m", "ftui.engine.services.server"]
LAST_LINES = 5
INTERRUPT_SECONDS = 10.0  # until an interrupted process is killed: it removes what it has half written

OnDetail = Callable[[str], object]


class Helper:
    """One such process. It answers one request after the other; any thread may ask.

    `close()` ends it. So does the end of this process, and five minutes without a request. `allow` may hold
    `remote-code`: the model's own Python code may run in it.
    """

    def __init__(self, allow: Collection[str] = ()) -> None:
        self._allow = allow
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._folder = Path()  # of the process: its temporary files, and what it prints
        self._last_id = 0
        self._is_closed = False

    def ask(
        self, method: str, *, deadline_seconds: float | None = None, on_detail: OnDetail | None = None, **params: Any
    ) -> Any:
        """The answer, as plain values. The first one takes 3 s and more, while libraries are loaded.

        A `Profile` among the parameters is sent as TOML, if the code that its model brings may run. `on_detail` is
        called in this thread with the progress. Whoever gives up (Ctrl-C, the deadline) ends the process.

        Raises:
            FtuiError: the answer was a problem, the deadline passed, or the process died: then with its last lines.
        """
        if (profile := params.get("profile")) is not None:
            assert isinstance(profile, Profile), "a text would pass by the consent"
            check_remote_code(profile, self._allow)
            params["profile"] = to_toml(profile)
        with self._lock:
            was_running = self._process is not None and self._process.poll() is None
            try:
                return self._exchange(method, params, deadline_seconds, on_detail)
            except (BrokenPipeError, EOFError):  # it may have waited five minutes for this request, and ended just now
                if not was_running:
                    raise self._death() from None
            try:
                return self._exchange(method, params, deadline_seconds, on_detail)
            except (BrokenPipeError, EOFError):
                raise self._death() from None

    def _exchange(
        self, method: str, params: dict[str, Any], deadline_seconds: float | None, on_detail: OnDetail | None
    ) -> Any:
        process, is_late = self._start(), threading.Event()

        def give_up() -> None:
            is_late.set()  # before the kill: whoever sees the process gone must see why
            _kill(process)

        timer = None if deadline_seconds is None else threading.Timer(deadline_seconds, give_up)
        if timer is not None:
            timer.start()
        try:
            return self._receive(process, self._send(process, method, params), on_detail)
        except (BrokenPipeError, EOFError):
            if is_late.is_set():
                self._end()  # until it is gone, the next request would be sent to it
                raise FtuiError(f"There was no answer within {deadline_seconds:g} s ({method}).") from None
            raise
        except FtuiError:
            raise
        except BaseException:  # nobody waits for the answer any more, and it must not be taken for the next one
            self._end(INTERRUPT_SECONDS)
            raise
        finally:
            if timer is not None:
                timer.cancel()

    def _send(self, process: "subprocess.Popen[bytes]", method: str, params: dict[str, Any]) -> int:
        assert process.stdin is not None, "it is a pipe"
        self._last_id += 1
        process.stdin.write(msgspec.json.encode(Request(self._last_id, method, params)) + b"\n")
        process.stdin.flush()
        return self._last_id

    def _receive(self, process: "subprocess.Popen[bytes]", number: int, on_detail: OnDetail | None) -> Any:
        assert process.stdout is not None, "it is a pipe"
        while (line := process.stdout.readline()).endswith(b"\n"):  # the process died in the middle of half a line
            response = msgspec.json.decode(line, type=Response)
            if response.id != number:
                continue
            if response.problem is not None:
                raise response.problem.error()
            if response.detail is None:
                return response.answer
            if on_detail is not None:
                on_detail(response.detail)
        _kill(process)  # it may have been killed, and what it has started be at work
        raise EOFError

    def _start(self) -> "subprocess.Popen[bytes]":
        if self._is_closed:
            raise FtuiError("Nobody waits for the answer any more.")
        if self._process is not None and self._process.poll() is None:
            return self._process
        self._end()
        self._folder = make_scratch("helper")
        with (self._folder / "output").open("wb") as output:
            self._process = subprocess.Popen(
                [*COMMAND, str(self._folder)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                env=clean_environment() | {"TMPDIR": str(self._folder)},
                start_new_session=True,  # Ctrl-C is not meant for it
            )
        return self._process

    def _death(self) -> FtuiError:
        """What to say of a process that ended without an answer."""
        if self._is_closed:
            return FtuiError("Nobody waits for the answer any more.")
        text = (self._folder / "output").read_text(errors="backslashreplace").rstrip()
        return FtuiError("The helper process ended:\n" + "\n".join(text.split("\n")[-LAST_LINES:]))

    def _end(self, patience_seconds: float = 0.0) -> None:
        """End the process: at once, or after it was given time to end by itself (its input has ended)."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None and process.stdout is not None, "both are pipes"
        with contextlib.suppress(BrokenPipeError):  # half a request may be left in it
            process.stdin.close()
        if patience_seconds:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(patience_seconds)
        _kill(process)
        process.wait()
        process.stdout.close()
        shutil.rmtree(self._folder, ignore_errors=True)  # a worker of the process may write there for a moment more

    def stop(self) -> None:
        """Let the answer in progress, if it can, end with what there is of it; any thread may call this."""
        process = self._process
        if process is not None and process.stdin is not None:
            with contextlib.suppress(BrokenPipeError, ValueError):  # it has ended meanwhile
                process.stdin.write(STOP)
                process.stdin.flush()

    def interrupt(self) -> None:
        """End it in the middle of an answer, but let it remove what it has half written; see `close`."""
        self._is_closed = True
        if (process := self._process) is not None and process.stdin is not None:
            with contextlib.suppress(BrokenPipeError, ValueError):  # it has ended meanwhile
                process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(INTERRUPT_SECONDS)
        self.close()

    def close(self) -> None:
        """End it at once, in the middle of an answer too: whoever waits for that gets an error."""
        self._is_closed = True
        if (process := self._process) is not None:
            _kill(process)
        with self._lock:  # the request in progress ends at once: the process is gone, and no other one is started
            self._end()


def _kill(process: "subprocess.Popen[bytes]") -> None:
    """End a helper and what it has started (the command of a push), which are a process group."""
    if process.returncode is None:  # until then its number is its own, though it may have ended
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
