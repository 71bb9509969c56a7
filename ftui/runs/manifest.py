"""What a checkpoint must be, and whether it is: its manifest, sealed, and the faults of a folder in words.

The manifest is written last. Its own damage is found by its seal: the SHA-256 of the file as it stands with nothing
between the quotes of `seal`, so that not even a bit that leaves every value the same goes unseen.
"""

import hashlib
import json
from collections.abc import Callable, Collection
from pathlib import Path, PurePosixPath

import msgspec

from ftui.system.checked_write import write_checked
from ftui.system.files import DAMAGED, open_plain, read_json, read_plain

MANIFEST = "MANIFEST.json"
FORMAT = 2
_CHUNK = 1 << 20
LONGEST_HEADER = 100_000_000  # bytes; safetensors itself reads no longer one
_UNREADABLE = (OSError, *DAMAGED)


class FileEntry(msgspec.Struct, frozen=True):
    """Size in bytes and SHA-256 (hex) of one file of a checkpoint."""

    size: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The description of a checkpoint: its step and origin, and size and hash of every file in it."""

    run_id: str
    attempt: int
    token: str
    step: int
    versions: dict[str, str]
    fingerprints: dict[str, str]
    dtypes: dict[str, int]
    finite: bool
    created: float
    environment: dict[str, str] = {}
    files: dict[str, FileEntry] = {}
    format: int = FORMAT
    seal: str = ""


def write_manifest(folder: Path, manifest: Manifest) -> Manifest:
    """Seal a manifest and put it into its folder, durably; returns it as written."""
    manifest = msgspec.structs.replace(manifest, format=FORMAT, seal="")
    document = msgspec.json.format(msgspec.json.encode(manifest), indent=1)
    sealed = msgspec.structs.replace(manifest, seal=hashlib.sha256(document).hexdigest())
    text = msgspec.json.format(msgspec.json.encode(sealed), indent=1)
    write_checked(folder / MANIFEST, lambda: (text,))
    return sealed


def read_manifest(folder: Path) -> Manifest:
    """Raises OSError or msgspec.DecodeError when there is none or it cannot be read; `fault` checks its seal."""
    return read_json(folder / MANIFEST, Manifest)


def file_hash(path: Path, tick: Callable[[], object] | None = None) -> str:
    """SHA-256 of a file (hex), read in pieces with plain reads (mmap fails on some network volumes).

    `tick` is called after each piece.
    """
    digest = hashlib.sha256()
    with open(open_plain(path), "rb", buffering=0) as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            if tick is not None:
                tick()
    return digest.hexdigest()


def is_inside(name: str) -> bool:
    """Whether a name from a manifest is that of a file in its folder: relative, no `..`, no NUL."""
    path = PurePosixPath(name)
    return bool(path.parts) and not path.is_absolute() and ".." not in path.parts and "\0" not in name


def fault(folder: Path, *, run_id: str | Collection[str] | None = None, quick: bool = False) -> str | None:
    """The fault of a checkpoint folder, in words; `None` when every file is as the manifest says.

    `run_id` is the run it must belong to, or several (a child run continues from its parent's). `quick` looks at sizes
    and safetensors headers only (milliseconds); else every byte is read back and hashed.
    """
    try:
        document = read_plain(folder / MANIFEST)
        manifest = msgspec.json.decode(document, type=Manifest)
    except FileNotFoundError:
        return f"{MANIFEST}: missing"
    except _UNREADABLE as error:
        return f"{MANIFEST}: unreadable ({error})"
    if problem := _manifest_fault(document, manifest):
        return problem
    if run_id is not None and manifest.run_id not in ({run_id} if isinstance(run_id, str) else run_id):
        return f"belongs to another run ({manifest.run_id})"
    for name, entry in manifest.files.items():
        if problem := _file_fault(folder / name, entry, quick):
            return f"{name}: {problem}"
    return None


def _manifest_fault(document: bytes, manifest: Manifest) -> str | None:
    """Manifests of format 1 had no seal; from 2 on one without it, or of a format that never was, is damaged."""
    if manifest.format > FORMAT:
        return f"written by a newer ftui (format {manifest.format}, this one reads {FORMAT})"
    if manifest.seal or manifest.format != 1:
        unsealed = document.replace(manifest.seal.encode(), b"", 1) if manifest.seal else b""
        if hashlib.sha256(unsealed).hexdigest() != manifest.seal:
            return f"{MANIFEST}: the content does not match its seal"
    for name in manifest.files:
        if not is_inside(name):
            return f"{MANIFEST}: names a file outside the checkpoint ({name!r})"
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
    with open(open_plain(path), "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > size - 8:
            return "the safetensors header is longer than the file"
        if length > LONGEST_HEADER:
            return "the safetensors header is damaged"
        try:
            header = json.loads(file.read(length))
            ends = [tensor["data_offsets"][1] for name, tensor in header.items() if name != "__metadata__"]
            fits = max(ends, default=0) == size - 8 - length
        except (
            ValueError,
            TypeError,
            LookupError,
            AttributeError,
            RecursionError,
        ):  # one flipped bit makes any of them
            return "the safetensors header is damaged"
    return None if fits else "the safetensors header does not fit the file"


def manifest_files(folder: Path, name: str = MANIFEST) -> list[str]:
    """The files in a folder that are ours to delete: what its manifest names inside it, and the manifest as the last.

    None where there is no readable manifest. `name` is the file it stands in.
    """
    try:
        manifest = read_json(folder / name, Manifest)
        return [*filter(is_inside, manifest.files), name]
    except _UNREADABLE:
        return []
