"""What trained models were asked and what they answered, a line of JSON each, written as it comes."""

import os
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from ftui.helper.chat_facts import ChatAnswer
from ftui.helper.chat_session import ChatSession
from ftui.runs.requests import SamplingKeys
from ftui.runs.run_folder import Run
from ftui.system.files import make_private_folder, open_private, write_all
from ftui.system.volume import disk_error


class SideAnswer(msgspec.Struct, frozen=True):
    """`of`: the checkpoint, or base; `seal`: the hash of its manifest. `is_complete`: the model ended it itself."""

    of: str
    seal: str
    text: str
    is_complete: bool
    num_tokens: int


class Exchange(msgspec.Struct, frozen=True):
    """A line: a prompt, what came before it, and all that the answers depend on."""

    time: float
    run: str
    prompt: str
    system: str | None
    turn: int
    answers: list[SideAnswer]
    sampling: SamplingKeys
    template_hash: str
    precision: str
    device: str


def describe_exchange(
    run: str, session: ChatSession, prompt: str, answers: Sequence[ChatAnswer], sampling: SamplingKeys
) -> Exchange:
    """What was just said in a session."""
    messages, facts = session.conversations[0], session.facts
    said = [
        SideAnswer(side.title, side.seal, answer.text, answer.is_complete, len(answer.tokens))
        for side, answer in zip(session.sides, answers, strict=True)
    ]
    system = next((message["content"] for message in messages if message["role"] == "system"), None)
    turn = sum(message["role"] == "user" for message in messages)
    return Exchange(
        time.time(), run, prompt, system, turn, said, sampling, facts.template_hash, facts.precision,
        facts.device,
    )  # fmt: skip


def new_transcript(run: Run) -> Path:
    """The file of a conversation that begins now; it is there once something was said."""
    return run.chats / f"{time.strftime('%Y%m%d-%H%M%S')}.jsonl"


def add_exchange(path: Path, exchange: Exchange, *, run: Run | None = None) -> None:
    """Append a line to a file; `run`: it is one of that run's chats.

    Raises:
        DiskError: it cannot be written, or something else than a plain file of this user stands there.
    """
    try:
        if run is not None:
            make_private_folder(run.chats, inside=run.folder)
        descriptor = open_private(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            write_all(descriptor, msgspec.json.encode(exchange) + b"\n")
        finally:
            os.close(descriptor)
    except OSError as error:
        raise disk_error(error, f"{path.name} could not be written", path.parent) from error
