"""Everything that is wrong with the values of a profile at once: each key by itself, then what they must agree on."""

import datetime
import json
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from ftui.profile.checks import contradictions
from ftui.profile.checks.known_values import KnownValues
from ftui.profile.checks.messages import describe_errors
from ftui.profile.origins import Key, ProfileFault, ValueOrigin, origin_of
from ftui.profile.schema import EXAMINING, Profile

# What stands where a required key is absent or wrong, so that all others can be looked at. Never part of an answer.
STAND_INS: Mapping[Key, Any] = {
    ("run",): {"stage": "sft"},
    ("run", "stage"): "sft",
    ("model",): {},
    ("data",): {"train": "rows"},
    ("data", "train"): "rows",
}
ROUNDS = 20  # each takes away what is wrong, and one finds all of it but in tables made of other keys


def validate_values(
    values: Mapping[Key, Any], origins: Mapping[Key, ValueOrigin], wished: Collection[Key], faulty: Collection[Key]
) -> tuple[Profile, list[ProfileFault]]:
    """The profile as far as it can be made, and all that is wrong with it; where anything is, it is not to be used.

    Args:
        values: as given, no key inside another.
        wished: keys that someone wrote by hand.
        faulty: keys already known to be wrong, which are told elsewhere.
    """
    problems = [
        ProfileFault(key, origins.get(key), "no key takes a date or a time", "Put a text in quotes.")
        for key, value in values.items()
        if _holds_time(value)
    ]
    problems += [
        ProfileFault(key, origins.get(key), "contains bytes that are not UTF-8", "Rename it, or its folder.")
        for key, value in values.items()
        if _holds_halves(key) or _holds_halves(value)
    ]
    nested = _nested({key: value for key, value in values.items() if not _holds_halves(key)})
    wrong = {*faulty, *(problem.key for problem in problems)}
    for key in wrong:
        _take_away(nested, key)
    profile = None
    for _ in range(ROUNDS):
        try:
            profile = Profile.model_validate_json(json.dumps(nested), context=EXAMINING)
            break
        except ValidationError as error:
            faults = describe_errors(error, nested, origins)
            problems += faults
            wrong |= {problem.key for problem in faults}
            for problem in faults:
                _take_away(nested, problem.key)
    assert profile is not None, f"a fault stays though it was taken away: {problems[-1:]}"
    for fault in contradictions(KnownValues(dict(profile), wrong, frozenset(wished))):
        # reported where something is written
        key, *others = sorted((fault.key, *fault.others), key=lambda key: origin_of(key, origins) is None)
        problems.append(replace(fault, key=key, origin=origin_of(key, origins), others=tuple(others)))
    return profile, problems


def _holds_time(value: Any) -> bool:
    if isinstance(value, dict | list):
        return any(map(_holds_time, value.values() if isinstance(value, dict) else value))
    return isinstance(value, datetime.date | datetime.time)


def _holds_halves(value: Any) -> bool:
    """Whether a text in it has half a character: what Python makes of other bytes on a command line and in names."""
    if isinstance(value, dict | list | tuple):
        return any(map(_holds_halves, [*value, *value.values()] if isinstance(value, dict) else value))
    return isinstance(value, str) and any("\ud800" <= character <= "\udfff" for character in value)


def _nested(values: Mapping[Key, Any]) -> dict[str, Any]:
    root: dict[str, Any] = {}
    for key, value in values.items():
        table = root
        for name in key[:-1]:
            table = table.setdefault(name, {})
        table[key[-1]] = dict(value) if isinstance(value, dict) else value
    return root


def _take_away(nested: dict[str, Any], key: Key) -> None:
    """Remove the value at `key`; of a list of tables all of it. What a profile must have is replaced."""
    table: Any = nested
    for depth, name in enumerate(key[:-1]):
        inner = table.get(name)
        if not isinstance(inner, dict):
            key = key[: depth + 1]
            break
        table = inner
    if key in STAND_INS:
        stand_in = STAND_INS[key]
        table[key[-1]] = dict(stand_in) if isinstance(stand_in, dict) else stand_in
    else:
        table.pop(key[-1], None)
