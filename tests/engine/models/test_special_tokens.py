"""Special tokens of one's own, embeddings that grow for them, and new models around any tokenizer."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

from ftui.engine.models.new_model import new_config, new_model
from ftui.engine.models.special_tokens import add_special_tokens, fit_embeddings
from ftui.engine.training.prepare import prepare
from ftui.errors import ModelError
from ftui.profile.layers import resolve
from ftui.profile.sections.from_scratch import FromScratch
from ftui.profile.sections.model import ModelSection
from tests.support.refused import refused
from tests.support.tiny import chats, column, make_profile, make_tokenizer, train_run, write_rows

NEW = ("<|tool|>", "<|end_tool|>")


def tiny_llama(**more: Any) -> LlamaForCausalLM:
    torch.manual_seed(1)
    sizes: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1}
    return LlamaForCausalLM(LlamaConfig(**sizes, num_attention_heads=4, num_key_value_heads=2, vocab_size=300, **more))


# -- special tokens


def test_only_what_is_missing_is_added() -> None:
    tokenizer = make_tokenizer()
    before = list(tokenizer.all_special_tokens)
    assert add_special_tokens(tokenizer, ("<|im_start|>", *NEW)) == (300, 301)
    assert set(tokenizer.all_special_tokens) == {*before, *NEW}
    assert tokenizer("a<|tool|>b").input_ids[1] == 300
    assert tokenizer.decode([300], skip_special_tokens=True) == ""
    assert add_special_tokens(tokenizer, NEW) == ()


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
def test_embeddings_grow_as_transformers_grows_them(tied: bool) -> None:
    tokenizer = make_tokenizer()
    new = add_special_tokens(tokenizer, NEW)
    grown, again, expected = (tiny_llama(tie_word_embeddings=tied) for _ in range(3))
    for model in (grown, again):
        torch.manual_seed(9)
        fit_embeddings(model, tokenizer, new)
    torch.manual_seed(9)
    expected.resize_token_embeddings(302)
    for name, weight in expected.state_dict().items():
        assert torch.equal(grown.state_dict()[name], weight)
        assert torch.equal(again.state_dict()[name], weight), "the same seed gives the same rows"
    assert (grown.lm_head.weight is grown.model.embed_tokens.weight) is tied
    assert grown.config.vocab_size == 302


def test_rows_to_spare_are_used() -> None:
    tokenizer, model = make_tokenizer(), tiny_llama()
    model.resize_token_embeddings(320)
    new = add_special_tokens(tokenizer, NEW)
    fit_embeddings(model, tokenizer, new)
    assert model.config.vocab_size == 320


def test_a_tokenizer_of_another_model_is_refused() -> None:
    tokenizer, model = make_tokenizer(), tiny_llama()
    model.resize_token_embeddings(290)
    with pytest.raises(ModelError, match="300 entries, the model only 290"):
        fit_embeddings(model, tokenizer)
    new = add_special_tokens(tokenizer, NEW)
    with pytest.raises(ModelError, match="300 entries, the model only 290"):
        fit_embeddings(model, tokenizer, new)


@pytest.mark.parametrize("method", ["full", "lora"])
def test_a_whole_run_trains_new_tokens(method: str, model_folder: Path, tmp_path: Path) -> None:
    rows = [{"prompt": f"call {n}", "completion": f"<|tool|>read {n}<|end_tool|>"} for n in range(24)]
    profile = make_profile(
        model_folder, write_rows(tmp_path / "rows.jsonl", rows), model={"extra_special_tokens": NEW},
        adapter={"method": method}, train={"max_steps": 8, "per_device_train_batch_size": 8, "learning_rate": 2e-2},
    )  # fmt: skip
    prepared = prepare(profile, tmp_path / "cache", lambda detail: None)
    assert prepared.new_token_ids == (300, 301)
    assert 300 in prepared.train.sequences[0].input_ids, "rows are encoded with the new tokens"
    losses = column(train_run(tmp_path / "run", profile), "loss")
    assert losses[-1] < losses[0]
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "run" / "final")
    assert tokenizer.convert_tokens_to_ids(list(NEW)) == [300, 301]
    if method == "full":
        final: Any = AutoModelForCausalLM.from_pretrained(tmp_path / "run" / "final")
        assert final.get_input_embeddings().weight.shape[0] == 302


def test_an_adapter_goes_on_with_the_tokens_it_was_trained_on(model_folder: Path, tmp_path: Path) -> None:
    rows = write_rows(
        tmp_path / "rows.jsonl", [{"prompt": f"call {n}", "completion": "<|tool|>read"} for n in range(8)]
    )

    def run(name: str, *tokens: str, **adapter: Any) -> Path:
        profile = make_profile(
            model_folder, rows, model={"extra_special_tokens": tokens}, adapter={"method": "lora"} | adapter,
            train={"max_steps": 2, "per_device_train_batch_size": 8, "learning_rate": 2e-2},
        )  # fmt: skip
        train_run(tmp_path / name, profile)
        return tmp_path / name / "final"

    first = run("first", "<|tool|>", r=4)
    trained = load_file(run("same", "<|tool|>", name_or_path=str(first)) / "adapter_model.safetensors")
    for name, before in load_file(first / "adapter_model.safetensors").items():
        assert not torch.equal(trained[name], before) and trained[name].shape == before.shape, name
    for name, tokens, words in (
        ("more", NEW, "301 of the tokenizer is '<|end_tool|>', but nothing"),
        ("swapped", NEW[::-1], "300 of the tokenizer is '<|end_tool|>', but '<|tool|>'"),
        ("others", ("<|own|>",), "300 of the tokenizer is '<|own|>', but '<|tool|>'"),
        ("fewer", (), "300 of the tokenizer is nothing, but '<|tool|>'"),
    ):
        with pytest.raises(ModelError, match=re.escape(words)) as refusal:
            run(name, *tokens, name_or_path=str(first))
        assert 'model.extra_special_tokens = ["<|tool|>"]' in refusal.value.hint
    (first / "tokenizer.json").unlink()
    with pytest.raises(ModelError, match=r"new to the base \(such as 301\)"):
        run("more, and nobody knows their names", *NEW, name_or_path=str(first))


def test_new_tokens_that_stay_frozen_are_refused(model_folder: Path, tmp_path: Path) -> None:
    profile = make_profile(
        model_folder, write_rows(tmp_path / "rows.jsonl", chats(8)), model={"extra_special_tokens": NEW},
        adapter={"method": "freeze", "trainable_layers": 1}, train={"max_steps": 1},
    )  # fmt: skip
    with pytest.raises(ModelError, match="never be trained"):
        train_run(tmp_path / "run", profile)


# -- new models

COUNTS = {"tiny": 2.8e6, "small": 19e6, "medium": 52e6, "gpt2": 124.4e6}


def count(scratch: FromScratch) -> int:
    class Entries:
        """As much of a tokenizer as a config asks for."""

        pad_token_id, eos_token_id, bos_token_id = 0, 2, None

        def __len__(self) -> int:
            return scratch.vocab_size

    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(new_config(scratch, Entries()))  # type: ignore[arg-type]
    return sum(weight.numel() for weight in model.parameters())


@pytest.mark.parametrize("size", COUNTS)
def test_a_size_has_its_number_of_parameters(size: str) -> None:
    scratch = FromScratch.model_validate_json(f'{{"size": "{size}"}}')
    assert count(scratch) == pytest.approx(COUNTS[size], rel=0.02)
    if size == "gpt2":
        assert count(scratch) == 124_439_808, "as published"
        gated = FromScratch.model_validate_json('{"size": "gpt2", "model_type": "llama"}')
        assert count(gated) == pytest.approx(124e6, rel=0.02), "three matrices instead of two: as many parameters"


def test_what_is_given_wins_over_the_size() -> None:
    text = '{"size": "small", "num_hidden_layers": 3, "special_tokens": ["a", "b", "c"]}'
    scratch = FromScratch.model_validate_json(text)
    assert (scratch.hidden_size, scratch.num_hidden_layers, scratch.special_tokens) == (384, 3, ("a", "b", "c"))
    assert FromScratch.model_validate_json(scratch.model_dump_json()) == scratch
    assert FromScratch.model_validate_json("{}") == FromScratch(), "without a size the keys' own defaults stand"
    gpt2 = FromScratch.model_validate_json('{"model_type": "gpt2", "num_attention_heads": 4}')
    assert gpt2.num_key_value_heads == 4
    shared = FromScratch.model_validate_json('{"model_type": "gpt2", "num_key_value_heads": 2}')
    assert "gpt2 shares no heads" in refused(model=ModelSection(from_scratch=shared))
    with pytest.raises(ValueError, match="'custom', 'tiny'"):
        FromScratch.model_validate_json('{"size": "huge"}')


def test_the_shipped_profile_makes_the_model_it_always_made() -> None:
    scratch = resolve(Path("profiles/recipes/pretrain-tiny.toml")).profile.model.from_scratch
    assert scratch is not None
    tokenizer = make_tokenizer()
    torch.manual_seed(1)
    model = new_model(new_config(scratch, tokenizer), torch.float32, None)
    torch.manual_seed(1)
    expected = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=300, hidden_size=192, intermediate_size=512, num_hidden_layers=5, num_attention_heads=6,
            num_key_value_heads=2, max_position_embeddings=512, tie_word_embeddings=True, pad_token_id=0,
            rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        )
    )  # fmt: skip
    for name, weight in expected.state_dict().items():
        assert torch.equal(model.state_dict()[name], weight), name


@pytest.mark.parametrize("kind", ["llama", "qwen3", "mistral", "gpt2"])
def test_a_new_model_of_each_type_around_an_existing_tokenizer(kind: str, tmp_path: Path) -> None:
    make_tokenizer().save_pretrained(tmp_path / "tokenizer")
    scratch: dict[str, Any] = {
        "model_type": kind, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
        "num_attention_heads": 4, "max_position_embeddings": 256, "tokenizer": str(tmp_path / "tokenizer"),
    }  # fmt: skip
    profile = make_profile(
        tmp_path, write_rows(tmp_path / "rows.jsonl", chats(24)), data={"packing": True},
        model={"name_or_path": None, "from_scratch": scratch},
        train={"max_steps": 8, "per_device_train_batch_size": 2, "learning_rate": 1e-2},
    )  # fmt: skip
    losses = column(train_run(tmp_path / "run", profile), "loss")
    assert np.isfinite(losses).all() and losses[-1] < losses[0] - 0.3
    config = AutoConfig.from_pretrained(tmp_path / "run" / "final")
    assert (config.model_type, config.vocab_size) == (kind, 300)
    assert getattr(config, "head_dim", None) in (8, None)
    assert getattr(config, "sliding_window", None) is None
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "run" / "final") is not None
    assert len(AutoTokenizer.from_pretrained(tmp_path / "run" / "final")) == 300
