"""A profile as TOML, as a fingerprint, and the difference between two."""

import hashlib
import json
from typing import Any

import tomlkit
from pydantic import BaseModel

from ftui.profile.fields import affects_weights
from ftui.profile.layers import FILES, FOLDERS, Key
from ftui.profile.sections import Profile


def to_toml(profile: Profile) -> str:
    """The whole profile, every key written out ("none" where it is off)."""
    document = tomlkit.document()
    for name, values in profile.model_dump(mode="json").items():
        document[name] = _table(values)
    return tomlkit.dumps(document)


def _table(values: dict[str, Any]) -> Any:
    table = tomlkit.table()
    for key, value in values.items():
        table[key] = _table(value) if isinstance(value, dict) else "none" if value is None else value
    return table


def flat(profile: BaseModel, above: Key = ()) -> dict[Key, Any]:
    """Every key and its value, tables inside tables flattened."""
    values: dict[Key, Any] = {}
    for name in type(profile).model_fields:
        value = getattr(profile, name)
        if isinstance(value, BaseModel):
            values |= flat(value, (*above, name))
        else:
            values[(*above, name)] = value
    return values


def _weights(profile: BaseModel, above: Key = ()) -> dict[Key, Any]:
    values: dict[Key, Any] = {}
    for name, field in type(profile).model_fields.items():
        key, value = (*above, name), getattr(profile, name)
        if isinstance(value, BaseModel):
            values |= _weights(value, key)
        elif affects_weights(field):
            values[key] = value
    return values


def weights_difference(old: Profile, new: Profile) -> list[str]:
    """What differs of the keys that affect the weights, one `key: old -> new` each.

    Paths are left out: a moved file with the same content is the same, and content is compared by its hash.
    """
    before, after = _weights(old), _weights(new)
    return [
        f"{'.'.join(key)}: {before.get(key)!r} -> {after.get(key)!r}"
        for key in before | after
        if key not in FILES + FOLDERS and before.get(key) != after.get(key)
    ]


def fingerprint(profile: Profile) -> str:
    """SHA-256 over every key that affects the weights, paths left out."""
    keys = {".".join(k): v for k, v in _weights(profile).items() if k not in FILES + FOLDERS}
    return hashlib.sha256(json.dumps(keys, sort_keys=True, default=str).encode()).hexdigest()
