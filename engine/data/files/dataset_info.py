"""LLaMA-Factory's `dataset_info.json`: one of its entries as the source it describes."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ftui.errors import DataError
from ftui.profile.paths import HUB_ID
from ftui.profile.sections import row_forms
from ftui.profile.sections.data import DataSource, Form, Role
from ftui.system.input_files import read_input

from ..forms.column_names import nearest_name_hint
from ..forms.turns import CONTENT_KEYS, ROLE_KEYS, ROLES

NAME = "dataset_info.json"
MOST_NAMED = 40
MEDIA = ("images", "videos", "audios")
ELSEWHERE = {
    "ms_hub_url": "lies on ModelScope", "om_hub_url": "lies on Modelers", "cloud_file_name": "lies in a cloud",
    "script_url": "is made by a script",
}  # fmt: skip
SPEAKERS: dict[str, Role] = {
    "user_tag": "user", "assistant_tag": "assistant", "observation_tag": "tool", "function_tag": "function_call",
    "system_tag": "system",
}  # fmt: skip
COLUMNS = {"prompt": "instruction", "query": "input", "response": "output"}  # where an entry names none
BESIDE = ("system", "tools", "history", "chosen", "rejected", "kto_tag")  # are called the same here


def resolve_entry(source: DataSource) -> DataSource:
    """The source itself; where it names an entry of a dataset_info.json (`subset`), the source that entry describes.

    What the source says of itself (format, columns, roles ...) comes before the entry.

    Raises:
        DataError: there is no such entry, or it cannot be read here: pictures or sound, a script, another hub.
    """
    path = Path(source.path)
    if path.name != NAME or not path.is_absolute() or not path.is_file():
        return source
    entry, refused = _entry(path, source.subset)
    columns = _table(entry, "columns", refused)
    media = [name for name in MEDIA if columns.get(name)]
    if media:
        raise refused(f"has {', '.join(media)}: only text can be trained on", "")
    if entry.get("folder"):
        raise refused("is one folder of a data set, and these are read whole", "Name its files in data.train.")
    form, names = _form(entry, columns, source.format, refused)
    if columns:  # LLaMA-Factory reads no others, whatever they are called
        names |= dict.fromkeys(sorted(row_forms.COLUMNS[form] - row_forms.OF_TURNS - names.keys()), "")
    tags = _table(entry, "tags", refused)
    keys = {"role": (tags.get("role_tag"), ROLE_KEYS), "content": (tags.get("content_tag"), CONTENT_KEYS)}
    names |= {ours: theirs for ours, (theirs, known) in keys.items() if theirs and theirs not in known}
    roles = {tags[tag]: role for tag, role in SPEAKERS.items() if tags.get(tag) and ROLES.get(tags[tag]) != role}
    of_the_hub = bool(entry.get("hf_hub_url"))
    changed = {
        "path": _path_or_hub_name(path, entry, refused),
        "format": source.format or form,
        "columns": {ours: theirs for ours, theirs in names.items() if ours != theirs} | source.columns,
        "roles": roles | source.roles,
        "num_samples": source.num_samples or entry.get("num_samples"),
        "subset": entry.get("subset") if of_the_hub else None,
        "split": source.split or entry.get("split") if of_the_hub else None,
    }
    try:
        return DataSource.model_validate(source.model_dump() | changed)
    except ValueError as error:
        raise refused("has a value of a wrong kind", " ".join(str(error).split())[:200]) from error


def files_in_table(path: Path) -> list[Path]:
    """The files that its entries name and that are there, in their order; none where it is no such table."""
    try:
        table = json.loads(read_input(path).decode("utf-8-sig"))
    except (OSError, ValueError, RecursionError):
        return []
    entries = list(table.values()) if isinstance(table, dict) else []
    named = [entry.get("file_name") for entry in entries if isinstance(entry, dict)]
    return [path.parent / name for name in named if isinstance(name, str) and name and (path.parent / name).is_file()]


Refusal = Callable[[str, str], DataError]


def _entry(path: Path, name: str | None) -> tuple[Mapping[str, Any], Refusal]:
    try:
        table = json.loads(read_input(path).decode("utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path} cannot be read: {error}.") from error
    if not isinstance(table, dict):
        raise DataError(f"{path} is no table of data sets.")
    entry = table.get(name or "")
    if not isinstance(entry, dict):
        problem = f"has no data set {name!r}" if name else "is a list of data sets (LLaMA-Factory's), not rows"
        more = f" and {len(table) - MOST_NAMED} more" if len(table) > MOST_NAMED else ""
        meant = nearest_name_hint(name, table) or f"There are {', '.join(list(table)[:MOST_NAMED])}{more}."
        written = f'{{ path = "{NAME}", subset = "{next(iter(table), "NAME")}" }}'
        raise DataError(f"{path} {problem}.", hint=f"Name one of them, as in train = {written}. {meant}")
    return entry, lambda reason, hint: DataError(f"{path}: {name!r} {reason}.", hint=hint)


def _table(entry: Mapping[str, Any], name: str, refused: Refusal) -> dict[str, Any]:
    table = entry.get(name) or {}
    if not isinstance(table, dict) or not all(value is None or isinstance(value, str) for value in table.values()):
        raise refused(f"has {name} that are no table of names", "")
    return table


def _path_or_hub_name(path: Path, entry: Mapping[str, Any], refused: Refusal) -> str:
    given = entry.get("hf_hub_url")
    if given:
        if not HUB_ID.fullmatch(str(given)):
            raise refused(f"has the hub's name {given!r}", "A name on the hub is owner/name.")
        return str(given)
    for key, words in ELSEWHERE.items():
        if entry.get(key):
            raise refused(f"{words} ({key}), from where nothing is read", "Download it, and name the file.")
    given = entry.get("file_name")
    if not isinstance(given, str) or not given:
        raise refused("names no file (file_name) and no data set of the hub (hf_hub_url)", "")
    place = path.parent / given
    if not place.exists():
        raise refused(f"names {given}, and there is no such file beside {NAME}", "Check file_name.")
    return str(place.resolve())


def _form(
    entry: Mapping[str, Any], columns: dict[str, Any], named_form: Form | None, refused: Refusal
) -> tuple[Form, dict[str, str]]:
    """The form of the rows, and what their columns are called. An entry that names columns uses no others."""
    beside = {name: columns[name] for name in BESIDE if columns.get(name)}
    how = entry.get("formatting", "alpaca")
    if how not in ("alpaca", "sharegpt", "openai"):
        raise refused(f"has the formatting {how!r}", "Known are alpaca, sharegpt and openai.")
    is_judged: Form | None = "preference" if entry.get("ranking") else "kto" if columns.get("kto_tag") else None
    if how != "alpaca":
        turns = columns.get("messages") or "conversations"
        ours: Form = "messages" if turns == "messages" else "sharegpt"
        return is_judged or ours, beside | {"conversations" if ours == "sharegpt" else "messages": turns}
    named = {name: columns.get(name) for name in COLUMNS} if columns else COLUMNS
    prompt, query, response = (named[name] for name in COLUMNS)
    if not prompt:
        raise refused("names no column for the prompt", "Set columns.prompt.")
    if named_form == "text" or (not response and not is_judged):
        return "text", {"text": prompt}
    if query or is_judged == "kto":
        answer = {} if is_judged == "preference" else {"output": str(response)}
        return is_judged or "alpaca", beside | {"instruction": prompt} | ({"input": query} if query else {}) | answer
    if is_judged:
        return is_judged, beside | {"question": prompt}
    return "question_answer", beside | {"question": prompt, "answer": str(response)}
