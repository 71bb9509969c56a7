"""Tokenises blocks of rows for the process that started it: `python -P -m ftui.engine.data.stores.worker`.

On its pipes (see worker_pool.py) stand frames: eight bytes with the length of what follows, and a value as msgpack.
First comes a `WorkerSetup`, answered by a `WorkerReady`; then each `Task` by its `EncodedBlock`. It ends with its
input; tracebacks go to its standard error.
"""

import gc
import os
import signal
import struct
from pathlib import Path
from typing import IO, TypeVar

from ...system.environment import settle_environment

settle_environment()

import msgspec  # noqa: E402

from ...models.tokenizer import bare_tokenizer, tokenizer_fingerprint  # noqa: E402
from ..forms.column_names import ColumnNames  # noqa: E402
from ..tokens.encode import Encoder  # noqa: E402
from .tasks import Task, encode_block  # noqa: E402

_LENGTH = struct.Struct("<Q")
Kind = TypeVar("Kind")


class WorkerSetup(msgspec.Struct, frozen=True):
    """What an encoder is made of; `tokenizer` is a folder with its files."""

    tokenizer: str
    stage: str
    stops: list[str]
    loss_on: str
    columns: dict[str, str]
    roles: dict[str, str]


class WorkerReady(msgspec.Struct, frozen=True):
    """`fingerprint` is that of the tokenizer as it was loaded here."""

    fingerprint: str


def send(stream: IO[bytes], value: msgspec.Struct) -> None:
    data = msgspec.msgpack.encode(value)
    stream.write(_LENGTH.pack(len(data)))
    stream.write(data)
    stream.flush()


def receive(stream: IO[bytes], kind: type[Kind]) -> Kind:
    """Raises `EOFError` when the other side is gone."""
    (length,) = _LENGTH.unpack(_whole(stream, _LENGTH.size))
    return msgspec.msgpack.decode(_whole(stream, length), type=kind)


def _whole(stream: IO[bytes], length: int) -> bytes:
    data = stream.read(length)
    if len(data) < length:
        raise EOFError
    return data


def main() -> int:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # they come to the whole group; this process ends with its input
    tasks, answers = _own_pipes()
    try:
        encoder = _encoder(receive(tasks, WorkerSetup), answers)
        gc.freeze()
        gc.set_threshold(100_000)  # a block makes many values and no cycles: looking for them took 7 % of the time
        while True:
            send(answers, encode_block(receive(tasks, Task), encoder))
    except (EOFError, BrokenPipeError):
        return 0


def _own_pipes() -> tuple[IO[bytes], IO[bytes]]:
    """The pipes, out of reach of all that libraries read and print."""
    tasks, answers = os.fdopen(os.dup(0), "rb", 1 << 20), os.fdopen(os.dup(1), "wb", 1 << 20)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    return tasks, answers


def _encoder(setup: WorkerSetup, answers: IO[bytes]) -> Encoder:
    tokenizer = bare_tokenizer(Path(setup.tokenizer))
    send(answers, WorkerReady(tokenizer_fingerprint(tokenizer)))
    return Encoder(
        tokenizer, setup.stage, frozenset(setup.stops), setup.loss_on, ColumnNames(setup.columns, setup.roles)
    )


if __name__ == "__main__":
    raise SystemExit(main())
