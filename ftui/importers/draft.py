"""The profile while it is being made: every value of the file goes through it, and ends as carried or as dropped."""

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ftui.importers.config_file import Document, Leaf, is_unresolved
from ftui.importers.values import Unfit, text
from ftui.profile.origins import Key
from ftui.profile.paths import DATA_SUFFIXES, HUB_ID
from ftui.system.redact import redact, redact_value


@dataclass(frozen=True)
class Carried:
    """A key of the other tool that is in the profile.

    Attributes:
        foreign: its name in the file, such as `datasets[0].path`.
        ours: the profile's key, such as `data.train`.
        value: what the profile says there. Several foreign keys may say one of ours.
    """

    foreign: str
    ours: str
    value: Any


@dataclass(frozen=True)
class Dropped:
    """A key of the other tool that is not in the profile.

    Attributes:
        foreign: its name in the file.
        value: as given; a secret is replaced by `***`.
        reason: why, as a part of a sentence.
        matters: whether training or its result is another one without it.
    """

    foreign: str
    value: Any
    reason: str
    matters: bool = False


@dataclass(frozen=True)
class Imported:
    """A whole import.

    Attributes:
        text: the profile, TOML with comments.
        carried, dropped: between them every value of the file, each once.
        kind: whose file it is, such as `LLaMA-Factory`.
        unsaid: what the file does not say and is chosen here, a line each.
        missing: what the profile still needs before it can be run, a line each.
        refused: why there is nothing to be run yet; empty where there is.
    """

    text: str
    carried: tuple[Carried, ...]
    dropped: tuple[Dropped, ...]
    kind: str
    missing: tuple[str, ...] = ()
    refused: str = ""
    unsaid: tuple[str, ...] = ()


@dataclass
class ProfileDraft:
    """The profile as far as it is made.

    Attributes:
        folder: where the profile will stand, which its paths are relative to.
        values: the profile's keys that are set.
        notes: comments that stand behind them.
        unread: by key of the profile, the value of the file that would have said it, and has no place here.
        unsaid: what the file leaves to whoever trains with it, and what is chosen here, a line each.
        refused: why nothing of this can be run yet; empty where it can.
        supposed: keys that hold what the tool does where its file says nothing.
        replicates_nodes: whether its file divides the model within a machine only (FSDP's HYBRID_SHARD).
    """

    document: Document
    tool: str
    folder: Path
    values: dict[Key, Any] = field(default_factory=dict)
    notes: dict[Key, str] = field(default_factory=dict)
    carried: list[Carried] = field(default_factory=list)
    dropped: list[Dropped] = field(default_factory=list)
    unsaid: list[str] = field(default_factory=list)
    unread: dict[Key, Leaf] = field(default_factory=dict)
    refused: str = ""
    supposed: set[Key] = field(default_factory=set)
    replicates_nodes: bool = False

    def raw(self, name: str) -> Any:
        """The value of a key of the file by its name; `None` where it is not given, or refers to what nobody knows."""
        value = self.document.named.get(name)
        return None if is_unresolved(value) else value

    def given(self, ours: str) -> Any:
        """What the profile says so far at a key; `None` where nothing."""
        return self.values.get(tuple(ours.split(".")))

    def carry(self, leaf: Leaf, ours: str, value: Any, note: str = "") -> None:
        """The leaf says this key of the profile, unless it holds a secret or another one said otherwise."""
        key = tuple(ours.split("."))
        if key in self.values and self.values[key] != value:
            self.drop(leaf, f"{ours} is {self.values[key]!r} already", matters=True)
        elif redact_value(value) != value:
            self.drop(leaf, "it holds what looks like a secret; a profile is copied into its run", matters=True)
        else:
            self.values[key] = value
            self.carried.append(Carried(leaf.name, ours, value))
            self._note(key, note or _origin(leaf, key))

    def _note(self, key: Key, note: str) -> None:
        before = self.notes.get(key, "")
        if note and note not in before.split(", "):
            self.notes[key] = f"{before}, {note}" if before else note

    def drop(self, leaf: Leaf, reason: str, *, matters: bool = False) -> None:
        """The leaf has no place in the profile."""
        self.dropped.append(Dropped(leaf.name, redact_value(leaf.value), redact(reason), matters))

    def drop_part(self, name: str, value: Any, reason: str) -> None:
        """What is lost and is no key of this file, such as a column of a list of data sets."""
        self.dropped.append(Dropped(redact(name), redact_value(value), redact(reason), True))

    def take_back(self, ours: str, reason: str, *, matters: bool = False) -> None:
        """A key of the profile is no longer set, and all that said it has no place."""
        key = tuple(ours.split("."))
        had = self.values.pop(key)
        self.notes.pop(key, None)
        items = [item for item in self.carried if item.ours == ours]
        if matters and not items and key not in self.supposed:  # said by a part of a value
            self.drop_part(ours, had, reason)
        for item in items:
            self.carried.remove(item)
            value = redact_value(self.document.named.get(item.foreign))
            self.dropped.append(Dropped(item.foreign, value, redact(reason), matters))

    def suppose(self, ours: str, value: Any, note: str = "") -> None:
        """What the other tool does where its file says nothing."""
        key = tuple(ours.split("."))
        if key not in self.values:
            self.values[key] = value
            self.supposed.add(key)
            self.notes[key] = self._instead(key) + (note or f"{self.tool}'s default")

    def suppose_again(self, ours: str, value: Any, note: str) -> None:
        """The same, in the place of what was supposed before."""
        if (key := tuple(ours.split("."))) in self.supposed:
            del self.values[key]
        self.suppose(ours, value, note)

    def suppose_all(self, section: str, note: str = "", /, **values: Any) -> None:
        """The same for several keys of a section."""
        for name, value in values.items():
            self.suppose(f"{section}.{name}", value, note)

    def _instead(self, key: Key) -> str:
        """What the file says there, where it says something that has no place here."""
        leaf = self.unread.get(key)
        value = None if leaf is None else "null" if leaf.value is None else redact_value(leaf.value)
        return "" if leaf is None else f"not {leaf.name} = {value}, which ftui does not have: "

    def leave_open(self, ours: str, value: Any, note: str) -> None:
        """What neither this kind of file nor a default of the tool says: it is reported, for the user has to say it."""
        if self.given(ours) is None:
            self.suppose(ours, value, note)
            self.unsaid.append(f"{ours}: {note}")

    def find(self, written: str) -> Path | None:
        """The file or folder that the other tool would read, which looks from where it is started."""
        own = self.document.folder
        try:
            path = Path(written).expanduser()
            places = [folder / path for folder in (own, Path.cwd(), *list(own.parents)[:3])]
            return next((place for place in places if place.exists()), None)
        except (OSError, ValueError, RuntimeError):  # too long, a NUL in it, the home of nobody
            return None

    def seen_from(self, path: Path) -> str:
        """The path as the profile's folder sees it.

        Raises:
            Unfit: it cannot be written.
        """
        seen = Path(os.path.relpath(path.absolute(), self.folder.absolute())).as_posix()
        try:
            seen.encode()
        except UnicodeEncodeError as error:
            raise Unfit("its path holds bytes that are no UTF-8") from error
        return seen

    def rows(self, value: Any) -> str:
        """A file or folder of rows, or the name of a data set on the hub, as the profile says it.

        Raises:
            Unfit: it is neither.
        """
        if not isinstance(value, str) or not value.strip():
            raise Unfit("not a path")
        if "://" in value:
            raise Unfit("rows are read from files and from the hub; copy them here first")
        if path := self.find(value):
            return value if Path(value).is_absolute() else self.seen_from(path)
        if HUB_ID.fullmatch(value) and Path(value).suffix.lower() not in DATA_SUFFIXES:
            return value
        if re.fullmatch(r"[\w-]+", value):
            raise Unfit(f"there is no file or folder {value}, and a data set on the hub is named owner/name")
        return value if value[:1] in "/~" else self.seen_from(self.document.folder / value)

    def folder_or_id(self, value: Any) -> str:
        """A model as the profile says it: a folder, or a name on the hub.

        Raises:
            Unfit: it is no text.
        """
        if not isinstance(value, str) or not value.strip():
            raise Unfit("not a name")
        path = None if value[:1] in "/~" else self.find(value)
        if path is None and not value.startswith("."):
            return value
        near = self.seen_from(path or self.document.folder / value)
        return near if near.startswith(".") else f"./{near}"


def list_sources(paths: list[str], **keys: Any) -> list[Any]:
    """Paths as sources of `[data]`, each with those of the keys that say something."""
    given = {name: value for name, value in keys.items() if value}
    return [{"path": path} | given if given else path for path in paths]


def other_split(value: Any) -> str:
    """The name of a split where it is another than `train`; of a part of one, which cannot be named here, nothing."""
    return "" if value in (None, "", "train") or "[" in str(value) else text(value)


def as_text(value: Any) -> str:
    """The value where it is a text, else nothing."""
    return value if isinstance(value, str) else ""


def _origin(leaf: Leaf, key: Key) -> str:
    """What the other tool calls it, where that is another name; of a list its name, of tables the innermost one."""
    names = [step for step in leaf.path if isinstance(step, str)]
    if len(names) != len(leaf.path):
        return names[0]
    return "" if names[-1] == key[-1] else ".".join(names[-2:])
