"""Remove, rename and archive runs that are not running.

A kill at any moment leaves the run as it was or as it should be. What is left of a removal stands under a name that no
run has, or without run.json, and is deleted by the next one. Links are deleted, never followed.
"""

import contextlib
import os
import re
import secrets
import shutil
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ftui.errors import DiskError, LostRunError, UsageError
from ftui.runs import describe
from ftui.runs.manifest import MANIFEST
from ftui.runs.run_folder import NAME, Run, all_runs, check_name
from ftui.runs.state import phase_word
from ftui.runs.status import Status, is_running, only_pushes, read_status, refuse_if_elsewhere
from ftui.system.file_tree import rename_folder
from ftui.system.files import open_folder, open_private, read_plain, replace_file, sync_path, try_lock
from ftui.system.volume import disk_error
from ftui.text import shown
from ftui.units import size

OWN = {Path(getattr(Run(Path()), name)).name for name, member in vars(Run).items() if isinstance(member, property)}
TRASH = re.compile(rf"\.{NAME.pattern}\.[0-9a-f]{{8}}\.trash")
REMOVED = ".removed"  # in a folder that could not be renamed: with it, and without run.json, it is rubbish


@dataclass(frozen=True)
class Removal:
    """What removing a run would do.

    `num_bytes` are freed. `num_shared_bytes` are not: other runs have the same files under names of their own.
    `children` continue from a checkpoint of it, of which they have a copy. `foreign` is what ftui did not write.
    """

    run: Run
    status: Status
    num_bytes: int
    num_shared_bytes: int
    children: list[str]
    foreign: list[str]


def plan_removal(run: Run) -> Removal:
    """Look at all that would be deleted.

    Raises:
        UsageError: the run is running, or another run reads a file of it.
        LostRunError: it runs on another machine.
        UnsafePathError: its folder is a link.
    """
    status = check_idle(run)
    _refuse_if_read(run, "removed")
    with _disk_errors(run, "removed"):
        num_bytes, num_shared_bytes = _measure(run.folder)
        foreign = sorted(path.name for path in run.folder.iterdir() if path.name not in OWN and path.name[0] != ".")
    return Removal(run, status, num_bytes, num_shared_bytes, _children(run), foreign)


def describe_removal(removal: Removal) -> list[str]:
    """What would be deleted, in lines: how the run stands, what is freed, what stays, what else is in the folder."""
    run, state = removal.run, removal.status.state
    result = ", its result in final/" if run.final.is_dir() else ""
    if exported := [path.name for path in exports_of(run)]:
        result += f", {', '.join(exported)} in exports/"
    lines = [
        f"{run.name}: {describe.phase(state)} at {describe.place(state)}{result}. Frees {size(removal.num_bytes)}."
    ]
    if removal.num_shared_bytes:
        lines.append(f"  {size(removal.num_shared_bytes)} more stay on the disk: other runs have the same files.")
    if removal.children:
        names = ", ".join(removal.children)
        lines.append(f"  {names} continued from a checkpoint of it, with a copy that stays.")
    if removal.foreign:
        lines.append(f"  Also deleted, although ftui did not write it: {', '.join(removal.foreign)}")
    return [shown(line) for line in lines]


def remove(run: Run) -> bool:
    """Delete a run's folder and all in it; `False` where the volume keeps some of it for now (`sweep_removed`).

    Raises: as `plan_removal`, and
        LostRunError: it is being started.
        DiskError: the volume refuses it.
    """
    check_idle(run)
    _refuse_if_read(run, "removed")
    trash = run.folder.with_name(f".{run.name}.{secrets.token_hex(4)}.trash")
    with _disk_errors(run, "removed"):
        with _locked(run):
            if not rename_folder(run.folder, trash):
                trash = run.folder
                os.close(open_private(trash / REMOVED, os.O_WRONLY))
                run.facts.unlink()
                sync_path(trash)
        return _delete_tree(trash)


def sweep_removed(root: Path) -> None:
    """Delete what removals that were cut short have left in a folder of runs."""
    for path in root.glob(".*.trash"):
        if TRASH.fullmatch(path.name):
            _delete_tree(path)
    for path in root.glob(f"*/{REMOVED}"):
        if not os.path.lexists(path.with_name("run.json")):
            _delete_tree(path.parent)


def rename(run: Run, name: str) -> Run:
    """Give a run another name. Its id, by which checkpoints, children and trackers know it, stays.

    Raises: as `remove`, and
        UsageError: the name is not safe, or taken.
    """
    target = Run(run.folder.with_name(check_name(name)))
    if os.path.lexists(target.folder):
        raise UsageError(f"There is a run or a file named {name!r} already.", hint="Give another name.")
    check_idle(run)
    _refuse_if_read(run, "renamed")
    with _disk_errors(run, "renamed"), _locked(run):
        profile = _profile_with_name(run, name)
        if not rename_folder(run.folder, target.folder):
            raise DiskError(f"The volume of {run.folder} cannot rename folders.", hint="Copy it, then remove it.")
        replace_file(target.profile, profile, durable=True)  # after a kill before this the next resume does it
    return target


def archive(run: Run) -> None:
    """Leave a run out of the lists, where it is and as it is; what is started or resumed comes back.

    Raises: as `remove`.
    """
    check_idle(run)
    with _disk_errors(run, "archived"), _locked(run):
        replace_file(run.archived, b"", durable=True)


def unarchive(run: Run) -> None:
    """Put a run back into the lists."""
    with _disk_errors(run, "unarchived"), contextlib.suppress(FileNotFoundError):
        run.archived.unlink()
        sync_path(run.folder)


def check_idle(run: Run) -> Status:
    """How a run stands that nobody works on. Raises as `plan_removal`."""
    os.close(open_folder(run.folder, run.folder.parent))
    status = read_status(run)
    if is_running(status):
        word = phase_word(status.state.phase)
        hint = f"`ftui stop {run.name}` ends it, `ftui park {run.name}` lets it continue later."
        if only_pushes(status):
            hint = f"Wait for that (`ftui log {run.name} -f`), or `ftui stop {run.name}` ends it."
            raise UsageError(f"{run.name} has finished and is being pushed.", hint=hint)
        raise UsageError(f"{run.name} is running ({word}).", hint=hint)
    refuse_if_elsewhere(run, status)
    return status


@contextlib.contextmanager
def _locked(run: Run) -> Iterator[None]:
    """Nobody starts the run meanwhile, changes its checkpoints, or still sends its end to a tracker."""
    locks = []
    try:
        if os.path.lexists(run.trackers):
            os.close(open_folder(run.trackers, run.folder))
        for path in (run.supervisor_lock, run.engine_lock, run.push_lock, *sorted(run.trackers.glob("*.lock"))):
            if (lock := try_lock(path)) is None:
                words = {run.trackers: "a tracker still reads it", run.push_lock: "it is being pushed"}
                who = words.get(path) or words.get(path.parent) or "it is being started"
                raise LostRunError(f"{run.name} is in use: {who}.", hint="Try again in a moment.")
            locks.append(lock)
        yield
    finally:
        for lock in locks:
            lock.close()


@contextlib.contextmanager
def _disk_errors(run: Run, done: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise disk_error(error, f"{run.name} cannot be {done}", run.folder) from error


def _delete_tree(folder: Path) -> bool:
    """Whether all of it is gone: a network volume keeps the names of open files for a while."""
    if folder.is_symlink():
        return False
    with contextlib.suppress(OSError):  # the next sweep tries again
        for path in sorted(folder.iterdir(), key=lambda path: path.name == REMOVED):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)  # which follows no link
            else:
                path.unlink()
        folder.rmdir()
    return not folder.exists()


def exports_of(run: Run) -> list[Path]:
    """What was made of a run's result, by name; not what is being made, or was left of it by a kill."""
    made = [] if run.exports.is_symlink() else sorted(path.parent for path in run.exports.glob(f"*/{MANIFEST}"))
    return [path for path in made if not path.name.startswith((".", "ftui-export-"))]


def _measure(folder: Path) -> tuple[int, int]:
    """Bytes that deleting a folder frees, and those of files that have further names elsewhere."""
    files = [path.lstat() for path in folder.rglob("*")]
    names = Counter((file.st_dev, file.st_ino) for file in files)
    sizes = {(file.st_dev, file.st_ino): (file.st_size, file.st_nlink) for file in files if not _is_folder(file)}
    shared = sum(size for key, (size, num_names) in sizes.items() if num_names > names[key])
    return sum(size for size, _ in sizes.values()) - shared, shared


def _is_folder(file: os.stat_result) -> bool:
    return file.st_mode & 0o170000 == 0o040000


def _children(run: Run) -> list[str]:
    with contextlib.suppress(UsageError):  # run.json is damaged
        run_id = run.read_facts().run_id
        return [other.name for other in _others(run) if _parent_id(other) == run_id]
    return []


def _parent_id(run: Run) -> str | None:
    try:
        return run.read_facts().parent_run
    except UsageError:
        return None


def _others(run: Run) -> list[Run]:
    every = [*all_runs(), *all_runs(archived=True)]
    return [other for other in every if not os.path.samefile(other.folder, run.folder)]


def _refuse_if_read(run: Run, done: str) -> None:
    """Another run may train from final/ or a checkpoint of this one, which its profile names by path."""
    folder = run.folder.resolve()
    for other in _others(run):
        try:
            profile = tomllib.loads(read_plain(other.profile).decode())
        except (OSError, ValueError, RecursionError):  # it cannot run with such a profile anyway
            continue
        for key, text in _texts(profile):
            if text.startswith("/") and Path(os.path.realpath(text)).is_relative_to(folder):
                raise UsageError(
                    f"{run.name} cannot be {done}: {other.name} needs {text} ({key}).",
                    hint=f"Remove {other.name} first, or `ftui archive {run.name}`, which leaves its files in place.",
                )


def _texts(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Every text in a profile, with its key."""
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from _texts(inner, f"{key}.{name}" if key else name)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner, key)


def _profile_with_name(run: Run, name: str) -> bytes:
    from ftui.profile.toml_edit.document import set_key, toml_source  # 0.1 s, which nothing else here needs

    return set_key(read_plain(run.profile).decode(), ("run", "name"), toml_source(name)).encode()
