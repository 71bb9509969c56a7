"""A shell script that trains: the `--key value` arguments of its command, as another tool's file would give them."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import yaml

from ftui.errors import ProfileError
from ftui.importing.document import Leaf, plain_loader
from ftui.importing.launchers import LAUNCHER, launcher_at, program_at
from ftui.shown import shown

ENDS = ("&&", "||", ";", "|", "&", ">", ">>", "2>&1")
_KEY = re.compile(r"--([A-Za-z_][\w.-]*)(?:=(.*))?", re.DOTALL)


def read_arguments(path: Path, text: str) -> tuple[Leaf, ...]:
    """The arguments in the order they are given; without a value an argument is true. A launcher's are `launcher.x`.

    Raises:
        ProfileError: a quote is not closed, or an argument is given twice (the file may hold several commands).
    """
    try:
        words = shlex.split(text, comments=True)
    except ValueError as error:
        raise ProfileError(f"{path} cannot be read as a command: {error}.") from error
    lines = text.split("\n")
    found: dict[tuple[str, ...], Leaf] = {}
    for table, own in _parts(words):
        for name, values in _pairs(own):
            line = next((number for number, one in enumerate(lines, start=1) if f"--{name}" in one), 1)
            key = (*table, name.replace("-", "_"))
            if key in found:
                again = f"{path}:{line}: --{shown(name)} is given twice."
                raise ProfileError(again, hint="Keep one command in the file.")
            each = [_typed(value) for value in values]
            found[key] = Leaf(key, True if not each else each[0] if len(each) == 1 else each, line)
    return tuple(found.values())


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
    for word in [*words, "--_end"]:
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
        elif name is not None and word.strip():
            values.append(word)


def _typed(value: str) -> object:
    """Numbers and flags as YAML reads them; all else stays a text."""
    try:
        found = yaml.load(value, Loader=plain_loader())
    except yaml.YAMLError:
        return value
    return found if isinstance(found, bool | int | float) or found is None else value
