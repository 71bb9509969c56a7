"""What the pickers list: models and data of this disk and of late, each with what its files tell at a glance."""

import csv
import gzip
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from ftui import units
from ftui.errors import FtuiError
from ftui.models.config_reader import shape_of
from ftui.models.known import known_models
from ftui.models.local import CONFIG, ModelFacts, cached_models, facts, find_folder, models_in
from ftui.profile import recent
from ftui.profile.paths import DATA_SUFFIXES
from ftui.profile.sections.row_forms import form_of

from ..drawing.editor.form_pick import Choice
from ..drawing.wording import place

MOST_FILES = 300
FIRST_BYTES = 1 << 20  # of a file, for its first row
FAULTS = (OSError, ValueError, RuntimeError, ArithmeticError, LookupError, TypeError, AttributeError)
"""What files of somebody else's may lead a look at them into: whoever edits must not lose the draft to it."""
HERE, CACHED, LATELY, KNOWN = "in this folder", "in the hub's cache", "used lately", "on the hub"


# -- models


def models(folder: Path, current: str) -> list[Choice]:
    """Models in a folder and the ones below it, in the hub's cache, and of late."""
    found = [*_models_here(folder, current), *(_model(one, CACHED, current) for one in _cached())]
    names = {choice.name for choice in found}
    lately = [name for name in recent.recent("model") if name not in names and place(Path(name)) not in names]
    return [
        *found,
        *(Choice(name, "", name, group=LATELY, is_current=name == current) for name in lately),
        *(_known_model(name, current) for name in known_models() if name not in names and name not in lately),
    ]


def _known_model(name: str, current: str) -> Choice:
    facts = _known(name)
    words = facts[0].partition(",")[0] if facts else ""
    licence = known_models()[name].get("licence")
    told = ", ".join(part for part in (words, licence) if part)
    return Choice(name, told, name, group=KNOWN, is_current=name == current)


def _models_here(folder: Path, current: str) -> Iterator[Choice]:
    try:
        found = models_in(folder)
    except (FtuiError, *FAULTS):  # a folder nobody can read holds nothing to choose
        found = []
    for one in found[:MOST_FILES]:
        name = f"./{one.path.relative_to(folder)}" if one.path.is_relative_to(folder) else one.name
        yield _model(one, HERE, current, name=name)


def _cached() -> list[ModelFacts]:
    try:
        return cached_models()
    except (FtuiError, *FAULTS):  # so does a cache nobody can read
        return []


def _model(one: ModelFacts, group: str, current: str, *, name: str | None = None) -> Choice:
    name = name or one.name
    return Choice(name, in_short(one), name, model_facts(one), group, is_current=name == current)


def in_short(one: ModelFacts) -> str:
    """`2.85 M parameters, llama, bfloat16`."""
    if one.problem is not None:
        return one.problem
    size = f"{units.count(one.parameters)} parameters" if one.parameters is not None else ""
    return ", ".join(part for part in (size, one.model_type, one.dtype) if part)


def model_facts(one: ModelFacts) -> tuple[str, ...]:
    """All that its files say."""
    if one.problem is not None:
        return (one.problem,)
    layers = f"{one.layers} layers" if one.layers is not None else ""
    context = f"context {one.context:,} tokens" if one.context is not None else ""
    size = units.size(one.num_bytes) if one.num_bytes is not None else ""
    licence = f"licence {one.licence}" if one.licence else "licence not told"
    first = ", ".join(part for part in (in_short(one), layers, context) if part)
    return (first, ", ".join(part for part in (licence, size) if part), place(one.path))


def facts_of_model(name: str, folder: Path) -> tuple[str, ...]:
    """Of any name that was typed, as far as it is on this disk."""
    return _told(lambda: _facts_of_model(name, folder))


def _told(look: Callable[[], tuple[str, ...]]) -> tuple[str, ...]:
    """What a look at the disk says; of a name no file can have, and of files of nonsense, why there is nothing."""
    try:
        return look()
    except (FtuiError, *FAULTS) as error:
        return (f"This cannot be read: {error}.",)


def _facts_of_model(name: str, folder: Path) -> tuple[str, ...]:
    path = find_folder(str(folder / Path(name).expanduser()) if name.startswith((".", "/", "~")) else name)
    if path is None:
        told = "It is not on this disk; a name such as owner/model is fetched from the hub when the run starts."
        return (*_known(name), told)
    return model_facts(facts(path, name=name))


def _known(name: str) -> tuple[str, ...]:
    """Of a model that is not here, what the table of well-known ones says."""
    config, shape = known_models().get(name), None
    if config is not None:
        shape = shape_of(config)
    if config is None or shape is None:
        return ()
    size = f"{units.count(shape.num_parameters)} parameters, {shape.num_layers} layers"
    context = f", context {shape.context:,} tokens" if shape.context is not None else ""
    return (f"{size}{context}, licence {config.get('licence', 'not told')}",)


# -- rows


def data(folder: Path, current: Iterable[str]) -> list[Choice]:
    """Files of rows in a folder and one below it, then those of late."""
    now = set(current)
    found = [_file(path, folder, now) for path in _files(folder)]
    names = {str(choice.value) for choice in found}
    lately = [name for name in recent.recent("data") if name not in names and not Path(name).is_relative_to(folder)]
    return [*found, *(Choice(_short(name), "", name, group=LATELY, is_current=name in now) for name in lately)]


def _short(name: str) -> str:
    return place(Path(name)) if name.startswith("/") else name


def _files(folder: Path) -> list[Path]:
    found = [path for pattern in ("*", "*/*") for path in sorted(folder.glob(pattern)) if _is_data(path)]
    return found[:MOST_FILES]


def _is_data(path: Path) -> bool:
    if path.suffix.lower() not in DATA_SUFFIXES or path.name.startswith(".") or not path.is_file():
        return False
    return not (path.parent / CONFIG).exists()  # what lies beside a model is no data


def _file(path: Path, folder: Path, current: set[str]) -> Choice:
    name = str(path.relative_to(folder))
    words = units.size(path.stat().st_size)
    return Choice(name, words, name, group=HERE, is_current=name in current or str(path) in current)


def facts_of_data(name: str, folder: Path) -> tuple[str, ...]:
    """Form, size and the keys of the first row, as far as they can be seen without reading all of it."""
    return _told(lambda: _facts_of_data(name, folder))


def _facts_of_data(name: str, folder: Path) -> tuple[str, ...]:
    path = folder / Path(name).expanduser()
    if path.is_dir():
        inside = [one for one in _files(path)]
        return (
            (f"a folder with {len(inside)} files of rows", *_facts_of_data(str(inside[0]), folder)[:1])
            if inside
            else ()
        )
    if not path.is_file():
        if path.suffix.lower() in DATA_SUFFIXES or name.startswith((".", "/", "~")):
            return ("There is no such file.",)
        return ("It is not here; a name such as owner/rows is fetched from the hub when the run starts.",)
    return (f"{_form(path)}, {units.size(path.stat().st_size)}", place(path))


def _form(path: Path) -> str:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    kind = next((suffix for suffix in reversed(suffixes) if suffix not in (".gz", ".zst")), "")
    if kind == ".txt":
        return "text, one document"
    if kind == ".parquet" or ".zst" in suffixes:
        return "its form is seen when it is read"
    try:
        keys = _first_keys(path, kind)
    except (OSError, ValueError, EOFError, csv.Error) as error:
        return f"its first row cannot be read: {error}"
    form = form_of(keys)
    told = f"rows with {', '.join(keys) or 'nothing in them'}"
    return f"{form}: {told}" if form else f"no known form: {told}"


def _first_keys(path: Path, kind: str) -> list[str]:
    with gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb") as file:
        head = file.read(FIRST_BYTES)
    if kind in (".csv", ".tsv"):
        line = head.decode("utf-8-sig", errors="replace").splitlines()[:1]
        return next(csv.reader(line, delimiter="\t" if kind == ".tsv" else ","), [])
    text = head.decode("utf-8-sig", errors="replace").lstrip()
    row, _ = json.JSONDecoder().raw_decode(text.removeprefix("[").lstrip())
    if not isinstance(row, Mapping):
        raise ValueError("it is no object with keys")
    return list(row)
