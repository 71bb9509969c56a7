"""Temporary folders named after the process that works in them, so that a later one deletes what a kill left behind."""

import contextlib
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ftui.system.process_id import Identity, identity_of, this_process

_NAME = "ftui-{kind}-{namespace}-{pid}-{started}-"


def make_scratch(kind: str, parent: Path | None = None) -> Path:
    """A new private folder in `parent` (by default where temporary files go); those of ended processes are deleted."""
    parent = Path(tempfile.gettempdir()) if parent is None else parent
    sweep_scratch(kind, parent)
    return Path(tempfile.mkdtemp(prefix=_prefix(kind, this_process()), dir=parent))


@contextlib.contextmanager
def scratch(kind: str, parent: Path | None = None) -> Iterator[Path]:
    """A scratch folder for the time of a block."""
    folder = make_scratch(kind, parent)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def sweep_scratch(kind: str, parent: Path) -> None:
    """Delete this user's scratch folders whose process no longer runs.

    A process of another pid namespace cannot be seen from here: its folders stay, and so does everything whose name
    was not made here. Links are never followed.
    """
    with contextlib.suppress(OSError):  # it cannot be listed: then nothing of ours is there
        for path in list(parent.iterdir()):
            if _is_left_over(kind, path):
                shutil.rmtree(path, ignore_errors=True)


def _is_left_over(kind: str, path: Path) -> bool:
    match = re.fullmatch(rf"ftui-{kind}-([0-9]+)-([0-9]+)-[0-9.]+-[^-]+", path.name)
    if match is None or match[1] != _namespace(this_process()):
        return False
    try:
        found = path.lstat()
    except OSError:  # whoever made it has just deleted it
        return False
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        return False
    owner = identity_of(int(match[2]))
    return owner is None or not path.name.startswith(_prefix(kind, owner))


def _prefix(kind: str, process: Identity) -> str:
    return _NAME.format(kind=kind, namespace=_namespace(process), pid=process.pid, started=process.started)


def _namespace(process: Identity) -> str:
    """The number in `pid:[4026531836]`; 0 where there are no namespaces."""
    return re.sub(r"\D", "", process.namespace) or "0"
