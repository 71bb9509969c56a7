"""Checkpoints as folders that are whole or are not there: staged, hashed, synced, published by one rename.

This room knows files, not tensors: what stands in a checkpoint is the engine's business (engine/checkpoint.py).

    checkpoints/checkpoint-120/        MANIFEST.json last; weights and tokenizer at the top, ours under resume/
    checkpoints/.partial-120-<token>/  being written; swept at the next start
    checkpoints/.trash-120-<token>/    being deleted; swept at the next start
    checkpoints/quarantine/            damaged folders, kept for a look, with the reason in the journal
"""

import hashlib
import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from ftui.files import PRIVATE_FILE, PRIVATE_FOLDER, make_private_folder, replace_file, sync_path

MANIFEST = "MANIFEST.json"
FORMAT = 1
_NAME = re.compile(r"checkpoint-(\d+)")
_CHUNK = 1 << 20


class FileEntry(msgspec.Struct, frozen=True):
    """Size in bytes and SHA-256 (hex) of one file of a checkpoint."""

    size: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What a checkpoint is and what every file in it must be."""

    run_id: str
    attempt: int
    token: str
    step: int
    versions: dict[str, str]
    fingerprints: dict[str, str]
    dtypes: dict[str, int]
    finite: bool
    created: float
    files: dict[str, FileEntry] = {}
    format: int = FORMAT


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint folder under its final name, and the step in that name."""

    path: Path
    step: int


def publish(target: Path, manifest: Manifest, fill: Callable[[Path], None]) -> Manifest:
    """Let `fill` write into a private folder, then make that folder appear at `target` whole, durably, in one rename.

    A folder already at `target` is moved to trash first (only `final/` is ever written twice). Whatever stops this
    (a kill, a full disk) leaves no folder under a final name.

    Returns:
        The manifest as written, with every file's size and hash.
    """
    parent = make_private_folder(target.parent)
    staged = parent / f".partial-{target.name}-{secrets.token_hex(4)}"
    staged.mkdir(mode=PRIVATE_FOLDER)
    try:
        fill(staged)
        files = {str(path.relative_to(staged)): _seal(path) for path in sorted(_files(staged))}
        manifest = msgspec.structs.replace(manifest, files=files, created=time.time())
        document = msgspec.json.format(msgspec.json.encode(manifest), indent=1)
        replace_file(staged / MANIFEST, document, durable=True)
        for folder in [p for p in staged.rglob("*") if p.is_dir()] + [staged]:
            sync_path(folder)
    except OSError:
        shutil.rmtree(staged, ignore_errors=True)  # make the room the failed save took available again
        raise
    if target.exists():
        discard(target)
    staged.rename(target)
    sync_path(parent)
    return manifest


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file())


def _seal(path: Path) -> FileEntry:
    """Hash a file as it stands, make it private, and push it to the disk."""
    path.chmod(PRIVATE_FILE)
    entry = FileEntry(path.stat().st_size, file_hash(path))
    sync_path(path)
    return entry


def file_hash(path: Path) -> str:
    """SHA-256 of a file (hex), read in pieces with plain reads (mmap fails on some network volumes)."""
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def read_manifest(folder: Path) -> Manifest:
    """Raises OSError or msgspec.DecodeError when there is none or it is damaged."""
    return msgspec.json.decode((folder / MANIFEST).read_bytes(), type=Manifest)


def fault(folder: Path, *, run_id: str | None = None, quick: bool = False) -> str | None:
    """What is wrong with a checkpoint folder, in words; `None` when every file is what the manifest says.

    `quick` looks at sizes and safetensors headers only (milliseconds); else every byte is read back and hashed.
    """
    try:
        manifest = read_manifest(folder)
    except FileNotFoundError:
        return f"{MANIFEST}: missing"
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        return f"{MANIFEST}: unreadable ({error})"
    if manifest.format > FORMAT:
        return f"written by a newer ftui (format {manifest.format}, this one reads {FORMAT})"
    if run_id is not None and manifest.run_id != run_id:
        return f"belongs to another run ({manifest.run_id})"
    for name, entry in manifest.files.items():
        if problem := _file_fault(folder / name, entry, quick):
            return f"{name}: {problem}"
    return None


def _file_fault(path: Path, entry: FileEntry, quick: bool) -> str | None:
    try:
        size = path.stat().st_size
        if size != entry.size:
            return f"{size} bytes, should be {entry.size}"
        if path.suffix == ".safetensors" and (problem := _header_fault(path, size)):
            return problem
        if not quick and file_hash(path) != entry.sha256:
            return "the content does not match its SHA-256"
    except FileNotFoundError:
        return "missing"
    except OSError as error:
        return f"unreadable ({error})"
    return None


def _header_fault(path: Path, size: int) -> str | None:
    """Check a safetensors header against the file's size (format: 8-byte little-endian length, JSON, data)."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > size - 8:
            return "the safetensors header is longer than the file"
        try:
            header = json.loads(file.read(length))
            ends = [tensor["data_offsets"][1] for name, tensor in header.items() if name != "__metadata__"]
            fits = max(ends, default=0) == size - 8 - length
        except (ValueError, TypeError, LookupError, AttributeError):  # one flipped bit makes any of them
            return "the safetensors header is damaged"
    return None if fits else "the safetensors header does not fit the file"


def listed(root: Path) -> list[Checkpoint]:
    """Checkpoints by name, newest step first; nothing is verified."""
    if not root.is_dir():
        return []
    found = [Checkpoint(path, int(match[1])) for path in root.iterdir() if (match := _NAME.fullmatch(path.name))]
    return sorted(found, key=lambda checkpoint: -checkpoint.step)


def newest_valid(root: Path, run_id: str) -> tuple[Checkpoint | None, list[tuple[Checkpoint, str]]]:
    """The checkpoint of the highest step that verifies byte for byte, and those above it that do not, with the reason.

    Never by modification time or a pointer file: clocks move and pointers run ahead of their data.
    """
    rejected: list[tuple[Checkpoint, str]] = []
    for checkpoint in listed(root):
        reason = fault(checkpoint.path, run_id=run_id)
        if reason is None and not read_manifest(checkpoint.path).finite:
            reason = "holds NaN or infinite weights"
        if reason is None:
            return checkpoint, rejected
        rejected.append((checkpoint, reason))
    return None, rejected


def quarantine(checkpoint: Checkpoint) -> Path:
    """Move a damaged checkpoint aside; returns where it is now."""
    folder = make_private_folder(checkpoint.path.parent / "quarantine")
    place = folder / f"{checkpoint.path.name}-{secrets.token_hex(4)}"
    checkpoint.path.rename(place)
    sync_path(checkpoint.path.parent)
    return place


def rotate(root: Path, *, keep: int, protected: Collection[int]) -> list[Checkpoint]:
    """Delete the oldest checkpoints until `keep` (at least 2) are left beside the protected steps; returns the deleted.

    Call it only after the newest one has been read back: rotation never relies on a checkpoint nobody verified.
    """
    candidates = [c for c in listed(root) if c.step not in protected]
    surplus = candidates[max(2, keep) :]
    for checkpoint in surplus:
        discard(checkpoint.path)
    return surplus


def discard(folder: Path) -> None:
    """Delete a folder of ours: renamed to trash first, so that no half-deleted folder stands under a valid name."""
    trash = folder.with_name(f".trash-{folder.name}-{secrets.token_hex(4)}")
    folder.rename(trash)
    sync_path(folder.parent)
    _delete_named(trash)


def sweep(root: Path) -> None:
    """Delete what a kill left behind: folders being written or being deleted."""
    for path in root.glob(".partial-*"):
        shutil.rmtree(path, ignore_errors=True)  # whatever is in it, we were writing it
    for path in root.glob(".trash-*"):
        _delete_named(path)


def _delete_named(trash: Path) -> None:
    """Delete the files the manifest names, the manifest last, then folders that are empty; links are not followed.

    Files that somebody put beside ours stay. So does all that a network volume refuses to delete for now (`.nfs` files
    of an open descriptor): the next sweep tries again.
    """
    try:
        named = read_manifest(trash).files if (trash / MANIFEST).exists() else ()
        for name in named:
            if not Path(name).is_absolute() and ".." not in Path(name).parts:
                (trash / name).unlink(missing_ok=True)
        (trash / MANIFEST).unlink(missing_ok=True)
        for folder in sorted((p for p in trash.rglob("*") if p.is_dir() and not p.is_symlink()), reverse=True):
            folder.rmdir()
        trash.rmdir()
    except (OSError, msgspec.DecodeError):
        return


def total_size(folder: Path) -> int:
    """Bytes of all files in a folder."""
    return sum(os.lstat(path).st_size for path in folder.rglob("*") if path.is_file())
