"""A checkpoint that is being written: by a thread beside the steps, from a copy of all tensors, or at once without one.

The copy is taken between two steps. A step may change every weight in place, and the thread sees none of it.
"""

import contextlib
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

import torch
from safetensors import SafetensorError

from ftui.errors import DiskFullError
from ftui.runs import checkpoint_folders
from ftui.runs.checkpoint_folders import Manifest
from ftui.system.checked_write import MiswrittenError, Pieces
from ftui.system.volume import check_room, disk_error, is_refused

from ..models.weights import TensorFile
from ..system.memory import is_out_of_memory, spare_host_bytes

MISWRITTEN_TRIES = 3
SPARE_BYTES = 2 << 30  # of host memory that are left free beside the copies


@dataclass(eq=False)
class PendingSave:
    """A folder to be written to `target`. Called, it writes, or waits for the thread that does.

    Raises:
        DiskError: the volume fails; a DiskFullError where another call may succeed.
    """

    target: Path
    manifest: Manifest
    files: Mapping[str, Pieces]
    tags: list[str]
    expected_bytes: int
    start: float = field(default_factory=time.monotonic)
    warnings: list[str] = field(default_factory=list)
    seconds: float = 0.0
    _result: Future[None] | None = None

    def write_beside(self, thread: ThreadPoolExecutor, copies: "HostCopies") -> bool:
        """Let the thread write a copy of the files; nothing is done where host memory has no room for one, and where
        ranks have parts: a copy would be all of them."""
        if any(isinstance(file, TensorFile) and file.gather is not None for file in self.files.values()):
            return False
        ready = copies.take(self)
        if ready is not None:
            self._result = thread.submit(self._write_when, ready)
        return ready is not None

    @property
    def has_ended(self) -> bool:
        """Whether the thread is done with it, well or not."""
        return self._result is not None and self._result.done()

    @property
    def is_written(self) -> bool:
        """Whether the thread has written it."""
        return self._result is not None and self._result.done() and self._result.exception() is None

    def __call__(self) -> None:
        result, self._result = self._result, None
        if result is not None:
            with contextlib.suppress(DiskFullError):  # that was some steps ago: there may be room by now
                return result.result()
        self._write()

    def _write_when(self, ready: Callable[[], None]) -> None:
        ready()
        self._write()

    def _write(self) -> None:
        with DiskErrors(self.target):
            if self.expected_bytes:
                check_room(self.target.parent, self.expected_bytes)
            for tries_left in reversed(range(MISWRITTEN_TRIES)):
                try:
                    checkpoint_folders.publish(self.target, self.manifest, lambda _: self.files)
                    break
                except MiswrittenError as error:
                    if not tries_left:
                        raise
                    self.warnings.append(f"{self.target.name}: {error.message}; it is written again")
        self.seconds = time.monotonic() - self.start


class HostCopies:
    """Room in host memory for the copy of one save's tensors, the same from save to save."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._rooms: dict[str, torch.Tensor] = {}
        self._is_told = False

    def take(self, save: PendingSave) -> Callable[[], None] | None:
        """Put copies in the place of a save's tensors; returns what waits for them, `None` where they do not fit."""
        files = {name: file for name, file in save.files.items() if isinstance(file, TensorFile)}
        if not self._make_rooms({name: file.data_bytes for name, file in files.items()}):
            return None
        save.files = {**save.files, **{name: file.copy_into(self._rooms[name]) for name, file in files.items()}}
        if self._device.type != "cuda":
            return lambda: None
        copied = torch.cuda.Event()
        copied.record()
        return copied.synchronize

    def _make_rooms(self, sizes: dict[str, int]) -> bool:
        """Whether there is room for files of these sizes; a GPU copies into pinned memory only without waiting."""
        missing = {name: size for name, size in sizes.items() if self._size_of(name) != size}
        if not missing:
            return True
        needed = sum(missing.values()) - sum(self._size_of(name) or 0 for name in missing)
        problem = ""
        if spare_host_bytes() < needed + SPARE_BYTES:
            problem = "too little host memory is free"
        else:
            try:
                pinned = self._device.type == "cuda"
                for name, size in missing.items():
                    self._rooms.pop(name, None)
                    self._rooms[name] = torch.empty(size, dtype=torch.uint8, pin_memory=pinned)
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
                problem = "host memory gives no more"
        if problem and not self._is_told:
            print(f"steps wait for saves: {problem} for a copy of {needed / 2**30:.1f} GiB", flush=True)
            self._is_told = True
        return not problem

    def _size_of(self, name: str) -> int | None:
        return self._rooms[name].numel() if name in self._rooms else None


class DiskErrors:
    """A block in which every refusal of the system becomes a DiskError, whatever a library makes of it.

    safetensors raises an error of its own, tokenizers a bare `Exception`.
    """

    def __init__(self, target: Path) -> None:
        self._message = f"{target.name} could not be saved (older checkpoints are intact)"
        self._folder = target.parent

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if isinstance(error, Exception) and (isinstance(error, OSError | SafetensorError) or is_refused(error)):
            raise disk_error(error, self._message, self._folder) from error
