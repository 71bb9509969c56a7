"""Checkpoint folders on odd volumes, in other runs, out of the line, and with names that lead outside."""

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ftui.errors import DiskError, UsageError
from ftui.runs import checkpoint_folders
from ftui.runs.checkpoint_folders import MANIFEST, Checkpoint, FileEntry, Manifest
from ftui.system.checked_write import MiswrittenError
from ftui.system.files import write_all
from ftui.system.scratch import make_scratch

RUN_ID = "0123456789abcdef"
FILES = ("config.json", "model.bin", "resume/deep/state.json", "resume/state.json")
NO_RENAME = (errno.ENOSYS, errno.EXDEV, errno.EOPNOTSUPP, errno.EPERM, errno.EINVAL)


def fill(folder: Path) -> None:
    (folder / "resume" / "deep").mkdir(parents=True, mode=0o700)
    for name in FILES:
        (folder / name).write_text(name * 3)


def manifest(step: int, **facts: Any) -> Manifest:
    known: dict[str, Any] = {"run_id": RUN_ID, "attempt": 1, "token": "t", "versions": {}, "fingerprints": {}}
    return Manifest(**(known | facts), step=step, dtypes={}, finite=True, created=0.0)


def publish(root: Path, step: int, **facts: Any) -> Checkpoint:
    path = root / f"checkpoint-{step}"
    checkpoint_folders.publish(path, manifest(step, **facts), fill)
    return Checkpoint(path, step)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def no_rename(number: int, *, files: bool) -> Callable[[Any, Any], None]:
    """A rename that refuses folders, and files too if `files` says so."""
    real = os.rename

    def rename(source: Any, target: Any, **folders: int) -> None:
        if os.path.isdir(source) or (files and not str(source).endswith(".tmp")):
            raise OSError(number, os.strerror(number))
        real(source, target, **folders)

    return rename


@pytest.fixture(params=[(number, files) for number in NO_RENAME for files in (False, True)], ids=str)
def odd(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Volumes that rename no folders, and those that rename no files either."""
    number, files = request.param
    monkeypatch.setattr(os, "rename", no_rename(number, files=files))
    monkeypatch.setattr(os, "replace", no_rename(number, files=files))


@pytest.mark.usefixtures("odd")
def test_without_folder_rename_the_manifest_commits(tmp_path: Path) -> None:
    made = publish(tmp_path, 3)
    assert checkpoint_folders.fault(made.path) is None
    assert names(tmp_path) == ["checkpoint-3"]
    assert all(path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600) for path in made.path.rglob("*"))
    publish(tmp_path, 3, attempt=2)
    assert checkpoint_folders.fault(made.path) is None
    assert checkpoint_folders.read_manifest(made.path).attempt == 2
    assert checkpoint_folders.quarantine(made) == made.path
    checkpoint_folders.discard(made.path)
    assert names(tmp_path) == ["quarantine"]


@pytest.mark.usefixtures("odd")
def test_without_folder_rename_a_line_is_still_superseded(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        publish(tmp_path, step)
    moved = checkpoint_folders.supersede(tmp_path, 1)
    assert [c.step for c in checkpoint_folders.checkpoints_in(tmp_path)] == [1]
    assert [checkpoint_folders.fault(c.path) for c in moved] == [None, None]


@pytest.mark.parametrize("files", [False, True])
def test_a_commit_cut_short_is_no_checkpoint_at_any_file(
    files: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill before each file's move: what stands under the final name has no manifest, and the next save mends it."""
    from ftui.system import file_tree

    real = file_tree._move_file
    for at in range(len(FILES) + 1):
        root, count = tmp_path / str(at), 0

        def move(source: Path, target: Path, name: str, at: int = at) -> None:
            nonlocal count
            if count == at:
                raise KeyboardInterrupt
            count += 1
            real(source, target, name)

        with monkeypatch.context() as patch:
            patch.setattr(os, "rename", no_rename(errno.ENOSYS, files=files))
            patch.setattr(os, "replace", no_rename(errno.ENOSYS, files=files))
            patch.setattr(file_tree, "_move_file", move)
            with pytest.raises(KeyboardInterrupt):
                publish(root, 5)
            assert checkpoint_folders.fault(root / "checkpoint-5") == f"{MANIFEST}: missing"
            patch.setattr(file_tree, "_move_file", real)
            assert checkpoint_folders.fault(publish(root, 5).path) is None


def cut_short(data: bytes) -> bytes:
    return data[: len(data) // 2]


def blank(data: bytes) -> bytes:
    return bytes(len(data))


def flip_a_bit(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


def drop_it(data: bytes) -> bytes:
    return b""


def write_twice(data: bytes) -> bytes:
    return data + data[-1:]


@pytest.mark.parametrize("lie", [cut_short, blank, flip_a_bit, drop_it, write_twice])
def test_what_reads_back_as_something_else_is_never_certified(
    lie: Callable[[bytes], bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk, a library or a cable that changes a write and reports it as done, in each file and the manifest."""
    publish(tmp_path, 1)
    real = os.write
    for at in range(len(FILES) + 1):
        count = 0

        def write(descriptor: int, data: bytes, at: int = at) -> int:
            nonlocal count
            if not Path(os.readlink(f"/proc/self/fd/{descriptor}")).is_relative_to(tmp_path):
                return real(descriptor, data)
            count += 1
            real(descriptor, lie(bytes(data)) if count == at + 1 else bytes(data))
            return len(data)

        with monkeypatch.context() as patch:
            patch.setattr(os, "write", write)
            with pytest.raises(MiswrittenError, match="reads back from the disk"):
                publish(tmp_path, 2)
        assert count == at + 1
        assert names(tmp_path) == ["checkpoint-1"]
    assert checkpoint_folders.fault(tmp_path / "checkpoint-1") is None
    assert checkpoint_folders.fault(publish(tmp_path, 2).path) is None


def test_a_volume_that_copies_is_read_back_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a commit by copying nor a child run's copy of a checkpoint certifies what nobody wrote."""
    source = publish(tmp_path / "parent", 3).path
    monkeypatch.setattr(os, "link", refuse_links)
    real = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: real(descriptor, flip_a_bit(bytes(data))))
    with pytest.raises(MiswrittenError):
        checkpoint_folders.link_copy(source, tmp_path / "child" / "checkpoint-3")
    assert names(tmp_path / "child") == []


def refuse_links(*arguments: Any, **options: Any) -> None:
    raise OSError(errno.EPERM, "Operation not permitted")


def test_a_full_disk_in_a_commit_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(tmp_path, 1)
    monkeypatch.setattr(os, "rename", no_rename(errno.EXDEV, files=False))

    def full(source: Any, target: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        publish(tmp_path, 2)
    assert names(tmp_path) == ["checkpoint-1"]


def test_other_failures_of_a_rename_are_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "rename", no_rename(errno.EIO, files=False))
    with pytest.raises(OSError) as caught:
        publish(tmp_path, 1)
    assert caught.value.errno == errno.EIO
    assert names(tmp_path) == []


def test_a_line_that_is_left_is_moved_aside_valid_or_not(tmp_path: Path) -> None:
    for step in (5, 10, 15, 20):
        publish(tmp_path, step)
    (tmp_path / "checkpoint-20" / MANIFEST).unlink()
    moved = checkpoint_folders.supersede(tmp_path, 10)
    assert [c.step for c in moved] == [20, 15]
    assert [c.step for c in checkpoint_folders.checkpoints_in(tmp_path)] == [10, 5]
    assert all(c.path.parent == tmp_path / "superseded" and c.path.is_dir() for c in moved)
    publish(tmp_path, 15)
    assert [c.step for c in checkpoint_folders.supersede(tmp_path, 10)] == [15]
    assert len(names(tmp_path / "superseded")) == 3
    assert checkpoint_folders.supersede(tmp_path, 10) == []
    assert [c.step for c in checkpoint_folders.supersede(tmp_path, -1)] == [10, 5]
    assert checkpoint_folders.supersede(tmp_path / "nowhere", 0) == []


@pytest.mark.slow
def test_every_flipped_bit_of_a_manifest_is_found(tmp_path: Path) -> None:
    facts = {"environment": {"gpu": "RTX 4090"}, "versions": {"torch": "2.13.0"}}
    made = publish(tmp_path, 3, **facts)
    path = made.path / MANIFEST
    whole = path.read_bytes()
    assert checkpoint_folders.read_manifest(made.path).environment == facts["environment"]
    for position in range(len(whole)):
        for bit in range(8):
            data = bytearray(whole)
            data[position] ^= 1 << bit
            path.write_bytes(data)
            assert checkpoint_folders.fault(made.path, quick=True) is not None, f"bit {bit} of byte {position}"
    path.write_bytes(whole)
    assert checkpoint_folders.fault(made.path) is None
    document = json.loads(whole)
    sealed = whole.replace(document["seal"].encode(), b"")
    assert hashlib.sha256(sealed).hexdigest() == document["seal"], "as the paper says, for other programs"


def test_manifests_from_before_the_seal_are_read(tmp_path: Path) -> None:
    made = publish(tmp_path, 3)
    old = json.loads((made.path / MANIFEST).read_bytes()) | {"format": 1}
    for name in ("seal", "environment"):
        del old[name]
    (made.path / MANIFEST).write_text(json.dumps(old))
    assert checkpoint_folders.fault(made.path, run_id=RUN_ID) is None
    (made.path / MANIFEST).write_text(json.dumps(old | {"format": 2}))
    assert checkpoint_folders.fault(made.path) == f"{MANIFEST}: the content does not match its seal"


def test_a_child_may_go_on_from_its_parents_checkpoint(tmp_path: Path) -> None:
    publish(tmp_path, 1, run_id="parent")
    publish(tmp_path, 2, run_id="stranger")
    assert checkpoint_folders.newest_valid(tmp_path, "parent")[0] == Checkpoint(tmp_path / "checkpoint-1", 1)
    found, rejected = checkpoint_folders.newest_valid(tmp_path, {"child", "parent"})
    assert found == Checkpoint(tmp_path / "checkpoint-1", 1)
    assert [reason for _, reason in rejected] == ["belongs to another run (stranger)"]
    assert checkpoint_folders.newest_valid(tmp_path, "par")[0] is None, "one id is no collection of requests"
    assert checkpoint_folders.fault(tmp_path / "checkpoint-1", run_id=()) == "belongs to another run (parent)"


@pytest.mark.parametrize("links", [True, False])
def test_a_checkpoint_in_another_run(links: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = publish(tmp_path / "parent", 3).path
    (source / "notes.txt").write_text("mine")
    if not links:

        def refuse(*arguments: Any, **options: Any) -> None:
            raise OSError(errno.EPERM, "Operation not permitted")

        monkeypatch.setattr(os, "link", refuse)
    target = tmp_path / "child" / "checkpoints" / "checkpoint-3"
    copied = checkpoint_folders.link_copy(source, target)
    assert copied == checkpoint_folders.read_manifest(source)
    assert checkpoint_folders.fault(target) is None
    assert names(target.parent) == ["checkpoint-3"]
    assert not (target / "notes.txt").exists()
    assert all(os.path.samefile(source / name, target / name) is links for name in FILES)
    checkpoint_folders.discard(target)
    assert checkpoint_folders.fault(source) is None


def test_what_is_no_whole_checkpoint_is_not_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = publish(tmp_path / "parent", 3).path

    def full(*arguments: Any, **options: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", full)
        with pytest.raises(OSError, match="No space left"):
            checkpoint_folders.link_copy(source, tmp_path / "child" / "checkpoint-3")
    (source / "model.bin").unlink()
    with pytest.raises(DiskError, match=r"model\.bin: missing"):
        checkpoint_folders.link_copy(source, tmp_path / "child" / "checkpoint-3")
    assert names(tmp_path / "child") == []


@pytest.mark.parametrize("fallback", [False, True])
def test_deleting_touches_nothing_outside(fallback: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not by `..`, an absolute name, a NUL, a linked file, a linked folder on the way, nor a linked checkpoint."""
    outside = tmp_path / "outside"
    outside.mkdir()
    for name in ("x", "state.json"):
        (outside / name).write_text("mine")
    root = tmp_path / "checkpoints"
    bad = publish(root, 1).path
    wanted = ["../../outside/x", str(outside / "x"), "", ".", "nul\0", "linked", "resume/state.json", "model.bin"]
    (bad / "linked").symlink_to(outside / "x")
    (bad / "resume" / "state.json").unlink()
    (bad / "resume" / "deep" / "state.json").unlink()
    (bad / "resume" / "deep").rmdir()
    (bad / "resume").rmdir()
    (bad / "resume").symlink_to(outside)
    evil = manifest(1, run_id=RUN_ID)
    entry = FileEntry(4, "0" * 64)
    evil = msgspec.structs.replace(evil, files=dict.fromkeys(wanted, entry), format=1)
    (bad / MANIFEST).write_bytes(msgspec.json.encode(evil))
    assert "outside the checkpoint" in str(checkpoint_folders.fault(bad))
    linked = publish(tmp_path / "elsewhere", 2).path
    (root / "checkpoint-2").symlink_to(linked)
    if fallback:
        monkeypatch.setattr(os, "rename", no_rename(errno.EXDEV, files=False))
    checkpoint_folders.discard(bad)
    checkpoint_folders.discard(root / "checkpoint-2")
    (root / "checkpoint-3").symlink_to(linked)
    checkpoint_folders.supersede(root, 2)
    (root / ".trash-x").symlink_to(linked)
    (root / ".partial-x").symlink_to(linked)
    checkpoint_folders.sweep(root)
    assert names(outside) == ["state.json", "x"]
    assert checkpoint_folders.fault(linked) is None
    assert not (bad / "model.bin").exists()
    assert not list(root.rglob("linked"))


def test_what_was_tried_when_a_kill_came_is_swept(tmp_path: Path) -> None:
    publish(tmp_path, 1)
    (tmp_path / ".trial-aa").write_bytes(b"x")
    (tmp_path / ".probe-bb" / "old").mkdir(parents=True)
    (tmp_path / ".reserve").write_bytes(b"x")
    checkpoint_folders.sweep(tmp_path)
    assert names(tmp_path) == [".reserve", "checkpoint-1"]


def test_a_deletion_cut_short_where_no_folder_can_be_renamed_is_ended_by_the_next_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = publish(tmp_path, 4).path
    (path / "notes.txt").write_text("somebody's")
    monkeypatch.setattr(checkpoint_folders, "rename_folder", lambda source, target: False)
    monkeypatch.setattr(checkpoint_folders, "delete", lambda folder, names: None)  # killed before anything was deleted
    checkpoint_folders.discard(path)
    assert checkpoint_folders.fault(path) == "MANIFEST.json: missing"
    assert names(path) == ["DISCARDED.json", "config.json", "model.bin", "notes.txt", "resume"]
    monkeypatch.undo()
    checkpoint_folders.sweep(tmp_path)
    assert names(path) == ["notes.txt"]


def test_a_deletion_cut_short_at_any_call_leaves_nothing_to_the_next_sweep_or_a_whole_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No folder can be renamed, and the kill comes before each call that deletes or renames."""
    real = {name: getattr(os, name) for name in ("rename", "unlink", "rmdir")}
    monkeypatch.setattr(checkpoint_folders, "rename_folder", lambda source, target: False)
    at = calls = 0

    def cut(name: str) -> Callable[..., None]:
        def call(*arguments: Any, **options: Any) -> None:
            nonlocal calls
            calls += 1
            if calls == at + 1:
                raise KeyboardInterrupt
            real[name](*arguments, **options)

        return call

    is_cut = True
    while is_cut:
        path, calls = publish(tmp_path / str(at), 4).path, 0
        with monkeypatch.context() as patch:
            for name in real:
                patch.setattr(os, name, cut(name))
            try:
                checkpoint_folders.discard(path)
            except KeyboardInterrupt:
                pass
            else:
                is_cut = False
        checkpoint_folders.sweep(path.parent)
        assert names(path.parent) == (["checkpoint-4"] if at == 0 else []), f"cut at call {at + 1}"
        assert at > 0 or checkpoint_folders.fault(path) is None
        at += 1
    assert at > len(FILES) + 3, "the files, the folders, the manifest twice"


def test_a_damaged_checkpoint_does_not_count_as_one_that_is_kept(tmp_path: Path) -> None:
    for step in (1, 2, 3, 4):
        publish(tmp_path, step)
    (tmp_path / "checkpoint-3" / MANIFEST).unlink()
    checkpoint_folders.rotate(tmp_path, keep=2, protected=())
    assert [
        c.step for c in checkpoint_folders.checkpoints_in(tmp_path) if checkpoint_folders.fault(c.path) is None
    ] == [4, 2]


def test_an_export_is_whole_or_not_there_and_the_old_one_stays_until_then(tmp_path: Path) -> None:
    target, left = tmp_path / "final-bf16", tmp_path / "ftui-export-{}-999999999-1-x"
    with checkpoint_folders.exporting(target, marked(7)) as staged:
        staged.write("a.bin", iter([b"one", b"two"]))
    assert checkpoint_folders.fault(target) is None
    assert checkpoint_folders.read_manifest(target).files == {
        "a.bin": FileEntry(6, hashlib.sha256(b"onetwo").hexdigest())
    }
    own = make_scratch("export", tmp_path)
    namespace = own.name.split("-")[2]
    own.rmdir()
    left = left.with_name(left.name.format(namespace))
    left.mkdir()  # of a process that was killed
    with pytest.raises(KeyError), checkpoint_folders.exporting(target, manifest(8)) as staged:
        assert not left.exists() and names(tmp_path) == ["final-bf16", staged.path.name]
        staged.write("a.bin", [b"other"])
        raise KeyError
    assert names(tmp_path) == ["final-bf16"] and (target / "a.bin").read_bytes() == b"onetwo"
    with checkpoint_folders.exporting(target, marked(8), replaces=True) as staged:
        staged.write("a.bin", [b"other"])
    assert names(tmp_path) == ["final-bf16"] and checkpoint_folders.fault(target) is None
    assert (target / "a.bin").read_bytes() == b"other"


def marked(step: int, mark: str = "run-1/final/a.bin") -> Manifest:
    return msgspec.structs.replace(manifest(step), fingerprints={checkpoint_folders.MARK: mark})


def write_export(target: Path, mark: str = "run-1/final/a.bin", **more: Any) -> None:
    with checkpoint_folders.exporting(target, marked(7, mark), **more) as staged:
        staged.write("a.bin", [b"one"])
        staged.write("Modelfile", [b"FROM a.bin"])


def nothing(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()


def a_file(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.write_text("mine")


def a_link(folder: Path) -> None:
    folder.rename(folder.with_name("elsewhere"))
    folder.symlink_to("elsewhere")


def export_of(mark: str) -> Callable[[Path], None]:
    def write_other(folder: Path) -> None:
        shutil.rmtree(folder)
        write_export(folder, mark)

    return write_other


KEPT: list[tuple[Callable[[Path], object], str, bool]] = [
    (lambda folder: (folder / "mine-Q4_K_M.gguf").write_text("mine"), "also holds mine-Q4_K_M.gguf, which", True),
    (lambda folder: a_link(folder / "a.bin"), "also holds elsewhere, which", True),
    (lambda folder: (folder / "Modelfile").write_text("FROM b.bin"), "Modelfile: the content does not match", False),
    (lambda folder: (folder / "Modelfile").write_text("FROM mine"), "Modelfile: 9 bytes, should be 10", True),
    (lambda folder: (folder / MANIFEST).rename(folder / "x"), "is no export, and holds Modelfile, a.bin", True),
    (nothing, "is no export, and holds nothing", True), (a_file, "it is a file", True), (a_link, "it is a link", True),
    (export_of("run-1/final/b.bin"), "of other weights or in another way, and holds Modelfile, a.bin", True),
    (export_of("run-2/final/a.bin"), "was made of other", True), (export_of(""), "was made of other", True),
]  # fmt: skip


@pytest.mark.parametrize(("change", "why", "is_quick"), KEPT)
def test_an_export_replaces_only_the_same_one_as_it_was_written(
    change: Callable[[Path], object], why: str, is_quick: bool, tmp_path: Path
) -> None:
    target, mark = tmp_path / "out", "run-1/final/a.bin"
    assert not checkpoint_folders.check_export(target, mark)
    write_export(target)
    assert checkpoint_folders.check_export(target, mark)
    change(target)
    before = {path: path.lstat().st_ino for path in target.rglob("*")}
    with pytest.raises(UsageError, match=f"out is there already, and is not replaced: .*{why}"):
        checkpoint_folders.check_export(target, mark, quick=is_quick)
    with pytest.raises(UsageError, match=f"{why}.*whole, and stands at .*/out-2"):
        write_export(target, replaces=True)
    assert {path: path.lstat().st_ino for path in target.rglob("*")} == before
    assert checkpoint_folders.fault(tmp_path / "out-2") is None


def test_what_no_run_has_made_is_never_replaced(tmp_path: Path) -> None:
    write_export(tmp_path / "out", "")
    with pytest.raises(UsageError, match="was made of other weights"):
        checkpoint_folders.check_export(tmp_path / "out", "")


def test_of_two_exports_to_one_place_both_are_kept(tmp_path: Path) -> None:
    target = tmp_path / "out"
    with (
        pytest.raises(UsageError, match=r"put there meanwhile.*stands at .*/out-3"),
        checkpoint_folders.exporting(target, marked(8)) as staged,
    ):
        write_export(target)
        (tmp_path / "out-2").write_text("mine")
        staged.write("a.bin", [b"two"])
    assert names(tmp_path) == ["out", "out-2", "out-3"]
    assert [(tmp_path / name / "a.bin").read_bytes() for name in ("out", "out-3")] == [b"one", b"two"]
    with pytest.raises(UsageError, match="put there meanwhile"):
        checkpoint_folders.check_export(target, "run-1/final/a.bin", replaces=False)


def test_an_export_that_the_disk_writes_wrongly_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flip(descriptor: int, data: bytes) -> None:
        write_all(descriptor, data.replace(b"w", b"v"))

    monkeypatch.setattr("ftui.system.checked_write.write_all", flip)
    with (
        pytest.raises(MiswrittenError, match=r"a.bin reads back"),
        checkpoint_folders.exporting(tmp_path / "x", manifest(7)) as staged,
    ):
        staged.write("a.bin", [b"one", b"two"])
    assert names(tmp_path) == []
