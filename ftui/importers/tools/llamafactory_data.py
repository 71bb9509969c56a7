"""LLaMA-Factory's names of data sets, which its dataset_info.json explains."""

import json
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any

from ftui.errors import ProfileError
from ftui.importers.config_file import Leaf
from ftui.importers.draft import Draft, Rule
from ftui.importers.values import Unfit, beside, texts
from ftui.profile.paths import DATA_SUFFIXES, HUB_ID

INFO = "dataset_info.json"
DEFAULT_FOLDER = "data"

# What an entry may say; the engine reads all of it (engine/data/files/dataset_info.py) but for what is refused below.
KNOWN = {
    "file_name", "hf_hub_url", "ms_hub_url", "om_hub_url", "formatting", "columns", "tags", "subset", "split",
    "ranking", "num_samples",
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
    stage = beside(draft.raw("stage"), "sft")
    _refuse(entry, str(stage))
    assert folder is not None, "an entry comes from a file"
    wanted = draft.raw("dataset_dir")
    is_whole = isinstance(wanted, str) and PurePath(wanted).is_absolute()  # as it was written: it may be moved
    source = {"path": str(folder / INFO) if is_whole else draft.seen_from(folder / INFO), "subset": name}
    if stage == "pt":
        source["format"] = "text"
        if entry.get("formatting", "alpaca") != "alpaca" or _columns(entry).get("response"):
            draft.tell(f"{INFO}: {name}", entry, "pretrain learns one column of text: that of the prompt")
    for key in sorted(entry.keys() - KNOWN):
        if entry[key]:
            draft.tell(f"{INFO}: {name}.{key}", entry[key], "a source cannot be narrowed so here")
    return source


def _refuse(entry: Mapping[str, Any], stage: str) -> None:
    """Raises `Unfit` for an entry whose rows cannot be had, or not be learned by this stage."""
    columns = _columns(entry)
    if stage in ("sft", "pt") and (entry.get("ranking") or columns.get("kto_tag")):
        raise Unfit("rows to prefer by, which sft cannot learn from")
    media = [medium for medium in ("images", "videos", "audios") if columns.get(medium)]
    if media:
        raise Unfit(f"it has {', '.join(media)}: only text can be learned")
    if entry.get("folder"):
        raise Unfit("a data set of the hub is read whole, not one folder of it")
    given = entry.get("hf_hub_url")
    if given and not HUB_ID.fullmatch(str(given)):
        raise Unfit(f"{given} is no name on the hub: owner/name is needed")
    if not given and not entry.get("file_name"):
        raise Unfit(f"its entry in {INFO} names no file and no data set of the Hugging Face hub")


def _columns(entry: Mapping[str, Any]) -> dict[str, Any]:
    columns = entry.get("columns")
    return dict(columns) if isinstance(columns, dict) else {}
