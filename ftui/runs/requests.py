"""Control requests to a running run: small files that its engine reads between two units of work.

Each is answered once, in the journal.

A request is data from a closed list, never a path or code. It names the attempt it is meant for: whatever an earlier
attempt left behind (a `stop` that came too late) is refused, not obeyed.
"""

import contextlib
import os
import re
import time
from collections.abc import Container, Iterator
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from ftui.runs.run_folder import Run
from ftui.system.files import (
    DAMAGED,
    UnsafePathError,
    make_private_folder,
    open_folder,
    read_plain,
    replace_file,
)
from ftui.system.volume import disk_error

LONGEST = 64 << 10  # bytes
LONGEST_PROMPT = 8 << 10  # characters
MOST_FACTOR, MOST_STEPS = 1000, 10**12
MOST_STILL_SECONDS = 600  # that training may stand still for an answer
_FILE = re.compile(r"(\d{20})-([0-9a-f]{16})\.json")

Id = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{16}$")]
Step = Annotated[int, msgspec.Meta(ge=0)]
Count = Annotated[int, msgspec.Meta(ge=1, le=MOST_STEPS)]


class ControlRequest(msgspec.Struct, frozen=True, kw_only=True, tag_field="verb", forbid_unknown_fields=True):
    """A request to the engine. `attempt` and `token` name the attempt it is meant for."""

    id: Id
    attempt: int
    token: str

    @property
    def verb(self) -> str:
        """The verb in the request's file, which may differ from the command's (`hold` of pause)."""
        return str(self.__struct_config__.tag)


class Pause(ControlRequest, frozen=True, tag="hold"):
    """Stand still, keep the GPU."""


class Continue(ControlRequest, frozen=True, tag="continue"):
    """End a pause."""


class Park(ControlRequest, frozen=True, tag="park"):
    """Save, free the GPU, leave; the run is continued later."""


class Save(ControlRequest, frozen=True, tag="checkpoint"):
    """Save now; the checkpoint is pinned."""


class Stop(ControlRequest, frozen=True, tag="stop"):
    """Save, write final/, end the run."""


class Abort(ControlRequest, frozen=True, tag="abort"):
    """Leave at once, save nothing."""


class Evaluate(ControlRequest, frozen=True, tag="evaluate"):
    """Evaluate now; an extra evaluation, which counts as the newest and never as the best."""


class GenerateSamples(ControlRequest, frozen=True, tag="sample"):
    """Answer prompts now: these, or the profile's when there are none."""

    prompts: tuple[Annotated[str, msgspec.Meta(min_length=1, max_length=LONGEST_PROMPT)], ...] = ()


class SamplingKeys(msgspec.Struct, frozen=True):
    """How answers are drawn, in transformers' spelling; `temperature` 0 is greedy."""

    temperature: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    top_p: Annotated[float, msgspec.Meta(gt=0, le=1)] = 1.0
    top_k: Annotated[int, msgspec.Meta(ge=0)] = 0
    min_p: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0
    repetition_penalty: Annotated[float, msgspec.Meta(gt=0)] = 1.0
    seed: Annotated[int, msgspec.Meta(ge=0)] = 0
    max_new_tokens: Annotated[int, msgspec.Meta(gt=0)] = 512


class Turn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one of both said in a conversation."""

    role: Literal["system", "user", "assistant"]
    content: str


class AnswerChat(ControlRequest, frozen=True, tag="answer"):
    """Answer conversations now, one for each of `sides`: the model as it is, or without its adapter (`base`).

    Training stands still meanwhile, for `most_seconds` at most. The answers are in answer.json as they grow.
    """

    sides: Annotated[tuple[Literal["now", "base"], ...], msgspec.Meta(min_length=1, max_length=2)]
    conversations: tuple[Annotated[tuple[Turn, ...], msgspec.Meta(min_length=1)], ...]
    sampling: SamplingKeys = SamplingKeys()
    most_seconds: Annotated[float, msgspec.Meta(gt=0, le=MOST_STILL_SECONDS)] = 60.0


class EndAnswer(ControlRequest, frozen=True, tag="end_answer"):
    """End the answer to the request `of` within a token; what there is of it counts."""

    of: Id


class Pin(ControlRequest, frozen=True, tag="pin"):
    """Keep this step's checkpoint for good."""

    step: Step


class Unpin(ControlRequest, frozen=True, tag="unpin"):
    """Let rotation delete this step's checkpoint again."""

    step: Step


class Delete(ControlRequest, frozen=True, tag="delete_checkpoint"):
    """Delete this step's checkpoint, unless it is pinned, the newest or the best."""

    step: Step


class Set(ControlRequest, frozen=True, tag="set"):
    """Change the run from its next step on. Fields that are `None` stay as they are.

    `max_steps` moves the end and no curve; with `decay` the learning rate falls to 0 by the end, in a straight line.
    """

    learning_rate_factor: Annotated[float, msgspec.Meta(ge=0, le=MOST_FACTOR)] | None = None
    max_steps: Count | None = None
    save_steps: Count | None = None
    eval_steps: Count | None = None
    logging_steps: Count | None = None
    decay: Literal["linear"] | None = None

    @property
    def settings(self) -> dict[str, float]:
        """The numbers that it changes."""
        return {name: value for name in SETTINGS if (value := getattr(self, name)) is not None}


SETTINGS = ("learning_rate_factor", "max_steps", "save_steps", "eval_steps", "logging_steps")
BOUNDS = {
    "learning_rate_factor": f"a number from 0 to {MOST_FACTOR}",
    **dict.fromkeys(SETTINGS[1:], "a whole number from 1 to 10^12"),
    "decay": "linear",
    "prompts": f"texts of 1 to {LONGEST_PROMPT:,} characters",
    "step": "a whole number from 0 on",
    "most_seconds": f"more than 0 and at most {MOST_STILL_SECONDS}",
}
"""What may stand in a field, in words."""
AnyRequest = (
    Pause | Continue | Park | Save | Stop | Abort | Evaluate | GenerateSamples | AnswerChat | EndAnswer | Pin | Unpin
    | Delete | Set
)  # fmt: skip
_decoder = msgspec.json.Decoder(AnyRequest)


class ReceivedRequest(msgspec.Struct, frozen=True):
    """A file of the inbox folder: its request, or what is wrong with it. `id` is the one in its name."""

    path: Path
    id: str
    request: AnyRequest | None
    problem: str = ""


def new_id() -> str:
    """A random id of 16 hex digits, by which the journal names the request that it answers."""
    return os.urandom(8).hex()


def write_request(run: Run, request: AnyRequest) -> None:
    """Put a request in the inbox folder, whole or not at all.

    Raises:
        DiskError: it cannot be written.
    """
    try:
        folder = make_private_folder(run.inbox, inside=run.folder)
        replace_file(folder / f"{time.time_ns():020d}-{request.id}.json", msgspec.json.encode(request))
    except OSError as error:
        raise disk_error(error, "The request could not be written", run.folder) from error


def read_requests(run: Run, known: Container[str] = ()) -> Iterator[ReceivedRequest]:
    """The requests in the inbox folder, in the order in which they were sent. Other files are left alone.

    Each file is read as the iterator comes to it; those whose names are `known` are passed over unread. There are none
    while the volume does not answer: no request is worth the end of a training run.
    """
    try:
        folder = open_folder(run.inbox, run.folder)
        try:
            names = sorted(os.listdir(folder))
        finally:
            os.close(folder)
    except OSError:  # none yet; or one of somebody else's, which is none of ours to empty
        return
    for name in names:
        if name not in known and (match := _FILE.fullmatch(name)):
            yield _read_request(run.inbox / name, match[2])


def _read_request(path: Path, identity: str) -> ReceivedRequest:
    try:
        request = _decoder.decode(read_plain(path, LONGEST))
    except UnsafePathError as error:
        return ReceivedRequest(path, identity, None, error.message.removeprefix(f"{path} "))
    except OSError as error:
        return ReceivedRequest(path, identity, None, f"unreadable ({error.strerror})")
    except DAMAGED as error:
        return ReceivedRequest(path, identity, None, f"not a control request: {error}")
    if request.id != identity:
        return ReceivedRequest(path, identity, None, "its id is not the one in its name")
    return ReceivedRequest(path, identity, request)


def remove_request(file: ReceivedRequest) -> None:
    """Take a file out of the inbox folder. What cannot be removed stays: the journal has its answer.

    That is so for a folder of that name, which was not made here, and on a volume that takes no changes for now.
    """
    with contextlib.suppress(OSError):
        file.path.unlink(missing_ok=True)
