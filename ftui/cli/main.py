"""The entry point: parses the command line and runs one command. Each command imports what it needs, and no more."""

import atexit
import gc
import os
import sys
from argparse import Namespace
from collections.abc import Sequence
from importlib import import_module

from ftui.cli.arguments import parser
from ftui.errors import INTERRUPTED, FtuiError
from ftui.text import complaint

PRIVATE_UMASK = 0o077
BROKEN_PIPE = 141


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code (2 for a wrong command line)."""
    os.umask(PRIVATE_UMASK)
    atexit.register(gc.freeze)  # else the interpreter looks through all objects before it ends (5 ms)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a terminal that is not UTF-8 gets escapes, no crash
    try:
        words = as_command(sys.argv[1:] if arguments is None else arguments)
        return call_handler(parser(words[0] if words else None).parse_args(words))
    except FtuiError as error:
        from ftui.system.redact import redact

        print(redact(complaint(error.message, error.hint)), file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # `ftui runs | head`: the reader has left; keep Python from flushing at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE


def call_handler(options: Namespace) -> int:
    """Run the command that was typed: import its handler, and give it the options that are its parameters
    (one of that name gets them all)."""
    _import_msgspec()
    _wake_dispatchers()
    module, _, name = options.handler.partition(":")
    handler = getattr(import_module(f"ftui.cli.{module}"), name)
    code, given = (
        handler.__code__,
        vars(options) | {"options": options},
    )  # `inspect`, which knows more, takes 5 ms to import
    parameters = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    exit_code: int = handler(**{name: given[name] for name in parameters if name in given})
    return exit_code


def _wake_dispatchers() -> None:
    """Start what starts the runs of a queue and the trials of a sweep, where nobody does. No reason to fail."""
    from ftui.runs.run_folder import runs_root
    from ftui.system.user_folders import known_roots

    roots = {runs_root(), *known_roots()}
    for name, module, function in (
        ("queue.jsonl", "ftui.queue.wake", "wake_dispatchers"), ("_sweeps", "ftui.sweep.wake_sweeps", "wake_sweeps")
    ):  # fmt: skip
        try:
            if any(os.path.exists(root / name) for root in roots):
                getattr(import_module(module), function)()
        except OSError as error:
            print(complaint(f"A queue or a sweep cannot be started: {error}.", ""), file=sys.stderr)


def _import_msgspec() -> None:
    """Without typing_extensions: what msgspec asks it for Python has since 3.11, and it takes 10 ms to import."""
    if "typing_extensions" not in sys.modules:
        sys.modules["typing_extensions"] = None  # type: ignore[assignment]  # "there is none"
        import msgspec  # noqa: F401

        del sys.modules["typing_extensions"]


def as_command(arguments: Sequence[str]) -> list[str]:
    """`ftui --run P ...` is `ftui run P ...`, wherever `--run` stands; `ftui sweep FILE` is `ftui sweep start FILE`."""
    for place, argument in enumerate(arguments):
        if argument == "--run":
            return ["run", *arguments[place + 1 :][:1], *arguments[:place], *arguments[place + 2 :]]
        if argument.startswith("--run="):
            return ["run", argument.removeprefix("--run="), *arguments[:place], *arguments[place + 1 :]]
    if arguments[:1] == ["sweep"] and len(arguments) > 1 and arguments[1][0:1] != "-":
        from ftui.cli.many.sweep_options import COMMANDS

        if arguments[1] not in COMMANDS:
            return ["sweep", "start", *arguments[1:]]
    return list(arguments)
