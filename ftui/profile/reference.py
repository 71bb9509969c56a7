"""The profile reference, made from the models so that it cannot rot: `python -m ftui.profile.reference`."""

from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from ftui.profile.complaints import _is_section
from ftui.profile.fields import affects_weights
from ftui.profile.sections import Profile

HEAD = """# The profile

Made from the code by `python -m ftui.profile.reference > docs/profile.md`; edit the docstrings there, not this page.

A profile is a TOML file. A key that is absent has its default; `"none"` turns a key off where "none" is among its
values. Paths are relative to the profile's folder. Keys marked **w** affect the trained weights: an interrupted run
can only be resumed with the same values.
"""


def reference() -> str:
    parts = [HEAD]
    for name, field in Profile.model_fields.items():
        assert _is_section(field.annotation)
        parts.append(_section(f"[{name}]", field.annotation))  # type: ignore[arg-type]
    return "\n".join(parts)


def _section(title: str, section: type[BaseModel]) -> str:
    lines = [
        f"## `{title}`",
        "",
        (section.__doc__ or "").strip(),
        "",
        "| key | values | default | | meaning |",
        "|---|---|---|---|---|",
    ]
    inner: list[str] = []
    for name, field in section.model_fields.items():
        for choice in get_args(field.annotation):
            if _is_section(choice):
                inner.append(_section(f"{title[:-1]}.{name}]", choice))
        mark = "**w**" if affects_weights(field) else ""
        help_text = (field.description or "").replace("\n", " ").replace("|", "\\|")
        lines.append(
            f"| `{name}` | {_values(field.annotation, field.metadata)} | {_default(field.default)} "
            f"| {mark} | {help_text} |"
        )
    return "\n".join([*lines, "", *inner])


def _values(annotation: Any, limits: list[Any]) -> str:
    kinds = get_args(annotation) if get_origin(annotation) not in (None, Literal, tuple) else (annotation,)
    words = " \\| ".join(_kind(kind) for kind in kinds)
    bounds = [f"{sign} {getattr(m, name):g}" for m in limits for name, sign in BOUNDS.items() if hasattr(m, name)]
    return ", ".join([words, *bounds])


BOUNDS = {"gt": ">", "ge": ">=", "lt": "<", "le": "<="}


def _kind(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return " \\| ".join(f"`{choice}`" for choice in get_args(kind))
    if get_origin(kind) is tuple:
        return "list of texts"
    if kind is type(None):
        return '`"none"`'
    if _is_section(kind):
        return "table"
    return {str: "text", int: "whole number", float: "number", bool: "true \\| false"}[kind]


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
