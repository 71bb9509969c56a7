"""A shell script that trains: the `--key value` arguments of its command, as another tool's file would give them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

from ftui.errors import ProfileError
from ftui.importers.config_file import Leaf, plain_loader
from ftui.importers.launchers import ENVIRONMENT, LAUNCHER, launcher_at, program_at
from ftui.importers.shell import ENDS, UNKNOWN, Words
from ftui.text import shown

_KEY = re.compile(r"--([A-Za-z_][\w.-]*)(?:=(.*))?", re.DOTALL)
_OVERRIDE = re.compile(r"([A-Za-z_][\w.]*)=(.*)", re.DOTALL)
_CONFIG = (".yaml", ".yml", ".json")
_BEFORE_CONFIG = ("train", "sft", "axolotl.cli.train", "llamafactory.cli")


@dataclass(frozen=True)
class Command:
    """`leaves`: the arguments in their order; `config`: the file that the command trains with, which they change."""

    leaves: tuple[Leaf, ...]
    config: str | None


def read_arguments(path: Path, text: str) -> Command:
    """The arguments in the order they are given; without a value an argument is true. A launcher's are `launcher.x`,
    those that it takes from the environment too.

    Raises:
        ProfileError: a quote is not closed, or an argument is given twice (the file may hold several commands).
    """
    try:
        words = Words(text)
    except ValueError as error:
        raise ProfileError(f"{path} cannot be read as a command: {error}.") from error
    lines = text.split("\n")
    found: dict[tuple[str, ...], Leaf] = {}
    config: str | None = None
    for table, name, values in _arguments(words):
        line = next((number for number, one in enumerate(lines, start=1) if name in one), 1)
        key = (*table, *name.replace("-", "_").split("."))
        is_config = not table and name == "config" and bool(values) and values[0].endswith(_CONFIG)
        if is_config and config in (None, values[0]):
            config = values[0]
            continue
        if (key in found and not name.startswith("$")) or is_config:
            again = f"{path}:{line}: --{shown(name)} is given twice."
            raise ProfileError(again, hint="Keep one command in the file.")
        each = [_typed(value) for value in values]
        found[key] = Leaf(key, True if not each else each[0] if len(each) == 1 else each, line)
    return Command(tuple(found.values()), config)


def _arguments(words: Words) -> Iterator[tuple[tuple[str, ...], str, list[str]]]:
    """The table, name and values of each argument: of the environment, of launchers, of programs."""
    for name in ENVIRONMENT:
        if name in words.values:
            value = words.values[name]
            yield (LAUNCHER,), name, [f"{UNKNOWN}{name}}}" if value is None else value]
    for table, own in _parts(words.found):
        for name, values in _pairs(own):
            yield table, name, values


def _parts(words: list[str]) -> Iterator[tuple[tuple[str, ...], list[str]]]:
    """The words of launchers, each up to the program that it starts, and those of programs between them."""
    start = at = 0
    while at < len(words):
        own = launcher_at(words, at)
        if own is None:
            at += 1
            continue
        yield (), words[start:at]
        start = at = program_at(words, own)
        yield (LAUNCHER,), words[own:at]
    yield (), words[start:]


def _pairs(words: list[str]) -> Iterator[tuple[str, list[str]]]:
    name: str | None = None
    values: list[str] = []
    before = ""
    for word in [*words, "--_end"]:
        follows = name is None and (before in _BEFORE_CONFIG or before.endswith(".py"))
        if match := _KEY.fullmatch(word):
            if name is not None:
                yield name, values
            name, values = match[1], [] if match[2] is None else [match[2]]
        elif word in ENDS or (
            word.endswith(".py") and values
        ):  # another launcher's arguments end where a program begins
            if name is not None:
                yield name, values
            name, values = None, []
        elif follows and word.endswith(_CONFIG):
            name, values = "config", [word]
        elif name == "config" and (match := _OVERRIDE.fullmatch(word)):
            yield match[1], [match[2]]
        elif name is not None and values and re.fullmatch(r"\$\{\w+\}", word):
            yield f"${word[2:-1]}", [word]  # perhaps further arguments; nobody knows
        elif name is not None and word.strip():
            values.append(word)
        before = word


def _typed(value: str) -> object:
    """Numbers and flags as YAML reads them; all else stays a text."""
    try:
        found = yaml.load(value, Loader=plain_loader())
    except yaml.YAMLError:
        return value
    return found if isinstance(found, bool | int | float) or found is None else value
