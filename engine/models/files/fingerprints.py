"""What a base model is, as one hash: of its weights, its config and, where it brings any, its code."""

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from ftui.runs.checkpoint_folders import file_hash
from ftui.system.files import make_private_folder

from ...system.sealed_files import read_sealed, write_sealed

SOURCE = "source.json"
SETTLED_SECONDS = 2.0  # the coarsest clock of a volume (FAT)


class Source(msgspec.Struct, frozen=True):
    """The contents of `source.json` in a folder made from one file (gguf.py): its hash, and what was lost."""

    sha256: str
    notes: list[str] = []


def source_of(folder: Path) -> Source | None:
    """The `source.json` of a folder; `None` for a model that was not made from one file."""
    path = folder / SOURCE
    return msgspec.json.decode(path.read_bytes(), type=Source) if path.is_file() else None


def weights_fingerprint(folder: Path, cache: Path, tick: Callable[[], None]) -> str:
    """SHA-256 over the model's config, code and weight files; that of the file where the folder is made from one.

    Code counts because a model's numbers come out of it (`model.trust_remote_code`).
    """
    if (source := source_of(folder)) is not None:
        return source.sha256
    hashes = file_hashes([folder / "config.json", *folder.glob("*.safetensors"), *folder.glob("*.py")], cache, tick)
    return hashlib.sha256(json.dumps([[path.name, digest] for path, digest in hashes.items()]).encode()).hexdigest()


def file_hashes(files: Iterable[Path], cache: Path, tick: Callable[[], None]) -> dict[Path, str]:
    """SHA-256 of each file, sorted by path.

    Hashing 16 GB takes some ten seconds, so a file's hash is remembered by its size, inode and times; not that of a
    file which was changed a moment ago, for it may change again without a new time, nor that of one which changed while
    it was hashed. Where nothing can be remembered, it is hashed each time. `tick` is called after each MiB.

    Raises:
        OSError: one of them cannot be read.
    """
    paths = sorted(files)
    place = hashlib.sha256(b"\0".join(map(os.fsencode, paths))).hexdigest()[:16]
    memory = cache / "hashes" / f"{place}.json"
    cached = json.loads(read_sealed(memory) or b"{}")
    remembered, hashes = {}, {}
    for path in paths:
        stat = path.stat()
        key = _state(path.name, stat)
        hashes[path] = cached.get(key) or file_hash(path, tick)
        if time.time() - stat.st_mtime > SETTLED_SECONDS and _state(path.name, path.stat()) == key:
            remembered[key] = hashes[path]
        tick()
    if remembered != cached:
        with contextlib.suppress(OSError):
            make_private_folder(memory.parent)
        write_sealed(memory, json.dumps(remembered).encode())
    return hashes


def _state(name: str, stat: os.stat_result) -> str:
    """What the system says of a file's content. Its time of modification can be set, and some programs set it back to
    what it was; the time of its last change of any kind cannot."""
    return f"{name}:{stat.st_size}:{stat.st_ino}:{stat.st_mtime_ns}:{stat.st_ctime_ns}"
