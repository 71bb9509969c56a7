"""`python -P -m ftui.engine.services.server FOLDER`: answers processes that load no training libraries.

The client is ftui/helper/client.py. A request is a line of JSON on standard input, a response one on standard output
(ftui/helper/protocol.py). The process ends with its input, in the middle of an answer too, and after five minutes
without a request. Then it removes FOLDER, where its temporary files are.
"""

import functools
import os
import queue
import shutil
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType

from ..system.environment import settle_environment

settle_environment()

import msgspec  # noqa: E402

from ftui.errors import FtuiError  # noqa: E402
from ftui.helper.protocol import STOP, Problem, Request, Response  # noqa: E402
from ftui.system.redact import redact  # noqa: E402

from ..system.libraries import import_libraries, quick_imports  # noqa: E402
from .stop_flag import stop_flag  # noqa: E402

IDLE_SECONDS = 300.0
LEAVE_SECONDS = 10.0  # for an interrupted answer to remove what it has half written
PAUSE_SECONDS = 0.1  # between two lines about the progress of an answer

METHODS = {
    "answer_chat": "chat",
    "blame_step": ".ledger.blame_run",
    "check": "check",
    "count_bytes": "count_rows",
    "count_rows": "count_rows",
    "describe_folder": "recognize",
    "evaluate_model": ".evaluation.evaluate_model",
    "export_gguf": ".gguf_files.export_file",
    "first_rows": "rows",
    "list_courses": ".ledger.blame_run",
    "merge": ".merging.merge_run",
    "model_config": "models",
    "open_chat": "chat",
    "probe": "probe",
    "profile_step": "profile_step",
    "push": "push",
    "recognise": "recognize",
    "report": "rows",
    "sample": "rows",
    "search": "rows",
    "simulate": "simulate",
    "split": "split_rows",
    "verify": "verify",
}
"""Each method and the module that has a function of its name, `(on_detail, **params)`: relative to this package."""

NEED_LIBRARIES = {
    ".evaluation.evaluate_model",
    ".gguf_files.export_file",
    ".ledger.blame_run",
    ".merging.merge_run",
    "chat",
    "check",
    "count_rows",
    "probe",
    "profile_step",
    "rows",
    "simulate",
}
"""The modules of METHODS that import the training libraries."""

OnDetail = Callable[[str], None]


def main(arguments: list[str]) -> None:
    """Answer requests until nobody asks any more. `arguments`: the folder for temporary files."""
    folder = Path(arguments[0])
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a script's `ftui ... &` would leave it ignored
    requests, responses = _own_pipes()
    lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    is_free = threading.Event()
    is_free.set()
    threading.Thread(target=_read, args=(requests, lines, is_free, folder), daemon=True).start()
    try:
        while True:
            line = lines.get(timeout=IDLE_SECONDS)
            is_free.clear()
            request = msgspec.json.decode(line, type=Request)
            _send(responses, answer(request, _progress(responses, request.id)))
            is_free.set()
    except (queue.Empty, KeyboardInterrupt, BrokenPipeError):  # nobody asks, or waits, any more
        _leave(folder)


def _own_pipes() -> tuple[int, int]:
    """The pipes, out of reach of all that libraries read and print."""
    requests, responses = os.dup(0), os.dup(1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    return requests, responses


def _read(requests: int, lines: "queue.SimpleQueue[bytes]", is_free: threading.Event, folder: Path) -> None:
    """Read requests until the input ends; then end the process, whatever the main thread does."""
    with os.fdopen(requests, "rb") as pipe:
        for line in pipe:
            if line == STOP:
                stop_flag.set()
            else:
                stop_flag.clear()
                lines.put(line)
    if not is_free.is_set():
        main_thread = threading.main_thread().ident
        assert main_thread is not None, "it runs"
        signal.pthread_kill(main_thread, signal.SIGINT)  # which wakes it from a read, too
        time.sleep(LEAVE_SECONDS)
    _leave(folder)


def _leave(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    if os.getpgrp() == os.getpid():  # what was started here ends, too
        os.killpg(0, signal.SIGKILL)
    os._exit(0)  # taking torch apart would take seconds


def _send(responses: int, response: Response) -> None:
    line = memoryview(msgspec.json.encode(response) + b"\n")
    while line:  # a pipe takes what it has room for
        line = line[os.write(responses, line) :]


def _progress(responses: int, number: int) -> OnDetail:
    """Reports the progress of request `number`, at most ten times a second."""
    last = -PAUSE_SECONDS

    def on_detail(detail: str) -> None:
        nonlocal last
        if (now := time.monotonic()) - last >= PAUSE_SECONDS:
            last = now
            _send(responses, Response(number, detail=detail))

    return on_detail


def answer(request: Request, on_detail: OnDetail) -> Response:
    """Call the method; whatever goes wrong is the response."""
    try:
        method = getattr(_import_module(METHODS[request.method]), request.method)
        return Response(request.id, answer=msgspec.to_builtins(method(on_detail, **request.params)))
    except Exception as error:  # the one broad catch: the process continues, and the client gets the problem
        return Response(request.id, problem=_problem(error))


@functools.cache
def _import_module(name: str) -> ModuleType:
    with quick_imports():
        if name in NEED_LIBRARIES:
            import_libraries()
        return import_module(f".{name}", __package__)


def _problem(error: Exception) -> Problem:
    from ..__main__ import as_ftui_error

    expected = error if isinstance(error, FtuiError) else as_ftui_error(error)
    if expected is not None:
        return Problem(redact(expected.message), redact(expected.hint), expected.exit_code, type(expected).__name__)
    traceback.print_exc()
    return Problem(redact(f"{type(error).__name__}: {error}"), "This is a bug in ftui: please report it.")


if __name__ == "__main__":
    main(sys.argv[1:])
