"""`ftui import`: what another tool makes tokens of, by its keys or by itself, and what it writes that nobody wrote."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from ftui.importers import Imported, import_file
from tests.support.imports import settled

AXOLOTL = "base_model: m/m\nadapter: qlora\ndatasets: [{path: o/rows, type: chat_template}]\n"
FACTORY = "model_name_or_path: m/m\nstage: sft\nfinetuning_type: lora\ndataset: o/rows\n"
START, END = "<|im_start|>", "<|im_end|>"


def imported(text: str, folder: Path) -> tuple[Imported, dict[str, Any]]:
    path = folder / "a.yaml"
    path.write_text(text)
    done = import_file(path, folder)
    settled(done, path)
    return done, tomllib.loads(done.text)


TOKENS = {
    "the end of a turn beside its start": (
        f"chat_template: chatml\ntokens: ['{START}']\nspecial_tokens: {{eos_token: '{END}'}}", [START, END],
    ),
    "the end of a turn alone": (f"chat_template: chatml\nspecial_tokens: {{eos_token: '{END}'}}", [END]),
    "both lists": (
        f"tokens: [<a>]\nspecial_tokens: {{additional_special_tokens: ['{START}', '{END}', <a>]}}", ["<a>", START, END],
    ),
    "a template of another format": (
        "chat_template: llama3\nspecial_tokens: {eos_token: <|eot_id|>, pad_token: <|end_of_text|>}", ["<|eot_id|>"],
    ),
    "in place of reserved entries": (
        f"chat_template: chatml\nadded_tokens_overrides: {{128011: '{START}', 128012: '{END}'}}", [START, END],
    ),
    "FastChat's name of the template": (
        f"tokens: ['{START}', '{END}']\nspecial_tokens: {{eos_token: '{END}'}}", [START, END],
    ),
    "a template alone adds none": ("chat_template: chatml", None),
}  # fmt: skip


@pytest.mark.parametrize(("text", "tokens"), TOKENS.values(), ids=TOKENS)
def test_what_axolotl_makes_tokens_of(text: str, tokens: list[str] | None, tmp_path: Path) -> None:
    start = AXOLOTL
    if "FastChat" in next(name for name, case in TOKENS.items() if case == (text, tokens)):
        start = AXOLOTL.replace("type: chat_template", "type: sharegpt, conversation: chatml")
    done, made = imported(start + text + "\n", tmp_path)
    assert made["model"].get("extra_special_tokens") == tokens
    assert not [one for one in done.dropped if one.matters]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("chat_template: chatml\nspecial_tokens: {eos_token: </s>}", "ends a turn, and a text, with <|im_end|>"),
        ("special_tokens: {eos_token: </s>}", "the tokenizer's own here"),
        ("chat_template: tokenizer_default\nspecial_tokens: {eos_token: <|eot_id|>}", "the tokenizer's own here"),
        ("chat_template: chatml\neot_tokens: [<|end|>]", "comes from the chat template"),
        ("special_tokens: {bos_token: <s>}", "begins as the tokenizer says"),
    ],
)
def test_an_end_that_axolotl_sets_and_that_has_no_place_here_is_told(text: str, words: str, tmp_path: Path) -> None:
    done, made = imported(AXOLOTL + text + "\n", tmp_path)
    assert [one for one in done.dropped if one.matters and words in one.reason]
    assert "extra_special_tokens" not in made["model"]


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("template: chatml", [END, START]), ("template: qwen", [END]), ("template: llama3", ["<|eot_id|>"]),
        ("template: gemma", ["<end_of_turn>"]), ("template: phi", ["<|end|>"]), ("template: mistral", None),
        ("template: alpaca", None), ("", None),
        ("template: chatml\nadd_special_tokens: <a>,<b>", ["<a>", "<b>", END, START]),
        ("template: mistral\nadd_tokens: <a>\nadd_special_tokens: <b>", ["<a>", "<b>"]),
    ],
)  # fmt: skip
def test_what_llamafactorys_templates_make_tokens_of(text: str, tokens: list[str] | None, tmp_path: Path) -> None:
    done, made = imported(f"{FACTORY}{text}\n", tmp_path)
    assert not [one for one in done.dropped if one.foreign.endswith("_tokens")]
    found = made["model"].get("extra_special_tokens")
    assert (found if found is None else sorted(found)) == (tokens if tokens is None else sorted(tokens))


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("resize_vocab: true", ["embed_tokens", "lm_head"]), ("resize_vocab: false", None),
        ("resize_vocab: true\nadditional_target: lm_head", ["lm_head"]),
        ("resize_vocab: true\nfinetuning_type: full", None),
    ],
)  # fmt: skip
def test_llamafactory_trains_the_embeddings_that_it_resizes(text: str, whole: list[str] | None, tmp_path: Path) -> None:
    start = FACTORY.replace("finetuning_type: lora\n", "") if "finetuning_type" in text else FACTORY
    _, made = imported(f"{start}{text}\n", tmp_path)
    assert made["adapter"].get("modules_to_save") == whole


@pytest.mark.parametrize(
    ("text", "is_told"),
    [
        ("template: qwen", True), ("template: zephyr", True), ("template: chatml", False), ("template: vicuna", False),
        ("template: qwen\nstage: pt", False),
    ],
)  # fmt: skip
def test_a_system_turn_that_llamafactory_adds_is_told(text: str, is_told: bool, tmp_path: Path) -> None:
    start = FACTORY.replace("stage: sft\n", "") if "stage" in text else FACTORY
    done, _ = imported(f"{start}{text}\n", tmp_path)
    assert bool([one for one in done.dropped if one.foreign == "template: its words" and one.matters]) == is_told


@pytest.mark.parametrize(("template", "is_told"), [("qwen_25", True), ("alpaca", True), ("chatml", False)])
def test_words_of_axolotls_templates_are_told(template: str, is_told: bool, tmp_path: Path) -> None:
    done, _ = imported(f"{AXOLOTL}chat_template: {template}\n", tmp_path)
    assert bool([one for one in done.dropped if one.foreign == "chat_template: its words" and one.matters]) == is_told


def test_how_a_source_is_cut_short_is_told(tmp_path: Path) -> None:
    done, _ = imported(f"{FACTORY}max_samples: 100\n", tmp_path)
    (lost,) = (one for one in done.dropped if one.foreign == "max_samples")
    assert lost.matters and "num_samples of a [[data.train]] table" in lost.reason
