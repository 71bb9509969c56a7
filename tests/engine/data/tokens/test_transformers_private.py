"""transformers' private functions behind the chat code: whether the installed release still has them as we use them."""

import inspect

import pytest
import transformers
from transformers.utils import chat_template_utils

from ftui.engine.data.tokens import transformers_private as private

WHAT_TO_DO = (
    f"transformers {transformers.__version__} changed what engine/data/tokens/transformers_private.py calls: look in "
    "its chat_template_utils.py for what took the place of that function, mend that one file, and set TRIED."
)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("_compile_jinja_template", ["chat_template"]),
        ("_plain_template_data", None),
        ("_alias_reasoning_fields", None),
        ("_render_with_assistant_indices", None),
    ],
)
def test_transformers_has_the_function(name: str, parameters: list[str] | None) -> None:
    function = getattr(chat_template_utils, name, None)
    assert function is not None, WHAT_TO_DO
    if parameters is not None:
        assert list(inspect.signature(function).parameters) == parameters, WHAT_TO_DO


def test_they_do_what_the_chat_code_takes_them_for() -> None:
    template = private.compile_template(
        "{% for m in messages %}{% generation %}{{ m.reasoning_content }}{{ m.content }}{% endgeneration %}{% endfor %}"
    )
    messages = private.plain_messages([{"role": "assistant", "thinking": "Hm. ", "content": "Me."}])
    values = {"messages": messages, "tools": None, "documents": None, "add_generation_prompt": False}
    assert private.render_with_spans(template, values) == ("Hm. Me.", [(0, 7)]), WHAT_TO_DO
    text = "".join(template.root_render_func(template.new_context(template.globals | values, shared=True)))
    assert text == "Hm. Me.", WHAT_TO_DO
