"""The four private functions of transformers behind the chat code, in one place. Tried with transformers 5.24.

`apply_chat_template` compiles the template, copies the messages and merges its globals anew for every call: as slow as
writing the text. When a release moves one of these, tests/engine/data/tokens/test_transformers_private.py says so.
"""

from typing import Any

from transformers.utils import chat_template_utils as _utils

Template = Any
"""A compiled Jinja template. transformers caches it, so all callers share its `globals`."""

TRIED = ("5.24", "5.24")
"""The first and the last release of transformers that this was tried on."""

_untyped: Any = _utils


def compile_template(template: str) -> Template:
    """The template compiled in transformers' sandbox, with its extensions (`generation`, `tojson`, `strftime_now`)."""
    return _untyped._compile_jinja_template(template)


def plain_messages(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Copies of the messages as plain JSON values, with reasoning under each of the names that templates look for."""
    aliased: list[dict[str, Any]] = _untyped._alias_reasoning_fields(_untyped._plain_template_data(messages))
    return aliased


def render_with_spans(template: Template, values: dict[str, Any]) -> tuple[str, list[tuple[int, int]]]:
    """The text and the character spans between `{% generation %}` marks, empty ones among them."""
    text, spans = _untyped._render_with_assistant_indices(template, **values)
    return text, spans
