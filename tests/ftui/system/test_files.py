import errno
import fcntl
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ftui.system.files import (
    Lease,
    lock_from,
    make_private_folder,
    open_private,
    replace_file,
    sync_path,
    try_lock,
    wait_lock,
    write_all,
)
from ftui.system.process_id import Identity


@pytest.fixture(autouse=True)
def nobody_else_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without flock a lock waits for others who found it free as well; here they are made up."""
    monkeypatch.setattr("ftui.system.files._SETTLE_SECONDS", 0.0)


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
    for request in (b"b", b"a") * 100:
        replace_file(path, request * 100_000)
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


def refusing(number: int) -> Callable[..., Any]:
    def refuse(*arguments: Any, **options: Any) -> Any:
        raise OSError(number, os.strerror(number))

    return refuse


@pytest.mark.parametrize("call", ["write", "fsync", "rename"])
def test_a_replacement_that_fails_leaves_the_old_file_alone(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace_file(tmp_path / "x", b"old")
    with monkeypatch.context() as patch:
        patch.setattr(os, call, refusing(errno.ENOSPC))
        with pytest.raises(OSError, match="No space"):
            replace_file(tmp_path / "x", b"new", durable=True)
    assert os.listdir(tmp_path) == ["x"]
    assert (tmp_path / "x").read_bytes() == b"old"


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EBADF])
def test_a_volume_without_fsync_is_put_up_with(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", refusing(number))
    sync_path(tmp_path)
    replace_file(tmp_path / "x", b"new", durable=True)
    assert (tmp_path / "x").read_bytes() == b"new"


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EDQUOT])
def test_data_that_did_not_reach_the_disk_is_never_put_up_with(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", refusing(number))
    with pytest.raises(OSError) as caught:
        sync_path(tmp_path)
    assert caught.value.errno == number


NO_FLOCK = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)


@pytest.fixture(params=[None, *NO_FLOCK], ids=["flock", *(errno.errorcode[number] for number in NO_FLOCK)])
def volume(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A volume with flock, and those without it."""
    if request.param is not None:
        monkeypatch.setattr(fcntl, "flock", refusing(request.param))


@pytest.mark.usefixtures("volume")
def test_a_lock_is_held_once_and_not_inherited(tmp_path: Path) -> None:
    lock = try_lock(tmp_path / "lock")
    assert lock is not None
    assert not os.get_inheritable(lock.descriptor)
    assert lock.is_ours()
    assert try_lock(tmp_path / "lock") is None
    lock.close()
    again = try_lock(tmp_path / "lock")
    assert again is not None
    assert mode(tmp_path / "lock") == 0o600
    again.close()


@pytest.mark.usefixtures("volume")
@pytest.mark.parametrize("replaced", [False, True])
def test_a_lock_file_that_is_deleted_or_replaced_is_lost(replaced: bool, tmp_path: Path) -> None:
    lock = try_lock(tmp_path / "lock")
    assert lock is not None
    (tmp_path / "lock").unlink()
    if replaced:
        (tmp_path / "lock").write_bytes(b"")
    assert not lock.is_ours()
    lock.close()


def test_a_volume_that_does_not_answer_says_nothing_about_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = try_lock(tmp_path / "lock")
    assert lock is not None
    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", refusing(errno.EIO))
        with pytest.raises(OSError):
            lock.is_ours()
    lock.close()


def lease(path: Path, holder: Identity) -> None:
    path.write_bytes(msgspec.json.encode(Lease(holder, "another")))


@pytest.mark.usefixtures("volume")
def test_a_lease_counts_while_its_holder_lives(tmp_path: Path, living: Identity, dead: Identity) -> None:
    lease(tmp_path / "lock", living)
    assert try_lock(tmp_path / "lock") is None
    lease(tmp_path / "lock", dead)
    lock = try_lock(tmp_path / "lock")
    assert lock is not None
    assert lock.is_ours()
    lock.close()


@pytest.mark.parametrize("left", [b"", b"{", b"\xff", b'{"identity": 1}'])
def test_what_a_crash_left_of_a_lease_holds_nobody_up(
    left: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fcntl, "flock", refusing(errno.ENOLCK))
    (tmp_path / "lock").write_bytes(left)
    lock = try_lock(tmp_path / "lock")
    assert lock is not None
    lock.close()


def test_of_two_that_find_a_lease_free_the_last_to_write_has_it(
    tmp_path: Path, living: Identity, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fcntl, "flock", refusing(errno.ENOSYS))
    with monkeypatch.context() as patch:
        patch.setattr("ftui.system.files.time.sleep", lambda seconds: lease(tmp_path / "lock", living))
        assert try_lock(tmp_path / "lock") is None
    (tmp_path / "lock").unlink()
    lock = try_lock(tmp_path / "lock")
    assert lock is not None
    lease(tmp_path / "lock", living)
    assert not lock.is_ours()
    lock.close()
    assert b"another" in (tmp_path / "lock").read_bytes(), "the other's claim stays"


def test_a_child_adopts_the_lock_over_exec(tmp_path: Path) -> None:
    lock = try_lock(tmp_path / "lock")
    assert lock is not None
    code = (
        "import os, sys; from ftui.system.files import lock_from; lock = lock_from(int(sys.argv[1]))\n"
        "print(lock.is_ours(), os.get_inheritable(lock.descriptor), lock.path.name, flush=True); sys.stdin.read()"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(lock.descriptor)], pass_fds=[lock.descriptor],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    lock.close()
    assert child.stdout is not None
    assert child.stdout.readline() == "True False lock\n"
    assert try_lock(tmp_path / "lock") is None, "the child has it, though its parent let go"
    child.communicate("")
    again = try_lock(tmp_path / "lock")
    assert again is not None
    again.close()


def test_a_lease_is_taken_over_by_the_child_and_its_parents_close_leaves_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fcntl, "flock", refusing(errno.ENOLCK))
    parents = try_lock(tmp_path / "lock")
    assert parents is not None
    childs = lock_from(os.dup(parents.descriptor))
    assert (parents.is_ours(), childs.is_ours()) == (False, True)
    parents.close()
    assert childs.is_ours()
    childs.close()
    assert (tmp_path / "lock").read_bytes() == b""


def test_a_descriptor_that_holds_nothing_is_no_lock(tmp_path: Path) -> None:
    lock = try_lock(tmp_path / "lock")
    assert lock is not None
    other = open_private(tmp_path / "lock", os.O_RDWR)
    with pytest.raises(BlockingIOError):
        lock_from(other)
    os.close(other)
    with pytest.raises(OSError):
        lock_from(other)
    lock.close()


def test_waiting_for_a_lock(tmp_path: Path) -> None:
    with wait_lock(tmp_path / "lock"):
        assert try_lock(tmp_path / "lock") is None
    lock = try_lock(tmp_path / "lock")
    assert lock is not None
    lock.close()


def test_without_flock_nobody_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fcntl, "flock", refusing(errno.ENOSYS))
    with wait_lock(tmp_path / "lock"), wait_lock(tmp_path / "lock"):
        assert (tmp_path / "lock").exists()
