"""Conversations written without their template, against the template itself."""

from itertools import product

import pytest
from transformers import PreTrainedTokenizerFast

from ftui.engine.data.forms.examples import Chat
from ftui.engine.data.tokens.chat_template import RenderedText, render
from ftui.engine.data.tokens.named_templates import set_template, template_names
from ftui.engine.data.tokens.skeletons import Skeletons
from tests.support.tiny import make_tokenizer

LOOP = "{% for m in messages %}<{{ m.role }}>SAID</s>\n{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
COPIES = {
    "copies": LOOP.replace("SAID", "{{ m['content'] }}"),
    "adds": "{% for m in messages %}{{ '<' + m.role + '>' + m.content + '</s>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}",
    "strips": LOOP.replace("SAID", "{{ m.content | trim }}"),
    "strips both": "{% for m in messages %}{% set t = '<' + m.role + '>' + m.content %}"
    "{{ t | trim + '</s>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}",
    "marks": "{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' %}{% generation %}{{ m.content }}</s>"
    "{% endgeneration %}{% else %}{{ m.content }}{% endif %}\n{% endfor %}",
    "compares turns": LOOP.replace("SAID", "{% if m == messages[0] and loop.index > 1 %}!{% endif %}{{ m.content }}"),
}
"""Templates that copy what is said (the last one where no role speaks twice)."""
LOOKS = {
    "measures": LOOP.replace("SAID", "{{ m.content }}{{ m.content | length }}"),
    "measures all": LOOP.replace("SAID", "{% set t = '-' + m.content %}{{ t }}{% if t | length > 9 %}!{% endif %}"),
    "asks": LOOP.replace("SAID", "{% if 'a' in m.content %}!{% endif %}{{ m.content }}"),
    "compares": LOOP.replace("SAID", "{% if m.content == 'cat' %}!{% endif %}{{ m.content }}"),
    "capitals": LOOP.replace("SAID", "{{ m.content | upper }}"),
    "escapes": LOOP.replace("SAID", "{{ m.content | tojson }}"),
    "escapes signs": LOOP.replace("SAID", "{{ m.content | e }}"),
    "joins": LOOP.replace("SAID", "{{ (' ' ~ m.content) | trim }}"),
    "captures": LOOP.replace("SAID", "{% set t %}{{ m.content }}{% endset %}{{ t | trim }}"),
    "macro": "{% macro say(t) %}{{ t }}{% endmacro %}" + LOOP.replace("SAID", "{{ say(m.content) | trim }}"),
    "repeats": LOOP.replace("SAID", "{{ m.content }}{{ m.content }}"),
    "first sign": LOOP.replace("SAID", "{% if m.content[0] == 'c' %}!{% endif %}{{ m.content }}"),
    "begins": LOOP.replace("SAID", "{% if m.content.startswith('c') %}!{% endif %}{{ m.content }}"),
    "splits": LOOP.replace("SAID", "{{ m.content.split('\n')[-1] }}"),
    "formats": LOOP.replace("SAID", "{{ '%s' % m.content }}{{ ('%s' % m.content) | length }}"),
    "truth": LOOP.replace("SAID", "{% if not m.content | trim %}!{% endif %}{{ m.content }}"),
    "all of them": LOOP.replace("SAID", "{{ m.content }}")
    + "{{ messages | map(attribute='content') | join | length }}",
}
"""Templates that look at it: what they make of one text says nothing about another."""
SAID = [
    "cat",
    "Say a.",
    " a ",
    "two\nlines\n",
    "&<>\"'\\",
    "\u00e9\u3042",
    "</s>",
    "<assistant>",
    "x" * 40,
    "{{ 1 }}",
    "</think>",
    "\t",
]
ROLES = [("user", "assistant"), ("system", "user", "assistant"), ("user", "assistant", "user", "assistant"), ("user",)]


def finish(turn: RenderedText) -> RenderedText:
    return turn


def check(tokenizer: PreTrainedTokenizerFast, loss_on: str) -> int:
    """How many conversations were written, each as it is rendered."""
    stops = frozenset({str(tokenizer.eos_token)})
    skeletons = Skeletons(tokenizer, stops, loss_on, lambda text: None, finish)
    number = 0
    for roles, (one, other) in product(ROLES, product(SAID, SAID)):
        said = [one if n % 2 else other for n in range(len(roles))]
        chat = Chat([{"role": role, "content": text} for role, text in zip(roles, said, strict=True)])
        written = skeletons.write(chat)
        if written is not None:
            assert [written] == render(tokenizer, chat, stops, loss_on), chat
            number += 1
    return number


@pytest.mark.parametrize("loss_on", ["assistant", "last", "everything"])
@pytest.mark.parametrize("name", [*COPIES, *LOOKS])
def test_what_is_written_is_what_is_rendered(name: str, loss_on: str) -> None:
    tokenizer = make_tokenizer()
    tokenizer.chat_template = (COPIES | LOOKS)[name]
    tokenizer.eos_token = "</s>"
    assert (check(tokenizer, loss_on) > 0) == (name in COPIES)


@pytest.mark.parametrize("name", template_names())
def test_named_templates(name: str) -> None:
    tokenizer = make_tokenizer()
    set_template(tokenizer, name)
    assert (check(tokenizer, "assistant") > 0) == (name not in {"qwen"})


@pytest.mark.parametrize(
    "chat",
    [
        Chat([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], tools=[{"name": "f"}]),
        Chat([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], untrained=frozenset({1})),
        Chat([{"role": "user", "content": "a"}, {"role": "assistant", "content": ""}]),
        Chat([{"role": "user", "content": "a"}, {"role": "assistant", "content": None, "tool_calls": []}]),
        Chat([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "name": "c"}]),
        Chat([{"role": "assistant", "content": "a"}, {"role": "user", "content": "b"}]),
    ],
)
def test_others_are_rendered(chat: Chat) -> None:
    tokenizer = make_tokenizer()
    tokenizer.chat_template = COPIES["copies"]
    assert Skeletons(tokenizer, frozenset({"</s>"}), "assistant", lambda text: None, finish).write(chat) is None
