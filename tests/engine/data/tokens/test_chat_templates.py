"""Named chat templates against the prompt formats the families have published, written out by hand."""

import re
import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Any, get_args

import pytest
from transformers import PreTrainedTokenizerFast
from transformers.utils.chat_template_utils import render_jinja_template

from ftui.engine.data.files.raw_rows import Row
from ftui.engine.data.tokens.encode import Encoder, stop_texts
from ftui.engine.data.tokens.named_templates import compare_with_own, set_template, template_names
from ftui.engine.models.special_tokens import add_special_tokens
from ftui.errors import DataError
from ftui.importers import import_file
from ftui.profile.sections.data import TEMPLATE_MARKS, Template
from tests.support.tiny import PLAIN, Rows, make_tokenizer

SYSTEM, ASKED = {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}
TURNS: Rows = [
    ASKED,
    {"role": "assistant", "content": "Hello"},
    {"role": "user", "content": "Who?"},
    {"role": "assistant", "content": "Me"},
]
ALPACA = "Below is an instruction that describes a task. Write a response that appropriately completes the request."
VICUNA = (
    "A chat between a curious user and an artificial intelligence assistant. "
    "The assistant gives helpful, detailed, and polite answers to the user's questions."
)
# With a system turn, and without; <s> and </s> stand for the tokenizer's own.
WHOLE = {
    "chatml": (
        "<|im_start|>system\nBe brief.<|im_end|>\n",
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello<|im_end|>\n"
        "<|im_start|>user\nWho?<|im_end|>\n<|im_start|>assistant\nMe<|im_end|>\n",
    ),
    "llama3": (
        "<s><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>",
        "<s><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\nHello<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nWho?<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\nMe<|eot_id|>",
    ),
    "phi": (
        "<|system|>\nBe brief.<|end|>\n",
        "<|user|>\nHi<|end|>\n<|assistant|>\nHello<|end|>\n<|user|>\nWho?<|end|>\n<|assistant|>\nMe<|end|>\n",
    ),
    "zephyr": (
        "<|system|>\nBe brief.</s>\n",
        "<|user|>\nHi</s>\n<|assistant|>\nHello</s>\n<|user|>\nWho?</s>\n<|assistant|>\nMe</s>\n",
    ),
    # no system turn of their own: it begins the first user turn
    "llama2": (
        "<s>[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\n",
        "<s>[INST] Hi [/INST] Hello </s><s>[INST] Who? [/INST] Me </s>",
    ),
    "mistral": ("<s>[INST] Be brief.\n\n", "<s>[INST] Hi[/INST] Hello</s>[INST] Who?[/INST] Me</s>"),
    "gemma": (
        "<s><start_of_turn>user\nBe brief.\n\n",
        "<s><start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\nHello<end_of_turn>\n"
        "<start_of_turn>user\nWho?<end_of_turn>\n<start_of_turn>model\nMe<end_of_turn>\n",
    ),
    # it takes the place of the usual introduction
    "alpaca": (
        "<s>Be brief.",
        f"<s>{ALPACA}\n\n### Instruction:\nHi\n\n### Response:\nHello</s>"
        "\n\n### Instruction:\nWho?\n\n### Response:\nMe</s>",
    ),
    "vicuna": ("<s>Be brief.", f"<s>{VICUNA} USER: Hi ASSISTANT: Hello</s>USER: Who? ASSISTANT: Me</s>"),
}  # fmt: skip
WHOLE["qwen"] = WHOLE["chatml"]
# What stands before the first user turn without a system turn.
HEADS = {"alpaca": f"<s>{ALPACA}", "vicuna": f"<s>{VICUNA}", "llama3": "<s>", "mistral": "<s>[INST] "}
HEADS |= {"llama2": "<s>[INST] ", "gemma": "<s><start_of_turn>user\n"}


def with_template(name: str, *, bos: bool = True, marks: bool = True) -> PreTrainedTokenizerFast:
    tokenizer = make_tokenizer(None, bos=bos)
    tokenizer.add_special_tokens({"eos_token": "</s>"})
    if marks:
        add_special_tokens(tokenizer, TEMPLATE_MARKS.get(name, ()))
        assert set_template(tokenizer, name) == ()
    return tokenizer


def text(tokenizer: PreTrainedTokenizerFast, messages: Rows, **options: Any) -> str:
    rendered = tokenizer.apply_chat_template(messages, tokenize=False, **options)
    assert isinstance(rendered, str)
    return rendered


def trained(tokenizer: PreTrainedTokenizerFast, messages: Rows, **more: Any) -> list[str]:
    """The texts of the runs of target tokens, and that there is one sequence only."""
    encoder = Encoder(tokenizer, "sft", stop_texts(tokenizer, []))
    (sequence,) = encoder.encode([Row(Path("rows.jsonl"), 1, {"messages": messages} | more)], "messages")
    runs: list[list[int]] = []
    for number, (token, wanted) in enumerate(zip(sequence.input_ids.tolist(), sequence.targets, strict=True)):
        if wanted:
            runs += [[]] if not number or not sequence.targets[number - 1] else []
            runs[-1].append(token)
    return [str(tokenizer.decode(run)) for run in runs]


def test_every_template_is_in_the_profile_and_here() -> None:
    assert set(get_args(Template)) == set(template_names()) == WHOLE.keys()


@pytest.mark.parametrize("name", WHOLE)
def test_conversations_are_written_as_the_family_has_published(name: str) -> None:
    tokenizer = with_template(name)
    head, whole = WHOLE[name]
    assert text(tokenizer, TURNS) == whole
    assert text(tokenizer, [SYSTEM, *TURNS]) == head + whole.removeprefix(HEADS.get(name, ""))
    asked = text(tokenizer, TURNS[:3], add_generation_prompt=True)
    said = " Me" if name in ("llama2", "mistral", "vicuna") else "Me"
    assert whole.startswith(asked + said)


@pytest.mark.parametrize("name", WHOLE)
def test_answers_are_trained_on_with_the_token_that_ends_them(name: str) -> None:
    tokenizer = with_template(name)
    end = TEMPLATE_MARKS[name][-1] if name in TEMPLATE_MARKS else "</s>"
    assert tokenizer.eos_token == end
    found = [said.replace(" ", "") for said in trained(tokenizer, [SYSTEM, *TURNS])]
    assert found == [f"Hello{end}", f"Me{end}"]


@pytest.mark.parametrize("name", WHOLE)
def test_a_tokenizer_that_begins_without_bos_gets_none(name: str) -> None:
    """Some have a BOS token for other uses; what never stood before a text was never trained on there."""
    assert text(with_template(name, bos=False), TURNS) == WHOLE[name][1].replace("<s>", "")


@pytest.mark.parametrize("name", ["llama2", "mistral", "gemma"])
def test_turns_these_formats_cannot_tell_apart_are_refused(name: str) -> None:
    with pytest.raises(DataError, match=f"user and assistant must take turns in the {name} template"):
        trained(with_template(name), [ASKED, *TURNS])


CALL = {"id": "0", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
CALLING: Rows = [
    ASKED,
    {"role": "assistant", "content": None, "tool_calls": [CALL, CALL]},
    {"role": "tool", "content": "2"},
    {"role": "tool", "content": "3"},
    {"role": "assistant", "content": "So", "tool_calls": [CALL]},
]
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}
CALLED = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'


def test_qwen_is_told_of_tools_and_calls_them_as_published() -> None:
    tokenizer = with_template("qwen")
    assert trained(tokenizer, CALLING, tools=[TOOL]) == [f"{CALLED}\n{CALLED}<|im_end|>", f"So\n{CALLED}<|im_end|>"]
    encoder = Encoder(tokenizer, "sft", stop_texts(tokenizer, []))
    (sequence,) = encoder.encode([Row(Path("r"), 1, {"messages": [SYSTEM, *CALLING], "tools": [TOOL]})], "messages")
    assert str(tokenizer.decode(sequence.input_ids.tolist())).startswith(
        "<|im_start|>system\nBe brief.\n\n# Tools\n\nYou may call one or more functions to assist with the user query."
        "\n\nYou are provided with function signatures within <tools></tools> XML tags:\n<tools>\n"
        '{"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}\n'
        "</tools>\n\nFor each function call, return a json object with function name and arguments within "
        '<tool_call></tool_call> XML tags:\n<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n'
        "</tool_call><|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<tool_call>"
    )
    answered = (
        "<|im_start|>user\n<tool_response>\n2\n</tool_response>\n<tool_response>\n3\n</tool_response><|im_end|>\n"
    )
    assert answered in str(tokenizer.decode(sequence.input_ids.tolist()))


# File of TRL, template of ours, and what theirs adds at the very end.
ORIGINALS = [
    ("llama3", "llama3", ""), ("gemma3", "gemma", ""), ("phi3", "phi", "</s>"), ("qwen3_instruct_2507", "qwen", ""),
]  # fmt: skip


@pytest.mark.parametrize(("original", "name", "end"), ORIGINALS)
def test_the_families_own_templates_give_the_same(original: str, name: str, end: str) -> None:
    """TRL carries some of the originals."""
    template = (Path(str(files("trl"))) / "chat_templates" / f"{original}.jinja").read_text()
    called = {"function": {"name": "add", "arguments": {"a": 1}}}
    calling = [m | ({"tool_calls": [called] * len(m["tool_calls"])} if "tool_calls" in m else {}) for m in CALLING]
    rows: list[tuple[Rows, Any]] = [(TURNS, None), ([SYSTEM, *TURNS], None)]
    rows += [([SYSTEM, *calling], [TOOL]), (calling, [TOOL])] if name == "qwen" else []
    for messages, tools in rows:
        theirs, ours = (
            render_jinja_template(
                conversations=[messages], tools=tools, chat_template=one, bos_token="<s>", eos_token="</s>"
            )[0][0]
            for one in (template, str(with_template(name).chat_template))
        )
        assert theirs == ours + end


@pytest.mark.parametrize(("original", "name", "end"), ORIGINALS)
def test_a_template_is_checked_against_the_tokenizers_own(original: str, name: str, end: str) -> None:
    """Said is the first place of each conversation where they part; nothing where they do not."""
    tokenizer = make_tokenizer((Path(str(files("trl"))) / "chat_templates" / f"{original}.jinja").read_text(), bos=True)
    found = compare_with_own(tokenizer, name)
    if end:
        assert found == ["with an answer: '\\n' here, '\\n<|im_end|>' in the tokenizer's own"]
    else:
        assert found == []
    assert tokenizer.eos_token == "<|im_end|>", "nothing is changed by asking"
    if name != "qwen":
        assert any(told.startswith("with a system turn: ") for told in compare_with_own(tokenizer, "qwen"))
    assert compare_with_own(tokenizer, "mine.jinja") == compare_with_own(make_tokenizer(None), name) == []
    tokenizer.chat_template = "{{ raise_exception('never') }}"
    assert compare_with_own(tokenizer, name)[0].endswith("here, refused in the tokenizer's own")


@pytest.mark.parametrize("name", sorted(WHOLE.keys() - {"qwen"}))
def test_templates_without_tools_refuse_them(name: str) -> None:
    for messages, more in ((TURNS, {"tools": [TOOL]}), (CALLING, {})):
        with pytest.raises(DataError, match=r"rows\.jsonl:1: it has tool.*no place for them\.$") as e:
            trained(with_template(name), messages, **more)
        assert e.value.hint == 'data.chat_template = "qwen" has one.'


def test_reasoning_is_trained_on_in_the_text_where_the_template_has_no_place_for_it() -> None:
    for name in ("reasoning_content", "thinking"):
        said = {"role": "assistant", "content": "Me", name: "hm"}
        tokenizer = with_template("chatml")
        assert trained(tokenizer, [ASKED, said]) == ["<think>\nhm\n</think>\n\nMe<|im_end|>"]
        tokenizer.chat_template = str(tokenizer.chat_template).replace(
            "message.content", "(message.reasoning_content or '') + '!' + message.content"
        )
        assert trained(tokenizer, [ASKED, said]) == ["hm!Me<|im_end|>"]


@pytest.mark.parametrize(
    "text",
    [
        "base_model: m/m\ndatasets: [{path: o/rows, type: chat_template}]\nchat_template: chatml\n"
        "tokens: [<|im_start|>]\nspecial_tokens: {eos_token: <|im_end|>}\n",
        "model_name_or_path: m/m\nstage: sft\nfinetuning_type: lora\ntemplate: chatml\ndataset: o/rows\n",
    ],
)
def test_what_is_imported_gives_a_base_all_marks_of_its_template(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(text)
    made = tomllib.loads(import_file(tmp_path / "a.yaml", tmp_path).text)
    tokenizer = make_tokenizer(None)
    add_special_tokens(tokenizer, made["model"]["extra_special_tokens"])
    assert set_template(tokenizer, made["data"]["chat_template"]) == ()
    assert tokenizer.eos_token == "<|im_end|>"


@pytest.mark.parametrize("name", TEMPLATE_MARKS)
def test_marks_that_are_no_tokens_are_returned(name: str) -> None:
    tokenizer = with_template(name, marks=False)
    if name in ("chatml", "qwen"):
        assert set_template(tokenizer, name) == (), "the tiny tokenizer speaks ChatML"
        return
    assert set_template(tokenizer, name) == TEMPLATE_MARKS[name]
    assert tokenizer.eos_token == "</s>"
    assert trained(tokenizer, TURNS)[-1].endswith("</s>"), "the end is trained on all the same"


@pytest.mark.parametrize("name", ["llama3", "gemma", "phi"])
def test_the_end_of_a_turn_stops_even_where_another_mark_is_missing(name: str) -> None:
    tokenizer = with_template(name, marks=False)
    tokenizer.add_special_tokens({"extra_special_tokens": [TEMPLATE_MARKS[name][-1]]})
    assert set_template(tokenizer, name) == TEMPLATE_MARKS[name][:-1]
    assert tokenizer.eos_token == TEMPLATE_MARKS[name][-1]


def test_a_file_is_taken_as_it_is(tmp_path: Path) -> None:
    tokenizer, path = make_tokenizer(None), tmp_path / "mine.jinja"
    path.write_text("{% for message in messages %}[{{ message.content }}]{% endfor %}\n", encoding="utf-8")
    set_template(tokenizer, str(path))
    assert text(tokenizer, TURNS) == "[Hi][Hello][Who?][Me]"
    with pytest.raises(DataError, match=re.escape(f"The chat template {path}x.jinja cannot be read")):
        set_template(tokenizer, f"{path}x.jinja")


FIRST: Rows = [{"role": "assistant", "content": "Hello"}, *TURNS[2:]]
DEFAULTING = "{% if messages[0]['role'] != 'system' %}{{ '<|im_start|>system\\nBe.<|im_end|>\\n' }}{% endif %}" + PLAIN
THINKING = PLAIN.replace("assistant\\n' }}{% endif %}", "assistant\\n<think>\\n' }}{% endif %}")


@pytest.mark.parametrize(
    "wanted", [*sorted({"chatml", "qwen", "zephyr", "phi", "llama3", "vicuna", "alpaca"}), PLAIN, DEFAULTING, THINKING]
)
@pytest.mark.parametrize("system", [[], [SYSTEM]], ids=["nothing before", "a system turn before"])
def test_of_a_conversation_that_the_assistant_begins_only_what_it_says_is_trained_on(wanted: str, system: Rows) -> None:
    """Neither the mark of its turn nor an introduction: these are written for it when it is asked to speak."""
    tokenizer = make_tokenizer(wanted)
    if "{" not in wanted:
        add_special_tokens(tokenizer, list(TEMPLATE_MARKS.get(wanted, ())))
        set_template(tokenizer, wanted)
    encoder = Encoder(tokenizer, "sft", stop_texts(tokenizer, []))
    (sequence,) = encoder.encode([Row(Path("r"), 1, {"messages": [*system, *FIRST]})], "messages")
    trained = str(tokenizer.decode(sequence.input_ids[sequence.targets].tolist()))
    stop = str(tokenizer.eos_token)
    assert [said.strip() for said in trained.split(stop)] == ["Hello", "Me", ""]


STRICT = {
    "a system turn": "{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}",
    "no system turn": "{% set messages = messages[1:] if messages[0].role == 'system' else messages %}",
}


@pytest.mark.parametrize("strictness", STRICT)
@pytest.mark.parametrize("family", [*template_names(), "own"])
def test_a_row_that_the_template_refuses_is_offered_one_that_takes_it(strictness: str, family: str) -> None:
    """Obeyed, it trains on the same answers, and what the system says is read."""
    tokenizer = with_template(family if family != "own" else "chatml")
    body = str(tokenizer.chat_template) if family != "own" else "{% for m in messages %}<{{ m.content }}>{% endfor %}"
    tokenizer.chat_template = STRICT[strictness] + body
    row = Row(Path("rows.jsonl"), 1, {"messages": [SYSTEM, *TURNS]})
    (error,) = Encoder(tokenizer, "sft", stop_texts(tokenizer, [])).encode_all([row], "messages")
    if not isinstance(error, DataError):
        assert "Be brief." in text(tokenizer, [SYSTEM, *TURNS]), "a template may find its system turn in another place"
        return
    assert "chat template" in error.message and "data.format" not in error.hint
    offered = re.search(r'data.chat_template = "(\w+)"', error.hint)
    assert offered is not None and "user's first turn" in error.hint
    assert ("as the model's own" in error.hint) == (family not in ("own",)), error.hint
    plain = text(tokenizer, TURNS)
    assert set_template(tokenizer, offered[1]) == ()
    assert "Be brief." in text(tokenizer, [SYSTEM, *TURNS])
    if family != "own":
        assert text(tokenizer, TURNS) == plain
