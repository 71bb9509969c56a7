"""Rows that are not cut: the longest that a model sees, where a file says that there is no longest row."""

import json
from typing import Any

from ftui.errors import ModelError
from ftui.importers.config_file import Leaf
from ftui.importers.draft import Draft, Rule
from ftui.importers.values import Unfit, is_on
from ftui.models.known import known_config
from ftui.models.local import find_config

NOTE = "nothing is cut there: as long as the model can see"


def uncut(model: str, packing: str) -> Rule:
    """The rule of a key that says so; `model` and `packing` are the file's names of those."""

    def rule(draft: Draft, leaf: Leaf) -> None:
        ours = "data.max_length"
        if is_on(draft.raw(packing)):
            raise Unfit("packed rows need a length: set data.max_length", ours)
        most = longest_seen(draft, draft.raw(model))
        if most is None:
            why = "nothing is cut there: set data.max_length to the longest row, or to what the model can see"
            raise Unfit(why, ours)
        draft.carry(leaf, ours, most, NOTE)

    return rule


def longest_seen(draft: Draft, name: Any) -> int | None:
    """Positions of the model of that name, as far as it is on this machine or known to ftui."""
    if not isinstance(name, str) or not name:
        return None
    try:
        folder = draft.found(name)
        path = find_config(name if folder is None else str(folder.absolute()))
        config = known_config(name) if path is None else json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError, ModelError):
        return None
    most = config.get("max_position_embeddings") if isinstance(config, dict) else None
    return most if isinstance(most, int) and not isinstance(most, bool) and most >= 8 else None
