"""What is pushed: files of a run that are whole here, and a model card with them."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ftui.errors import UsageError
from ftui.launch.open_run import stored_profile
from ftui.launch.push_job import RESUME, find_folder
from ftui.runs.manifest import FileEntry, fault, read_manifest
from ftui.runs.run_folder import Run
from ftui.system.files import open_plain

from ..checkpoints.model_card import CARD, read_facts, write_card

_PIECE = 1 << 20
LARGEST_IN_GIT = 10 << 20  # the hub keeps larger files outside git


@dataclass(frozen=True)
class Content:
    """Files by name with size and hash, read from `folder`; the card is made here, but for final/, which has it.

    `what` is their name in the run: `final`, `checkpoint-120`, `exports/NAME`. `seal`: of their manifest.
    """

    run: Run
    what: str
    folder: Path
    seal: str
    files: dict[str, FileEntry]
    card: bytes | None

    @property
    def num_bytes(self) -> int:
        """Of all files."""
        return sum(entry.size for entry in self.files.values())

    @property
    def names(self) -> list[str]:
        """The largest first: what a loader looks for first comes last, so that half of a model is none."""
        return sorted(self.files, key=lambda name: (-self.files[name].size, name))

    def source(self, name: str) -> Path | bytes:
        """The path of a file, or its content where it is no file."""
        return self.card if name == CARD and self.card is not None else self.folder / name

    def hashes(self, name: str) -> list[str]:
        """What a place may know a file by: its SHA-256; of a small one also git's name of it (the hub's)."""
        entry = self.files[name]
        return [entry.sha256, self.git_hash(name)] if entry.size <= LARGEST_IN_GIT else [entry.sha256]

    def git_hash(self, name: str) -> str:
        """The name that git gives to the content of a file (SHA-1, hex)."""
        digest = hashlib.sha1(b"blob %d\0" % self.files[name].size, usedforsecurity=False)
        for piece in self.pieces(name):
            digest.update(piece)
        return digest.hexdigest()

    def pieces(self, name: str) -> Iterator[bytes]:
        """The content of a file, a MiB at a time."""
        source = self.source(name)
        if isinstance(source, bytes):
            yield source
            return
        with open(open_plain(source), "rb", buffering=0) as file:
            while piece := file.read(_PIECE):
                yield piece


def find_content(run: Run, what: str | None) -> Content:
    """What `final`, `checkpoint-N`, N or the name of an export means; `None` is final/.

    Raises:
        UsageError: there is none, or it is damaged.
    """
    folder = find_folder(run, what)
    if problem := fault(folder):
        raise UsageError(f"{folder.name} of {run.name} is damaged: {problem}.", hint="Nothing was pushed.")
    manifest = read_manifest(folder)
    files = {name: entry for name, entry in manifest.files.items() if not name.startswith(RESUME)}
    card = None
    if CARD not in files or folder.parent == run.exports:  # that of an export knows nothing of the training
        card = write_card(read_facts(run, stored_profile(run), manifest, folder)).encode()
        files[CARD] = FileEntry(len(card), hashlib.sha256(card).hexdigest())
    name = folder.relative_to(run.folder).as_posix().removeprefix("checkpoints/")
    return Content(run, name, folder, manifest.seal, files, card)
