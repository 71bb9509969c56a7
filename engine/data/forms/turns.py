"""One turn of a conversation, as the templates want it: whatever spelling it comes in."""

import json
from typing import Any

from ftui.profile.sections.row_forms import fold_name

from ..files.raw_rows import Row
from .column_names import STANDARD_NAMES, ColumnNames, nearest_name_hint
from .examples import Message

ROLE_KEYS, CONTENT_KEYS = ("role", "from"), ("content", "value")
# Spellings of real data sets: OpenAI's, ShareGPT's (human, gpt, bing ...), OpenAssistant's (prompter), Gemini's and
# Gemma's (model), Cohere's (chatbot), Llama's (ipython), LLaMA-Factory's (observation, function_call), Glaive's.
SPEAKERS = {
    "system": ("system",),
    "developer": ("developer",),
    "user": ("user", "human", "prompter"),
    "assistant": ("assistant", "gpt", "chatgpt", "bing", "bard", "claude", "model", "bot", "chatbot", "ai"),
    "tool": ("tool", "observation", "function", "ipython", "function_response", "function-response", "tool_response"),
    "function_call": ("function_call", "function-call", "tool_call"),
}
ROLES = {spelling: role for role, spellings in SPEAKERS.items() for spelling in spellings}
TURN_WEIGHTS = ("loss_weight", "weight")
_PLAIN = {"role", "content"}
_PLAIN_ROLES = set(SPEAKERS) - {"function_call"}


def read_turns(row: Row, key: str, shape: ColumnNames = STANDARD_NAMES) -> list[tuple[Message, bool]]:
    """The turns in the list under a key, each with whether it is trained on if the assistant says it.

    Raises:
        DataError: there is no such list, or a turn in it is none.
    """
    turns = read_list(row, key)
    if not turns:
        meant = "" if key in row.value else nearest_name_hint(key, row.value)
        raise row.error(f"{key!r} is not a list of {'messages' if key != 'conversations' else 'turns'}", hint=meant)
    if key in ("conversations", "messages") and len(turns) > 1 and all(isinstance(turn, str) for turn in turns):
        speakers = ("user", "assistant")  # LIMA has them so: each is answered by the next
        return [({"role": speakers[n % 2], "content": text}, True) for n, text in enumerate(turns)]
    if not shape.columns and not shape.roles and all(map(_is_plain, turns)):
        return [(turn, True) for turn in turns]  # most rows, and a sixth of the time of the rest
    return [read_turn(row, turn, f"{_word(turn)} {number} of {key!r}", shape) for number, turn in enumerate(turns, 1)]


def _is_plain(turn: Any) -> bool:
    """Whether it is spelt as templates want it."""
    return (
        type(turn) is dict
        and turn.keys() == _PLAIN
        and type(turn["content"]) is str
        and type(turn["role"]) is str
        and turn["role"] in _PLAIN_ROLES
    )


def _word(turn: Any) -> str:
    return "turn" if isinstance(turn, dict) and "from" in turn else "message"


def read_list(row: Row, key: str) -> list[Any] | None:
    """The list under a key; a table's cell may hold it as JSON. `None` where there is no list."""
    value = row.value.get(key)
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise row.error(f"{key!r} is not JSON ({error})") from error
    return value if isinstance(value, list) else None


def turns_or_text(row: Row, key: str, shape: ColumnNames = STANDARD_NAMES) -> list[Any] | None:
    """The list under a key that may hold plain text as well; `None` for text.

    JSON in a string is one only where it is turns: each object says who speaks, and what. Text may begin with "[" too,
    and an answer may be JSON.
    """
    value = row.value.get(key)
    if not isinstance(value, str) or not value.lstrip().startswith("["):
        return value if isinstance(value, list) else None
    try:
        turns = json.loads(value)
    except (ValueError, RecursionError):  # text that begins with "["
        return None
    return turns if turns and all(_is_turn(turn, shape) for turn in turns) else None


def _is_turn(value: Any, shape: ColumnNames) -> bool:
    speaker, said = shape.columns.get("role"), shape.columns.get("content")
    return (
        isinstance(value, dict)
        and not value.keys().isdisjoint((speaker,) if speaker else ROLE_KEYS)
        and not value.keys().isdisjoint((said,) if said else (*CONTENT_KEYS, "tool_calls", "function_call"))
    )


def read_tools(row: Row) -> list[Any] | None:
    """The tools that the assistant may call: in a list, or a single one; each in the form {type, function}.

    Any of it may be JSON in a string; "null" there is no tool.
    """
    tools = _read_json(row, row.value.get("tools"))
    if isinstance(tools, dict) and ("name" in tools or "function" in tools):
        tools = [tools]
    if tools and not isinstance(tools, list):
        raise row.error("'tools' is not a list", hint="A tool is {type, function: {name, description, parameters}}.")
    tools = [_read_json(row, tool) if isinstance(tool, str) and tool.startswith("{") else tool for tool in tools or ()]
    bare = [isinstance(tool, dict) and "name" in tool and "function" not in tool for tool in tools]
    wrapped = [{"type": "function", "function": t} if b else t for t, b in zip(tools, bare, strict=True)]
    return wrapped or None


def _read_json(row: Row, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    return parse_json(row, value, "'tools'") if value.strip() else None


def read_turn(row: Row, turn: Any, what: str, shape: ColumnNames = STANDARD_NAMES) -> tuple[Message, bool]:
    """A turn, and whether it is trained on if the assistant says it. `what` names it in errors.

    A list of typed parts becomes one text; calls in JSON become objects, as templates want them.
    """
    if not isinstance(turn, dict):
        raise row.error(f"{what} is no object with a role and content")
    role_key, content_key = _key(row, turn, "role", what, shape), _key(row, turn, "content", what, shape)
    role = _role(row, turn.get(role_key), what, shape)
    trained = _is_trained(row, turn, what)
    left_out = (role_key, content_key, *TURN_WEIGHTS, "function_call")
    made: Message = {"role": "assistant" if role == "function_call" else role}
    if role_key == "role":  # ShareGPT's turns have nothing else that a template would know
        made |= {name: value for name, value in turn.items() if name not in left_out}
    if content_key in turn:
        made["content"] = turn[content_key]
    if role == "function_call":
        return made | _only_calls(row, turn.get(content_key), what), trained
    return _with_calls(row, made, turn.get("function_call"), what), trained


def _key(row: Row, turn: dict[str, Any], ours: str, what: str, shape: ColumnNames) -> str:
    """The key under which this turn has its role or content. Without any of them it has no content, which may be."""
    theirs = shape.columns.get(ours)
    known = (theirs,) if theirs else ROLE_KEYS if ours == "role" else CONTENT_KEYS
    parts = next((key for key in known if key in turn), None)
    parts = parts or next((key for key in turn if fold_name(key) in known), None)
    if parts is None and ours == "role":
        there = ", ".join(map(repr, turn)) or "(none)"
        hint = (
            nearest_name_hint(theirs, turn) or "Name the keys of its turns: data.columns = {role = ..., content = ...}."
        )
        raise row.error(f"{what} has no {' or '.join(map(repr, known))} to say who speaks, only {there}", hint=hint)
    return parts or known[0]


def _role(row: Row, said: Any, what: str, shape: ColumnNames) -> str:
    role = shape.roles.get(said) if isinstance(said, str) else None
    role = role or (ROLES.get(said.strip().lower()) if isinstance(said, str) else None)
    if role is None:
        known = ", ".join(sorted(ROLES))
        roles = ", ".join(SPEAKERS)
        hint = f'Known are {known}. Say who it is: data.roles = {{{_toml_key(said)} = "ROLE"}}, ROLE one of {roles}.'
        raise row.error(f"{what} has the role {said!r}, which is no known one", hint=hint)
    return role


def _toml_key(said: Any) -> str:
    return said if isinstance(said, str) and said.isidentifier() and said.isascii() else json.dumps(str(said))


def _is_trained(row: Row, turn: Message, what: str) -> bool:
    weight = next((turn[name] for name in TURN_WEIGHTS if turn.get(name) is not None), 1)
    if weight not in (0, 1):
        raise row.error(f"{what} has the weight {weight!r}: a turn is trained on (1) or not (0)")
    return bool(weight)


def _only_calls(row: Row, said: Any, what: str) -> Message:
    """What a turn of a role for calls holds: JSON, perhaps with the thought that led to it before."""
    thought, closed, calls = said.rpartition("</think>") if isinstance(said, str) else ("", "", said)
    made: Message = {"content": None, "tool_calls": [read_call(row, c, what) for c in read_calls(row, calls, what)]}
    return made | ({"reasoning_content": thought.strip().removeprefix("<think>").strip()} if closed else {})


def _with_calls(row: Row, made: Message, old_call: Any, what: str) -> Message:
    """`old_call`: the one that a message of OpenAI's first form has under `function_call`."""
    if isinstance(made.get("content"), list):
        made |= _of_parts(row, made, what)
    calls = made.get("tool_calls") or ([{"type": "function", "function": old_call}] if old_call else None)
    if calls:
        if not isinstance(calls, list):
            raise row.error(f"{what} has tool_calls that are no list")
        return made | {"tool_calls": [read_call(row, call, what) for call in calls]}
    if not isinstance(made.get("content"), str):
        has = "no content" if made.get("content") is None else f"content that is no text ({made['content']!r:.40})"
        hint = (
            "Only a turn with calls (tool_calls) may have none: delete the turn, or the row."
            if has == "no content"
            else ""
        )
        raise row.error(f"{what} has {has}", hint=hint)
    return made


def _of_parts(row: Row, message: Message, what: str) -> Message:
    """What typed parts amount to: text, reasoning, and LLaMA-Factory's `tool_call` with its JSON."""
    parts: dict[str, list[str]] = {"text": [], "reasoning": [], "tool_call": []}
    kinds = {"input_text": "text", "output_text": "text", "thinking": "reasoning"} | {kind: kind for kind in parts}
    for part in message["content"]:
        kind = part.get("type") if isinstance(part, dict) else "text" if isinstance(part, str) else None
        said = part if isinstance(part, str) else part.get("text", part.get("value", part.get(kind))) if kind else None
        if kind not in kinds or not isinstance(said, str):
            raise row.error(
                f"{what} has a part that is no text ({kind or 'without a type'}): only text can be trained on",
                hint="Write its turns without such parts, or leave the row out.",
            )
        parts[kinds[kind]].append(said)
    calls = [
        *(message.get("tool_calls") or []),
        *(c for text in parts["tool_call"] for c in read_calls(row, text, what)),
    ]
    made: Message = {"content": "".join(parts["text"]) if parts["text"] or not calls else None}
    if parts["reasoning"]:
        made["reasoning_content"] = "".join(parts["reasoning"])
    return made | ({"tool_calls": calls} if calls else {})


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
