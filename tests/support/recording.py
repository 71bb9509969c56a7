"""Keeps what a real run has written as a fixture: without weights, and without a trace of the machine it ran on.

A run that lives is stopped (SIGSTOP) for the milliseconds it takes to read its files, so that they are of one moment.
Then, on the bytes: folders of this machine become folders under /workspace, its host name `pod`, its boot id zeros.
The run's name in run.json becomes that of the fixture, as several may be kept of one run. Scrubbing moves line ends, so
status.json and curves.json are made anew from the scrubbed records, each file read to its end; only the time and
the supervisor of the real status.json are kept. Manifests and resume/state.json must not need scrubbing: a manifest is
sealed.
"""

import contextlib
import os
import re
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from ftui.runs.events import Phase
from ftui.runs.run_folder import Run
from ftui.runs.status import Status, is_frozen, read_status
from ftui.system.process_id import Identity, is_alive, this_process
from tests.support.replayed import HEADER, ROOT, settle

MOST_TELEMETRY = 300  # lines; one a second
WHOLE = (
    "profile.toml", "run.json", "journal.jsonl", "metrics.jsonl", "supervisor.jsonl", "status.json", "engine.log",
    "pins.json", "beat.json",
)  # fmt: skip
OF_CHECKPOINTS = ("MANIFEST.json", "resume/state.json")
NO_BOOT = "00000000-0000-0000-0000-000000000000"
LOOK_SECONDS = 0.05
_BEFORE = r"(?:(?<![\w/.])|(?<=\\n))"  # where a path may begin: in JSON also after an escaped end of line

Files = dict[str, bytes]


class Scrubber:
    """Replaces what names this machine. `workspace` is the folder everything ran in."""

    def __init__(self, workspace: Path) -> None:
        known = {
            workspace: "/workspace",
            ROOT: "/workspace/ftui",
            Path(sys.base_prefix): "/usr/local",
            Path(sys.prefix): "/workspace/venv",
            Path.home(): "/workspace",
            Path(tempfile.gettempdir()): "/workspace",
        }
        folders = {str(form): new for old, new in known.items() for form in (old, old.resolve())}
        longest_first = sorted(folders.items(), key=lambda pair: -len(pair[0]))
        self._rules = [(rf"{_BEFORE}{re.escape(old)}(?![\w.-])", new) for old, new in longest_first]
        self._rules.append((rf"(?<![\w./-]){re.escape(socket.gethostname())}(?![\w./-])", "pod"))
        self._rules.append((re.escape(this_process().boot), NO_BOOT))

    def __call__(self, data: bytes) -> bytes:
        for pattern, new in self._rules:
            data = re.sub(pattern.encode(), new.encode(), data)
        return data


class Keeper:
    """Keeps runs of one workspace as folders under `target`."""

    def __init__(self, workspace: Path, target: Path) -> None:
        self._scrub = Scrubber(workspace)
        self._target = target

    def keep(self, run: Run, name: str = "", *, phase: Phase | None = None) -> None:
        """The run as it stands, under its own or another name; with a `phase`, as soon as it is met in it."""
        while True:
            with standing_still(run) as status:
                if phase in (None, status.state.phase):
                    files = taken(run)
                    break
            time.sleep(LOOK_SECONDS)
        self._write(files, name or run.name)

    def _write(self, files: Mapping[str, bytes], name: str) -> None:
        kept = Run(self._target / name)
        shutil.rmtree(kept.folder, ignore_errors=True)
        for path, data in files.items():
            scrubbed = self._scrub(data)
            assert scrubbed == data or not path.endswith(OF_CHECKPOINTS), f"{path} names this machine"
            (kept.folder / path).parent.mkdir(parents=True, exist_ok=True)
            (kept.folder / path).write_bytes(scrubbed)
        facts = msgspec.structs.replace(kept.read_facts(), name=name)
        kept.facts.write_bytes(msgspec.json.encode(facts))
        real = msgspec.json.decode(kept.status.read_bytes(), type=Status)
        settle(kept, time=real.time, supervisor=real.supervisor)


@contextlib.contextmanager
def standing_still(run: Run) -> Iterator[Status]:
    """Stop whatever works on the run; yields the status of that moment."""
    before = read_status(run)
    # The supervisor first, or it would see a stopped engine.
    living = [who for who in (before.supervisor, before.engine) if who is not None and is_alive(who)]
    try:
        for who in living:
            stop(who)
        yield read_status(run)
    finally:
        for who in reversed(living):
            with contextlib.suppress(ProcessLookupError):
                os.kill(who.pid, signal.SIGCONT)


def stop(process: Identity) -> None:
    """Stop a process, and wait until it stands."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGSTOP)
        while is_alive(process) and not is_frozen(process):
            time.sleep(0.001)


def kill(*processes: Identity | None) -> None:
    """SIGKILL at the same moment, and wait until all are gone."""
    doomed = [process for process in processes if process is not None and is_alive(process)]
    assert len(doomed) == len(processes)
    for process in doomed:
        os.kill(process.pid, signal.SIGKILL)
    while any(map(is_alive, doomed)):
        time.sleep(LOOK_SECONDS)


def taken(run: Run) -> Files:
    """The bytes of all that is kept of a run."""
    files = {name: (run.folder / name).read_bytes() for name in WHOLE if (run.folder / name).exists()}
    lines = run.telemetry.read_bytes().splitlines(keepends=True)
    files["telemetry.jsonl"] = b"".join(lines[-MOST_TELEMETRY:])
    for manifest in sorted([*run.checkpoints.rglob("MANIFEST.json"), *run.final.glob("MANIFEST.json")]):
        if any(part.startswith(".") for part in manifest.relative_to(run.folder).parts):
            continue  # being written, or being deleted
        present = [manifest.parent / name for name in OF_CHECKPOINTS if (manifest.parent / name).exists()]
        files |= {path.relative_to(run.folder).as_posix(): path.read_bytes() for path in present}
        for weights in manifest.parent.rglob("*.safetensors"):
            files[weights.relative_to(run.folder).as_posix() + HEADER] = header_of(weights)
    return files


def header_of(weights: Path) -> bytes:
    """The head of a safetensors file, without its tensors (format: 8-byte little-endian length, JSON, data)."""
    with weights.open("rb") as file:
        length = file.read(8)
        return length + file.read(int.from_bytes(length, "little"))
