"""Layers of a profile: defaults < tier < profile < --set; the later wins key by key; every value knows its origin."""

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ftui.errors import ProfileError, UsageError
from ftui.profile.checks.messages import explain_non_table, profile_error, refuse_table
from ftui.profile.checks.missing_files import find_missing_files
from ftui.profile.checks.validate import validate_values
from ftui.profile.list_items import in_list, is_in_list, keys_inside, set_in_list
from ftui.profile.origins import Key, ProfileFault, ValueOrigin, origin_of
from ftui.profile.paths import CURRICULUM, resolve_paths
from ftui.profile.schema import Profile
from ftui.profile.sections.adapter import unused_keys
from ftui.profile.toml_edit.statements import line_numbers, nearest_line
from ftui.profile.toml_reader import BOM, read_text, read_toml
from ftui.system.redact import value_redactor

EXCLUSIVE: tuple[tuple[Key, ...], ...] = (
    (("train", "max_steps"), ("train", "num_train_epochs")),
    (("data", "eval"), ("data", "eval_fraction"), ("data", "eval_num_rows")),
    (("model", "name_or_path"), ("model", "from_scratch")),
)
METHOD: Key = ("adapter", "method")
ENDS = EXCLUSIVE[0]
# What a tier says together is left out together where the profile says a part of it: half of a scale, or of an
# effective batch, would mean something else beside the defaults of the other half.
TOGETHER: tuple[tuple[Key, ...], ...] = (
    (("adapter", "r"), ("adapter", "lora_alpha"), ("adapter", "use_rslora")),
    (("train", "per_device_train_batch_size"), ("train", "gradient_accumulation_steps")),
    (("model", "from_scratch"), ("data", "max_length")),
)
SECRET = "holds a password or a token, and a profile is copied into its run"
SECRET_FIX = "Take it out, and set it in the environment: HF_TOKEN for the hub, WANDB_API_KEY for wandb."
DEEPEST = 8  # tables and lists within each other; no key is that deep


@dataclass(frozen=True)
class ProfileLayer:
    """One source of values.

    Attributes:
        folder: what its relative paths are relative to.
        text: TOML text, for finding lines.
        gives_way: whether its values are proposals: what a layer above cannot go together with is left out.
    """

    name: str
    values: Mapping[Key, Any]
    folder: Path
    text: str = ""
    gives_way: bool = False

    @cached_property
    def _lines(self) -> Mapping[Key, int]:
        return line_numbers(self.text)

    def origin(self, key: Key) -> ValueOrigin:
        """This layer, with the line of the key or of the nearest table around it."""
        return ValueOrigin(self.name, nearest_line(self._lines, key))

    @property
    def is_written_out(self) -> bool:
        """Whether it is a copy with every key (`to_toml`), so that what it says was not necessarily wished for.

        Such a copy gives both ends of a run, of which a profile may have one.
        """
        return all(key in self.values for key in ENDS) and any(self.values[key] == "none" for key in ENDS)


@dataclass(frozen=True)
class ResolvedProfile:
    """A whole valid profile, with the origin of each value that is no default."""

    profile: Profile
    origins: Mapping[Key, ValueOrigin]
    path: Path
    missing_files: tuple[ProfileFault, ...] = ()

    def origin(self, key: Key) -> ValueOrigin:
        """Where the value comes from; `default` if no layer sets it."""
        return self.origins.get(key, ValueOrigin("default"))


@dataclass(frozen=True)
class ProfileExamination:
    """What layers amount to.

    Attributes:
        profile: `None` where there is any problem.
        values: what was given, key by key, wrong values and unknown keys among them.
        origins: where each of them was given.
        problems: all that is wrong.
        missing_files: files and folders that are not there: wrong on this machine.
    """

    profile: Profile | None
    values: Mapping[Key, Any]
    origins: Mapping[Key, ValueOrigin]
    problems: tuple[ProfileFault, ...]
    missing_files: tuple[ProfileFault, ...] = ()


def resolve(path: Path, *, overrides: Iterable[str] = (), below: Iterable[ProfileLayer] = ()) -> ResolvedProfile:
    """Read the profile at `path` over the layers `below` it and under the `--set` overrides.

    Raises:
        ProfileError: the file cannot be read, is not TOML, or keys or values are wrong (all are named, with lines).
        UsageError: an override is not of the form section.key=value.
    """
    layers = [*below, file_layer(path), override_layer(overrides)]
    result = examine(layers, path)
    if result.profile is None:
        raise profile_error(_in_order([*result.problems, *result.missing_files], layers), path)
    return ResolvedProfile(result.profile, result.origins, path, result.missing_files)


def examine(layers: Sequence[ProfileLayer], path: Path) -> ProfileExamination:
    """All that can be said of the profile that `layers` make, the lowest first, and all that is wrong with it."""
    without: set[Key] = set()  # of the layers that give way
    while True:
        values, origins, problems = _merge(layers, without)
        copies = {layer.name for layer in layers if layer.is_written_out}
        wished = {key for key, origin in origins.items() if origin.layer not in copies}
        faulty = {problem.key for problem in problems}
        profile, value_problems = validate_values(values, origins, wished, faulty)
        yielding = {layer.name for layer in layers if layer.gives_way}
        gone = _giving_way(value_problems, origins, yielding) - without
        if not gone:
            missing = find_missing_files(values, origins, faulty | {problem.key for problem in value_problems})
            in_order = _in_order([*problems, *value_problems], layers)
            return ProfileExamination(None if in_order else profile, values, origins, in_order, tuple(missing))
        without |= gone


def _in_order(problems: Iterable[ProfileFault], layers: Sequence[ProfileLayer]) -> tuple[ProfileFault, ...]:
    """As they stand in the file, what is missing first, what is overridden last."""
    order = {layer.name: number for number, layer in enumerate(layers)}

    def place(origin: ValueOrigin | None) -> tuple[int, int]:
        return (-1, 0) if origin is None else (order.get(origin.layer, 0), origin.line or 0)

    return tuple(sorted(problems, key=lambda problem: place(problem.origin)))


def _giving_way(problems: Iterable[ProfileFault], origins: Mapping[Key, ValueOrigin], yielding: set[str]) -> set[Key]:
    """Keys of layers that give way which contradict one of a layer that does not."""
    gone = set()
    for problem in problems:
        given = {key: origin for key in (problem.key, *problem.others) if (origin := origin_of(key, origins))}
        proposed = {key for key, origin in given.items() if origin.layer in yielding}
        if problem.others and len(proposed) < len(given):
            gone |= proposed
    return gone


def file_layer(path: Path) -> ProfileLayer:
    """The layer that the file at `path` is.

    Raises:
        ProfileError: it cannot be read, or is not TOML.
    """
    return text_layer(read_text(path).removeprefix(BOM), path)


def text_layer(text: str, path: Path) -> ProfileLayer:
    """The layer that a file at `path` with this text would be.

    Raises:
        ProfileError: it is not TOML.
    """
    table = read_toml(text, path)
    if _is_too_deep(table):
        raise ProfileError(f"{path} cannot be read as a profile: its tables are nested too deeply.")
    return ProfileLayer(str(path), dict(_flatten(table)), path.absolute().parent, text)


def override_layer(overrides: Iterable[str]) -> ProfileLayer:
    """The layer of `--set section.key=value` options; a value that is not TOML is a text.

    Raises:
        UsageError: an override has another form, or sets a whole table.
    """
    values: dict[Key, Any] = {}
    for override in overrides:
        refuse_table(override, _parse_value(override.partition("=")[2].strip()))
        dotted, equals, raw = override.partition("=")
        key = tuple(dotted.strip().split("."))
        if not equals or not (1 if key == CURRICULUM else 2) <= len(key) <= DEEPEST or not all(key):
            raise UsageError(f"--set {override}: write section.key=value.", hint="--set train.max_steps=100")
        values[key] = _parse_value(raw.strip())
    return ProfileLayer("--set", values, Path.cwd())


def _parse_value(raw: str) -> Any:
    try:
        value = tomllib.loads(f"value = {raw}")["value"]
    except (ValueError, RecursionError):
        return raw  # a bare word is a string: --set run.name=mine
    return raw if _is_too_deep(value) else value


def _is_too_deep(value: Any) -> bool:
    """Whether tables and lists are within each other deeper than any key is, so that nothing below need count."""
    level = [value]
    for _ in range(DEEPEST):
        level = [
            inner for one in level if isinstance(one, dict | list)
            for inner in (one.values() if isinstance(one, dict) else one)
        ]  # fmt: skip
    return bool(level)


def _flatten(table: Mapping[str, Any], above: Key = ()) -> Iterable[tuple[Key, Any]]:
    for name, value in table.items():
        if isinstance(value, dict) and value:
            yield from _flatten(value, (*above, name))
        else:
            yield (*above, name), value


def _merge(
    layers: Iterable[ProfileLayer], without: set[Key]
) -> tuple[dict[Key, Any], dict[Key, ValueOrigin], list[ProfileFault]]:
    values: dict[Key, Any] = {}
    origins: dict[Key, ValueOrigin] = {}
    problems: list[ProfileFault] = []
    proposed: set[Key] = set()
    redacted = value_redactor()
    for layer in layers:
        given = {k: v for k, v in layer.values.items() if not (layer.gives_way and k in without)}
        for key in [*_displaced(given, values), *_broken_up(given, proposed)]:
            values.pop(key, None)
            _forget(origins, key)
        proposed = proposed | given.keys() if layer.gives_way else proposed - given.keys()
        for key, value in given.items():
            harmless = redacted((key, value))  # before a path is made of an address
            if harmless != (key, value):
                key, value = harmless
                problems.append(ProfileFault(key, layer.origin(key), SECRET, SECRET_FIX))
                values[key], origins[key] = value, layer.origin(key)
                continue
            if is_in_list(values, key):
                problems += set_in_list(values, key, value, layer.folder, layer.origin(key))
                _forget(origins, key)
                origins[key] = layer.origin(key)
                continue
            problems += [explain_non_table(one, key, layer.origin(key)) for one in _make_room(values, origins, key)]
            origins[key] = layer.origin(key)
            origins |= {inside: layer.origin(inside) for inside in keys_inside(key, value)}
            try:
                values[key] = resolve_paths(key, None if value == "none" else value, layer.folder)
            except ValueError as error:
                values[key] = value
                problems.append(ProfileFault(key, origins[key], str(error), "Write the path of a file or a folder."))
    return values, origins, problems


def _make_room(values: dict[Key, Any], origins: dict[Key, ValueOrigin], key: Key) -> list[ProfileFault]:
    """A table that is given whole replaces single keys of it, and a key that of a table that was off."""
    problems = []
    for below in [known for known in values if known[: len(key)] == key]:
        del values[below]
    for length in range(1, len(key)):
        if (above := key[:length]) in values:
            value = values.pop(above)
            if value is not None and value != {}:
                names = ".".join(above)
                if above == CURRICULUM and isinstance(value, list):
                    what, fix = "is a list of tables: say which one", f"Set {in_list(above, key[length:])}."
                elif above == CURRICULUM:
                    what, fix = f"is a list of tables, not {value!r}", f"Write [[{names}]]."
                else:
                    what, fix = f"is a table, not {value!r}", f"Write [{names}]."
                problems.append(ProfileFault(above, origins.get(above), what, fix))
    _forget(origins, key)
    return problems


def _forget(origins: dict[Key, ValueOrigin], key: Key) -> None:
    for known in [known for known in origins if known[: len(key)] == key]:
        del origins[known]


def _displaced(new: Mapping[Key, Any], old: Mapping[Key, Any]) -> list[Key]:
    """Keys below that give way because the layer above sets another of their exclusive group."""

    def under(key: Key, choice: Key) -> bool:
        return key[: len(choice)] == choice

    gone = []
    for group in EXCLUSIVE:
        chosen = {c for c in group for key, value in new.items() if under(key, c) and value != "none"}
        if chosen:
            gone += [k for k in old for c in group if under(k, c) and c not in chosen]
    if isinstance(method := new.get(METHOD), str):
        gone += [key for key in old if key[0] == METHOD[0] and key[1:2] and key[1] in unused_keys(method)]
    return gone


def _broken_up(new: Mapping[Key, Any], proposed: set[Key]) -> list[Key]:
    """Proposed keys that mean something only together with one that the layer above sets."""
    gone = []
    for group in TOGETHER:
        if any(key[: len(member)] == member for key in new for member in group):
            gone += [key for key in group if key in proposed]
    return gone
