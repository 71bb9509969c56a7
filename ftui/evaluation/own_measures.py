"""Measures that a person brings as functions of a Python file: `(answer, row) -> float`."""

import math
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from ftui.errors import UsageError
from ftui.measures import MEASURES, TEXT_MEASURES
from ftui.system.input_files import read_input

Measure = Callable[[str, Mapping[str, Any]], float]


def load_measures(path: Path) -> dict[str, Measure]:
    """Run a Python file, and take its public functions: each is a measure of its name. Consent was asked before.

    Raises:
        UsageError: it cannot be read, fails, or has no function, or one with the name of a measure that ftui has.
    """
    module = ModuleType(path.stem)
    module.__file__ = str(path)
    try:
        text = read_input(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from error
    with _blame(path, ""):
        exec(compile(text, str(path), "exec"), vars(module))
    measures = {
        name: value
        for name, value in vars(module).items()
        if not name.startswith("_") and callable(value) and getattr(value, "__module__", None) == module.__name__
        and not isinstance(value, type)
    }  # fmt: skip
    if not measures:
        raise UsageError(f"{path} has no function.", hint="A measure is a function `def name(answer, row)`.")
    if taken := sorted(measures.keys() & (MEASURES.keys() | TEXT_MEASURES.keys())):
        raise UsageError(f"{path}: {taken[0]} is a measure of ftui.", hint="Give the function another name.")
    return measures


def apply_measures(
    measures: Mapping[str, Measure], path: Path, answer: str, row: Mapping[str, Any], where: str
) -> dict[str, float]:
    """What each says of an answer; `row` is the row as it stands in its file, `where` it stands there.

    Raises:
        UsageError: one fails, or gives no finite number: file, line and row are named.
    """
    values = {}
    for name, measure in measures.items():
        with _blame(path, f"{name} fails on {where}: "):
            value = measure(answer, row)
        if not isinstance(value, int | float) or not math.isfinite(value):
            line = getattr(getattr(measure, "__code__", None), "co_firstlineno", 1)
            raise UsageError(f"{path}, line {line}: {name} gives {value!r} for {where}, and not a finite number.")
        values[name] = float(value)
    return values


@contextmanager
def _blame(path: Path, what: str) -> Iterator[None]:
    """A block that runs a person's code: whatever it raises is a UsageError that names the line."""
    try:
        yield
    except Exception as error:
        raise UsageError(f"{_place(error, path)}: {what}{_describe(error)}.") from error


def _place(error: Exception, path: Path) -> str:
    """The last line of the file that took part."""
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return f"{path}, line {error.lineno}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return f"{path}, line {lines[-1]}" if lines else str(path)


def _describe(error: Exception) -> str:
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
