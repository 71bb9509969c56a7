"""Records a real run as a fixture: its files without the weights, and without a trace of the machine it ran on.

A running run is stopped (SIGSTOP) for the milliseconds it takes to read its files, so that they are of one moment.
Then, on the bytes: folders of this machine become folders under /workspace, its host name `pod`, its boot id zeros.
The run's name in run.json becomes that of the fixture, as one run may give several. Scrubbing moves line ends, so
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

from ftui.runs.records.record import Phase
from ftui.runs.run_folder import Run
from ftui.runs.status import Status, is_frozen, read_status
from ftui.system.process_id import Identity, is_alive, this_process
from tests.support.replayed import HEADER, ROOT, write_summaries

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


class RunRecorder:
    """Records runs of one workspace as folders under `target`."""

    def __init__(self, workspace: Path, target: Path) -> None:
        self._scrub = Scrubber(workspace)
        self._target = target

    def record(self, run: Run, name: str = "", *, phase: Phase | None = None) -> None:
        """The run as it stands, under its own or another name; with a `phase`, as soon as it is met in it."""
        while True:
            with frozen_processes(run) as status:
                if phase in (None, status.state.phase):
                    files = read_files(run)
                    break
            time.sleep(LOOK_SECONDS)
        self._write(files, name or run.name)

    def _write(self, files: Mapping[str, bytes], name: str) -> None:
        copy = Run(self._target / name)
        shutil.rmtree(copy.folder, ignore_errors=True)
        for path, data in files.items():
            scrubbed = self._scrub(data)
            assert scrubbed == data or not path.endswith(OF_CHECKPOINTS), f"{path} names this machine"
            (copy.folder / path).parent.mkdir(parents=True, exist_ok=True)
            (copy.folder / path).write_bytes(scrubbed)
        facts = msgspec.structs.replace(copy.read_facts(), name=name)
        copy.facts.write_bytes(msgspec.json.encode(facts))
        real = msgspec.json.decode(copy.status.read_bytes(), type=Status)
        write_summaries(copy, time=real.time, supervisor=real.supervisor)


@contextlib.contextmanager
def frozen_processes(run: Run) -> Iterator[Status]:
    """Stop whatever works on the run; yields the status of that moment."""
    before = read_status(run)
    # The supervisor first, or it would see a stopped engine.
    running = [who for who in (before.supervisor, before.engine) if who is not None and is_alive(who)]
    try:
        for who in running:
            stop(who)
        yield read_status(run)
    finally:
        for who in reversed(running):
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
    victims = [process for process in processes if process is not None and is_alive(process)]
    assert len(victims) == len(processes)
    for process in victims:
        os.kill(process.pid, signal.SIGKILL)
    while any(map(is_alive, victims)):
        time.sleep(LOOK_SECONDS)


def read_files(run: Run) -> Files:
    """The bytes of all files that a recording has."""
    files = {name: (run.folder / name).read_bytes() for name in WHOLE if (run.folder / name).exists()}
    lines = run.telemetry.read_bytes().splitlines(keepends=True)
    files["telemetry.jsonl"] = b"".join(lines[-MOST_TELEMETRY:])
    for manifest in sorted([*run.checkpoints.rglob("MANIFEST.json"), *run.final.glob("MANIFEST.json")]):
        if any(part.startswith(".") for part in manifest.relative_to(run.folder).parts):
            continue  # being written, or being deleted
        present = [manifest.parent / name for name in OF_CHECKPOINTS if (manifest.parent / name).exists()]
        files |= {path.relative_to(run.folder).as_posix(): path.read_bytes() for path in present}
        for weights in manifest.parent.rglob("*.safetensors"):
            files[weights.relative_to(run.folder).as_posix() + HEADER] = read_header(weights)
    return files


def read_header(weights: Path) -> bytes:
    """The head of a safetensors file, without its tensors (format: 8-byte little-endian length, JSON, data)."""
    with weights.open("rb") as file:
        length = file.read(8)
        return length + file.read(int.from_bytes(length, "little"))
