import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ftui.files import make_private_folder, open_private, replace_file, try_lock, wait_lock, write_all


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(params=[0o000, 0o777], ids=["umask 0", "umask 777"])
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


@pytest.mark.usefixtures("umask")
def test_what_is_made_is_private_under_any_umask(tmp_path: Path) -> None:
    folder = make_private_folder(tmp_path / "a" / "b")
    assert mode(folder) == mode(folder.parent) == 0o700
    os.close(open_private(folder / "one", os.O_WRONLY))
    replace_file(folder / "two", b"x", durable=True)
    assert mode(folder / "one") == mode(folder / "two") == 0o600


def test_an_existing_folder_keeps_its_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    make_private_folder(tmp_path / "new")
    assert mode(tmp_path) == 0o755


def test_replacing_leaves_no_temporary_and_no_mixture(tmp_path: Path) -> None:
    path = tmp_path / "status.json"
    replace_file(path, b"a" * 100_000)
    done = threading.Event()
    seen = set()

    def read() -> None:
        while not done.is_set():
            seen.add(path.read_bytes())

    reader = threading.Thread(target=read)
    reader.start()
    for letter in (b"b", b"a") * 100:
        replace_file(path, letter * 100_000)
    done.set()
    reader.join()
    assert seen <= {b"a" * 100_000, b"b" * 100_000}
    assert os.listdir(tmp_path) == ["status.json"]


def test_short_writes_are_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: real(descriptor, bytes(data)[:3]))
    replace_file(tmp_path / "x", b"0123456789")
    assert (tmp_path / "x").read_bytes() == b"0123456789"


def test_write_all_takes_nothing(tmp_path: Path) -> None:
    descriptor = open_private(tmp_path / "x", os.O_WRONLY)
    write_all(descriptor, b"")
    os.close(descriptor)
    assert (tmp_path / "x").read_bytes() == b""


def test_a_lock_is_held_once_and_not_inherited(tmp_path: Path) -> None:
    lock = try_lock(tmp_path / "lock")
    assert lock is not None
    assert not os.get_inheritable(lock)
    assert try_lock(tmp_path / "lock") is None
    os.close(lock)
    again = try_lock(tmp_path / "lock")
    assert again is not None
    os.close(again)


def test_waiting_for_a_lock(tmp_path: Path) -> None:
    with wait_lock(tmp_path / "lock"):
        assert try_lock(tmp_path / "lock") is None
    lock = try_lock(tmp_path / "lock")
    assert lock is not None
    os.close(lock)
