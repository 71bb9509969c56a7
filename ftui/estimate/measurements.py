"""Probes of this machine, kept for later estimates: one line of JSON for each.

A probe runs the real thing for two steps. Its peak over what was estimated for the same setting is a correction for
that model, card and method, and its time one for the speed.
"""

import os
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path

import msgspec

from ftui.estimate import timing
from ftui.estimate.result import Memory
from ftui.estimate.setup import TrainingSetup
from ftui.system.files import make_private_folder, open_private, write_all
from ftui.system.user_folders import state_folder

SAME, OTHER = 0.03, 0.08
"""Half the range of a corrected estimate, where the very setting was measured and where another one was."""
APART = (
    "shape", "card", "method", "is_8bit", "precision", "accumulation",
    # Not of the memory: what only proposals for changes ask for (levers.py).
    "rows_are_cut", "has_bitsandbytes", "lora_alpha", "use_rslora", "num_cards", "host_memory", "adds_tokens",
)  # fmt: skip
LARGEST_RATIO = 2.0
"""A probe that is further from its estimate says nothing of other settings."""
LONGEST_FILE = 1 << 20


class PhaseMeasured(msgspec.Struct, frozen=True):
    """A phase of a rollout with the longest answers; `process`: bytes at its peak, `None` where they are hidden."""

    seconds: float
    process: int | None


class ProbeRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One probe, memory in bytes.

    `what` names model, card and method, `setting` all else that changes the memory; `estimated` is what the closed form
    said of that setting, before any correction. `step_seconds` are those of one micro-batch, forward, backward and
    update, with `num_tokens` tokens; `estimated_seconds` what the clock said of them, where it knows the card.
    `rollout`, of a stage that samples its answers: `generating` and `scoring` of a whole rollout, `updating` of such a
    step, and where something is measured of the answers `log_probs` of each token.
    """

    what: str
    setting: str
    estimated: int
    allocated: int | None
    reserved: int | None
    process: int
    step_seconds: float
    num_tokens: int
    estimated_seconds: float | None = None
    versions: dict[str, str]
    time: float
    rollout: dict[str, PhaseMeasured] = {}


def describe_subject(setup: TrainingSetup) -> str:
    """Model x card x method."""
    shape = setup.shape
    bits = "8bit" if setup.is_8bit else ""
    model = f"{shape.model_type} {shape.num_parameters}"
    return f"{model} | {setup.card.title} | {setup.method}{bits} {setup.precision}"


def describe_setting(setup: TrainingSetup) -> str:
    """All else that memory may depend on: every other field, and whether gradients wait for other micro-batches."""
    values = {field.name: getattr(setup, field.name) for field in fields(setup) if field.name not in APART}
    values["waits"] = setup.accumulation > 1
    return " ".join(f"{name}={value}" for name, value in values.items())


def probes_file() -> Path:
    """The file of all probes."""
    return state_folder() / "measured.jsonl"


def save_probe(probe: ProbeRecord) -> None:
    """Append a probe to the file.

    Raises:
        OSError: it cannot be written.
    """
    path = probes_file()
    make_private_folder(path.parent)
    descriptor = open_private(path, os.O_RDWR | os.O_APPEND)
    try:
        end = os.lseek(descriptor, 0, os.SEEK_END)
        is_torn = end > 0 and os.pread(descriptor, 1, end - 1) != b"\n"
        write_all(descriptor, b"\n" * is_torn + msgspec.json.encode(probe) + b"\n")
    finally:
        os.close(descriptor)


def read_probes() -> list[ProbeRecord]:
    """All probes, the oldest first; a torn line, or one of another version, counts as none."""
    try:
        data = probes_file().read_bytes()[-LONGEST_FILE:]
    except OSError:
        return []
    return [probe for line in data.split(b"\n") if (probe := _decode(line)) is not None]


def _decode(line: bytes) -> ProbeRecord | None:
    try:
        probe = msgspec.json.decode(line, type=ProbeRecord)
    except msgspec.DecodeError:
        return None
    return probe if min(probe.estimated, probe.process, probe.num_tokens, probe.step_seconds) > 0 else None


def find_probe(setup: TrainingSetup, probes: Sequence[ProbeRecord]) -> tuple[ProbeRecord, bool] | None:
    """The newest probe of this model, card and method, and whether it was of this very setting, which goes first."""
    what, setting = describe_subject(setup), describe_setting(setup)
    alike = [probe for probe in probes if probe.what == what]
    same = [probe for probe in alike if probe.setting == setting]
    return (same[-1], True) if same else (alike[-1], False) if alike else None


def correct_memory(memory: Memory, setup: TrainingSetup, closed: Memory, probes: Sequence[ProbeRecord]) -> Memory:
    """The estimate moved by what was measured; itself where nothing was.

    `closed` is the closed form's for the same setup: the measured peak is taken as a multiple of that. Of ways to share
    a model that ftui does not run, a probe says nothing.
    """
    nearest = find_probe(setup, probes) if setup.parallel == "ddp" else None
    if nearest is None:
        return memory
    probe, is_same = nearest
    ratio = probe.process / probe.estimated
    if not is_same and not 1 / LARGEST_RATIO < ratio < LARGEST_RATIO:
        return memory
    process = probe.process if is_same else round(closed.process * ratio)
    margin, factor = (SAME if is_same else OTHER), process / memory.process
    breakdown = {name: int(part * factor) for name, part in memory.breakdown.items()}
    breakdown["context"] = breakdown.get("context", 0) + process - sum(breakdown.values())
    return replace(
        memory,
        allocated=_best(probe.allocated, is_same, memory.allocated * factor),
        reserved=_best(probe.reserved, is_same, memory.reserved * factor),
        process=process, low=int(process * (1 - margin)), high=int(process * (1 + margin)),
        breakdown=breakdown, basis="measured here" if is_same else "corrected here",
        unvalidated=() if is_same else memory.unvalidated,
    )  # fmt: skip


def _best(measured: int | None, is_same: bool, scaled: float) -> int:
    return measured if is_same and measured is not None else round(scaled)


def seconds_by(probe: ProbeRecord, is_same: bool, setup: TrainingSetup, tokens: float) -> float | None:
    """Seconds of a step of so many tokens, as a probe has it; `None` where another setting's tells no more than the
    closed form does."""
    if is_same:
        return probe.step_seconds * tokens / probe.num_tokens
    closed = timing.step_seconds(setup, tokens)
    if closed is None:
        return probe.step_seconds * tokens / probe.num_tokens / setup.num_processes
    ratio = None if not probe.estimated_seconds else probe.step_seconds / probe.estimated_seconds
    return closed * ratio if ratio is not None and 1 / LARGEST_RATIO < ratio < LARGEST_RATIO else None
