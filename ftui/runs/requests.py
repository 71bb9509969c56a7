"""Letters to a living run: small files that its engine reads between two units of work and answers in the journal.

A letter is data from a closed list, never a path or code. It names the attempt it is meant for: whatever an earlier
attempt left behind (a `stop` that came too late) is refused, not obeyed.
"""

import os
import re
import secrets
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec

from ftui.errors import DiskError
from ftui.runs.run_folder import Run
from ftui.system.files import make_private_folder, replace_file

LONGEST = 64 << 10  # bytes
LONGEST_PROMPT = 8 << 10  # characters
_FILE = re.compile(r"(\d{20})-([0-9a-f]{16})\.json")

Id = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{16}$")]
Step = Annotated[int, msgspec.Meta(ge=0)]
Count = Annotated[int, msgspec.Meta(ge=1, le=10**12)]


class Letter(msgspec.Struct, frozen=True, kw_only=True, tag_field="verb", forbid_unknown_fields=True):
    """`attempt` and `token` are those of the attempt it is meant for."""

    id: Id
    attempt: int
    token: str

    @property
    def verb(self) -> str:
        return str(self.__struct_config__.tag)


class Hold(Letter, frozen=True, tag="hold"):
    """Stand still, keep the GPU."""


class Continue(Letter, frozen=True, tag="continue"):
    """End a hold."""


class Park(Letter, frozen=True, tag="park"):
    """Save, free the GPU, leave; the run is continued later."""


class Save(Letter, frozen=True, tag="checkpoint"):
    """Save now; the checkpoint is pinned."""


class Stop(Letter, frozen=True, tag="stop"):
    """Save, write final/, end the run."""


class Abort(Letter, frozen=True, tag="abort"):
    """Leave at once, save nothing."""


class Evaluate(Letter, frozen=True, tag="evaluate"):
    """Evaluate now, beside the plan."""


class Sample(Letter, frozen=True, tag="sample"):
    """Answer prompts now: these, or the profile's when there are none."""

    prompts: tuple[Annotated[str, msgspec.Meta(min_length=1, max_length=LONGEST_PROMPT)], ...] = ()


class Pin(Letter, frozen=True, tag="pin"):
    """Keep this step's checkpoint for good."""

    step: Step


class Unpin(Letter, frozen=True, tag="unpin"):
    step: Step


class Delete(Letter, frozen=True, tag="delete_checkpoint"):
    step: Step


class Set(Letter, frozen=True, tag="set"):
    """Change the run from its next step on. Fields that are `None` stay as they are."""

    learning_rate_factor: Annotated[float, msgspec.Meta(ge=0, le=1000)] | None = None
    max_steps: Count | None = None
    save_steps: Count | None = None
    eval_steps: Count | None = None
    logging_steps: Count | None = None

    @property
    def settings(self) -> dict[str, float]:
        """What it changes."""
        return {name: value for name in SETTINGS if (value := getattr(self, name)) is not None}


SETTINGS = ("learning_rate_factor", "max_steps", "save_steps", "eval_steps", "logging_steps")
AnyLetter = (
    Hold | Continue | Park | Save | Stop | Abort | Evaluate | Sample | Pin | Unpin | Delete | Set
)  # fmt: skip
_decoder = msgspec.json.Decoder(AnyLetter)


@dataclass(frozen=True)
class Found:
    """A file of the inbox: its letter, or what is wrong with it. `id` is the one in its name."""

    path: Path
    id: str
    letter: AnyLetter | None
    problem: str = ""


def new_id() -> str:
    return secrets.token_hex(8)


def send(run: Run, letter: AnyLetter) -> None:
    """Put a letter in the inbox, whole or not at all.

    Raises:
        DiskError: it cannot be written.
    """
    try:
        folder = make_private_folder(run.inbox)
        replace_file(folder / f"{time.time_ns():020d}-{letter.id}.json", msgspec.json.encode(letter))
    except OSError as error:
        raise DiskError(f"The letter could not be written: {error}.", hint="Free some space.") from error


def waiting(run: Run) -> Iterator[Found]:
    """The letters in the inbox, in the order in which they were sent. Other files are left alone."""
    try:
        names = sorted(os.listdir(run.inbox))
    except FileNotFoundError:
        return
    for name in names:
        if match := _FILE.fullmatch(name):
            yield _read(run.inbox / name, match[2])


def _read(path: Path, identity: str) -> Found:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return Found(path, identity, None, "not a plain file")
            data = os.read(descriptor, LONGEST + 1)
        finally:
            os.close(descriptor)
    except OSError as error:
        return Found(path, identity, None, f"unreadable ({error.strerror})")
    if len(data) > LONGEST:
        return Found(path, identity, None, f"longer than {LONGEST >> 10} KiB")
    try:
        letter = _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return Found(path, identity, None, f"not a letter: {error}")
    if letter.id != identity:
        return Found(path, identity, None, "its id is not the one in its name")
    return Found(path, identity, letter)


def remove(found: Found) -> None:
    """Take a file out of the inbox (a folder of that name stays: it was not made here)."""
    try:
        found.path.unlink(missing_ok=True)
    except (IsADirectoryError, PermissionError):
        return
