"""Checkpoints as folders that are whole or are not there: staged, hashed, synced, published by one rename.

This module handles files, not tensors: engine/checkpoints/checkpoint.py says what is in a checkpoint.

    checkpoints/checkpoint-120/        MANIFEST.json last; weights and tokenizer at the top, ours under resume/
    checkpoints/.partial-120-<token>/  being written; swept at the next start
    checkpoints/.trash-120-<token>/    being deleted; swept at the next start
    checkpoints/quarantine/            damaged folders, kept for a look, with the reason in the journal
    checkpoints/superseded/            of a line that was abandoned: a later attempt resumed from an earlier step

Volumes that cannot rename a folder get its files moved one by one, the manifest last: without one a folder is no
checkpoint. Links are never followed where something is deleted or moved.
"""

import contextlib
import itertools
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from ftui.errors import DiskError, UsageError
from ftui.runs.manifest import (
    MANIFEST,
    FileEntry,
    Manifest,
    fault,
    file_hash,
    manifest_files,
    read_manifest,
    write_manifest,
)
from ftui.system.checked_write import Pieces, write_checked, write_hashed
from ftui.system.file_tree import delete, link_files, move_files, move_out, plain_files, rename_folder, sync_folders
from ftui.system.files import DAMAGED, PRIVATE_FOLDER, make_private_folder, sync_path
from ftui.system.scratch import scratch, sweep_scratch
from ftui.system.volume import free_bytes

__all__ = [
    "MANIFEST",
    "MARK",
    "Checkpoint",
    "FileEntry",
    "Manifest",
    "StagedExport",
    "check_export",
    "checkpoints_in",
    "contents",
    "discard",
    "exporting",
    "fault",
    "file_hash",
    "link_copy",
    "newest_valid",
    "publish",
    "quarantine",
    "read_manifest",
    "rotate",
    "step_of",
    "supersede",
    "sweep",
    "total_size",
]  # fmt: skip

MEMORY = Path("/dev/shm")
MARK = "export"  # in the fingerprints of an export: what was made, of which weights of which run
MOST_NAMES = 4  # that a message lists
SCRATCH_BYTES = 256 << 20  # tokenizers have up to 35 MB
NOT_FINITE = "holds NaN or infinite weights"
DISCARDED = "DISCARDED.json"  # the manifest of a folder that is being deleted where it stands
_NAME = re.compile(r"checkpoint-(\d+)")
_NAMED = re.compile(r"(?:checkpoint-)?(\d+)")


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint folder under its final name, and the step in that name."""

    path: Path
    step: int


def publish(target: Path, manifest: Manifest, fill: Callable[[Path], Mapping[str, Pieces] | None]) -> Manifest:
    """Make a folder of files appear at `target` whole, durably, in one rename.

    `fill` puts the small files into a scratch folder in memory, as libraries write them, and returns the large ones as
    the pieces they are made of. So each file's content is known before the disk has it, and what the disk then says it
    has is compared with that (`write_checked`).

    A folder already at `target` is moved to trash first (only `final/` is ever written twice). Whatever stops this
    (a kill, a full disk) leaves no valid folder under a final name.

    Returns:
        The manifest as written, with every file's size and hash.
    """
    with _staged(target) as staged:
        files = {}
        for name, pieces in sorted(contents(staged, fill).items()):
            make_private_folder((staged / name).parent)
            files[name] = FileEntry(*write_checked(staged / name, pieces))
        return write_manifest(staged, msgspec.structs.replace(manifest, files=files, created=time.time()))


def contents(parent: Path, fill: Callable[[Path], Mapping[str, Pieces] | None]) -> dict[str, Pieces]:
    """All files that `fill` makes or returns, by name (see `publish`).

    Its scratch folder is in memory; where there is none it is in `parent`, and faults of that disk are not seen.
    """
    is_usable = os.access(MEMORY, os.W_OK | os.X_OK) and (free_bytes(MEMORY) or 0) > SCRATCH_BYTES
    with scratch("save", MEMORY if is_usable else parent) as folder:
        large = fill(folder) or {}
        small = {path.relative_to(folder).as_posix(): path.read_bytes() for path in plain_files(folder)}
    return {name: lambda data=data: (data,) for name, data in small.items()} | dict(large)


@dataclass(frozen=True)
class StagedExport:
    """A folder of an export in the making: `write` puts files into it, and all of them stand in its manifest."""

    path: Path
    files: dict[str, FileEntry] = field(default_factory=dict)

    def write(self, name: str, pieces: Iterable[bytes | memoryview]) -> None:
        """Write a file of these pieces, and compare it with what the disk then says it has.

        Raises:
            OSError: as `write_hashed`.
        """
        self.files[name] = FileEntry(*write_hashed(self.path / name, pieces))


@contextlib.contextmanager
def exporting(target: Path, manifest: Manifest, *, replaces: bool = False) -> Iterator[StagedExport]:
    """A folder to fill in a block, which stands at `target` with its manifest when the block ends well.

    Else nothing does: a kill leaves a folder under a name that says which process made it, and the next export beside
    it deletes that. What stood at `target` stays until the new one is whole, and for good where it may not be replaced
    (`check_export`): the new folder then stands beside it.

    Args:
        replaces: an export stood at `target` when the work began.

    Raises:
        UsageError: the folder stands beside `target`.
    """
    parent = make_private_folder(target.parent)
    _delete_trash(parent)
    with scratch("export", parent) as folder:
        staged = StagedExport(folder)
        yield staged
        write_manifest(folder, msgspec.structs.replace(manifest, files=staged.files, created=time.time()))
        try:
            check_export(target, manifest.fingerprints.get(MARK, ""), replaces=replaces)
        except UsageError as error:
            names = (target.with_name(f"{target.name}-{number}") for number in itertools.count(2))
            free = next(place for place in names if not os.path.lexists(place))
            _put_in_place(folder, free)
            raise UsageError(f"{error.message} What was made is whole, and stands at {free}.") from error
        _put_in_place(folder, target)


def check_export(target: Path, mark: str, *, replaces: bool = True, quick: bool = False) -> bool:
    """Whether an export takes the place of another one; `False` where nothing is at `target`.

    That one must be the same file of the same weights (`mark`, which says both, is in `fingerprints[MARK]` of their
    manifests), with each byte as ftui wrote it and nothing beside it. `quick` does not read the files (sizes only).

    Raises:
        UsageError: something else is there, or an export though none is to be replaced (`replaces`).
    """
    if not os.path.lexists(target):
        return False
    try:
        why = _why_kept(target, mark, quick=quick) or (None if replaces else "an export was put there meanwhile")
    except OSError as error:
        why = f"it cannot be read ({error.strerror})"
    if why is not None:
        hint = "Name another folder with --out, or remove it."
        raise UsageError(f"{target} is there already, and is not replaced: {why}.", hint=hint)
    return True


def _why_kept(target: Path, mark: str, *, quick: bool) -> str | None:
    if target.is_symlink() or not target.is_dir():
        return "it is a link" if target.is_symlink() else "it is a file"
    try:
        old = read_manifest(target)
    except (OSError, *DAMAGED):
        return f"it is no export, and holds {_listing(path.name for path in target.iterdir())}"
    present = {path.relative_to(target).as_posix() for path in target.rglob("*") if path.is_symlink() or path.is_file()}
    if foreign := present - {*old.files, MANIFEST}:
        return f"it also holds {_listing(foreign)}, which ftui did not write"
    if not mark or old.fingerprints.get(MARK) != mark:
        return f"it was made of other weights or in another way, and holds {_listing(old.files)}"
    return fault(target, quick=quick)


def _listing(names: Iterable[str]) -> str:
    ordered = sorted(names)
    more = f" and {len(ordered) - MOST_NAMES} more" if len(ordered) > MOST_NAMES else ""
    return ", ".join(ordered[:MOST_NAMES]) + more or "nothing"


def link_copy(source: Path, target: Path) -> Manifest:
    """Make a checkpoint stand in another run's folder too, by the protocol of `publish`.

    Its files are hard links (no file of a checkpoint is ever written again), copies where the volume has none.

    Raises:
        DiskError: the source is no whole checkpoint (sizes and headers only; hashes are for whoever uses it).
    """
    if problem := fault(source, quick=True):
        raise DiskError(f"{source.name} cannot be copied: {problem}.")
    manifest = read_manifest(source)
    with _staged(target) as staged:
        link_files(source, staged, [*manifest.files, MANIFEST])
    return manifest


@contextlib.contextmanager
def _staged(target: Path) -> Iterator[Path]:
    """A private folder to fill, which becomes `target` when the block ends well, and is gone when it does not."""
    parent = make_private_folder(target.parent)
    staged = parent / f".partial-{target.name}-{secrets.token_hex(4)}"
    staged.mkdir(mode=PRIVATE_FOLDER)
    try:
        yield staged
        _put_in_place(staged, target)
    finally:
        shutil.rmtree(staged, ignore_errors=True)  # what a failed save took is room for the next one


def _put_in_place(staged: Path, target: Path) -> None:
    sync_folders(staged)
    if target.is_symlink() or target.exists():
        discard(target)
    if not rename_folder(staged, target):
        move_files(staged, target, last=MANIFEST)


def checkpoints_in(root: Path) -> list[Checkpoint]:
    """Checkpoints by name, newest step first; nothing is verified."""
    if not root.is_dir():
        return []
    checkpoints = [Checkpoint(path, int(match[1])) for path in root.iterdir() if (match := _NAME.fullmatch(path.name))]
    return sorted(checkpoints, key=lambda checkpoint: -checkpoint.step)


def step_of(text: str) -> int:
    """The step that `checkpoint-120` or `120` names.

    Raises:
        UsageError: it is neither.
    """
    if match := _NAMED.fullmatch(text):
        return int(match[1])
    raise UsageError(f"{text!r} names no checkpoint.", hint="checkpoint-120, or the step alone: 120")


def newest_valid(root: Path, run_ids: str | Collection[str]) -> tuple[Checkpoint | None, list[tuple[Checkpoint, str]]]:
    """The checkpoint of the highest step that verifies byte for byte, and those above it that do not, with the reason.

    Never by modification time or a pointer file: clocks move and pointers run ahead of their data. `run_ids` is the
    run's own id, or its and those of the runs it continues from.
    """
    rejected: list[tuple[Checkpoint, str]] = []
    for checkpoint in checkpoints_in(root):
        reason = fault(checkpoint.path, run_id=run_ids)
        if reason is None and not read_manifest(checkpoint.path).finite:
            reason = NOT_FINITE
        if reason is None:
            return checkpoint, rejected
        rejected.append((checkpoint, reason))
    return None, rejected


def quarantine(checkpoint: Checkpoint) -> Path:
    """Move a damaged checkpoint aside; returns where it is now (where it was, if the volume renames no folders)."""
    folder = make_private_folder(checkpoint.path.parent / "quarantine", inside=checkpoint.path.parents[1])
    place = folder / f"{checkpoint.path.name}-{secrets.token_hex(4)}"
    return place if rename_folder(checkpoint.path, place) else checkpoint.path


def supersede(root: Path, above: int) -> list[Checkpoint]:
    """Move every checkpoint above a step to superseded/, valid or not, so that history stays one line.

    Newest first: a kill in between leaves the line shorter, never with a hole.

    Returns:
        The moved, where they are now.
    """
    moved = []
    for checkpoint in checkpoints_in(root):
        if checkpoint.step <= above:
            break
        folder = make_private_folder(root / "superseded", inside=root.parent)
        place = folder / f"{checkpoint.path.name}-{secrets.token_hex(4)}"
        if not rename_folder(checkpoint.path, place):
            move_out(checkpoint.path, place, first=MANIFEST)
        moved.append(Checkpoint(place, checkpoint.step))
    return moved


def rotate(root: Path, *, keep: int, protected: Collection[int]) -> list[Checkpoint]:
    """Delete the oldest checkpoints until `keep` (at least 2) are left beside the protected steps; returns the deleted.

    Rotation never relies on a checkpoint that nobody has read back (`publish` has), and damaged ones do not count. What
    the volume refuses to delete for now is left to the next rotation.
    """
    candidates = [c for c in checkpoints_in(root) if c.step not in protected and fault(c.path, quick=True) is None]
    surplus = candidates[max(2, keep) :]
    for checkpoint in surplus:
        with contextlib.suppress(OSError):
            discard(checkpoint.path)
    _delete_trash(root)
    return [checkpoint for checkpoint in surplus if not checkpoint.path.exists()]


def discard(folder: Path) -> None:
    """Delete a folder of ours: renamed to trash first, so that no half-deleted folder stands under a valid name.

    Where the volume renames no folders its manifest is renamed, which makes it no checkpoint just the same; a deletion
    that is cut short is ended by the next sweep.
    """
    if folder.is_symlink():
        folder.unlink()
        return
    trash = folder.with_name(f".trash-{folder.name}-{secrets.token_hex(4)}")
    if rename_folder(folder, trash):
        _delete_manifest_files(trash)
        return
    names = manifest_files(folder)
    try:
        (folder / MANIFEST).rename(folder / DISCARDED)
        names = manifest_files(folder, DISCARDED)
    except OSError:  # no renaming at all, or no manifest
        (folder / MANIFEST).unlink(missing_ok=True)
    sync_path(folder)
    delete(folder, names)


def sweep(root: Path) -> None:
    """Delete what a kill left behind: folders being written or being deleted, what `ftui.system.volume` tried there,
    and small files that were in memory."""
    sweep_scratch("save", MEMORY)
    sweep_scratch("save", root)
    for pattern in (".partial-*", ".probe-*", ".trial-*"):
        for path in root.glob(pattern):  # whatever is in it, we were writing it
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                with contextlib.suppress(OSError):  # a network volume may refuse for now
                    path.unlink()
    _delete_trash(root)
    for checkpoint in checkpoints_in(root):  # a deletion was cut short after its last file
        if not checkpoint.path.is_symlink() and all(path.is_dir() for path in checkpoint.path.rglob("*")):
            delete(checkpoint.path, ())


def _delete_trash(root: Path) -> None:
    for path in root.glob(".trash-*"):
        _delete_manifest_files(path)
    for path in root.glob(f"*/{DISCARDED}"):
        delete(path.parent, manifest_files(path.parent, DISCARDED))


def _delete_manifest_files(trash: Path) -> None:
    """Delete the files the manifest names, itself last (a kill in between leaves it to the next sweep)."""
    delete(trash, manifest_files(trash))


def total_size(folder: Path) -> int:
    """Bytes of all files in a folder."""
    return sum(os.lstat(path).st_size for path in folder.rglob("*") if path.is_file())
