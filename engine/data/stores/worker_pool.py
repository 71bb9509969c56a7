"""Blocks of rows tokenised in order: here, and by processes of their own where there are enough of them to pay.

The results are the same bytes, in the same order, however many there are. The block of a process that is killed is done
again by another one, once. One that gives no answer for `health.stall_minutes` (stopped, or at a row without end) is
killed here: the supervisor cannot see it, for whoever waits for it stands still too.
"""

import contextlib
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import Self

from ftui.errors import FtuiError, HostMemoryError, StalledError
from ftui.supervisor.engine_process import clean_environment, signal_name
from ftui.system.volume import disk_error, is_refused
from ftui.units import duration

from ...models.tokenizer import is_bare, tokenizer_fingerprint
from ..tokens.encode import Encoder
from .store import EncodedBlock
from .tasks import Task, encode_block
from .worker import WorkerReady, WorkerSetup, receive, send

TICK_SECONDS = 1.0
LONGEST_LOOK = 2.0  # ticks: more time between two looks was spent asleep, or stopped
TIMES_THE_LONGEST = 20
START_SECONDS = 60.0  # to import and load what it needs, over a network on a busy machine
FinishedTask = tuple[Task, EncodedBlock]


class _WorkerDied(Exception):
    """A worker has ended in the middle of its work; `code` is that of the process.

    `waited` are the seconds after which it was killed because it gave no answer; `None` where it was not.
    """

    def __init__(self, code: int, waited: float | None = None) -> None:
        super().__init__(code)
        self.code = code
        self.waited = waited


def encode_tasks(
    tasks: Iterator[Task],
    encoder: Encoder,
    *,
    size: int,
    pays: Callable[[], bool],
    folder: Path,
    stall_seconds: float | None = None,
    warn: Callable[[str], None] = print,
) -> Generator[FinishedTask]:
    """Each task with what became of it, in their order. Close it (`contextlib.closing`): its processes end then.

    They are started once it `pays`, `size` of them, and load the tokenizer from `folder`; until they are ready the work
    is done here, and all of it where one process is enough. One that gives no answer for `stall_seconds` (and for
    `TIMES_THE_LONGEST` of what a block took so far) is replaced, and `warn` is told.

    Raises:
        HostMemoryError, StalledError, FtuiError: processes died, or gave no answer, again and again.
    """
    for task in tasks:
        yield task, encode_block(task, encoder)
        if size > 1 and is_bare(encoder.tokenizer) and pays():
            break
    else:
        return
    with WorkerPool(encoder, size, folder, stall_seconds, warn) as crew:
        while not crew.ready.done() and (following := next(tasks, None)) is not None:
            yield following, encode_block(following, encoder)
        if crew.ready.done() and crew.ready.result():
            yield from crew.work(tasks)
        else:  # the tokenizer is another one when it is loaded from its files
            yield from ((task, encode_block(task, encoder)) for task in tasks)


class WorkerPool:
    """Processes that work, each fed by a thread. They end with the `with` block, whatever they are doing.

    `ready` is whether they have the same tokenizer, once they have loaded it.
    """

    def __init__(
        self,
        encoder: Encoder,
        size: int,
        folder: Path,
        stall_seconds: float | None = None,
        warn: Callable[[str], None] = print,
    ) -> None:
        with _WriteErrors(folder.parent):
            encoder.tokenizer.save_pretrained(folder)
        self._setup = WorkerSetup(
            str(folder), encoder.stage, sorted(encoder.stops), encoder.loss_on, dict(encoder.shape.columns),
            dict(encoder.shape.roles),
        )  # fmt: skip
        self._fingerprint = tokenizer_fingerprint(encoder.tokenizer)
        self._size = size
        self._stall_seconds = stall_seconds
        self._warn = warn
        self._watch = threading.Thread(target=self._watch_over, name="tokenise-watch", daemon=True)
        self._end = threading.Event()
        self._longest = 0.0
        """Seconds that a block has taken at most."""
        self._replaced: SimpleQueue[float] = SimpleQueue()
        """The seconds that each worker had stood still that was replaced."""
        self._threads = ThreadPoolExecutor(size, thread_name_prefix="tokenise")
        self._idle: SimpleQueue[_Worker] = SimpleQueue()
        self._lock = threading.Lock()
        self._living: set[_Worker] = set()
        self._is_over = False

    def __enter__(self) -> Self:
        workers = [self._hired() for _ in range(self._size)]
        self.ready: Future[bool] = self._threads.submit(self._are_alike, workers)
        if self._stall_seconds is not None:
            self._watch.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with self._lock:
            self._is_over = True
            for worker in self._living:
                worker.kill()
        self._end.set()
        self._threads.shutdown(cancel_futures=True)
        for worker in self._living:
            worker.bury()

    def work(self, tasks: Iterator[Task]) -> Iterator[FinishedTask]:
        """Each task with what became of it; a few are under way ahead of the one that is waited for."""
        waiting: deque[tuple[Task, Future[EncodedBlock]]] = deque()
        for task in tasks:
            waiting.append((task, self._threads.submit(self._done, task)))
            if len(waiting) > 2 * self._size:
                yield self._first(waiting)
        while waiting:
            yield self._first(waiting)

    def _first(self, waiting: deque[tuple[Task, Future[EncodedBlock]]]) -> FinishedTask:
        task, future = waiting.popleft()
        block = future.result()
        while not self._replaced.empty():
            seconds = duration(self._replaced.get())
            self._warn(f"a process that tokenises gave no answer for {seconds}: another one does its rows again")
        return task, block

    def _watch_over(self) -> None:
        """Kill workers that give no answer. Time in which this process could not run does not count."""
        last = time.monotonic()
        while not self._end.wait(TICK_SECONDS):
            now = time.monotonic()
            elapsed, last = min(now - last, LONGEST_LOOK * TICK_SECONDS), now
            limit = max(self._stall_seconds or 0.0, TIMES_THE_LONGEST * self._longest)
            with self._lock:
                for worker in self._living:
                    worker.wait_longer(elapsed, limit)

    def _done(self, task: Task) -> EncodedBlock:
        worker = self._idle.get()
        try:
            try:
                return self._portion(worker, task)
            except _WorkerDied as lost:
                if lost.code > 0:  # not killed: it would end in the same way again
                    raise _death_error(task, lost) from lost
                if lost.waited is not None:
                    self._replaced.put(lost.waited)
            worker = self._hired()
            try:
                return self._portion(worker, task)
            except _WorkerDied as lost:
                raise _death_error(task, lost) from lost
        finally:
            self._idle.put(worker)

    def _portion(self, worker: "_Worker", task: Task) -> EncodedBlock:
        worker.fingerprint()  # one that starts is slower
        begun = time.monotonic()
        portion = worker.portion_of(task)
        self._longest = max(self._longest, time.monotonic() - begun)
        return portion

    def _hired(self) -> "_Worker":
        with self._lock:
            if self._is_over:
                raise _WorkerDied(0)
            worker = _Worker(self._setup)
            self._living.add(worker)
            return worker

    def _are_alike(self, workers: "list[_Worker]") -> bool:
        """Whether all that live, or what stands in for one that was killed while it started, can take tasks."""
        return all(self._is_alike(worker) for worker in workers)

    def _is_alike(self, worker: "_Worker") -> bool:
        try:
            try:
                fingerprint = worker.fingerprint()
            except _WorkerDied as lost:
                if lost.code > 0:  # not killed: it would end in the same way again
                    raise
                worker = self._hired()
                fingerprint = worker.fingerprint()
        except _WorkerDied as lost:
            raise _death_error(None, lost) from lost
        self._idle.put(worker)
        return fingerprint == self._fingerprint


class _WriteErrors:
    """A block that writes the tokenizer: whatever the system refuses becomes a DiskError.

    The library makes a bare `Exception` of it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if isinstance(error, Exception) and is_refused(error):
            raise disk_error(error, "The tokenizer could not be written", self._folder) from error


class _Worker:
    """One process."""

    def __init__(self, setup: WorkerSetup) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "ftui.engine.data.stores.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=clean_environment() | {"TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"},
        )
        assert self._process.stdin is not None and self._process.stdout is not None, "both are pipes"
        self._tasks, self._answers = self._process.stdin, self._process.stdout
        self._fingerprint = ""
        self._waited: float | None = None
        """Seconds since it was asked for what it owes; `None` where it owes nothing."""
        self._limit: float | None = None
        """The seconds after which it was killed because it gave no answer."""
        self._lock = threading.Lock()
        with contextlib.suppress(BrokenPipeError):  # who asks for its fingerprint learns that it is gone
            send(self._tasks, setup)

    def fingerprint(self) -> str:
        """That of its tokenizer, as soon as it is loaded."""
        if not self._fingerprint:
            try:
                with self._owing():
                    self._fingerprint = receive(self._answers, WorkerReady).fingerprint
            except EOFError as error:
                raise self._death() from error
        return self._fingerprint

    def portion_of(self, task: Task) -> EncodedBlock:
        self.fingerprint()
        try:
            with self._owing():
                send(self._tasks, task)
                return receive(self._answers, EncodedBlock)
        except (BrokenPipeError, EOFError) as error:
            raise self._death() from error

    def _death(self) -> _WorkerDied:
        return _WorkerDied(self._process.wait(), self._limit)

    @contextlib.contextmanager
    def _owing(self) -> Iterator[None]:
        with self._lock:
            self._waited = 0.0
        yield
        with self._lock:
            self._waited = None

    def wait_longer(self, seconds: float, limit: float) -> None:
        """Count time in which it owed an answer; kill it once that is longer than the limit."""
        if not self._fingerprint:
            limit = max(limit, START_SECONDS)
        with self._lock:
            if self._waited is not None and self._limit is None:
                self._waited += seconds
                if self._waited > limit:
                    self._limit = limit
                    self.kill()

    def kill(self) -> None:
        self._process.kill()

    def bury(self) -> None:
        """After the threads that fed it are gone."""
        self._process.wait()
        for pipe in (self._tasks, self._answers):
            with contextlib.suppress(BrokenPipeError):  # half a task may be left in it
                pipe.close()


def _death_error(task: Task | None, lost: _WorkerDied) -> FtuiError:
    where = "before it had begun"
    if task is not None:
        block = task.block
        where = f"at {block.path}, {block.unit} {block.places[0]} to {block.places[-1]}" if block.places else block.path
    if lost.waited is not None:
        return StalledError(
            f"Two processes that tokenise gave no answer for {duration(lost.waited)} each {where}.",
            hint="Look at those rows, set data.dataset_num_proc = 1, or allow more time: health.stall_minutes.",
        )
    if lost.code < 0:
        return HostMemoryError(
            f"Processes that tokenise were killed twice by {signal_name(-lost.code)} {where}.",
            hint="The system does that where memory is short: set data.dataset_num_proc = 1, or look at those rows.",
        )
    words = f"A process that tokenises ended with code {lost.code} {where}."
    return FtuiError(words, hint="Its traceback is in the log. This is a bug in ftui: please report it.")
