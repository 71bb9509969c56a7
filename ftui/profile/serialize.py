"""A profile as TOML, as a fingerprint, and the difference between two."""

import hashlib
import json
from typing import Any

import tomlkit
from pydantic import BaseModel

from ftui.profile.origins import Key
from ftui.profile.paths import CURRICULUM, FILES, FOLDERS, TEMPLATE
from ftui.profile.schema import Profile
from ftui.profile.sections.data import sources
from ftui.profile.sections.fields import affects_weights
from ftui.profile.sections.model import FULL_COMMIT
from ftui.text import toml_value

REVISION: Key = ("model", "revision")
BATCH: Key = ("train", "effective_batch")
ACCUMULATION: Key = ("train", "gradient_accumulation_steps")
PROCESSES: Key = ("hardware", "num_processes")


def to_toml(profile: Profile) -> str:
    """The whole profile, every key written out ("none" where it is off)."""
    document = tomlkit.document()
    for name, values in profile.model_dump(mode="json").items():
        if isinstance(values, dict):
            document[name] = _table(values)
        elif values:  # a list of tables; an empty one has no head to stand under
            document[name] = _tables(values)
    return tomlkit.dumps(document)


def _tables(each: list[dict[str, Any]]) -> Any:
    tables = tomlkit.aot()
    for one in each:
        tables.append(_table(one))
    return tables


def _table(values: dict[str, Any]) -> Any:
    table = tomlkit.table()
    for key, value in values.items():
        table[key] = _table(value) if isinstance(value, dict) else "none" if value is None else _inline(value)
    return table


def _inline(value: Any) -> Any:
    """Sources that are tables stand in one line, what is off left out: whole tables would swallow the keys below."""
    if not isinstance(value, list) or not any(isinstance(one, dict) for one in value):
        return value
    array = tomlkit.array()
    for one in value:
        table = tomlkit.inline_table()
        array.append(table | {k: v for k, v in one.items() if v is not None} if isinstance(one, dict) else one)
    return array


def flat_values(profile: BaseModel, above: Key = ()) -> dict[Key, Any]:
    """Every key and its value, tables inside tables flattened; tables in a list as what they say."""
    values: dict[Key, Any] = {}
    for name in type(profile).model_fields:
        value = getattr(profile, name)
        if isinstance(value, BaseModel):
            values |= flat_values(value, (*above, name))
        elif isinstance(value, tuple):
            values[(*above, name)] = tuple(
                one.model_dump(exclude_defaults=True) if isinstance(one, BaseModel) else one for one in value
            )
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


def _compared(profile: Profile) -> dict[Key, Any]:
    """The keys that affect the weights, without the paths: a moved file with the same content is the same.

    Content is compared by its hash, and of a model or a data set on the hub so is the commit.
    """
    values = {
        k: tuple(v.items()) if isinstance(v, dict) and v else v  # of patterns, the first that fits counts
        for k, v in _weights(profile).items()
        if k not in (*FILES, *FOLDERS, REVISION)
    }
    if (profile.data.chat_template or "").endswith(".jinja"):
        values[TEMPLATE] = "a .jinja file"
    del values[CURRICULUM]
    if profile.curriculum:  # as what was said, so that a key that is new to stages changes nothing
        values[CURRICULUM] = tuple(stage.model_dump(exclude_defaults=True) for stage in profile.curriculum)
    size = profile.train.per_device_train_batch_size * profile.train.gradient_accumulation_steps
    processes, rest = divmod(profile.effective_batch, size)
    if not rest:  # the same batch as of so many processes: what was begun with them goes on with any number
        values |= {BATCH: None, PROCESSES: processes}
    else:
        values |= {PROCESSES: 1, ACCUMULATION: 1}  # they have no say
    each = sources(profile.data.train)
    contents = [source.model_dump(exclude_defaults=True, exclude={"path", "revision"}) for source in each]
    return values | ({FILES[0]: contents} if any(contents) else {})


def weights_difference(old: Profile, new: Profile) -> list[str]:
    """What differs of the keys that affect the weights, one `key: old -> new` each."""
    before, after = _compared(old), _compared(new)
    if not FULL_COMMIT.fullmatch(new.model.revision or ""):  # a commit is compared to that of the checkpoint
        before[REVISION], after[REVISION] = old.model.revision, new.model.revision
    return [
        f"{'.'.join(key)}: {toml_value(before.get(key))} -> {toml_value(after.get(key))}"
        for key in before | after
        if before.get(key) != after.get(key)
    ]


def keep_batch(old: Profile, new: Profile) -> Profile:
    """`new` as it goes on with a run of `old`: another number of processes shares the same effective batch.

    It stays as it is where it says by other keys than that number which batch it wants.
    """
    before, train = old.train, new.train
    is_same_split = before.gradient_accumulation_steps == train.gradient_accumulation_steps
    if (
        before.per_device_train_batch_size != train.per_device_train_batch_size
        or train.effective_batch not in (None, before.effective_batch)
        or not (is_same_split or new.effective_batch == old.effective_batch)
    ):
        return new
    kept = new.model_copy(update={"train": train.model_copy(update={
        "gradient_accumulation_steps": before.gradient_accumulation_steps, "effective_batch": None,
    })})  # fmt: skip
    if kept.effective_batch != old.effective_batch:
        kept = kept.model_copy(update={"train": kept.train.model_copy(update={"effective_batch": old.effective_batch})})
    return kept


def fewer_processes(profile: Profile, number: int) -> tuple[str, ...]:
    """The overrides with which a run goes on with so many processes, fewer than it had."""
    changes = [f"hardware.num_processes={number}"]
    if number == 1 and profile.hardware.shard != "none":
        changes.append("hardware.shard=none")
    if (group := profile.hardware.dp_shard_size) is not None and number % group:
        changes.append("hardware.dp_shard_size=none")
    return tuple(changes)


def fingerprint(profile: Profile) -> str:
    """SHA-256 over every key that affects the weights and does not have its default, paths left out.

    So that a run begun before a key existed goes on: its default is what was done without it.
    """
    keys = {".".join(k): v for k, v in _compared(profile).items() if not _is_default(profile, k, v)}
    return hashlib.sha256(json.dumps(keys, sort_keys=True, default=str).encode()).hexdigest()


def _is_default(profile: Profile, key: Key, value: Any) -> bool:
    section: Any = profile
    for name in key[:-1]:
        section = getattr(section, name)
    field = type(section).model_fields[key[-1]]
    return not field.is_required() and bool(field.default == value)
