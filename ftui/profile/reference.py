"""The profile reference, made from the models so that it cannot rot: `python -m ftui.profile.reference`."""

from collections.abc import Iterator
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from ftui.profile.checks.messages import tables_in
from ftui.profile.checks.plausible_ranges import RANGES
from ftui.profile.schema import Profile
from ftui.profile.sections.fields import affects_weights

HEAD = """# The profile

Made from the code by `python -m ftui.profile.reference > docs/profile.md`; edit the docstrings there, not this page.

A profile is a TOML file. A key that is absent has its default; `"none"` turns a key off where "none" is among its
values. Paths are relative to the profile's folder. Keys marked **w** affect the trained weights: an interrupted run
can only be resumed with the same values.
"""

PLAUSIBLE = """## Plausible numbers

A number outside its range is a warning: in the form, in a preview, in a dry run and where a run starts. It is never an
error. The ranges are wide: hardly anybody reports a success from outside. A dry run and the start also warn of a
warm-up longer than half the run, a step of more sequences than an epoch has, more than 100 epochs, and periods
(`eval_steps`, `eval_delay`, `save_steps`, `logging_steps`) beyond the end of the run. The report on the rows (data.md)
warns of too few rows to train and to evaluate on.
"""


def reference() -> str:
    """The text of docs/profile.md."""
    parts = [HEAD]
    for name, field in Profile.model_fields.items():
        (section,) = tables_in(field.annotation)
        is_list = tuple in _origins(field.annotation)
        parts.append(_section(f"[[{name}]]" if is_list else f"[{name}]", section))
    return "\n".join([*parts, *_ranges()])


def _ranges() -> Iterator[str]:
    """The table of plausible numbers."""
    yield PLAUSIBLE
    yield "| key | holds for | plausible | usual | source |"
    yield "|---|---|---|---|---|"
    for one in RANGES:
        yield f"| `{one.key}` | {one.measure or one.case or 'all'} | {one.words} | {one.usual} | {one.source} |"


def _section(title: str, section: type[BaseModel]) -> str:
    lines = [
        f"## `{title}`",
        "",
        (section.__doc__ or "").strip(),
        "",
        "| key | values | default | | meaning |",
        "|---|---|---|---|---|",
    ]
    inner: dict[type[BaseModel], str] = {}
    for name, field in section.model_fields.items():
        here = f"{title.strip('[]')}.{name}"
        for table in tables_in(field.annotation):
            inner.setdefault(table, f"[[{here}]]" if tuple in _origins(field.annotation) else f"[{here}]")
        mark = "**w**" if affects_weights(field) else ""
        help_text = (field.description or "").replace("\n", " ").replace("|", "\\|")
        lines.append(
            f"| `{name}` | {_values(field.annotation, field.metadata)} | {_default(field.default)} "
            f"| {mark} | {help_text} |"
        )
    return "\n".join([*lines, "", *(_section(where, table) for table, where in inner.items())])


def _values(annotation: Any, limits: list[Any]) -> str:
    words = " \\| ".join(dict.fromkeys(_kind(kind) for kind in _choices(annotation)))
    bounds = [f"{sign} {getattr(m, name):g}" for m in limits for name, sign in BOUNDS.items() if hasattr(m, name)]
    return ", ".join([words, *bounds])


def _choices(annotation: Any) -> list[Any]:
    """The types of a union, those of unions inside it among them."""
    if get_origin(annotation) is Annotated:
        return _choices(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return [choice for inner in get_args(annotation) for choice in _choices(inner)]
    return [annotation]


def _origins(annotation: Any) -> set[Any]:
    return {get_origin(choice) for choice in _choices(annotation)}


PLURALS = {str: "texts", int: "whole numbers", float: "numbers"}
BOUNDS = {"gt": ">", "ge": ">=", "lt": "<", "le": "<="}


def _kind(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return " \\| ".join(f"`{choice}`" for choice in get_args(kind))
    if get_origin(kind) is tuple:
        return "list of " + " or ".join(_plural(choice) for choice in _choices(get_args(kind)[0]))
    if kind is type(None):
        return '`"none"`'
    return {str: "text", int: "whole number", float: "number", bool: "true \\| false"}.get(kind, "table")


def _plural(kind: Any) -> str:
    return _kind(kind) if get_origin(kind) is Literal else PLURALS.get(kind, "tables")


def _default(default: Any) -> str:
    if default is PydanticUndefined:
        return "required"
    if default is None:
        return "none"
    if isinstance(default, tuple):
        return "`[" + ", ".join(f'"{item}"' for item in default) + "]`"
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    return f"`{default}`"


if __name__ == "__main__":
    print(reference())
