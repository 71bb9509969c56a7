"""A YAML or JSON file as the list of its values, each with the name of its key and its line."""

import datetime
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from ftui.errors import ProfileError
from ftui.system.input_files import read_input
from ftui.text import shown

MOST_VALUES = 5_000  # aliases of aliases can say more than fits in memory
DEEPEST = 40
LONGEST_REFERENCE = 10_000  # characters: references to references can say more than fits in memory
MERGE = "tag:yaml.org,2002:merge"
TABLES_AND_LISTS = ("tag:yaml.org,2002:map", "tag:yaml.org,2002:seq")
LARGEST = 4 << 20  # bytes
LARGEST_NUMBER = 14_000  # bits: Python writes no more than 4,300 digits
_PLAIN = re.compile(r"[\w-]+")

Step = str | int


@dataclass(frozen=True)
class Leaf:
    """A value with nothing below it: a scalar, a list of scalars, or an empty list or table."""

    path: tuple[Step, ...]
    value: Any
    line: int

    @property
    def name(self) -> str:
        """`datasets[0].path`."""
        return _spell(self.path)

    @property
    def pattern(self) -> str:
        """`datasets[].path`: the same for every element of a list."""
        return re.sub(r"\[\d+\]", "[]", self.name)

    @property
    def last(self) -> str:
        """The name of its key alone; of an element of a list the list's."""
        return str(next((step for step in reversed(self.path) if isinstance(step, str)), ""))


@dataclass(frozen=True)
class Document:
    """`path`: of the file; `references`: names of keys whose value other keys have put in."""

    path: Path
    leaves: tuple[Leaf, ...]
    references: frozenset[str] = frozenset()

    @cached_property
    def named(self) -> dict[str, Any]:
        """Every value by the name of its key."""
        return {leaf.name: leaf.value for leaf in self.leaves}

    @cached_property
    def top(self) -> frozenset[str]:
        """Names of the keys and tables at the top."""
        return frozenset(str(leaf.path[0]) for leaf in self.leaves)

    def has(self, *names: str) -> bool:
        """Whether one of these is a key of the file, by itself or as a table."""
        return not self.top.isdisjoint(names)

    @property
    def folder(self) -> Path:
        """Where the file stands."""
        return self.path.absolute().parent


_REFERENCE = re.compile(r"\$\{([\w.\[\]-]+)\}")


def resolve_references(leaves: tuple[Leaf, ...]) -> tuple[Leaf, ...]:
    """The leaves with `${another.key}` replaced by what that key of the file says, as OmegaConf does it.

    What the file does not say stays as it is.
    """
    named = {leaf.name: leaf.value for leaf in leaves}
    count = 0

    def resolve(value: Any, depth: int = 0) -> Any:
        nonlocal count
        count += 1
        if count > MOST_VALUES * DEEPEST:  # lists of references to lists of references
            return value
        if isinstance(value, list):
            return [resolve(element, depth) for element in value]
        if not isinstance(value, str) or "${" not in value or depth > DEEPEST or len(value) > LONGEST_REFERENCE:
            return value
        if (match := _REFERENCE.fullmatch(value)) and match[1] in named:
            return resolve(named[match[1]], depth + 1)
        replaced = _REFERENCE.sub(lambda m: str(named[m[1]]) if _is_plain(named.get(m[1])) else m[0], value)
        return replaced if replaced == value else resolve(replaced, depth + 1)

    return tuple(replace(leaf, value=resolve(leaf.value)) for leaf in leaves)


def find_references(leaves: tuple[Leaf, ...]) -> frozenset[str]:
    """Names of keys that values refer to."""
    texts = [text for leaf in leaves for text in (leaf.value if isinstance(leaf.value, list) else [leaf.value])]
    return frozenset(name for text in texts if isinstance(text, str) for name in _REFERENCE.findall(text))


def _is_plain(value: Any) -> bool:
    return isinstance(value, str | int | float) and not isinstance(value, bool)


def is_unresolved(value: Any) -> bool:
    """Whether it refers to something that the file does not say: another key, a variable, what a command prints."""
    each = value if isinstance(value, list) else [value]
    return any(isinstance(text, str) and ("${" in text or "$(" in text) for text in each)


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader, which also knows `2e-4` as a number (YAML 1.2; YAML 1.1 wants a dot)."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?(?:[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)$"), list("-+0123456789")
)


def plain_loader() -> type[yaml.SafeLoader]:
    """The loader that reads every value here: it makes plain values only."""
    return _Loader


def _spell(path: tuple[Step, ...]) -> str:
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            text += ("." if text else "") + (step if _PLAIN.fullmatch(step) else json.dumps(step))
    return text


def read_text(path: Path) -> str:
    """The text of a configuration.

    Raises:
        ProfileError: the file cannot be read, is no regular file, no text, or longer than any configuration.
    """
    try:
        return read_input(path, LARGEST).decode("utf-8-sig")
    except FileNotFoundError as error:
        raise ProfileError(f"There is no file {path}.") from error
    except OSError as error:
        raise ProfileError(f"{path} cannot be read: {error.strerror or error}.") from error
    except ValueError as error:
        raise ProfileError(f"{path} cannot be read: {error}.") from error


def read_tables(path: Path, text: str) -> tuple[Leaf, ...]:
    """The values of YAML or JSON; aliases and merged tables are resolved.

    Raises:
        ProfileError: it is neither, or gives a key twice (named with line and column).
    """
    # JSON is YAML but for tabs between its values.
    text = text.replace("\t", " ") if text.lstrip().startswith("{") else text
    try:
        root = yaml.compose(text, Loader=_Loader)
        leaves = () if root is None else tuple(_Reader(path).read_leaves(root))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{path}:{mark.line + 1}:{mark.column + 1}" if mark else str(path)
        raise ProfileError(f"{where}: {shown(error.problem or str(error))}.", hint="YAML or JSON is read.") from error
    except (yaml.YAMLError, RecursionError) as error:
        raise ProfileError(f"{path} is neither YAML nor JSON: {shown(str(error)[:200])}.") from error
    return leaves if isinstance(root, yaml.MappingNode) and root.value else ()


class _Reader:
    """Walks the nodes that PyYAML composes, so that every value keeps its place."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._loader = _Loader("")
        self._count = 0
        self._tables: dict[int, dict[str, Any]] = {}

    def read_leaves(self, node: Any, above: tuple[Step, ...] = ()) -> Iterator[Leaf]:
        if len(above) > DEEPEST:
            raise self._error(node, "too deep, or an alias of itself")
        if not isinstance(node, yaml.ScalarNode) and node.tag not in TABLES_AND_LISTS:
            raise self._error(node, f"{shown(node.tag)} is not read")
        if isinstance(node, yaml.MappingNode) and node.value:
            for name, value in self._table(node).items():
                yield from self.read_leaves(value, (*above, name))
        elif isinstance(node, yaml.SequenceNode) and any(not isinstance(x, yaml.ScalarNode) for x in node.value):
            for number, inner in enumerate(node.value):
                yield from self.read_leaves(inner, (*above, number))
        else:
            yield Leaf(above, self._value(node), node.start_mark.line + 1)

    def _value(self, node: Any) -> Any:
        self._count += max(1, len(node.value)) if isinstance(node, yaml.SequenceNode) else 1
        if self._count > MOST_VALUES:
            raise self._error(node, f"more than {MOST_VALUES} values")
        if isinstance(node, yaml.SequenceNode):
            return [self._scalar(inner) for inner in node.value]
        return self._scalar(node) if isinstance(node, yaml.ScalarNode) else {}

    def _table(self, node: Any, depth: int = 0) -> dict[str, Any]:
        """The nodes of a table by name; what `<<` merges in gives way to what stands here."""
        if id(node) in self._tables:
            return self._tables[id(node)]
        if depth > DEEPEST:
            raise self._error(node, "merged into itself")
        here: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        lines: dict[str, int] = {}
        for key, value in node.value:
            if key.tag == MERGE:
                each = value.value if isinstance(value, yaml.SequenceNode) else [value]
                for table in each:
                    if not isinstance(table, yaml.MappingNode):
                        raise self._error(table, "<< merges tables only")
                    merged = self._table(table, depth + 1) | merged
                continue
            if not isinstance(key, yaml.ScalarNode):
                raise self._error(key, "a key is a text")
            name = self._joined(key, key.value)
            if name in here:
                raise self._error(key, f"{shown(name)} is given twice, first in line {lines[name]}")
            lines[name] = key.start_mark.line + 1
            here[name] = value
        self._tables[id(node)] = merged | here
        return self._tables[id(node)]

    def _scalar(self, node: Any) -> Any:
        try:
            value = self._loader.construct_object(node)
        except ValueError as error:  # 2024-13-45 looks like a date
            raise self._error(node, str(error)) from error
        if isinstance(value, int) and value.bit_length() > LARGEST_NUMBER:  # 1:59:59 ... to YAML 1.1
            raise self._error(node, "a number that no key takes")
        if isinstance(value, bytes | datetime.date | set):  # a date, a set or binary data: as it is written
            return str(node.value)
        return self._joined(node, value) if isinstance(value, str) else value

    def _joined(self, node: Any, text: str) -> str:
        """JSON writes characters beyond U+FFFF as two halves, which YAML leaves as they are."""
        try:
            return text.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError as error:
            raise self._error(node, "half a character") from error

    def _error(self, node: Any, what: str) -> ProfileError:
        mark = node.start_mark
        return ProfileError(f"{self._path}:{mark.line + 1}:{mark.column + 1}: {what}.")
