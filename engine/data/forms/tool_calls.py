"""Calls of tools as templates want them: objects, not JSON in strings."""

import json
from typing import Any

from ..files.raw_rows import Row


def read_calls(row: Row, said: Any, what: str) -> list[Any]:
    """A call, or a list of them, as JSON or read already: {"name": ..., "arguments": {...}}."""
    value = parse_json(row, said, f"the call in {what}") if isinstance(said, str) else said
    if not isinstance(value, dict | list):
        raise row.error(f"the call in {what} is no object {{name, arguments}}")
    return [{"type": "function", "function": call} for call in (value if isinstance(value, list) else [value])]


def read_call(row: Row, call: Any, what: str) -> Any:
    """The call with its arguments as an object, where they are JSON in a string (as OpenAI writes them)."""
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        return call  # the template's to judge
    if not isinstance(function.get("name"), str):
        raise row.error(f"a call in {what} has no name")
    if isinstance(function.get("arguments"), str):
        arguments = parse_json(row, function["arguments"] or "{}", f"the arguments of a call in {what}")
        return call | {"function": function | {"arguments": arguments}}
    return call


def parse_json(row: Row, text: str, what: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise row.error(f"{what} is not JSON ({error})") from error
