import errno
import fcntl
import mmap
import os
import resource
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ftui.errors import DiskError, DiskFullError
from ftui.system.volume import (
    Volume,
    check_room,
    disk_error,
    free_bytes,
    is_disk_full,
    make_reserve,
    probe,
    release_reserve,
)
from ftui.system.volume import warnings as warnings_about

ODD = (errno.ENOSYS, errno.EXDEV, errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM, errno.ENOLCK, errno.EIO)


def refusing(number: int) -> Callable[..., Any]:
    def refuse(*arguments: Any, **options: Any) -> Any:
        raise OSError(number, os.strerror(number))

    return refuse


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "volume"
    place.mkdir()
    return place


@pytest.fixture
def small_files() -> Iterator[None]:
    """No file may be longer than 64 KiB: the kernel itself refuses."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64 << 10, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_which_errors_more_room_would_have_helped() -> None:
    assert all(is_disk_full(OSError(number, "x")) for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
    assert not any(is_disk_full(OSError(number, "x")) for number in ODD)
    assert is_disk_full(RuntimeError("Error while serializing: I/O error: No space left on device (os error 28)"))
    assert not is_disk_full(RuntimeError("os error 5"))
    assert not is_disk_full(RuntimeError("28 tensors"))


def test_there_is_room_and_the_trial_leaves_nothing(folder: Path) -> None:
    check_room(folder, 5 << 20)
    assert list(folder.iterdir()) == []
    free = free_bytes(folder)
    assert free is not None
    assert free > 0


def test_too_little_room_is_said_with_both_numbers(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_bavail=3, f_frsize=1 << 20, f_blocks=9))
    with pytest.raises(DiskFullError, match=r"3\.0 MiB free, 5\.0 MiB needed") as caught:
        check_room(folder, 5 << 20)
    assert caught.value.exit_code == 40
    check_room(folder, 3 << 20)


def test_a_volume_that_does_not_say_is_only_tried(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_bavail=0, f_frsize=4096, f_blocks=0))
    assert free_bytes(folder) is None
    check_room(folder, 5 << 20)


@pytest.mark.parametrize("call", ["write", "fsync"])
def test_a_quota_is_called_one_although_the_volume_has_room(
    call: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, call, refusing(errno.EDQUOT))
    with pytest.raises(DiskFullError, match="quota"):
        check_room(folder, 1)
    assert list(folder.iterdir()) == []


@pytest.mark.usefixtures("small_files")
def test_a_limit_on_files_is_found_by_writing(folder: Path) -> None:
    with pytest.raises(DiskFullError, match="limit on the size of files"):
        check_room(folder, 5 << 20)
    assert list(folder.iterdir()) == []


def test_a_folder_that_takes_nothing_is_no_full_disk(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "write", refusing(errno.EIO))
    with pytest.raises(DiskError) as caught:
        check_room(folder, 1)
    assert not isinstance(caught.value, DiskFullError)
    assert list(folder.iterdir()) == []


def test_free_room_that_cannot_be_asked_for_is_not_made_up(tmp_path: Path) -> None:
    assert "n/a free" in disk_error(OSError(errno.ENOSPC, "x"), "It", tmp_path / "nowhere").message


def test_the_reserve_is_given_back_by_halves(folder: Path) -> None:
    """What is given back is soon taken by others: for the next record there must be some left."""
    make_reserve(folder / ".reserve")
    content = (folder / ".reserve").read_bytes()
    assert len(content) == 256 << 10
    assert len(set(content)) == 256, "zeros would take no room on a volume that compresses"
    make_reserve(folder / ".reserve")
    assert (folder / ".reserve").read_bytes() == content
    sizes = []
    while release_reserve(folder / ".reserve"):
        sizes.append((folder / ".reserve").stat().st_size if (folder / ".reserve").exists() else 0)
    assert sizes == [128 << 10, 64 << 10, 32 << 10, 16 << 10, 8 << 10, 4 << 10, 0]
    assert list(folder.iterdir()) == []


@pytest.mark.usefixtures("small_files")
def test_a_reserve_that_does_not_fit_leaves_nothing(folder: Path) -> None:
    with pytest.raises(DiskFullError):
        make_reserve(folder / ".reserve")
    assert list(folder.iterdir()) == []


def test_a_good_volume_can_do_everything() -> None:
    with tempfile.TemporaryDirectory() as place:
        volume = probe(Path(place))
        assert volume == Volume(flock=True, rename=True, fsync=True, mmap=True, append=True)
        assert warnings_about(volume) == []
        assert os.listdir(place) == []


CALLS = {"flock": (fcntl, "flock"), "rename": (os, "rename"), "fsync": (os, "fsync"), "mmap": (mmap, "mmap")}
SAID = {"flock": "only seen", "rename": "manifest", "fsync": "power cut", "mmap": "read whole"}


@pytest.mark.parametrize("number", ODD)
@pytest.mark.parametrize("name", CALLS)
def test_what_is_missing_is_found_said_and_leaves_nothing(
    name: str, number: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(*CALLS[name], refusing(number))
        volume = probe(folder)
    assert [quality for quality in ("flock", "rename", "fsync", "mmap", "append") if not getattr(volume, quality)] == [
        name
    ]
    (sentence,) = warnings_about(volume)
    assert SAID[name] in sentence
    assert list(folder.iterdir()) == []


def test_a_lock_that_everybody_gets_is_none(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fcntl, "flock", lambda descriptor, operation: None)
    assert not probe(folder).flock


def test_no_appending_means_no_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.open
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", lambda path, flags, *rest, **more: real(path, flags & ~os.O_APPEND, *rest, **more))
        volume = probe(folder)
    assert not volume.append
    with pytest.raises(DiskError) as caught:
        warnings_about(volume)
    assert "FTUI_RUNS" in caught.value.hint
    assert list(folder.iterdir()) == []


def test_a_full_disk_is_no_verdict_on_the_volume(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "write", refusing(errno.ENOSPC))
    with pytest.raises(DiskFullError):
        probe(folder)
    assert list(folder.iterdir()) == []
    with pytest.raises(DiskError, match="cannot be tried"):
        probe(folder / "nowhere")
