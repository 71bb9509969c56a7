"""The profile while it is being made: every value of the file goes through it, and ends as carried or as dropped."""

import difflib
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ftui.importers.config_file import Document, Leaf, is_open
from ftui.importers.outcome import Carried, Dropped, Key
from ftui.importers.values import Convert, Unfit, converted
from ftui.profile.paths import DATA_SUFFIXES, HUB_ID
from ftui.system.redact import HIDDEN, redacted

# Keys that hold a secret, by the end of their name. A token of a vocabulary is none.
_SECRET = re.compile(
    r"(?:(?:^|_)(?:hf|hub|auth|access|api|bearer|login|session|ms|om|wandb|huggingface|ngrok)_?(?:token|key)"
    r"|^token|^key|api_?key|password|passwd|secret|secret_?key|credentials?|webhook_?url)$",
    re.IGNORECASE,
)


NULL = "=null"  # ends the name of a rule for a key that says something by being null
MANY = 100  # keys that are dropped: what is meant by further ones is not worth its 2 ms each


@dataclass
class Draft:
    """What has been said so far.

    Attributes:
        folder: where the profile will stand, which its paths are relative to.
        values: the profile's keys that are set.
        notes: comments that stand behind them.
        unread: what says a key of the profile in the file, by that key, and has no place here.
        unsaid: what the file leaves to whoever trains with it, and what is taken here, a line each.
        refused: why nothing of this can be run yet; empty where it can.
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

    def raw(self, name: str) -> Any:
        """The value of a key of the file by its name; `None` where it is not given, or refers to what nobody knows."""
        value = self.document.named.get(name)
        return None if is_open(value) else value

    def has(self, *names: str) -> bool:
        """Whether one of these is a key of the file, by itself or as a table."""
        return any(leaf.path[0] in names for leaf in self.document.leaves)

    def carry(self, leaf: Leaf, ours: str, value: Any, note: str = "") -> None:
        """The leaf says this key of the profile, unless it holds a secret or another one said otherwise."""
        key = tuple(ours.split("."))
        if key in self.values and self.values[key] != value:
            self.drop(leaf, f"{ours} is {self.values[key]!r} already", matters=True)
        elif _has_secret(value):
            self.drop(leaf, "it holds what looks like a secret; a profile is copied into its run", matters=True)
        else:
            self.values[key] = value
            self.carried.append(Carried(leaf.name, ours, value))
            self._note(key, note or _origin(leaf, key))

    def _note(self, key: Key, told: str) -> None:
        before = self.notes.get(key, "")
        if told and told not in before.split(", "):
            self.notes[key] = f"{before}, {told}" if before else told

    def drop(self, leaf: Leaf, reason: str, *, matters: bool = False) -> None:
        self.dropped.append(Dropped(leaf.name, _harmless(leaf.value), redacted(reason), matters))

    def tell(self, name: str, value: Any, reason: str) -> None:
        """Something that is lost and is no key of this file, such as a column of a list of data sets."""
        self.dropped.append(Dropped(redacted(name), _harmless(value), redacted(reason), True))

    def suppose(self, ours: str, value: Any, note: str = "") -> None:
        """What the other tool does where its file says nothing."""
        key = tuple(ours.split("."))
        if key not in self.values:
            self.values[key] = value
            self.notes[key] = self._instead(key) + (note or f"{self.tool}'s default")

    def _instead(self, key: Key) -> str:
        """What the file says there, where it says something that has no place here."""
        leaf = self.unread.get(key)
        value = None if leaf is None else "null" if leaf.value is None else _harmless(leaf.value)
        return "" if leaf is None else f"not {leaf.name} = {value}, which is not had here: "

    def leave_open(self, ours: str, value: Any, note: str) -> None:
        """What no file of this kind says, nor a default of the tool's: it is told, since it is for the user to say."""
        if tuple(ours.split(".")) not in self.values:
            self.suppose(ours, value, note)
            self.unsaid.append(f"{ours}: {note}")

    def found(self, written: str) -> Path | None:
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
        """A file or folder of rows, or the name of a data set on the hub."""
        if not isinstance(value, str) or not value.strip():
            raise Unfit("not a path")
        if "://" in value:
            raise Unfit("rows are read from files and from the hub; copy them here first")
        if path := self.found(value):
            return value if Path(value).is_absolute() else self.seen_from(path)
        if HUB_ID.fullmatch(value) and Path(value).suffix.lower() not in DATA_SUFFIXES:
            return value
        if re.fullmatch(r"[\w-]+", value):
            raise Unfit(f"there is no file or folder {value}, and a data set on the hub is named owner/name")
        return value if value[:1] in "/~" else self.seen_from(self.document.folder / value)

    def folder_or_id(self, value: Any) -> str:
        """A model: a folder, or a name on the hub."""
        if not isinstance(value, str) or not value.strip():
            raise Unfit("not a name")
        path = None if value[:1] in "/~" else self.found(value)
        if path is None and not value.startswith("."):
            return value
        near = self.seen_from(path or self.document.folder / value)
        return near if near.startswith(".") else f"./{near}"


def _origin(leaf: Leaf, key: Key) -> str:
    """What the other tool calls it, where that is another name; of a list its name, of tables the innermost one."""
    names = [step for step in leaf.path if isinstance(step, str)]
    if len(names) != len(leaf.path):
        return names[0]
    return "" if names[-1] == key[-1] else ".".join(names[-2:])


def _has_secret(value: Any) -> bool:
    each = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(map(_has_secret, each)) or (isinstance(value, str) and redacted(value) != value)


def _harmless(value: Any) -> Any:
    if isinstance(value, list):
        return [_harmless(one) for one in value]
    return redacted(value) if isinstance(value, str) else value


Rule = Callable[[Draft, Leaf], None]
Rules = Mapping[str, Rule]
"""How each foreign key is read. A name ending in `.*` stands for all below it."""


def to(ours: str, convert: Convert, note: str = "") -> Rule:
    """Carry to this key of the profile."""

    def rule(draft: Draft, leaf: Leaf) -> None:
        draft.carry(leaf, ours, converted(ours, convert, leaf.value), note)

    return rule


def path_to(ours: str) -> Rule:
    """Carry the folder of a model, or its name on the hub."""

    def rule(draft: Draft, leaf: Leaf) -> None:
        draft.carry(leaf, ours, draft.folder_or_id(leaf.value))

    return rule


def drops(reason: str, names: str, *, matters: bool = False) -> dict[str, Rule]:
    """Rules for keys that have no place in a profile. What is off already is no loss."""

    def rule(draft: Draft, leaf: Leaf) -> None:
        is_off = leaf.value in (False, 0, [], {}, "none", "no")
        draft.drop(leaf, "off, as it is here" if is_off and matters else reason, matters=matters and not is_off)

    return dict.fromkeys(names.split(), rule)


def walk(draft: Draft, rules: Rules, names: Callable[[Leaf], str] = lambda leaf: leaf.pattern) -> None:
    """Every leaf through its rule.

    Args:
        names: what a leaf is called in the rules.
    """
    for leaf in draft.document.leaves:
        carried, dropped = len(draft.carried), len(draft.dropped)
        try:
            _settle(draft, leaf, rules, names(leaf))
        except Unfit as unfit:
            draft.drop(leaf, str(unfit), matters=True)
            if unfit.ours:
                draft.unread[tuple(unfit.ours.split("."))] = leaf
        new = [one.foreign for one in draft.carried[carried:]] + [one.foreign for one in draft.dropped[dropped:]]
        assert new.count(leaf.name) == 1, f"{leaf.name} is not settled once"


def _settle(draft: Draft, leaf: Leaf, rules: Rules, name: str) -> None:
    last = str(next((step for step in reversed(leaf.path) if isinstance(step, str)), ""))
    if _SECRET.search(last):
        draft.drop(replace(leaf, value=HIDDEN), "a secret has no place in a profile; set it in the environment")
    elif leaf.value is None and (rule := rules.get(f"{name}{NULL}")):
        rule(draft, leaf)
    elif leaf.value is None or leaf.value == "":
        draft.drop(leaf, "empty")
    elif is_open(leaf.value):
        draft.drop(leaf, "it refers to what the file does not say; write the value itself", matters=True)
    elif rule := None if name.endswith(NULL) else rules.get(name) or _wide(rules, name):
        rule(draft, leaf)
    elif leaf.name in draft.document.references:
        draft.drop(leaf, "what refers to it has its value")
    else:
        known = (
            []
            if len(draft.dropped) > MANY
            else [one for one in rules if "*" not in one and NULL not in one and one[0] != "."]
        )
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.85)
        meant = f"; is {near[0]} meant?" if near else ""
        draft.drop(leaf, f"ftui knows no such key of {draft.tool}{meant}", matters=True)


def _wide(rules: Rules, name: str) -> Rule | None:
    fitting = [known for known in rules if known.endswith("*") and name.startswith(known[:-1])]
    return rules[max(fitting, key=len)] if fitting else None
