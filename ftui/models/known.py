"""Models whose config comes with ftui (profiles/models.toml), so that they can be estimated before a download."""

import difflib
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ftui.models.config_reader import refusal_of

TABLE = Path(__file__).parents[1] / "profiles" / "models.toml"
MIRRORS = ("unsloth", "nousresearch", "mlx-community")
"""Accounts that publish other people's models again, under the same names but for what `_plain` leaves out."""
REBUILT = ("phi3",)
"""Types that unsloth publishes in another layout: those of its own are in the table."""
IN_FEW_BITS = re.compile(r"(-unsloth)?-bnb-4bit$")
NEAR, MOST_NEAR = 0.6, 3


@dataclass(frozen=True)
class KnownModel:
    """One model of the table.

    Attributes:
        config: the numbers of its config.json, in transformers' spelling.
        parameters: published total, a float where only three digits were found; `None` for models that are refused.
    """

    config: Mapping[str, Any]
    licence: str
    parameters: int | float | None


@dataclass(frozen=True)
class _Table:
    models: Mapping[str, KnownModel]
    ids: Mapping[str, str]  # hub ids in lower case, `mirrors` among them: the name in `models`
    names: Mapping[str, str]  # names without an owner, as `_plain` has them: the name in `models`


@cache
def _table() -> _Table:
    models: dict[str, KnownModel] = {}
    ids: dict[str, str] = {}
    for entry in tomllib.loads(TABLE.read_text(encoding="utf-8"))["model"]:
        config, names = entry["config"], entry["names"]
        if config["model_type"] == "mistral":  # transformers would take a window where there is none
            config = {"sliding_window": None} | config
        models |= dict.fromkeys(names, KnownModel(config, entry["licence"], entry.get("parameters")))
        ids |= {name.lower(): name for name in names} | {name.lower(): names[0] for name in entry.get("mirrors", ())}
    return _Table(models, ids, {_plain(id_): ids[id_] for id_ in reversed(ids)})  # of two, the one that comes first


def known_models() -> Mapping[str, KnownModel]:
    """The models of the table by hub id, without their mirrors."""
    return _table().models


def known_config(name: str) -> dict[str, Any] | None:
    """The config of a model of that hub id, or of the one it is a mirror of; `None` where neither is in the table.

    A mirror in 4 bits has the config of its model, and says that it is quantised.
    """
    whole = IN_FEW_BITS.sub("", name)
    found = _find(whole)
    if found is None:
        return None
    stored = {} if whole == name else {"quantization_config": {"quant_method": "bitsandbytes"}}
    return dict(known_models()[found].config) | stored


def _find(name: str) -> str | None:
    """The name in the table of a model or of its mirror."""
    table, owner = _table(), name.lower().partition("/")[0]
    if (found := table.ids.get(name.lower())) is not None or owner not in MIRRORS:
        return found
    found = table.names.get(_plain(name))
    return None if found is None or _is_other(name, table.models[found].config) else found


def _is_other(mirror: str, config: Mapping[str, Any]) -> bool:
    """Whether a mirror has another config than its model: laid out anew, or in 16 bits what that has in fewer."""
    return config["model_type"] in REBUILT or ("quantization_config" in config and mirror.lower().endswith("-bf16"))


def _plain(name: str) -> str:
    """The name without its owner, as mirrors agree in it: `unsloth/llama-3-8b` is `meta-llama/Meta-Llama-3-8B`,
    `unsloth/llama-2-7b` is `meta-llama/Llama-2-7b-hf`."""
    return name.lower().rpartition("/")[2].removeprefix("meta-").removesuffix("-bf16").removesuffix("-hf")


def nearest_models(name: str) -> str:
    """A hint with the models of the table whose names are like this one; "" where none is, and where the model of that
    very name would be refused, too."""
    names, plain = _table().names, _plain(IN_FEW_BITS.sub("", name))
    near = [plain] if plain in names else difflib.get_close_matches(plain, names, MOST_NEAR, NEAR)
    choices = [names[key] for key in near if names[key].lower() != name.lower()]
    if plain in names and refusal_of(known_models()[names[plain]].config) is not None:
        return ""
    return f"Did you mean {' or '.join(choices)}?" if choices else ""
