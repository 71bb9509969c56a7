"""One turn of a conversation, as the templates want it: whatever spelling it comes in."""

import json
from typing import Any

from ftui.engine.data.rows import Row

Message = dict[str, Any]

ROLES = {"system", "developer", "user", "assistant", "tool"}
SHAREGPT_ROLES = {
    "system": "system",
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "assistant": "assistant",
    "chatgpt": "assistant",
    "bing": "assistant",
    "function_call": "assistant",
    "tool": "tool",
    "observation": "tool",
}
TURN_WEIGHTS = ("loss_weight", "weight")


def listed(row: Row, key: str) -> list[Any] | None:
    """The list under a key; a table's cell may hold it as JSON. `None` where there is no list."""
    value = row.value.get(key)
    if isinstance(value, str) and value.lstrip().startswith("["):
        value = _from_json(row, value, repr(key))
    return value if isinstance(value, list) else None


def _from_json(row: Row, text: str, what: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise row.error(f"{what} is not JSON ({error})") from error


def tools_of(row: Row) -> list[Any] | None:
    """The tools that the assistant may call: in a list, or as JSON; each in the form {type, function}."""
    tools = listed(row, "tools")
    if tools is None:
        if row.value.get("tools"):
            raise row.error("'tools' is not a list")
        return None
    bare = [isinstance(tool, dict) and "name" in tool and "function" not in tool for tool in tools]
    wrapped = [{"type": "function", "function": t} if b else t for t, b in zip(tools, bare, strict=True)]
    return wrapped or None


def message_of(row: Row, message: Any, number: int, key: str) -> tuple[Message, bool]:
    """A message of OpenAI's form, and whether it would be learned if the assistant said it.

    A list of typed parts becomes one text; arguments of calls that are JSON become objects, as templates want them.
    """
    if not isinstance(message, dict) or message.get("role") not in ROLES:
        raise row.error(f"message {number} of {key!r} has no role of {', '.join(sorted(ROLES))}")
    learned = _is_learned(row, message, f"message {number} of {key!r}")
    made = {name: value for name, value in message.items() if name not in TURN_WEIGHTS}
    if isinstance(made.get("content"), list):
        made |= _of_parts(row, made, f"message {number} of {key!r}")
    if made.get("tool_calls"):
        made["tool_calls"] = [_call(row, call, f"message {number} of {key!r}") for call in made["tool_calls"]]
    elif not isinstance(made.get("content"), str):
        raise row.error(f"message {number} of {key!r} has no content")
    return made, learned


def _is_learned(row: Row, turn: Message, what: str) -> bool:
    weight = next((turn[name] for name in TURN_WEIGHTS if turn.get(name) is not None), 1)
    if weight not in (0, 1):
        raise row.error(f"{what} has the weight {weight!r}: a turn is learned (1) or not (0)")
    return bool(weight)


def _of_parts(row: Row, message: Message, what: str) -> Message:
    """What typed parts amount to: `text`, `reasoning`, and LLaMA-Factory's `tool_call` with its JSON."""
    found: dict[str, list[str]] = {"text": [], "reasoning": [], "tool_call": []}
    for part in message["content"]:
        kind = part.get("type") if isinstance(part, dict) else None
        said = part.get("text", part.get("value")) if kind else None
        if kind not in found or not isinstance(said, str):
            raise row.error(f"{what} has a part that is no text ({kind or 'without a type'}): only text can be learned")
        found[kind].append(said)
    calls = [*(message.get("tool_calls") or []), *(c for text in found["tool_call"] for c in calls_in(row, text, what))]
    made: Message = {"content": "".join(found["text"]) if found["text"] or not calls else None}
    if found["reasoning"]:
        made["reasoning_content"] = "".join(found["reasoning"])
    return made | ({"tool_calls": calls} if calls else {})


def calls_in(row: Row, text: str, what: str) -> list[Any]:
    """A call, or a list of them, as JSON: {"name": ..., "arguments": {...}}."""
    value = _from_json(row, text, f"the call in {what}")
    return [{"type": "function", "function": call} for call in (value if isinstance(value, list) else [value])]


def _call(row: Row, call: Any, what: str) -> Any:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        return call  # the template's to judge
    if not isinstance(function.get("name"), str):
        raise row.error(f"a call in {what} has no name")
    if isinstance(function.get("arguments"), str):
        arguments = _from_json(row, function["arguments"] or "{}", f"the arguments of a call in {what}")
        return call | {"function": function | {"arguments": arguments}}
    return call


def sharegpt_message(row: Row, turn: Any, number: int) -> tuple[Message, bool]:
    """A turn of ShareGPT's form, as `message_of` gives one of OpenAI's."""
    role = SHAREGPT_ROLES.get(str(turn.get("from"))) if isinstance(turn, dict) else None
    if role is None or not isinstance(turn.get("value"), str):
        raise row.error(f"turn {number} has no known 'from' or no 'value'")
    learned = _is_learned(row, turn, f"turn {number}")
    if turn["from"] == "function_call":
        calls = [_call(row, call, f"turn {number}") for call in calls_in(row, turn["value"], f"turn {number}")]
        return {"role": role, "content": None, "tool_calls": calls}, learned
    return {"role": role, "content": turn["value"]}, learned
