"""The process of one reward function: `python -P -m ftui.engine.rewards.worker_program SOCKET MEMORY`.

It gets its `RewardSpec`, then `AnswersToScore` again and again, and gives a `Judgement` for each, as frames of msgpack
on the socket. What the function prints goes to its own output, and never where the frames are. No torch is loaded here,
unless a person's function does.

This keeps a careless function from harming a run. It is no sandbox: the code can do what the user can.
"""

import contextlib
import inspect
import math
import os
import resource
import signal
import socket
import struct
import sys
import traceback
from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeVar

import msgspec

from .reward_specs import CODE_MARK, AnswersToScore, Judgement, RewardSpec

LENGTH = struct.Struct("<I")
LONGEST_ERROR = 2000  # characters
DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG of prctl(2)

Function = Callable[..., Any]
T = TypeVar("T")


class WrongRewardError(Exception):
    """A function gave something that is no list of rewards."""


def main() -> int:
    """Answer until the engine closes the socket."""
    connection = socket.socket(fileno=int(sys.argv[1]))
    _limit(int(sys.argv[2]))
    own = os.getpid()
    spec = read_frame(connection, RewardSpec)
    assert spec is not None, "whoever starts a worker sends its reward"
    function: Function | None = None
    try:
        function = load_function(spec)
        loaded = Judgement(values=[])
    except BaseException as error:  # a person's file may raise SystemExit, too
        loaded = Judgement(error=_describe(error, spec), is_wrong=True)
    _answer(connection, loaded, own)
    while function is not None and (answers := read_frame(connection, AnswersToScore)) is not None:
        _answer(connection, judge(function, answers, spec), own)
    return 0


def _limit(memory: int) -> None:
    """So much address space; no core file; and none outlives the engine, whatever it is doing."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if memory:
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)


def _answer(connection: socket.socket, judgement: Judgement, own: int) -> None:
    """A function that has forked comes back twice: only the worker itself answers."""
    if os.getpid() != own:
        os._exit(0)
    with contextlib.suppress(OSError):  # what it closed
        sys.stdout.flush()
        sys.stderr.flush()
    write_frame(connection, judgement)


def read_frame(connection: socket.socket, kind: type[T]) -> T | None:
    """The next frame; `None` once nothing more comes."""
    head = _read(connection, LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    (size,) = LENGTH.unpack(head)
    return msgspec.msgpack.decode(_read(connection, size), type=kind)


def write_frame(connection: socket.socket, value: object) -> None:
    """Send a frame."""
    data = msgspec.msgpack.encode(value)
    connection.sendall(LENGTH.pack(len(data)) + data)


def _read(connection: socket.socket, size: int) -> bytes:
    pieces, missing = [], size
    while missing and (piece := connection.recv(min(missing, 1 << 20))):
        pieces.append(piece)
        missing -= len(piece)
    return b"".join(pieces)


def load_function(spec: RewardSpec) -> Function:
    """The function of a reward; a person's file is run for it, from the text that was consented to."""
    if not spec.is_code:
        from .ready_rewards import ready_reward

        return ready_reward(spec.function, spec.options)
    path, _, name = spec.function.partition(CODE_MARK)
    path += ".py"
    module = ModuleType("rewards")
    module.__file__ = path
    sys.modules[module.__name__] = module  # dataclasses and pickle look their module up
    exec(compile(spec.code or "", path, "exec"), vars(module))
    function = vars(module).get(name)
    if not callable(function):
        raise WrongRewardError(f"{path} has no function {name!r}")
    return _with_known_columns(function)


def _with_known_columns(function: Function) -> Function:
    """The function, given those columns only that it has a parameter for, unless it takes all (`**kwargs`)."""
    parameters = inspect.signature(function).parameters
    if any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values()):
        return function
    return lambda **given: function(**{name: value for name, value in given.items() if name in parameters})


def judge(function: Function, answers: AnswersToScore, spec: RewardSpec) -> Judgement:
    """Call a function as TRL does, and look at what it gives."""
    try:
        given = function(
            **answers.columns | {"prompts": answers.prompts, "completions": answers.completions},
            completion_ids=answers.completion_ids,
        )
        if inspect.isawaitable(given):
            given = _wait_for(given)
        return _checked(given, len(answers.completions))
    except WrongRewardError as error:
        return Judgement(error=f"{spec.name} gives {error}", is_wrong=True)
    except BaseException as error:
        return Judgement(error=_describe(error, spec))


def _wait_for(given: Any) -> Any:
    import asyncio

    async def waited() -> Any:
        return await given

    return asyncio.run(waited())


def _checked(given: Any, number: int) -> Judgement:
    """Each value as a float; arrays and tensors are taken as lists."""
    given = given.tolist() if hasattr(given, "tolist") else given
    if not isinstance(given, list | tuple):
        raise WrongRewardError(f"{_shown(given)}, and not a list of {number} rewards")
    if len(given) != number:
        raise WrongRewardError(f"{len(given)} rewards for {number} answers")
    values, num_odd = [], 0
    for one in given:
        value = None if one is None else _number(one)
        if value is not None and not math.isfinite(value):
            value, num_odd = None, num_odd + 1
        values.append(value)
    return Judgement(values=values, num_odd=num_odd)


def _number(one: Any) -> float:
    if isinstance(one, str | bytes):
        raise WrongRewardError(f"{_shown(one)} as a reward, and not a number or None")
    try:
        return float(one)
    except OverflowError:
        return math.inf
    except (TypeError, ValueError) as error:
        raise WrongRewardError(f"{_shown(one)} as a reward, and not a number or None") from error


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:100]}..."


def _describe(error: BaseException, spec: RewardSpec) -> str:
    """The error with the last line of the person's file that took part; its traceback goes to the log."""
    traceback.print_exception(error)
    text = f"{type(error).__name__}: {error}".removesuffix(": ")[:LONGEST_ERROR]
    if not spec.is_code:
        return f"{spec.name} fails: {text}"
    path = spec.function.partition(CODE_MARK)[0] + ".py"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    if isinstance(error, SyntaxError) and error.filename == path:
        lines.append(error.lineno)
    place = f"{path}, line {lines[-1]}" if lines else path
    return f"{spec.name} fails ({place}): {text}"


if __name__ == "__main__":
    sys.exit(main())
