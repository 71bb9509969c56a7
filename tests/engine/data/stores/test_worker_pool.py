"""Processes that tokenise: the same store whatever their number, and an end for each of them however the work ends."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import wait
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from transformers import LlamaTokenizer, Qwen2Tokenizer

from ftui.engine.data.load_rows import _read_options
from ftui.engine.data.sources import ResolvedSource
from ftui.engine.data.stores import worker_pool
from ftui.engine.data.stores.cache import ReadOptions, load_store
from ftui.engine.data.stores.store import FILES, EncodedBlock, Store
from ftui.engine.data.stores.tasks import Task
from ftui.engine.data.tokens.encode import Encoder, stop_texts
from ftui.engine.models.tokenizer import bare_tokenizer, is_bare, tokenizer_fingerprint
from ftui.errors import DiskFullError, FtuiError, HostMemoryError, StalledError
from tests.support.tiny import MARKED, chats, make_profile, make_tokenizer, write_rows

TOKENIZER = make_tokenizer(MARKED)
ENCODER = Encoder(TOKENIZER, "sft", stop_texts(TOKENIZER, []))


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """Five blocks."""
    return write_rows(tmp_path / "rows.jsonl", chats(500) * 5)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list["subprocess.Popen[bytes]"]:
    """All processes that are started."""
    found: list[subprocess.Popen[bytes]] = []

    class Noted(subprocess.Popen):  # type: ignore[type-arg]
        def __init__(self, *args: object, **options: object) -> None:
            super().__init__(*args, **options)  # type: ignore[call-overload]
            found.append(self)

    monkeypatch.setattr(subprocess, "Popen", Noted)
    return found


def tokenise(
    rows: Path, cache: Path, *, num: int, report: Callable[[str], None] = print, skips: bool = False,
    stall: float | None = None,
) -> Store:  # fmt: skip
    """With `num` processes, which are waited for before anything is done here."""
    options = ReadOptions(skips, num, stall)
    return load_store(ResolvedSource("rows", (rows,), "auto"), ENCODER, cache, report, options)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but the first block is done here: processes are waited for."""
    enter = worker_pool.WorkerPool.__enter__

    def patient(crew: worker_pool.WorkerPool) -> worker_pool.WorkerPool:
        wait([enter(crew).ready])
        return crew

    monkeypatch.setattr(worker_pool.WorkerPool, "__enter__", patient)


def test_any_number_of_processes_makes_the_same_store(
    rows: Path, tmp_path: Path, at_once: None, started: list["subprocess.Popen[bytes]"]
) -> None:
    lines = rows.read_bytes().split(b"\n")
    lines[1300], lines[2400] = b'{"messages": 1}', b"{"
    rows.write_bytes(b"\n".join(lines))
    alone, two = (tokenise(rows, tmp_path / str(num), num=num, skips=True) for num in (1, 2))
    assert len(started) == 2
    assert alone.counts == two.counts
    assert [skipped.where.number for skipped in two.counts.skipped] == [1301, 2401]
    assert two.counts.num_rows == 2498
    for name in FILES:
        assert (alone.folder / name).read_bytes() == (two.folder / name).read_bytes()
    assert {process.wait(10) for process in started} <= {0, -signal.SIGKILL}
    assert sorted(path.name for path in two.folder.iterdir()) == sorted([*FILES, "counts.json"])


def test_the_block_of_a_killed_process_is_done_again(
    rows: Path, tmp_path: Path, at_once: None, started: list["subprocess.Popen[bytes]"], monkeypatch: pytest.MonkeyPatch
) -> None:
    ask, calls = worker_pool._Worker.portion_of, count()

    def dying(worker: worker_pool._Worker, task: Task) -> EncodedBlock:
        if next(calls) == 1:
            worker.kill()
        return ask(worker, task)

    whole = tokenise(rows, tmp_path / "whole", num=1)
    monkeypatch.setattr(worker_pool._Worker, "portion_of", dying)
    found = tokenise(rows, tmp_path / "killed", num=2)
    assert found.counts == whole.counts
    assert len(started) == 3


def test_killed_again_it_is_an_error(
    rows: Path, tmp_path: Path, at_once: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = worker_pool._Worker.portion_of

    def dying(worker: worker_pool._Worker, task: Task) -> EncodedBlock:
        worker.kill()
        return ask(worker, task)

    monkeypatch.setattr(worker_pool._Worker, "portion_of", dying)
    with pytest.raises(HostMemoryError, match=r"killed twice by SIGKILL at .*rows\.jsonl, line 513 to 1024") as caught:
        tokenise(rows, tmp_path, num=2)
    assert "data.dataset_num_proc = 1" in caught.value.hint


@pytest.mark.slow
@pytest.mark.parametrize("num_stopped", [1, 2])
def test_the_block_of_one_that_is_stopped_is_done_by_another(
    num_stopped: int, rows: Path, tmp_path: Path, at_once: None, started: list["subprocess.Popen[bytes]"],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Its supervisor could not see that: the engine waits for it, as it may for half an hour while it prepares."""
    monkeypatch.setattr(worker_pool, "TICK_SECONDS", 0.02)
    monkeypatch.setattr(worker_pool, "TIMES_THE_LONGEST", 0)
    ask = worker_pool._Worker.portion_of

    def stopping(worker: worker_pool._Worker, task: Task) -> EncodedBlock:
        if worker._process in started[:num_stopped]:
            os.kill(worker._process.pid, signal.SIGSTOP)
        return ask(worker, task)

    details: list[str] = []
    whole = tokenise(rows, tmp_path / "whole", num=1)
    monkeypatch.setattr(worker_pool._Worker, "portion_of", stopping)
    found = tokenise(rows, tmp_path / "stopped", num=2, report=details.append, stall=3.0)
    assert found.counts == whole.counts and found.ids.tolist() == whole.ids.tolist()
    assert len(started) == 2 + num_stopped
    words = "a process that tokenises gave no answer for 3.0 s: another one does its rows again"
    assert details.count(words) == num_stopped


@pytest.mark.slow
def test_one_that_is_stopped_again_is_a_clear_end(
    rows: Path, tmp_path: Path, at_once: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_pool, "TICK_SECONDS", 0.02)
    ask = worker_pool._Worker.portion_of

    def stopped(worker: worker_pool._Worker, task: Task) -> EncodedBlock:
        worker.fingerprint()
        os.kill(worker._process.pid, signal.SIGSTOP)
        return ask(worker, task)

    monkeypatch.setattr(worker_pool._Worker, "portion_of", stopped)
    with pytest.raises(StalledError, match=r"gave no answer for 0\.2 s each at .*rows\.jsonl, line 513 to") as caught:
        tokenise(rows, tmp_path, num=2, stall=0.2)
    assert caught.value.exit_code == 44
    assert "data.dataset_num_proc = 1" in caught.value.hint and "health.stall_minutes" in caught.value.hint


def test_time_in_which_nothing_could_run_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor that in which a process owes no answer; one that starts has a minute."""
    killed: list[float] = []
    monkeypatch.setattr(worker_pool._Worker, "__init__", lambda self: None)
    monkeypatch.setattr(worker_pool._Worker, "kill", lambda self: killed.append(self._waited))
    worker = worker_pool._Worker()  # type: ignore[call-arg]
    worker._fingerprint, worker._waited, worker._limit, worker._lock = "x", None, None, threading.Lock()
    worker.wait_longer(1000, 3)
    with worker._owing():
        worker.wait_longer(2, 3)
    with worker._owing():
        worker.wait_longer(2, 3)
        assert not killed
        worker._fingerprint = ""
        worker.wait_longer(50, 3)
        assert not killed
        worker._fingerprint = "x"
        worker.wait_longer(2, 3)
        worker.wait_longer(2, 3)
    assert killed == [54]


def test_the_deadline_is_that_of_the_profile(model_folder: Path, rows: Path) -> None:
    def seconds(minutes: float) -> float | None:
        return _read_options(make_profile(model_folder, rows, health={"stall_minutes": minutes})).stall_seconds

    assert seconds(0.5) == 30 and seconds(7) == 420
    assert _read_options(make_profile(model_folder, rows)).stall_seconds == 300
    assert _read_options(make_profile(model_folder, rows, health={"stall_minutes": None})).stall_seconds is None


@pytest.mark.parametrize("which", [[0, 1]], ids=str)
def test_one_killed_while_it_starts_is_started_again(
    which: list[int], rows: Path, tmp_path: Path, at_once: None, monkeypatch: pytest.MonkeyPatch,
    started: list["subprocess.Popen[bytes]"],
) -> None:  # fmt: skip
    """Before it has loaded the tokenizer; one that is killed later has its second try left."""
    start = worker_pool._Worker.__init__

    def killed(worker: worker_pool._Worker, setup: Any) -> None:
        start(worker, setup)
        if len(started) - 1 in which:
            worker.kill()

    monkeypatch.setattr(worker_pool._Worker, "__init__", killed)
    calls = count()

    def kill(detail: str) -> None:
        if detail.startswith("tokenising") and next(calls) == 1:
            started[2].kill()

    whole = tokenise(rows, tmp_path / "whole", num=1)
    found = tokenise(rows, tmp_path / "killed", num=2, report=kill)
    assert found.counts == whole.counts
    assert 2 + len(which) <= len(started) <= 2 + len(which) + 1, "the later one may have been done when it was killed"


def test_killed_again_and_again_while_they_start_it_is_an_error(
    rows: Path, tmp_path: Path, at_once: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = worker_pool._Worker.__init__

    def killed(worker: worker_pool._Worker, setup: Any) -> None:
        start(worker, setup)
        worker.kill()

    monkeypatch.setattr(worker_pool._Worker, "__init__", killed)
    with pytest.raises(HostMemoryError, match="killed twice by SIGKILL before it had begun"):
        tokenise(rows, tmp_path, num=2)


def test_a_disk_without_room_for_their_tokenizer_is_full(
    rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(tokenizer: object, folder: Path) -> None:
        raise Exception("No space left on device (os error 28)")  # as `tokenizers` says it

    monkeypatch.setattr(type(TOKENIZER), "save_pretrained", full)
    with pytest.raises(DiskFullError, match="The tokenizer could not be written: the disk is full"):
        tokenise(rows, tmp_path, num=2)


def test_a_bug_in_a_process_is_no_silence(
    rows: Path, tmp_path: Path, at_once: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_pool, "send", lambda stream, value: (stream.write(bytes([1] + [0] * 8)), stream.flush()))
    with pytest.raises(FtuiError, match="ended with code 1 before it had begun") as caught:
        tokenise(rows, tmp_path, num=2)
    assert "bug" in caught.value.hint


def test_they_end_when_the_run_is_left(
    rows: Path, tmp_path: Path, at_once: None, started: list["subprocess.Popen[bytes]"]
) -> None:
    calls = count()

    def leave(detail: str) -> None:
        if detail.startswith("tokenising") and next(calls) == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tokenise(rows, tmp_path, num=2, report=leave)
    assert [process.poll() for process in started] == [-signal.SIGKILL] * 2
    assert list((tmp_path / "tokens").iterdir()) == []


PARENT = """
import sys, time
from pathlib import Path
from ftui.engine.data.tokens.encode import Encoder
from ftui.engine.data.stores.worker_pool import WorkerPool
from ftui.engine.models.tokenizer import bare_tokenizer
folder = Path(sys.argv[1])
with WorkerPool(Encoder(bare_tokenizer(folder), "sft", frozenset(["<|im_end|>"])), 1, folder) as crew:
    assert crew.ready.result()
    print(*[worker._process.pid for worker in crew._living], flush=True)
    time.sleep(60)
"""


def test_they_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    TOKENIZER.save_pretrained(tmp_path)
    with subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path)], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        children = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(children) == 1
        parent.kill()
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and any(map(_lives, children)):
        time.sleep(0.05)
    assert not any(map(_lives, children))


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_they_load_no_training_library() -> None:
    heavy = {"torch", "datasets", "pandas", "pyarrow", "accelerate", "peft"}
    code = (
        f"import sys, ftui.engine.data.stores.worker; print({heavy} & {{name.split('.')[0] for name in sys.modules}})"
    )
    output = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True).stdout
    assert output.strip() == "set()"


@pytest.mark.parametrize("own", [Qwen2Tokenizer, LlamaTokenizer])
def test_a_tokenizer_of_a_models_own_class_is_the_same_without_it(own: Any, tmp_path: Path) -> None:
    model = json.loads(TOKENIZER.backend_tokenizer.to_str())["model"]
    tokenizer = own(vocab=model["vocab"], merges=[tuple(merge) for merge in model["merges"]])
    tokenizer.save_pretrained(tmp_path)
    assert is_bare(tokenizer)
    assert tokenizer_fingerprint(bare_tokenizer(tmp_path)) == tokenizer_fingerprint(tokenizer)

    class Overriding(own):  # type: ignore[misc]
        def _encode_plus(self, *args: Any, **options: Any) -> Any:
            return super()._encode_plus(*args, **options)

    tokenizer.__class__ = Overriding
    assert not is_bare(tokenizer)


def test_where_it_is_another_one_all_is_done_here(rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows.write_bytes(b"".join(line + b"\n" for line in rows.read_bytes().split(b"\n")[:1100]))
    whole = tokenise(rows, tmp_path / "whole", num=1)
    monkeypatch.setattr(worker_pool, "tokenizer_fingerprint", lambda tokenizer: "another")
    monkeypatch.setattr(worker_pool._Worker, "portion_of", lambda worker, task: pytest.fail("it is asked"))
    monkeypatch.setattr(worker_pool._Worker, "fingerprint", lambda worker: "this")
    assert tokenise(rows, tmp_path / "here", num=2).ids.tolist() == whole.ids.tolist()
