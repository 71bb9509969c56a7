"""The architectures that come with ftui, against what is published of their models."""

import re

import pytest

from ftui.models.config_reader import read_shape
from ftui.models.known import known_config, known_models
from tests.support.published_models import MODELS, STATED

# Total parameters, exact, as the hub shows them for the weights' files, beside those of tests/support.
ALSO_STATED = {
    "Qwen3-4B": 4_022_468_096, "Qwen3-14B": 14_768_307_200, "Qwen3-32B": 32_762_123_264,
    "Qwen2.5-0.5B": 494_032_768, "Qwen2.5-3B": 3_085_938_688, "Qwen2.5-14B": 14_770_033_664,
    "Qwen2.5-32B": 32_763_876_352, "SmolLM2-135M": 134_515_008, "SmolLM2-360M": 361_821_120,
    "Qwen3-1.7B": 1_720_574_976, "Qwen3-0.6B": 596_049_920, "gemma-3-1b": 999_885_952,
    "Mistral-Nemo": 12_247_782_400, "phi-4": 14_659_507_200, "TinyLlama-1.1B": 1_100_048_384,
}  # fmt: skip
TWINS = {"Llama-3.1-8B": "Llama-3-8B", "Meta-Llama-3-8B": "Llama-3-8B", "Llama-3.3-70B": "Llama-3.1-70B",
         "Phi-3.5-mini": "Phi-3-mini", "gemma-2-2b": "Gemma-2-2b", "gemma-2-9b": "Gemma-2-9b"}  # fmt: skip


def total(name: str) -> int | None:
    """The published number of parameters of a model; `None` where only its name tells."""
    short = re.sub(r"-(Instruct|Base|Chat|it|pt|instruct)(-.*)?$", "", name.partition("/")[2])
    short = re.sub(r"-Instruct|-Base|-Chat", "", short)
    for one in (short, TWINS.get(short, short), short.rpartition("-2407")[0]):
        if found := STATED.get(one) or ALSO_STATED.get(one):
            return found
    return None


@pytest.mark.parametrize("name", known_models())
def test_a_known_model_has_the_parameters_that_are_published(name: str) -> None:
    config = known_config(name)
    assert config is not None and "licence" in known_models()[name] and "same_as" not in config
    shape = read_shape(config)
    assert shape is not None and shape.context is not None
    if (stated := total(name)) is not None:
        assert shape.num_parameters == stated
        return
    told = re.search(r"([\d.]+)([BMb])\b", name)
    assert told is not None
    size = float(told[1]) * (10**6 if told[2] == "M" else 10**9)
    assert shape.num_parameters == pytest.approx(size, rel=0.12)


def test_most_are_compared_exactly() -> None:
    exact = [name for name in known_models() if total(name) is not None]
    assert len(exact) >= 0.9 * len(known_models())


def test_a_twin_differs_in_what_it_says_itself() -> None:
    base, instruct = known_config("Qwen/Qwen2.5-7B"), known_config("Qwen/Qwen2.5-7B-Instruct")
    assert base is not None and instruct is not None
    assert base == instruct | {"max_position_embeddings": 131072}
    twice = known_models()["meta-llama/Llama-3.1-70B-Instruct"]
    assert (twice["licence"], twice["num_hidden_layers"]) == ("llama3.1", 80)
    assert known_config("nobody/nothing") is None


def test_the_published_config_of_one_type_is_that_of_the_table() -> None:
    """Beyond the total: the same sizes where both have the model."""
    for ours, published in (("Qwen/Qwen3-8B", "Qwen3-8B"), ("mistralai/Mistral-7B-v0.3", "Mistral-7B-v0.3")):
        config = known_config(ours)
        assert config is not None
        for key in ("hidden_size", "intermediate_size", "num_hidden_layers", "num_key_value_heads", "vocab_size"):
            assert config[key] == MODELS[published][key]
