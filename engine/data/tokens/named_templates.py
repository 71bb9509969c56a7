"""Chat templates of ours, for tokenizers that lack one: the published prompt formats of the families."""

from pathlib import Path
from typing import Any

from jinja2 import TemplateSyntaxError
from transformers import PreTrainedTokenizerBase

from ftui.errors import DataError
from ftui.profile.sections.data import TEMPLATE_MARKS
from ftui.system.input_files import read_input

from ..forms.examples import Chat, Message, shared_start
from .chat_template import render_text
from .template_fit import TemplateRefusal
from .transformers_private import compile_template

FOLDER = Path(__file__).parent / "templates"

_ASKED, _ANSWERED = {"role": "user", "content": "Who?"}, {"role": "assistant", "content": "Me."}
_SYSTEM: Message = {"role": "system", "content": "Be brief."}
_FUNCTION = {"name": "add", "description": "Adds.", "parameters": {"type": "object", "properties": {}}}
_CALL: Message = {"type": "function", "function": {"name": "add", "arguments": {"a": 1}}}
_CALLING: list[Message] = [
    _ASKED,
    {"role": "assistant", "content": "", "tool_calls": [_CALL]},
    {"role": "tool", "content": "2"},
    _ANSWERED,
]
PROBES: dict[str, list[Message]] = {
    "an answer": [_ASKED, _ANSWERED],
    "a system turn": [_SYSTEM, _ASKED, _ANSWERED],
    "two answers": [_ASKED, _ANSWERED, {"role": "user", "content": " And you? "}, _ANSWERED],
    "a question": [_ASKED],
    "tools": _CALLING,
}
SHOWN = 40  # characters of a template's text in words about it


def set_template(tokenizer: PreTrainedTokenizerBase, template_name: str) -> tuple[str, ...]:
    """Give the tokenizer the template of this name or in this `.jinja` file; returns its marks that are no tokens.

    The token that ends a turn becomes its end of text, so that whoever loads the result stops there.

    Raises:
        DataError: the file cannot be read, or holds no template.
    """
    tokenizer.chat_template = _template_text(tokenizer, template_name)
    marks = TEMPLATE_MARKS.get(template_name, ())
    missing = tuple(mark for mark in marks if mark not in tokenizer.get_vocab())
    if marks and marks[-1] not in missing:
        tokenizer.eos_token = marks[-1]
    return missing


def compare_with_own(tokenizer: PreTrainedTokenizerBase, template_name: str) -> list[str]:
    """In words, how our template of this name differs from the tokenizer's own, the first place of each conversation.

    Ask before `take_template`. Nothing is said of a tokenizer without a template, nor of a file of the user's.
    """
    if not tokenizer.chat_template or template_name not in template_names():
        return []
    ours, special = _template_text(tokenizer, template_name), dict(tokenizer.special_tokens_map)
    if template_name in TEMPLATE_MARKS:
        special["eos_token"] = TEMPLATE_MARKS[template_name][-1]
    differences: dict[tuple[str, str], str] = {}
    for name, messages in PROBES.items():
        tools = [{"type": "function", "function": _FUNCTION}] if name == "tools" else None
        own = tokenizer.get_chat_template(tools=tools)
        if tools and ("tools" not in ours or "tools" not in own):
            continue
        texts = [
            _render_or_error(template, values, messages, tools)
            for template, values in ((ours, special), (own, tokenizer.special_tokens_map))
        ]
        if texts[0] != texts[1]:
            here, there = _from_difference(*texts)
            differences.setdefault((here, there), f"with {name}: {here} here, {there} in the tokenizer's own")
    return list(differences.values())


def advise_template(tokenizer: PreTrainedTokenizerBase, chat: Chat) -> str:
    """A hint for a conversation that the tokenizer's template refuses or shortens: which of ours take all of it."""
    said = [str(message.get("content") or "").strip() for message in chat.messages]

    def text(name: str, messages: list[Message]) -> str:
        special = tokenizer.special_tokens_map | (
            {"eos_token": TEMPLATE_MARKS[name][-1]} if name in TEMPLATE_MARKS else {}
        )
        return _render_or_error(_template_text(tokenizer, name), special, messages, chat.tools)

    known = tokenizer.get_vocab()
    names = [name for name in template_names() if all(mark in known for mark in TEMPLATE_MARKS.get(name, ()))]
    whole = {name: text(name, chat.messages) for name in names}
    able = [name for name in names if whole[name][:1] != "\0" and all(part in whole[name] for part in said)]
    own = tokenizer.get_chat_template(tools=chat.tools)
    plain = PROBES["two answers"]
    written = _render_or_error(own, tokenizer.special_tokens_map, plain, None)
    alike = [name for name in able if text(name, plain) == written]
    fold = " Or write what the system says into the user's first turn." if chat.messages[0]["role"] == "system" else ""
    if alike:
        name = alike[0]
        return (
            f'data.chat_template = "{name}" takes this row and writes the other turns as the model\'s own does.{fold}'
        )
    if able:
        listed = " or ".join(f'"{name}"' for name in able[:3])
        return f"data.chat_template = {listed} takes it, in another format than the model's own.{fold}"
    return f"No template of data.chat_template takes this row.{fold}"


def _render_or_error(template: str, special: dict[str, Any], messages: list[Message], tools: list[Any] | None) -> str:
    try:
        return render_text(template, special, messages, tools, add_generation_prompt=messages[-1]["role"] == "user")
    except TemplateRefusal as error:
        return f"\0{error}"


def _from_difference(*texts: str) -> tuple[str, str]:
    start = len(shared_start(*texts))
    start = max((texts[0].rfind(mark, 0, start) for mark in ("<", "[", "\n")), default=0) if start else 0
    here, there = (
        "refused"
        if text.startswith("\0")
        else repr(text[max(start, 0) :][:SHOWN])
        if text[max(start, 0) :]
        else "nothing"
        for text in texts
    )
    return here, there


def template_names() -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in FOLDER.glob("*.jinja")))


def _template_text(tokenizer: PreTrainedTokenizerBase, template_name: str) -> str:
    """The text of the template; of ours, without a BOS for a tokenizer that does not begin with one."""
    text = read_template(template_name)
    if template_name in template_names() and not _begins_with_bos(tokenizer):
        return text.replace("{{- bos_token }}\n", "").replace("bos_token + ", "")
    return text


def read_template(template_name: str) -> str:
    """The text of the template of this name, or in this `.jinja` file.

    Raises:
        DataError: it cannot be read, or is no template.
    """
    path = Path(template_name) if template_name.endswith(".jinja") else FOLDER / f"{template_name}.jinja"
    try:
        text = read_input(path).decode().replace("\r\n", "\n").removesuffix("\n")
        compile_template(text)
    except (OSError, UnicodeDecodeError) as error:
        words = f"The chat template {path} cannot be read: {error}."
        raise DataError(words, hint="Check data.chat_template.") from error
    except TemplateSyntaxError as error:
        words = f"{path}:{error.lineno}: this is no Jinja template: {(error.message or '').removesuffix('.')}."
        raise DataError(words, hint="Mend that line, or name another file in data.chat_template.") from error
    return text


def _begins_with_bos(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether this tokenizer begins a text with its BOS. Some have one for other uses, such as the start of a turn."""
    ids = tokenizer("a").input_ids
    return bool(ids) and tokenizer.bos_token_id is not None and ids[0] == tokenizer.bos_token_id
