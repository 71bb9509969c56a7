"""Models whose architecture comes with ftui (profiles/models.toml), so that they can be estimated before a download."""

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

TABLE = Path(__file__).parents[1] / "profiles" / "models.toml"


@cache
def known_models() -> Mapping[str, Mapping[str, Any]]:
    """The known models by hub id: the numbers of config.json in transformers' spelling, and the `licence`.

    One that is `same_as` another has that one's numbers, but for those it gives itself.
    """
    table = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    return {name: _resolve_twin(table, name) for name in table}


def _resolve_twin(table: Mapping[str, dict[str, Any]], name: str) -> dict[str, Any]:
    own = dict(table[name])
    twin = own.pop("same_as", None)
    return own if twin is None else _resolve_twin(table, twin) | own


def known_config(name: str) -> dict[str, Any] | None:
    """The config of a model of that hub id; `None` where it is not in the table."""
    config = known_models().get(name)
    return None if config is None else {key: value for key, value in config.items() if key != "licence"}
