"""A text that is no TOML in words: file, line, key, what is wrong there, what to write instead."""

import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ftui.errors import ProfileError
from ftui.system.input_files import read_input
from ftui.system.redact import redact
from ftui.text import cut, shown

_PLACE = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)$")
_HEAD = re.compile(r"\s*\[\[?([^\]\n]+)\]")
_PAIR = re.compile(r"""\s*([\w."'-]+)\s*=\s*([^#\n]*)""")
MOST_PARTS = 100
_ENDLESS_KEY = re.compile(rf"(?:^|[\[{{{{,])[ \t]*+(?:[\w\"'-]++[ \t]*+\.[ \t]*+){{{MOST_PARTS}}}", re.MULTILINE)
"""For which tomllib takes the square of its length."""
BOM = "\ufeff"
LONGEST = 1 << 20  # bytes; no profile is longer
USUAL = "Write key = value, a line for each, texts in quotes, and tables as [name]."


def read_toml(text: str, path: Path) -> dict[str, Any]:
    """The values of a profile's text.

    Raises:
        ProfileError: it is not TOML: which line and key, and what to write there.
    """
    if (match := _ENDLESS_KEY.search(text)) is not None:
        line = text.count("\n", 0, match.start()) + 1
        raise ProfileError(f"{path}:{line}: this is no key of a profile: it has more than {MOST_PARTS} parts.")
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _syntax_error(str(error), text, path) from error
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, lists in lists in lists
        raise ProfileError(f"{path} cannot be read as a profile: {error}.") from error


def read_text(path: Path) -> str:
    """The text of a profile's file, line ends and byte order mark included: `text.encode()` is the file again.

    Raises:
        ProfileError: there is none, it is too long for one, or it is no text in UTF-8: which line.
    """
    try:
        return read_input(path, LONGEST).decode()
    except FileNotFoundError as error:
        raise ProfileError(f"There is no profile at {path}.", hint="`ftui profiles` lists the shipped ones.") from error
    except IsADirectoryError as error:
        raise folder_error(path) from error
    except UnicodeDecodeError as error:
        raise _not_utf8(error, path) from error
    except OSError as error:
        reason = f"{path} cannot be read as a profile: {error.strerror or error}."
        raise ProfileError(reason, hint="Name a .toml file.") from error


def folder_error(path: Path) -> ProfileError:
    """What is said of a folder in the place of a profile."""
    inside = sorted(one.name for one in path.glob("*.toml"))
    hint = f"Name a file in it: {', '.join(inside[:5])}." if inside else "There is no .toml file in it."
    return ProfileError(f"{path} is a folder, and a profile is a file.", hint=hint)


def _not_utf8(error: UnicodeDecodeError, path: Path) -> ProfileError:
    """What is said of bytes that are no UTF-8."""
    data, at = error.object, error.start
    line, column = data[:at].count(b"\n") + 1, at - data.rfind(b"\n", 0, at)
    what = f"{path}:{line}: this cannot be read as UTF-8: byte 0x{data[at]:02x} in column {column}."
    return ProfileError(what, hint="Save the file as UTF-8.")


def _syntax_error(reported: str, text: str, path: Path) -> ProfileError:
    match = _PLACE.search(reported)
    lines = text.split("\n")
    number = int(match[1]) if match and match[1] else max(1, len(text.rstrip("\n").split("\n")))
    reported = reported[: match.start()] if match else reported
    number = _opening(lines, number) if reported.startswith("Unclosed") else number
    heads = [head[1].strip() for line in lines[: number - 1] if (head := _HEAD.match(line))]
    pair = _PAIR.match(lines[number - 1])
    key = ".".join([*heads[-1:], *([pair[1]] if pair else [])]) if pair else ""
    reason, fix = _reason(reported, lines, number)
    where = f"{path}:{number}: {shown(key)}: " if key else f"{path}:{number}: "
    return ProfileError(redact(f"{where}this is not TOML: {reason}."), hint=redact(fix))


def _opening(lines: Sequence[str], number: int) -> int:
    """The line in which the list or table begins whose end is missed at line `number`."""
    return next(
        (n for n in range(number, 0, -1) if (pair := _PAIR.match(lines[n - 1])) and pair[2][:1] in "[{"), number
    )


def _reason(reported: str, lines: Sequence[str], number: int) -> tuple[str, str]:
    """What is wrong in the line, and the fix."""
    line = lines[number - 1]
    if reported.startswith(("Cannot overwrite", "Cannot redefine", "Cannot mutate", "Duplicate inline")):
        return _twice(lines, number)
    if reported.startswith("Cannot declare"):
        return _table_twice(lines, number)
    if reported.startswith("Invalid value"):
        return _no_value(line)
    if reported.startswith("Expected newline"):
        return _too_much(line)
    if reported.startswith((r"Illegal character '\n'", r"Illegal character '\r'", "Unterminated string")):
        return (
            "a quoted text has no closing quote on its line",
            "Add the quote; a text of several lines goes in three quotes.",
        )
    if "escape" in reported.lower() or "Unescaped" in reported or "hex value" in reported:
        return r"a \ in a text begins a special character", r"Write paths with /, or in single quotes: 'C:\rows'."
    if reported.startswith("Expected '=' after a key"):
        return _no_pair(line)
    if reported.startswith("Expected ']'"):
        return "the name of a table is not closed", f"Write {line.split('#')[0].strip().rstrip(']')}]."
    if reported.startswith("Unclosed array"):
        return "a list is not closed", "Close it with ]."
    if reported.startswith("Unclosed inline"):
        return "a table in one line is not closed", "Close it with }."
    if line.lstrip().startswith(("{", "<")):
        return "it looks like JSON or something else", USUAL
    return reported[:1].lower() + reported[1:], USUAL


def _twice(lines: Sequence[str], number: int) -> tuple[str, str]:
    pair = _PAIR.match(lines[number - 1])
    first = None
    for n in range(number - 1, 0, -1):
        if pair is None or _HEAD.match(lines[n - 1]):
            break
        if (above := _PAIR.match(lines[n - 1])) and above[1] == pair[1]:
            first = n
    where = f" in line {first}" if first else " above"
    return f"the key is given{where} already", "Leave one of them out."


def _table_twice(lines: Sequence[str], number: int) -> tuple[str, str]:
    head = _HEAD.match(lines[number - 1])
    name = head[1].strip() if head else ""
    same = (n for n in range(1, number) if (above := _HEAD.match(lines[n - 1])) and above[1].strip() == name)
    first = next(same, None)
    whole = next((n for n in range(1, number) if lines[n - 1].lstrip().startswith(f"{name}.")), None)
    if name and first is None and whole is not None:
        return f"there is a table [{shown(name)}] already, by line {whole}", (
            f'Move line {whole} below [{shown(name)}], without "{shown(name)}.".'
        )
    where = f", in line {first}" if first else ""
    return f"there is a table [{shown(name)}] already{where}", f"Put all its keys below one [{shown(name)}]."


def _no_value(line: str) -> tuple[str, str]:
    pair = _PAIR.match(line)
    name, value = (pair[1], pair[2].strip()) if pair else ("key", "")
    if not value:
        return "there is no value", "Write one behind the =, or leave the line out."
    excerpt = shown(cut(value, 40))
    if value.lower() in ("none", "null", "nil", "~"):
        return f"{excerpt} is no value", f'Write {name} = "none": that turns a key off.'
    if value.lower() in ("true", "yes", "on", "false", "no", "off"):
        meant = "true" if value.lower() in ("true", "yes", "on") else "false"
        return f"{excerpt} is no value", f"Write {name} = {meant}."
    if re.fullmatch(r"[\w./~:@ +-]+", value):
        return f"{excerpt} is no value", f'Write texts in quotes: {name} = "{excerpt}".'
    return f"{excerpt} is no value", USUAL


def _too_much(line: str) -> tuple[str, str]:
    pair = _PAIR.match(line)
    name, value = (pair[1], pair[2].strip()) if pair else ("key", "")
    if re.fullmatch(r"\d+,\d+", value):
        return f"{value} is not a number", f"Write {name} = {value.replace(',', '.')}."
    if re.fullmatch(r"0\d+", value):
        return f"{value} is not a number", f"Write {name} = {value.lstrip('0') or '0'}."
    if "," in value:
        return "there are several values", f"Write a list in brackets: {name} = [{shown(cut(value, 40))}]."
    return "there is extra text after the value", "Write one key = value per line; comments start with #."


def _no_pair(line: str) -> tuple[str, str]:
    name, _, value = line.strip().partition("=")
    if value and " " in name.strip():
        return (
            "a key cannot contain spaces",
            f"Did you mean {'_'.join(name.split())} = {shown(cut(value.strip(), 40))}?",
        )
    if ":" in line:
        name, _, value = line.strip().partition(":")
        return "a key is followed by =, not by :", f"Write {shown(cut(name, 40))} = {shown(cut(value.strip(), 40))}."
    return "a key has no value", "Write key = value."
