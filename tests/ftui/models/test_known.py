"""The configs that come with ftui, against what is published of their models; names of mirrors and near misses."""

import pytest

from ftui.models.config_reader import read_shape, refusal_of
from ftui.models.known import known_config, known_models, nearest_models
from tests.support.published_models import MODELS, STATED

TRAINED = {name: model for name, model in known_models().items() if model.parameters is not None}
REFUSED = known_models().keys() - TRAINED.keys()
SIZES = (
    "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "vocab_size",
)  # fmt: skip


@pytest.mark.parametrize("name", TRAINED)
def test_a_known_model_has_the_parameters_that_are_published(name: str) -> None:
    model = TRAINED[name]
    shape = read_shape(model.config)
    assert shape is not None and shape.context is not None and model.licence
    counted = shape.num_parameters
    assert (float(f"{counted:.3g}") if isinstance(model.parameters, float) else counted) == model.parameters


def test_most_are_compared_exactly() -> None:
    assert len(TRAINED) >= 150
    assert sum(isinstance(model.parameters, int) for model in TRAINED.values()) >= 0.9 * len(TRAINED)


@pytest.mark.parametrize(
    ("ours", "published"),
    [
        ("Qwen/Qwen3-8B", "Qwen3-8B"), ("Qwen/Qwen2.5-7B", "Qwen2.5-7B"), ("Qwen/Qwen2.5-1.5B", "Qwen2.5-1.5B"),
        ("mistralai/Mistral-7B-v0.3", "Mistral-7B-v0.3"), ("mistralai/Mistral-7B-v0.1", "Mistral-7B-v0.1"),
        ("meta-llama/Llama-2-7b-hf", "Llama-2-7b"), ("meta-llama/Llama-3.2-1B", "Llama-3.2-1B"),
        ("google/gemma-2-9b", "Gemma-2-9b"), ("microsoft/phi-2", "Phi-2"), ("HuggingFaceTB/SmolLM3-3B", "SmolLM3-3B"),
    ],
)  # fmt: skip
def test_the_table_agrees_with_the_one_of_the_tests(ours: str, published: str) -> None:
    """Beyond the total: sizes may be wrong together and add up."""
    model = known_models()[ours]
    assert {key: model.config[key] for key in SIZES} == {key: MODELS[published][key] for key in SIZES}
    assert STATED[published] == model.parameters


def test_a_model_without_a_window_says_so() -> None:
    """transformers' default for the type is one of 4096."""
    windows = [known_config(f"mistralai/Mistral-7B-v0.{number}") for number in (1, 3)]
    assert [config and config["sliding_window"] for config in windows] == [4096, None]


MIRRORS = {
    "unsloth/llama-3-8b": "meta-llama/Meta-Llama-3-8B",
    "unsloth/llama-3-8b-Instruct": "meta-llama/Meta-Llama-3-8B-Instruct",
    "unsloth/llama-2-7b-chat": "meta-llama/Llama-2-7b-chat-hf",
    "unsloth/Meta-Llama-3.1-8B": "meta-llama/Llama-3.1-8B",
    "unsloth/Qwen2.5-Coder-7B-Instruct": "Qwen/Qwen2.5-Coder-7B-Instruct",
    "unsloth/mistral-7b": "mistralai/Mistral-7B-v0.1",
    "unsloth/tinyllama-chat": "TinyLlama/TinyLlama-1.1B-Chat-v1.0",
    "NousResearch/Meta-Llama-3-70B-Instruct": "meta-llama/Meta-Llama-3-70B-Instruct",
    "NousResearch/Llama-2-13b-hf": "meta-llama/Llama-2-13b-hf",
    "mlx-community/Meta-Llama-3-8B-Instruct-bf16": "meta-llama/Meta-Llama-3-8B-Instruct",
    "meta-llama/Meta-Llama-3.1-70B-Instruct": "meta-llama/Llama-3.1-70B-Instruct",
    "gpt2": "openai-community/gpt2",
    "qwen/qwen3-8b": "Qwen/Qwen3-8B",
}


@pytest.mark.parametrize("mirror", MIRRORS)
def test_a_mirror_has_the_config_of_its_model(mirror: str) -> None:
    assert known_config(mirror) == known_models()[MIRRORS[mirror]].config


@pytest.mark.parametrize(
    "name",
    ["nobody/nothing", "Llama-3-8B", "somebody/Llama-3.1-8B", "meta-llama/Llama-3-8B", "unsloth/phi-4-reasoning"],
)
def test_no_model_is_guessed(name: str) -> None:
    """Neither one of a stranger that has the name of a known one, nor unsloth's Phi, which is laid out as Llama."""
    assert known_config(name) is None


NEAR = {
    "Llama-3-8B": "meta-llama/Meta-Llama-3-8B",
    "meta-llama/Llama-3-8B": "meta-llama/Meta-Llama-3-8B",
    "Llama-2-7b": "meta-llama/Llama-2-7b-hf",
    "Qwen-3-8B": "Qwen/Qwen3-8B",
    "mistralai/Mistral-7B": "mistralai/Mistral-7B-v0.1",
    "gemma2-9b": "google/gemma-2-9b",
    "tinyllama": "TinyLlama/TinyLlama-1.1B-Chat-v1.0",
    "unsloth/llama-3-8b-bnb-4bit": "meta-llama/Meta-Llama-3-8B",
}


@pytest.mark.parametrize("name", NEAR)
def test_a_near_miss_is_told_the_name_that_was_meant(name: str) -> None:
    assert NEAR[name] in nearest_models(name)


@pytest.mark.parametrize(
    "name", ["unsloth/gpt-oss-20b-BF16", "unsloth/gpt-oss-20b", "unsloth/gemma-3-27b-it", "google/gemma-3-12b-it"]
)
def test_no_model_is_offered_that_a_run_would_refuse_as_well(name: str) -> None:
    assert nearest_models(name) == ""


def test_a_mirror_in_16_bits_is_not_said_to_be_quantised() -> None:
    assert known_config("unsloth/gpt-oss-20b-BF16") is None
    assert known_config("unsloth/Llama-3.1-8B-BF16") == known_config("meta-llama/Llama-3.1-8B")


def test_a_name_like_no_other_gets_no_hint() -> None:
    assert (nearest_models("somebody/zzz"), nearest_models("Qwen/Qwen3-8B")) == ("", "")


@pytest.mark.parametrize("name", [*sorted(REFUSED), "unsloth/llama-3-8b-bnb-4bit", "unsloth/gemma-3-12b-it"])
def test_what_a_run_refuses_is_refused_by_name(name: str) -> None:
    config = known_config(name)
    assert config is not None and read_shape(config) is None
    refusal = refusal_of(config)
    assert refusal is not None and ("quantised" in refusal or "more than text" in refusal)
