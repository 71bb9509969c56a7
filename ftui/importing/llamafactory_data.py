"""LLaMA-Factory's names of data sets, which its dataset_info.json explains."""

import json
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any

from ftui.errors import ProfileError
from ftui.importing.document import Leaf
from ftui.importing.draft import Draft, Rule
from ftui.importing.values import Unfit, beside, texts
from ftui.profile.places import DATA_SUFFIXES, HUB_ID

INFO = "dataset_info.json"
DEFAULT_FOLDER = "data"

# The columns of the rows, as an entry names them, and the form that they have here.
ALPACA = {"prompt": "instruction", "query": "input", "response": "output"}
SHAREGPT = {"messages": "conversations"}
FORMS: tuple[tuple[dict[str, str], str], ...] = (
    (ALPACA, "alpaca"),
    ({"prompt": "instruction", "query": "context", "response": "response"}, "dolly"),
    ({"prompt": "instruction", "response": "response"}, "instruction_response"),
    ({"prompt": "question", "response": "answer"}, "question_answer"),
    ({"prompt": "text"}, "text"),
)
SAME = {"system": "system", "history": "history", "tools": "tools"}  # columns with these names are read as they are
SHAREGPT_TAGS = {
    "role_tag": "from", "content_tag": "value", "user_tag": "human", "assistant_tag": "gpt",
    "observation_tag": "observation", "function_tag": "function_call", "system_tag": "system",
}  # fmt: skip
OPENAI_TAGS = {
    "role_tag": "role", "content_tag": "content", "user_tag": "user", "assistant_tag": "assistant",
    "observation_tag": "tool", "system_tag": "system",
}  # fmt: skip


def rule(ours: str) -> Rule:
    """`dataset` or `eval_dataset`: names with commas."""

    def read(draft: Draft, leaf: Leaf) -> None:
        table, folder = _info(draft)
        found = []
        for name in texts(leaf.value):
            try:
                found.append(_source(draft, name, table, folder))
            except Unfit as unfit:
                draft.tell(f"{leaf.name}: {name}", name, str(unfit))
        if not found:
            raise Unfit("none of these can be read here")
        draft.carry(leaf, ours, found[0] if len(found) == 1 and isinstance(found[0], str) else found)

    return read


def _info(draft: Draft) -> tuple[Mapping[str, Any] | None, Path | None]:
    """The table of data sets and its folder; `None` where there is none.

    Raises:
        ProfileError: the file is there and cannot be read.
    """
    wanted = draft.raw("dataset_dir")
    for place in (wanted, DEFAULT_FOLDER, "."):
        path = draft.found(f"{place}/{INFO}") if isinstance(place, str) and place else None
        if path is None:
            continue
        try:
            table = json.loads(path.read_text(encoding="utf-8-sig"))
        except (OSError, ValueError, RecursionError) as error:
            raise ProfileError(f"{path} cannot be read: {error}.") from error
        if not isinstance(table, dict):
            raise ProfileError(f"{path} is no table of data sets.")
        return table, path.parent
    return None, None


def _source(draft: Draft, name: str, table: Mapping[str, Any] | None, folder: Path | None) -> Any:
    entry = (table or {}).get(name)
    if entry is None:
        if draft.found(name) or HUB_ID.fullmatch(name) or PurePath(name).suffix.lower() in DATA_SUFFIXES:
            return draft.rows(name)
        where = f"{folder / INFO} has no such name" if folder else f"there is no {INFO} that says what it is"
        raise Unfit(where)
    if not isinstance(entry, dict):
        raise Unfit(f"its entry in {INFO} is no table")
    if entry.get("ranking") or _columns(entry).get("kto_tag"):
        raise Unfit("rows to prefer by, which sft cannot learn from")
    source = {"path": _path(draft, entry, folder)}
    form = _form(draft, name, entry)
    if beside(draft.raw("stage"), "sft") == "pt" and form != "text":
        draft.tell(f"{INFO}: {name}", form, "pretrain learns the column text only; name the column so in the file")
        form = "text"
    source |= {"format": form} if form else {}
    source |= {key: str(entry[key]) for key in ("subset", "split", "revision") if entry.get(key)}
    for key in sorted(entry.keys() - {"file_name", "hf_hub_url", "ms_hub_url", "om_hub_url", "formatting", "columns",
                                      "tags", "subset", "split", "revision", "ranking"}):  # fmt: skip
        if entry[key]:
            draft.tell(f"{INFO}: {name}.{key}", entry[key], "a source cannot be cut short or narrowed here")
    if "split" in source and source["split"] == "train":
        del source["split"]
    return source if len(source) > 1 else source["path"]


def _path(draft: Draft, entry: Mapping[str, Any], folder: Path | None) -> str:
    for key in ("hf_hub_url", "file_name"):
        given = entry.get(key)
        if isinstance(given, str) and given:
            if key == "hf_hub_url" and not HUB_ID.fullmatch(given):
                raise Unfit(f"{given} is no name on the hub: owner/name is needed")
            if key == "hf_hub_url":
                return given
            assert folder is not None, "an entry comes from a file"
            return draft.seen_from(folder / given)
    raise Unfit(f"its entry in {INFO} names no file and no data set of the Hugging Face hub")


def _columns(entry: Mapping[str, Any]) -> dict[str, Any]:
    columns = entry.get("columns")
    return dict(columns) if isinstance(columns, dict) else {}


def _form(draft: Draft, name: str, entry: Mapping[str, Any]) -> str:
    """The form of its rows; empty where it has to be looked at."""
    columns = _columns(entry)
    for medium in ("images", "videos", "audios"):
        if columns.pop(medium, None):
            draft.tell(f"{INFO}: {name}.columns.{medium}", medium, "only text can be learned")
    same = {key: value for key, value in columns.items() if SAME.get(key) == value}
    shape = {key: value for key, value in columns.items() if key not in same}
    if entry.get("formatting", "alpaca") in ("sharegpt", "openai"):
        tags = SHAREGPT_TAGS | (entry["tags"] if isinstance(entry.get("tags"), dict) else {})
        column = shape.get("messages", "conversations")
        if column == "conversations" and _agree(tags, SHAREGPT_TAGS) and len(shape) <= 1:
            return "sharegpt"
        if column == "messages" and _agree(tags, OPENAI_TAGS) and len(shape) <= 1:
            return "messages"
        _tell_columns(draft, name, entry)
        return ""
    for known, form in FORMS:
        if (not shape and form == "alpaca") or shape == known:
            return form
    if shape == {"prompt": "instruction", "response": "output"}:
        return "alpaca"
    _tell_columns(draft, name, entry)
    return ""


def _agree(tags: Mapping[str, Any], known: Mapping[str, str]) -> bool:
    """Whether the marks that every conversation has are these."""
    return all(tags.get(tag) == known[tag] for tag in ("role_tag", "content_tag", "user_tag", "assistant_tag"))


def _tell_columns(draft: Draft, name: str, entry: Mapping[str, Any]) -> None:
    told = {key: entry[key] for key in ("columns", "tags") if entry.get(key)}
    reason = "[data] cannot rename columns yet: rename them in the file (docs/profile.md names the forms)"
    draft.tell(f"{INFO}: {name}", told, reason)
