"""What pushes of a run write, whoever began them."""

from ftui.runs.records.record import Record
from ftui.system.process_id import Identity


class PushBegan(Record, frozen=True, tag="push_began"):
    """A push of `what` (`seal`: of its manifest) to `to` begins or goes on; it ends with `process`.

    `files`: their hashes by name. What is found there with one of them under its name is ours, and nothing else.
    """

    to: str
    what: str
    seal: str
    process: Identity | None = None
    files: dict[str, list[str]] = {}


class Pushed(Record, frozen=True, tag="pushed"):
    """Every file of `what` is at `place`. `verified`: their hashes were asked for there. `commit`: of the hub."""

    to: str
    what: str
    seal: str
    place: str
    num_files: int
    num_bytes: int
    verified: bool
    commit: str = ""


class PushFailed(Record, frozen=True, tag="push_failed"):
    """A push ended early; the next one goes on from there."""

    to: str
    what: str
    message: str
    hint: str = ""


PushRecord = PushBegan | Pushed | PushFailed
"""Written to pushes.jsonl by the holder of push.lock; they belong to no attempt."""
