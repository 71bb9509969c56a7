"""An Ollama `Modelfile` for a GGUF file, where the chat template is of a family that is known.

Ollama does not read the Jinja template of the file; it has templates of its own kind (Go's text/template). A family is
chosen by what the tokenizer's template makes of four conversations: they must be equal, letter by letter.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from jinja2 import TemplateError

Message = dict[str, str]
Texts = tuple[str, str]

USER, OTHER = "What is 7 x 6?", "And in words?"
ANSWER, SYSTEM = "It is 42.", "You answer briefly."


@dataclass(frozen=True)
class Family:
    """What stands before and behind each message, and before the answer to come.

    `system` is `None` where a conversation has no such message. With `folds_system` it is the beginning of the user's
    turn that follows.
    """

    user: Texts
    assistant: Texts
    system: Texts | None
    answer: str
    folds_system: bool = False

    def render(self, messages: list[Message]) -> str:
        """The prompt of a conversation."""
        parts, is_open = [], False
        for message in messages:
            role = message["role"]
            before, behind = getattr(self, role) or ("", "")
            if role == "user" and is_open:
                before = ""
            is_open = role == "system" and self.folds_system
            parts.append(f"{before}{message['content']}{behind}")
        return "".join(parts) + self.answer

    def go_template(self) -> str:
        """The same in Go's language, over Ollama's `.Messages`."""
        user = f"{self.user[0]}{{{{ .Content }}}}{self.user[1]}"
        start = ""
        if self.folds_system:
            start = "{{ $open := false }}"
            user = f"{{{{ if not $open }}}}{self.user[0]}{{{{ end }}}}{{{{ $open = false }}}}"
            user += f"{{{{ .Content }}}}{self.user[1]}"
        turns = [f'{{{{ if eq .Role "user" }}}}{user}']
        if self.system is not None:
            mark = "{{ $open = true }}" if self.folds_system else ""
            turns.append(f'{{{{ else if eq .Role "system" }}}}{mark}{self.system[0]}{{{{ .Content }}}}{self.system[1]}')
        turns.append(f'{{{{ else if eq .Role "assistant" }}}}{self.assistant[0]}{{{{ .Content }}}}{self.assistant[1]}')
        return f"{start}{{{{ range .Messages }}}}{''.join(turns)}{{{{ end }}}}{{{{ end }}}}{self.answer}"


FAMILIES = {
    "chatml": Family(
        user=("<|im_start|>user\n", "<|im_end|>\n"),
        assistant=("<|im_start|>assistant\n", "<|im_end|>\n"),
        system=("<|im_start|>system\n", "<|im_end|>\n"),
        answer="<|im_start|>assistant\n",
    ),
    "llama3": Family(
        user=("<|start_header_id|>user<|end_header_id|>\n\n", "<|eot_id|>"),
        assistant=("<|start_header_id|>assistant<|end_header_id|>\n\n", "<|eot_id|>"),
        system=("<|start_header_id|>system<|end_header_id|>\n\n", "<|eot_id|>"),
        answer="<|start_header_id|>assistant<|end_header_id|>\n\n",
    ),
    "gemma": Family(
        user=("<start_of_turn>user\n", "<end_of_turn>\n"),
        assistant=("<start_of_turn>model\n", "<end_of_turn>\n"),
        system=("<start_of_turn>user\n", "\n\n"),
        answer="<start_of_turn>model\n",
        folds_system=True,
    ),
    "mistral": Family(user=("[INST] ", " [/INST]"), assistant=("", "</s>"), system=None, answer=""),
    "mistral-v3": Family(user=("[INST] ", "[/INST]"), assistant=(" ", "</s>"), system=None, answer=""),
    "zephyr": Family(
        user=("<|user|>\n", "</s>\n"),
        assistant=("<|assistant|>\n", "</s>\n"),
        system=("<|system|>\n", "</s>\n"),
        answer="<|assistant|>\n",
    ),
}


@dataclass(frozen=True)
class KnownTemplate:
    """The family of a chat template, and the system prompt that it adds where there is none."""

    name: str
    family: Family
    default_system: str | None


def find_family(tokenizer: Any, *, adds_bos: bool) -> KnownTemplate | None:
    """The family that makes the prompts of the tokenizer's template; `adds_bos`: llama.cpp adds the first token."""
    start = str(tokenizer.bos_token) if adds_bos and tokenizer.bos_token else ""
    rendered = list(_prompts(tokenizer, start))
    for name, family in FAMILIES.items():
        if not rendered:
            break
        default = _default_system(family, rendered[0][1])
        if all(family.render(_with_default(messages, default)) == text for messages, text in rendered):
            return KnownTemplate(name, family, default)
    return None


def _prompts(tokenizer: Any, start: str) -> Iterator[tuple[list[Message], str]]:
    """Conversations and what the template makes of them; those with a system prompt it may refuse."""
    user, answer = {"role": "user", "content": USER}, {"role": "assistant", "content": ANSWER}
    turns = ([user], [user, answer, {"role": "user", "content": OTHER}])
    for messages in (*turns, *([{"role": "system", "content": SYSTEM}, *turn] for turn in turns)):
        try:
            text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        except (TemplateError, ValueError, TypeError, KeyError):
            if messages[0]["role"] == "system":
                continue
            return
        yield messages, str(text).removeprefix(start)


def _default_system(family: Family, text: str) -> str | None:
    """What stands in the system's place of a conversation that has none."""
    if family.system is None or family.folds_system or not text.startswith(family.system[0]):
        return None
    return text[len(family.system[0]) :].partition(family.system[1] + family.user[0])[0]


def _with_default(messages: list[Message], default: str | None) -> list[Message]:
    has_own = default is None or messages[0]["role"] == "system"
    return messages if has_own else [{"role": "system", "content": default or ""}, *messages]


def modelfile(file_name: str, known: KnownTemplate, stops: list[str], generation: Any) -> str:
    """Its text. `generation`: the model's GenerationConfig, or `None`."""
    lines = [f"FROM ./{file_name}", f'TEMPLATE """{known.family.go_template()}"""']
    if known.default_system:
        lines.append(f'SYSTEM """{known.default_system}"""')
    lines += [f'PARAMETER stop "{stop}"' for stop in stops]
    if generation is not None and generation.do_sample:
        for key, parameter in PARAMETERS.items():
            if (value := getattr(generation, key, None)) is not None:
                lines.append(f"PARAMETER {parameter} {value:g}")
    return "\n".join(lines) + "\n"


PARAMETERS = {
    "temperature": "temperature", "top_k": "top_k", "top_p": "top_p", "min_p": "min_p",
    "repetition_penalty": "repeat_penalty",
}  # fmt: skip
"""Keys of a GenerationConfig and Ollama's names for them."""
