"""What every record has: kind, form, time and writer; and the phases of a run."""

from typing import Literal

import msgspec

FORM = 1

Phase = Literal[
    "queued", "starting", "preparing", "loading", "training", "generating", "scoring", "evaluating", "saving", "held",
    "parked", "finished", "stopped", "failed", "lost",
]  # fmt: skip
Reproducibility = Literal["EXACT", "SAME STATE", "NOT EXACT"]


class Record(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", omit_defaults=True):
    """The fields of every line. `token` names the process that wrote it: readers ignore a superseded writer."""

    v: int = msgspec.field(default_factory=lambda: FORM)  # from a factory, so that omit_defaults writes it
    time: float = 0.0
    attempt: int = 0
    token: str = ""
