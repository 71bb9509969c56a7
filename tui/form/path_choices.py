"""What may be chosen for a path: models and data of this disk and of late, each with what its files say at a glance."""

import csv
import gzip
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from ftui import units
from ftui.errors import FtuiError
from ftui.models.config_reader import read_shape, refusal_of
from ftui.models.known import known_config, known_models, nearest_models
from ftui.models.local import CONFIG, ModelFacts, cached_models, find_folder, models_in, read_facts
from ftui.profile import recent
from ftui.profile.paths import DATA_SUFFIXES
from ftui.profile.sections.row_forms import form_of

from ..drawing.editor.form_pick import Choice
from ..drawing.wording import place

MOST_FILES = 300
FIRST_BYTES = 1 << 20  # of a file, for its first row
FAULTS = (OSError, ValueError, RuntimeError, ArithmeticError, LookupError, TypeError, AttributeError)
"""What reading somebody else's files may raise: whoever edits must not lose the draft to it."""
FOLDER = "a folder"
HERE, CACHED, LATELY, KNOWN = "in this folder", "in the hub's cache", "used lately", "on the hub"


# -- models


def model_choices(folder: Path, current: str) -> list[Choice]:
    """Models in a folder and the ones below it, in the hub's cache, used lately, and well-known ones of the hub."""

    def choice_of(model: ModelFacts, group: str, name: str) -> Choice:
        return Choice(name, _in_short(model), name, _describe(model), group, is_current=name == current)

    choices = []
    for model in _models_or_none(lambda: models_in(folder))[:MOST_FILES]:
        name = f"./{model.path.relative_to(folder)}" if model.path.is_relative_to(folder) else model.name
        choices.append(choice_of(model, HERE, name))
    choices += [choice_of(model, CACHED, model.name) for model in _models_or_none(cached_models)]
    names = {choice.name for choice in choices}
    lately = [name for name in recent.recent_names("model") if name not in names and place(Path(name)) not in names]
    choices += [Choice(name, "", name, group=LATELY, is_current=name == current) for name in lately]
    for name, known in known_models().items():
        if known.parameters is not None and name not in names and name not in lately:
            words = f"{units.count(known.parameters)} parameters, {known.licence}"
            choices.append(Choice(name, words, name, group=KNOWN, is_current=name == current))
    return choices


def _models_or_none(read: Callable[[], list[ModelFacts]]) -> list[ModelFacts]:
    try:
        return read()
    except (FtuiError, *FAULTS):  # a folder or a cache nobody can read holds nothing to choose
        return []


def _in_short(model: ModelFacts) -> str:
    """`2.85 M parameters, llama, bfloat16`."""
    if model.problem is not None:
        return model.problem
    size = f"{units.count(model.parameters)} parameters" if model.parameters is not None else ""
    return ", ".join(part for part in (size, model.model_type, model.dtype) if part)


def _describe(model: ModelFacts) -> tuple[str, ...]:
    """All that its files say."""
    if model.problem is not None:
        return (model.problem,)
    layers = f"{model.layers} layers" if model.layers is not None else ""
    context = f"context {model.context:,} tokens" if model.context is not None else ""
    size = units.size(model.num_bytes) if model.num_bytes is not None else ""
    licence = f"licence {model.licence}" if model.licence else "licence not told"
    first = ", ".join(part for part in (_in_short(model), layers, context) if part)
    return (first, ", ".join(part for part in (licence, size) if part), place(model.path))


def describe_model(name: str, folder: Path) -> tuple[str, ...]:
    """What is known of any name that was typed, as far as it is on this disk."""

    def read() -> tuple[str, ...]:
        path = find_folder(str(folder / Path(name).expanduser()) if name.startswith((".", "/", "~")) else name)
        if path is not None:
            return _describe(read_facts(path, name=name))
        hint = "It is not on this disk; a name such as owner/model is fetched from the hub when the run starts."
        return (*_describe_known(name), hint)

    return _read_or_say_why(read)


def _read_or_say_why(read: Callable[[], tuple[str, ...]]) -> tuple[str, ...]:
    """What a look at the disk gives; for a name no file can have, and files of nonsense, why there is nothing."""
    try:
        return read()
    except (FtuiError, *FAULTS) as error:
        return (f"This cannot be read: {error}.",)


def _describe_known(name: str) -> tuple[str, ...]:
    """What the table of well-known models says of one that is not here."""
    config = known_config(name)
    if config is None:
        return (hint,) if (hint := nearest_models(name)) else ()
    if (shape := read_shape(config)) is None:
        return (f"{name} {refusal_of(config)}.",)
    size = f"{units.count(shape.num_parameters)} parameters, {shape.num_layers} layers"
    context = f", context {shape.context:,} tokens" if shape.context is not None else ""
    licence = f", licence {known.licence}" if (known := known_models().get(name)) is not None else ""
    return (f"{size}{context}{licence}",)


# -- rows


def data_choices(folder: Path, current: Iterable[str]) -> list[Choice]:
    """Folders of rows in a folder, files of rows in it and one below it, then those used lately."""
    now = set(current)
    choices = [
        Choice(path.name, FOLDER, path.name, group=HERE, is_current=path.name in now or str(path) in now)
        for path in _data_folders(folder)
    ]
    for path in _data_files(folder):
        name = str(path.relative_to(folder))
        is_current = name in now or str(path) in now
        choices.append(Choice(name, units.size(path.stat().st_size), name, group=HERE, is_current=is_current))
    names = {str(choice.value) for choice in choices}
    for name in recent.recent_names("data"):
        if name not in names and not Path(name).is_relative_to(folder):
            short = place(Path(name)) if name.startswith("/") else name
            choices.append(Choice(short, "", name, group=LATELY, is_current=name in now))
    return choices


def _data_files(folder: Path) -> list[Path]:
    return sorted(_data_inside(folder), key=lambda path: (len(path.parts), path))[:MOST_FILES]


def _data_folders(folder: Path) -> list[Path]:
    there = (path for path in sorted(folder.glob("*")) if path.is_dir() and path.name[0] != ".")
    return [path for path in there if next(_data_inside(path), None) is not None][:MOST_FILES]


def _data_inside(folder: Path) -> Iterator[Path]:
    return (path for pattern in ("*", "*/*") for path in folder.glob(pattern) if _is_data(path))


def _is_data(path: Path) -> bool:
    if path.suffix.lower() not in DATA_SUFFIXES or path.name.startswith(".") or not path.is_file():
        return False
    return not (path.parent / CONFIG).exists()  # what lies beside a model is no data


def describe_data(name: str, folder: Path) -> tuple[str, ...]:
    """Form, size and the keys of the first row, as far as they can be seen without reading all of it."""
    return _read_or_say_why(lambda: _describe_data(folder / Path(name).expanduser(), name))


def _describe_data(path: Path, name: str) -> tuple[str, ...]:
    if path.is_dir():
        return (f"{FOLDER}; which of its files are read is being looked up ...",)
    if path.is_file():
        return (f"{_describe_form(path)}, {units.size(path.stat().st_size)}", place(path))
    if path.suffix.lower() in DATA_SUFFIXES or name.startswith((".", "/", "~")):
        return ("There is no such file or folder.",)
    return ("It is not here; a name such as owner/rows is fetched from the hub when the run starts.",)


def _describe_form(path: Path) -> str:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    kind = next((suffix for suffix in reversed(suffixes) if suffix not in (".gz", ".zst")), "")
    if kind == ".txt":
        return "text, one document"
    if kind in (".parquet", ".arrow") or ".zst" in suffixes:
        return "its form is seen when it is read"
    try:
        keys = _first_keys(path, kind)
    except (OSError, ValueError, EOFError, csv.Error) as error:
        return f"its first row cannot be read: {error}"
    return f"{form_of(keys) or 'no known form'}: rows with {', '.join(keys) or 'nothing in them'}"


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
