"""What the engine writes about itself stays bounded, and loses nothing on the way."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ftui.engine.runtime import event_writer
from ftui.engine.runtime.event_writer import EventWriter
from ftui.errors import LostRunError
from ftui.runs.events import ControlRefused, JournalRecord, PhaseChanged, RunFailed, RunStopped, Warned
from ftui.runs.journal import Tail
from ftui.runs.run_folder import Run
from ftui.system.files import try_lock
from ftui.system.volume import release_reserve

CHATTER = """
import sys
from pathlib import Path
from ftui.engine.runtime import event_writer
from ftui.runs.run_folder import Run
event_writer.LONGEST_LOG, event_writer.BEAT_SECONDS = 4000, 0.0
book = event_writer.EventWriter(Run(Path(sys.argv[1])), attempt=1, token="t")
for number in range(300):
    print(f"line {number:04d} of a talkative library", flush=True)
    book.progress()
"""


HOLDER = """
import sys, time
from pathlib import Path
from ftui.system.files import try_lock
from ftui.system.volume import release_reserve
lock = try_lock(Path(sys.argv[1]))
print(lock is not None, flush=True)
time.sleep(60)
"""


def test_a_long_engine_log_begins_anew_and_loses_no_line(tmp_path: Path) -> None:
    run = Run(tmp_path)
    with run.engine_log.open("ab") as log:
        subprocess.run([sys.executable, "-c", CHATTER, str(tmp_path)], stdout=log, stderr=log, check=True)
    old, new = (path.read_text().splitlines() for path in (run.engine_log_before, run.engine_log))
    numbers = [int(line.split()[1]) for line in old + new]
    assert numbers == list(range(numbers[0], 300)), "the two files are one piece of the log"
    assert len(new) > 0 and 100 < len(numbers) < 300, "older pieces are gone, and only they"
    assert run.engine_log_before.stat().st_size < 4000 + 100


def test_a_lock_file_that_was_deleted_is_made_anew_unless_somebody_has_it(tmp_path: Path) -> None:
    run = Run(tmp_path)
    book = EventWriter(run, attempt=1, token="t")
    book.lock = try_lock(run.engine_lock)
    run.engine_lock.unlink()
    book.progress(at_once=True)
    assert book.lock is not None and book.lock.is_ours()
    book.lock.close()
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(run.engine_lock)], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None and other.stdout.readline() == b"True\n"
        book.lock = try_lock(tmp_path / "ours")
        (tmp_path / "ours").unlink()
        with pytest.raises(LostRunError):
            book.progress(at_once=True)
        other.kill()


def test_on_a_full_disk_there_is_room_for_the_end_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is given back is taken by others as soon as one record is written, at each of several fillings."""
    run, room = Run(tmp_path), 0
    write = os.write

    def writing(descriptor: int, data: bytes) -> int:
        nonlocal room
        if not room:
            raise OSError(errno.ENOSPC, "No space left on device")
        room -= 1
        return write(descriptor, data)

    def releasing(path: Path) -> bool:
        nonlocal room
        room = int(release_reserve(path))
        return bool(room)

    events = EventWriter(run, attempt=1, token="t")
    events.make_reserve()
    monkeypatch.setattr(os, "write", writing)
    monkeypatch.setattr(event_writer, "release_reserve", releasing)
    said: list[JournalRecord] = [
        PhaseChanged(phase="held"), PhaseChanged(phase="training"), PhaseChanged(phase="held"), Warned(message="full"),
        RunStopped(step=3, reason="the disk stayed full", exit_code=40),
    ]  # fmt: skip
    for record in said:
        events.write(record)
    found = Tail(run.journal).read()
    assert [type(record) for record in found] == [type(record) for record in said]


def test_no_secret_reaches_the_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Words of a library may hold what was in an address or a variable."""
    monkeypatch.setenv("HF_TOKEN", "correct-horse-battery")
    run, words = Run(tmp_path), "https://ann:pass@host said no to correct-horse-battery"
    events = EventWriter(run, attempt=1, token="t")
    events.warn(words)
    events.set_phase("preparing", words)
    events.write(RunFailed(message=words, hint=words, exit_code=32, error=words))
    events.write(RunStopped(step=1, reason=words, exit_code=10))
    events.write(ControlRefused(request="a" * 16, verb="stop", step=1, reason=words))
    text = run.journal.read_text()
    assert text.count("https://***@host said no to ***") == 7
    assert "pass" not in text.replace("***", "") and "correct-horse" not in text
