"""How a key of the profile is declared: default, limits, and whether it changes the weights that come out."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.fields import FieldInfo


class Section(BaseModel):
    """One table of the profile: strict, frozen, no unknown keys, no NaN; docstrings under fields are their help."""

    model_config = ConfigDict(
        strict=True, frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True
    )


def weights(default: Any = ..., **limits: Any) -> Any:
    """A key that changes the trained weights: part of the fingerprint a resumed run must match."""
    return Field(default, json_schema_extra={"affects_weights": True}, **limits)


def conduct(default: Any = ..., **limits: Any) -> Any:
    """A key that does not change the trained weights (saving, logging, evaluating): it may differ in a resumed run."""
    return Field(default, json_schema_extra={"affects_weights": False}, **limits)


def refuse_address(name: str | None) -> str | None:
    """A validator of the name or path of something on the hub.

    Raises:
        ValueError: it is an address, which could hold a password, and a profile is copied into its run.
    """
    if "://" in (name or ""):
        raise ValueError("name_or_path is a hub id or a folder, not an address; HF_ENDPOINT names another hub")
    return name


def tuple_of_list(given: object) -> object:
    """A list as a tuple, `None` as an empty one: pydantic takes what a validator returns for Python."""
    return () if given is None else tuple(given) if isinstance(given, list) else given


def one_or_list(given: object) -> object:
    """The same of a list that may be written as its only element."""
    return (given,) if isinstance(given, str) else tuple_of_list(given)


def affects_weights(field: FieldInfo) -> bool:
    """Whether the key was declared with `weights`."""
    extra = field.json_schema_extra
    assert isinstance(extra, dict), "every key says whether it affects the weights"
    return bool(extra["affects_weights"])
