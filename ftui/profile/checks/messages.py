"""A validation error in words: file, line, key, what is wrong, what to write instead."""

import difflib
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from ftui.errors import ProfileError, UsageError
from ftui.profile.aliases import OLD_SPELLINGS, OTHER_NAMES, OTHER_TABLES, WITHOUT_NEED
from ftui.profile.list_items import in_list
from ftui.profile.origins import Key, ProfileFault, ValueOrigin, nearest_origin
from ftui.profile.paths import FILES
from ftui.profile.schema import Profile
from ftui.text import cut, toml_value

MOST, LIKELIEST = 9, 5  # names of a choice that are told: all of them, or of more these
LONGEST_VALUE = 80  # columns of a wrong value that are told
WORDS = {
    "int_type": "a whole number", "int_from_float": "a whole number", "float_type": "a number",
    "bool_type": "true or false", "string_type": "a text", "tuple_type": "a list", "list_type": "a list",
    "dict_type": "a table", "model_type": "a table", "model_attributes_type": "a table",
    "finite_number": "a finite number",
}  # fmt: skip
"""What a value should be, for the kinds of errors that pydantic tells apart."""
ROWS = "Write a file, a folder, a data set on the hub (owner/name), or a list of these."
BOUNDS = {"ge": "greater than or equal to", "gt": "greater than", "le": "less than or equal to", "lt": "less than"}


def profile_error(problems: Sequence[ProfileFault], path: Path) -> ProfileError:
    """All problems as one error, a line for each: place, key and reason, and the fix, as the hint where it is one."""
    lines = [
        f"{problem.origin or path}: {'.'.join(problem.key) or 'profile'}: {problem.message}" for problem in problems
    ]
    if len(problems) == 1:
        return ProfileError(lines[0], hint=problems[0].fix)
    following = [*((problem.key[:2], problem.fix) for problem in problems[1:]), ((), "")]
    # what mends several entries of one key is told once, below the last
    fixes = ["" if (one.key[:2], one.fix) == after else one.fix for one, after in zip(problems, following, strict=True)]
    entries = zip(lines, fixes, strict=True)
    return ProfileError("\n".join(f"{line}\n    {fix}" if fix else line for line, fix in entries))


def describe_errors(
    error: ValidationError, given: Mapping[str, Any], origins: Mapping[Key, ValueOrigin]
) -> list[ProfileFault]:
    """What pydantic found in the tables that were given, each wrong value once."""
    details: dict[Key, list[ErrorDetails]] = {}
    for detail in error.errors():
        details.setdefault(_key(detail, given), []).append(detail)
    # A value that is of no type of a union has a fault for each; what is wrong inside it says more.
    inner = [key for key in details if not any(other[: len(key)] == key != other for other in details)]
    return [_precise(_problem(key, details[key], origins), given) for key in inner]


def _key(detail: ErrorDetails, given: Any) -> Key:
    """Where the fault is in what was given: pydantic's place without the names of the types it tried."""
    key: list[str] = []
    for part in detail["loc"]:
        if isinstance(given, dict) and part in given:
            given = given[str(part)]
        elif isinstance(given, list) and isinstance(part, int) and part < len(given):
            given = given[part]
        elif detail["type"] != "missing" or part != detail["loc"][-1]:
            continue
        key.append(str(part))
    return tuple(key)


def _problem(key: Key, details: list[ErrorDetails], origins: Mapping[Key, ValueOrigin]) -> ProfileFault:
    origin = nearest_origin(key, origins)
    if details[-1]["type"] == "extra_forbidden":
        fix, meant = _unknown_key(key, details[-1].get("input"))
        return ProfileFault(key, origin, "there is no such key", fix or _way_out(key), meant=meant)
    words = [_words(detail, tuple(part for part in key if not part.isdigit())) for detail in details]
    message, fix = words[-1]
    if all(detail["type"].endswith("_type") for detail in details):  # of a union, all that it may be
        kinds = dict.fromkeys(WORDS.get(detail["type"], "another one") for detail in details)
        if "a number" in kinds:
            kinds.pop("a whole number", None)
        if key in FILES:
            kinds["a list"] = None
        message = f"input should be {' or '.join(kinds)}, not {_spell(details[0].get('input'))}"
    return ProfileFault(key, origin, message, fix or _way_out(key))


def _precise(problem: ProfileFault, given: Mapping[str, Any]) -> ProfileFault:
    """`bf16` and `fp16`, which other tools have as two switches: both on contradict each other, off means nothing."""
    if problem.key[-1:] not in (("bf16",), ("fp16",)):
        return problem
    table: Any = given
    for name in problem.key[:-1]:
        table = table[name] if isinstance(table, dict) else {}
    if not table.get(problem.key[-1]):
        return replace(problem, fix='Leave it out: train.precision = "auto" chooses.')
    if table.get("bf16") is True and table.get("fp16") is True:
        why = f"{problem.message}, and bf16 = true and fp16 = true contradict each other"
        return replace(problem, message=why, fix='Set train.precision to one of "bf16", "fp16" and "auto".')
    return problem


def _way_out(key: Key) -> str:
    """What can be done about any wrong value of a key that there is: its default, or else what it is for."""
    field = _field(key)
    if field is None or (len(key) > 2 and not key[-1].isdigit() and field is _field(key[:-1])):
        return f"Or leave {key[-1]} out." if field is not None else ""  # of a name in a table of names
    if key in FILES or (key[:2] in FILES and (key[-1].isdigit() or key[-1] == "path")):
        return ROWS
    if tables_in(field.annotation):
        name = ".".join(part for part in key if not part.isdigit())
        head = f"[[{name}]]" if get_origin(field.annotation) is tuple else f"[{name}]"
        return f"Write {head}, and its keys below it."
    if field.is_required():
        return (field.description or "").replace("\n", " ").partition(". ")[0].rstrip(".") + "."
    return f"The default is {toml_value(field.default)}."


def _field(key: Key) -> FieldInfo | None:
    """The innermost field of that key, as far as the profile knows it."""
    table: type[BaseModel] = Profile
    field = None
    for name in (part for part in key if not part.isdigit()):
        if name not in table.model_fields:
            break  # a name in a table of names, such as `rank_pattern.q_proj`
        field = table.model_fields[name]
        if inner := tables_in(field.annotation):
            table = inner[0]
    return field


def _words(detail: ErrorDetails, key: Key) -> tuple[str, str]:
    kind, given = detail["type"], detail.get("input")
    if kind == "missing":
        where = f"Add {key[-1]} to [{'.'.join(key[:-1])}]." if len(key) > 1 else f"Add a [{key[-1]}] table."
        return "is missing", where
    message = detail["msg"].removeprefix("Value error, ")
    message = f"input should be {WORDS[kind]}" if kind in WORDS else message[0].lower() + message[1:]
    if kind == "string_too_short":
        return "is empty", ""
    if kind == "value_error":
        message, _, fix = message.partition("\n")
        return message.rstrip("."), fix
    choices = re.findall(r"'([^']*)'", str(detail.get("ctx", {}).get("expected", "")))  # none of them: a number
    if kind == "literal_error" and choices:
        return _choice(given, choices, key)
    if set(detail.get("ctx", {})) & BOUNDS.keys():
        message = f"input should be {_range(detail, key)}"
    return f"{message}, not {_spell(given)}", _another_kind(kind, given, key)


def _unknown_key(key: Key, given: Any) -> tuple[str, Key | None]:
    """The fix for a key that there is not, and the key or table that was probably meant."""
    section = key[-1]  # digits before it are places in lists
    place = (*(part for part in key[:-1] if not part.isdigit()), section)
    if len(place) > 1 and section in Profile.model_fields and isinstance(given, dict):
        # `data.allow = ...` as messages have it, written below a head: there it is a table in that table
        lines = ", ".join(f"{name} = {_spell(value)}" for name, value in given.items())
        return f'Below [{section}], write it without "{section}.": {lines}.', None
    is_table = len(place) == 1 and isinstance(given, dict)
    fix, meant = _nearest_table(place[0]) if is_table else _nearest(place)
    if meant is None or (len(meant) == 1) != (len(place) == 1):
        return fix, None
    return fix, (*key[:-1], meant[-1]) if meant[:-1] == place[:-1] else meant


def _another_kind(kind: str, given: Any, key: Key) -> str:
    """The fix where it can be seen from what was given."""
    if isinstance(given, dict) and key in FILES:
        return f"Write [[{'.'.join(key)}]], in two brackets: they are a list of tables."
    if not isinstance(given, str):
        return ""
    if kind in ("int_type", "float_type", "bool_type"):
        return "Write numbers and true/false without quotes."
    return f"Write [{given if given.isdigit() else _spell(given)}]." if kind in ("tuple_type", "list_type") else ""


def _spell(given: Any) -> str:
    """A value as a profile spells it, in bounds."""
    return repr(given) if isinstance(given, float) else cut(toml_value(given), LONGEST_VALUE)


def explain_non_table(problem: ProfileFault, key: Key, origin: ValueOrigin) -> ProfileFault:
    """The problem that a key is set inside another one which is no table: told of the one that is inside."""
    field, name = _field(problem.key), ".".join(problem.key)
    if problem.key in FILES:
        why = f"is a list of sources: {'.'.join(key)} cannot be set by itself"
        fix = f"Set {in_list(problem.key, key[len(problem.key) :])}, or {name} to a path or a list."
        return replace(problem, origin=origin, message=why, fix=fix)
    if field is None or tables_in(field.annotation) or isinstance(field.default, dict):
        return problem
    return replace(problem, origin=origin, message=f"is no table: {'.'.join(key)} is no key", fix=f"Set {name} itself.")


def refuse_table(override: str, value: Any) -> None:
    """Raises:
    UsageError: it sets a table at the top, of which only keys can be set.
    """
    name = override.partition("=")[0].strip()
    if name not in Profile.model_fields or get_origin(Profile.model_fields[name].annotation) is tuple:
        return
    inside = value.items() if isinstance(value, dict) else ()
    hint = " ".join(f"--set {shlex.quote(f'{name}.{key}={toml_value(one)}')}" for key, one in inside)
    hint = hint or f"--set {name}.KEY=VALUE"
    raise UsageError(f"--set {override}: {name} is a table, whose keys are set one by one.", hint=hint)


def _choice(given: Any, choices: list[str], key: Key) -> tuple[str, str]:
    """What is wrong with a name that is none of a choice, and which one was meant; the nearest names first."""
    name = str(given).lower()
    meant = OTHER_NAMES.get(key, {}).get(name)
    likely = difflib.get_close_matches(name, choices, n=1, cutoff=0.4) if isinstance(given, str) else []
    close = likely if meant is None else [meant]
    fix = f"Did you mean {close[0]!r}?" if close else ""
    if len(choices) > MOST:
        choices.sort(key=lambda one: (one not in close, -difflib.SequenceMatcher(None, name, one).ratio()))
        options = (
            f"{', '.join(map(repr, choices[:LIKELIEST]))} or one of {len(choices) - LIKELIEST} more (docs/profile.md)"
        )
    else:
        *others, last = map(repr, choices)
        options = f"{', '.join(others)} or {last}" if others else last
    return f"input should be {options}, not {_spell(given)}", fix


def _range(detail: ErrorDetails, key: Key) -> str:
    """Both ends of what a number may be, in pydantic's words."""
    field = _field(key)
    ends = {
        name: getattr(end, name)
        for end in (() if field is None else field.metadata)
        for name in BOUNDS
        if hasattr(end, name)
    }
    own = {name: end for name, end in detail["ctx"].items() if name in BOUNDS}
    ends = ends if own.items() <= ends.items() else own  # of what is inside a list the outer field does not know
    return " and ".join(f"{words} {ends[name]}" for name, words in BOUNDS.items() if name in ends)


def _nearest(key: Key) -> tuple[str, Key | None]:
    """The fix for a key that is not known, and which one was probably meant."""
    name, known = key[-1], all_keys()
    if name in OLD_SPELLINGS:
        instead = tuple(OLD_SPELLINGS[name].split()[0].rstrip(",").split("."))
        is_key = any(other[: len(instead)] == instead for other in known)
        return f"Use {OLD_SPELLINGS[name]}.", instead if is_key else None
    if name in WITHOUT_NEED:
        return f"Leave it out: {WITHOUT_NEED[name]}.", None
    if elsewhere := [k for k in known if k[-1] == name]:
        elsewhere = [k for k in elsewhere if k[0] != "curriculum"] or elsewhere  # stages repeat keys of [train]
        return f"Did you mean {' or '.join('.'.join(k) for k in elsewhere)}?", elsewhere[0]
    if len(key) == 1:
        return _nearest_table(name)
    here = [k for k in known if k[:-1] == key[:-1]]
    for pool, likeness in ((here, 0.6), (known, 0.75)):  # far from here only what is very much alike
        if close := difflib.get_close_matches(name.lower(), [k[-1] for k in pool], n=1, cutoff=likeness):
            meant = next(k for k in pool if k[-1] == close[0])
            return f"Did you mean {'.'.join(meant)}?", meant
    return f"The keys of [{'.'.join(key[:-1])}] are {', '.join(k[-1] for k in here)}." if here else "", None


def _nearest_table(name: str) -> tuple[str, Key | None]:
    tables = list(Profile.model_fields)
    close = difflib.get_close_matches(name.lower(), tables, n=1, cutoff=0.6)
    if meant := OTHER_TABLES.get(name.lower()) or (close[0] if close else None):
        return f"Did you mean [{meant}]?", (meant,)
    return f"The tables are [{'], ['.join(tables)}].", None


def all_keys(section: type[BaseModel] = Profile, above: Key = ()) -> list[Key]:
    """Every key a profile can have, section by section, tables inside tables included."""
    keys: list[tuple[str, ...]] = []
    for name, field in section.model_fields.items():
        inner = tables_in(field.annotation)
        keys += all_keys(inner[0], (*above, name)) if inner else [(*above, name)]
    return keys


def tables_in(annotation: object) -> list[type[BaseModel]]:
    """The tables that may stand under a key, alone or in a list."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [table for inner in get_args(annotation) for table in tables_in(inner)]
