"""One lock a card of this machine, so that no two runs are on it.

The supervisor of a run holds it and hands it on to the engine: nobody else gets the card as long as one of both lives.
Beside each lock file stands who took it last.
"""

import contextlib
import platform
import re
import time
from collections.abc import Iterable
from pathlib import Path

import msgspec

from ftui.system.files import (
    DAMAGED,
    Lock,
    is_locked,
    lock_from,
    make_private_folder,
    read_json,
    replace_file,
    try_lock,
)
from ftui.system.user_folders import state_folder

WHOLE_MACHINE = ("cpu-", "mps-")
"""How the ids of devices begin that are one a machine."""
TRIES, TRY_SECONDS = 3, 0.02  # whoever only looks has the lock for a moment


class Note(msgspec.Struct, frozen=True):
    """Who took a card last: the folder of the run, which of its cards this is, and on which machine.

    A home on a network volume has the notes of all nodes of a run.
    """

    run: str
    place: int = 0
    host: str = ""


def card_id(kind: str, uuid: str = "", index: int = 0) -> str:
    """The name of a card among the locks: its UUID, its number where the driver hides that, the machine's for a CPU."""
    if kind != "cuda":  # a home on a network volume is that of several machines
        return f"{kind}-{re.sub(r'[^A-Za-z0-9.-]', '-', platform.node())}"
    return uuid or str(index)


def take_cards(ids: Iterable[str]) -> list[Lock] | None:
    """The locks of all these cards; `None`, and none of them, where somebody has one.

    Raises:
        OSError: this user's folder of locks cannot be written.
    """
    make_private_folder(_folder())
    locks: list[Lock] = []
    for card in ids:
        lock = _take(_lock_file(card))
        if lock is None:
            for other in locks:
                other.close()
            return None
        locks.append(lock)
    return locks


def _take(path: Path) -> Lock | None:
    for number in range(TRIES):
        if number:
            time.sleep(TRY_SECONDS)
        if (lock := try_lock(path)) is not None:
            return lock
    return None


def is_taken(card: str) -> bool:
    """Whether a run has this card now."""
    return is_locked(_lock_file(card))


def find_holder(card: str) -> Path | None:
    """The folder of the run that took it last; `None` where that is not known."""
    note = _read_note(card)
    return None if note is None else Path(note.run)


def _read_note(card: str) -> Note | None:
    try:
        return read_json(_folder() / f"{card}.json", Note)
    except (OSError, *DAMAGED):
        return None


class RunCards:
    """The cards of one run, as its supervisor has them; none where it was started without."""

    def __init__(self, run: Path, descriptors: Iterable[int] = ()) -> None:
        """`descriptors`: of the locks, which this process was started with."""
        self._run = run
        self._locks = [lock_from(descriptor) for descriptor in descriptors]
        self._ids = [lock.path.stem for lock in self._locks]
        self._note()

    def adopt(self) -> None:
        """Its engine runs and has the locks: know which."""
        notes = {path.stem: _read_note(path.stem) for path in _folder().glob("*.json")}
        own = {card: note.place for card, note in notes.items() if note is not None and _is_of(note, self._run)}
        self._ids = sorted((card for card in own if is_taken(card)), key=lambda card: own[card])

    def take(self) -> bool:
        """Have the locks for an engine that is to be started; `False` while another run has one of the cards."""
        if not self._locks and self._ids:
            self._locks = take_cards(self._ids) or []
            if not self._locks:
                return False
            self._note()
        return True

    @property
    def descriptors(self) -> tuple[int, ...]:
        """Of the locks, for the engine to inherit."""
        return tuple(lock.descriptor for lock in self._locks)

    @property
    def environment(self) -> dict[str, str]:
        """What shows the engine its GPUs and no others; empty where that is left to whoever started the run."""
        gpus = [card for card in self._ids if not card.startswith(WHOLE_MACHINE)]
        return {"CUDA_VISIBLE_DEVICES": ",".join(gpus)} if gpus else {}

    def release(self) -> None:
        """Let others have the cards; the engine has ended."""
        for lock in self._locks:
            lock.close()
        self._locks = []

    def _note(self) -> None:
        for place, card in enumerate(self._ids):
            note = Note(str(self._run), place, platform.node())
            with contextlib.suppress(OSError):  # a full disk: only a name for messages is lost
                replace_file(_folder() / f"{card}.json", msgspec.json.encode(note))


def _is_of(note: Note, run: Path) -> bool:
    return note.run == str(run) and note.host in ("", platform.node())


def _folder() -> Path:
    return state_folder() / "cards"


def _lock_file(card: str) -> Path:
    return _folder() / f"{card}.lock"
