"""The Modelfile's template, read as Go's text/template reads it, makes the prompts of the tokenizer's template."""

import re
from typing import Any

import pytest
from transformers import GenerationConfig

from ftui.engine.gguf_files.modelfile import FAMILIES, Message, find_family, modelfile
from tests.support.tiny import PLAIN, make_tokenizer

BOS = "{{ bos_token }}"
LLAMA3 = (
    "{% for m in messages %}{{ '<|start_header_id|>' + m['role'] + '<|end_header_id|>\n\n' + m['content'] | trim"
    " + '<|eot_id|>' }}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
)
GEMMA = (
    "{% set lead = messages[0]['content'] + '\n\n' if messages[0]['role'] == 'system' else '' %}"
    "{% for m in (messages[1:] if lead else messages) %}{{ '<start_of_turn>' + ('model' if m['role'] == 'assistant' "
    "else m['role']) + '\n' + (lead if loop.first else '') + m['content'] + '<end_of_turn>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"
)
NO_SYSTEM = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system prompt') }}{% endif %}"
MISTRAL = NO_SYSTEM + (
    "{% for m in messages %}{{ '[INST] ' + m['content'] + ' [/INST]' if m['role'] == 'user' "
    "else m['content'] + '</s>' }}{% endfor %}"
)
MISTRAL_3 = MISTRAL.replace("' [/INST]'", "'[/INST]'").replace("else m['content']", "else ' ' + m['content']")
ZEPHYR = (
    "{% for m in messages %}{{ '<|' + m['role'] + '|>\n' + m['content'] + '</s>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}"
)
DEFAULT = "{% if messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nYou help.<|im_end|>\n' }}{% endif %}" + PLAIN
TURNS: list[list[Message]] = [
    [{"role": "user", "content": "Hi"}],
    [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes?"}, {"role": "user", "content": "No"}],
]


def go(template: str, messages: list[Message]) -> str:
    """What Go makes of the part of its language that the families use, on Ollama's `.Messages`."""
    tokens = re.findall(r"\{\{ ?(.*?) ?\}\}|((?:(?!\{\{).)+)", template, re.DOTALL)
    first = next(number for number, (code, _) in enumerate(tokens) if code.startswith("range"))
    depth, last = 0, first
    for number in range(first, len(tokens)):
        depth += tokens[number][0].startswith(("range", "if ")) - (tokens[number][0] == "end")
        if depth == 0:
            last = number
            break
    names: dict[str, bool] = {}
    before = _run(tokens[:first], {}, names)
    return (
        before
        + "".join(_run(tokens[first + 1 : last], m, names) for m in messages)
        + _run(tokens[last + 1 :], {}, names)
    )


def _run(tokens: list[tuple[str, str]], message: Message, names: dict[str, bool]) -> str:
    out, stack = [], [[True, True]]  # of each open `if`: whether this branch is taken, whether one was
    for code, text in tokens:
        taken = all(branch for branch, _ in stack)
        if code.startswith("if "):
            found = _holds(code[3:], message, names)
            stack.append([found, found])
        elif code.startswith("else if "):
            found = not stack[-1][1] and _holds(code[8:], message, names)
            stack[-1] = [found, stack[-1][1] or found]
        elif code == "end":
            stack.pop()
        elif not taken:
            continue
        elif match := re.fullmatch(r"(\$\w+) :?= (true|false)", code):
            names[match[1]] = match[2] == "true"
        else:
            assert code in ("", ".Content"), code
            out.append(message["content"] if code else text)
    return "".join(out)


def _holds(condition: str, message: Message, names: dict[str, bool]) -> bool:
    if match := re.fullmatch(r'eq \.Role "(\w+)"', condition):
        return message["role"] == match[1]
    match = re.fullmatch(r"not (\$\w+)", condition)
    assert match is not None, condition
    return not names[match[1]]


@pytest.mark.parametrize(
    ("template", "family", "default"),
    [
        (PLAIN, "chatml", None), (DEFAULT, "chatml", "You help."), (BOS + LLAMA3, "llama3", None),
        (BOS + GEMMA, "gemma", None), (BOS + MISTRAL, "mistral", None), (BOS + MISTRAL_3, "mistral-v3", None),
        (ZEPHYR, "zephyr", None),
    ],
)  # fmt: skip
def test_the_prompts_are_those_of_the_tokenizer(template: str, family: str, default: str | None) -> None:
    tokenizer = make_tokenizer(template, bos=True)
    known = find_family(tokenizer, adds_bos=True)
    assert known is not None and (known.name, known.default_system) == (family, default)
    text = modelfile("m.gguf", known, ["<|im_end|>"], None)
    (written,) = re.findall(r'TEMPLATE """(.*?)"""', text, re.DOTALL)
    system: list[Message] = [{"role": "system", "content": "Be brief."}]
    for turns in TURNS:
        for messages in (turns, *([system + turns] if known.family.system else [])):
            wanted: Any = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
            has_own = default is None or messages[0]["role"] == "system"
            given = messages if has_own else [{"role": "system", "content": str(default)}, *messages]
            assert go(written, given) == wanted.removeprefix("<s>")


@pytest.mark.parametrize(
    "template",
    [
        PLAIN.replace("'\\n'", "' \\n'"), ZEPHYR.replace("</s>", "<|im_end|>"), LLAMA3.replace("\n\n", "\n"),
        NO_SYSTEM.replace("== 'system'", "!= 'tool'"), "{{ 'the same' }}",
    ],
)  # fmt: skip
def test_a_template_that_differs_by_a_letter_is_unknown(template: str) -> None:
    assert find_family(make_tokenizer(template), adds_bos=False) is None


def test_stops_and_sampling_are_parameters() -> None:
    known = find_family(make_tokenizer(), adds_bos=False)
    assert known is not None
    generation = GenerationConfig(do_sample=True, temperature=0.7, top_p=0.8, repetition_penalty=1.05)
    lines = modelfile("m.gguf", known, ["<|im_end|>", "</s>"], generation).splitlines()
    assert lines[0] == "FROM ./m.gguf"
    wanted = ['stop "<|im_end|>"', 'stop "</s>"', "temperature 0.7", "top_p 0.8", "repeat_penalty 1.05"]
    assert [line.removeprefix("PARAMETER ") for line in lines if line.startswith("PARAMETER")] == wanted
    assert "temperature" not in modelfile("m.gguf", known, [], GenerationConfig(do_sample=False, temperature=0.7))


def test_every_family_is_another() -> None:
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    assert len({family.render(messages) for family in FAMILIES.values()}) == len(FAMILIES)
