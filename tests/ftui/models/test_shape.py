"""Shapes and counts against the libraries themselves: transformers' models on the meta device, PEFT's adapters."""

import functools
import json
import math
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from ftui.engine.models.lora import BaseReference, new_adapter
from ftui.engine.models.methods import freeze
from ftui.errors import ModelError
from ftui.estimate.closed_form import memory, num_trainable
from ftui.estimate.setup import build_setup
from ftui.hardware.devices import find_card
from ftui.models.config_reader import read_shape, shape_from_scratch
from ftui.models.shape import ModelShape
from ftui.profile.schema import Profile
from ftui.profile.sections.from_scratch import FromScratch
from tests.support.published_models import MODELS, STATED
from tests.support.tiny import make_tokenizer

Table = dict[str, Any]


def model_of(config: Table) -> Any:
    """The real model, without memory."""
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(AutoConfig.for_model(**config))


def shape(config: Table) -> ModelShape:
    found = read_shape(config)
    assert found is not None
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_every_parameter_of_a_published_model_is_known_by_name_and_size(name: str) -> None:
    config = AutoConfig.for_model(**MODELS[name])
    written = json.loads(config.to_json_string(use_diff=False))  # as transformers would write it
    real = {path: weight.numel() for path, weight in model_of(MODELS[name]).named_parameters()}
    found = shape(MODELS[name])
    assert dict(found.parameters()) == real
    assert found.num_parameters == STATED.get(name, sum(real.values()))
    assert dict(shape(written).parameters()) == real


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("phi", {"qk_layernorm": True}),
        ("stablelm", {"qk_layernorm": True, "use_parallel_residual": True}),
        ("cohere", {"use_qk_norm": True, "attention_bias": True}),
        ("llama", {"attention_bias": True, "mlp_bias": True}),
        ("qwen3_moe", {"mlp_only_layers": [0], "decoder_sparse_step": 2}),
        ("starcoder2", {"use_bias": False}),
        ("gpt_neox", {"attention_bias": False}),
    ],
)
def test_switches_of_an_architecture_are_read(kind: str, more: Table) -> None:
    config = next(c for c in MODELS.values() if c["model_type"] == kind) | more | {"num_hidden_layers": 2}
    real = {path: weight.numel() for path, weight in model_of(config).named_parameters()}
    assert dict(shape(config).parameters()) == real


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "t5"},
        {"model_type": "llama"},
        {},
        MODELS["Llama-3-8B"] | {"hidden_size": "wide"},
        MODELS["Llama-3-8B"] | {"vision_config": {"hidden_size": 8}},
        MODELS["Llama-3-8B"] | {"quantization_config": {"quant_method": "gptq"}},
    ],
)
def test_what_is_not_known_is_not_guessed(config: Table) -> None:
    assert read_shape(config) is None


@pytest.mark.parametrize("size", ["tiny", "small", "medium", "gpt2"])
@pytest.mark.parametrize("kind", ["llama", "qwen3", "mistral", "gpt2"])
def test_a_model_from_scratch_has_its_parameters(size: str, kind: str) -> None:
    from ftui.engine.models.new_model import new_config

    class Tokenizer:
        pad_token_id, eos_token_id, bos_token_id = 0, 1, None

        def __len__(self) -> int:
            return 4096

    section = FromScratch.model_validate({"size": size, "model_type": kind})
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(new_config(section, Tokenizer()))  # type: ignore[arg-type]
    found = shape_from_scratch(section, 4096)
    assert found is not None and found.num_parameters == sum(weight.numel() for weight in model.parameters())


def test_a_model_from_scratch_has_the_vocabulary_of_its_tokenizer(tmp_path: Path) -> None:
    tokenizer = make_tokenizer()
    tokenizer.save_pretrained(tmp_path)
    sizes = []
    for more in ({"vocab_size": 300}, {"tokenizer": str(tmp_path)}, {"tokenizer": "hub/name", "vocab_size": 512}):
        found = shape_from_scratch(FromScratch.model_validate({"size": "tiny"} | more))
        assert found is not None
        sizes.append(found.vocab_size)
    assert sizes == [300, len(tokenizer), 512]
    (tmp_path / "tokenizer.json").write_text("[" * 100_000)
    assert shape_from_scratch(FromScratch.model_validate({"tokenizer": str(tmp_path)})).vocab_size == 4096  # type: ignore[union-attr]
    assert shape_from_scratch(FromScratch.model_validate({"num_hidden_layers": 10**9})) is None


WRONG: tuple[Any, ...] = (
    0,
    -1,
    -(10**20),
    10**20,
    1.5,
    math.inf,
    -math.inf,
    math.nan,
    True,
    "8",
    "",
    None,
    [],
    [8],
    {},
    {"a": 1},
    "x",
)
DEEP: Any = functools.reduce(lambda inner, _: [inner], range(5000), cast(Any, []))
KINDS_AND_ONE_OF_EACH = {config["model_type"]: config for config in MODELS.values()}


@pytest.mark.parametrize("kind", KINDS_AND_ONE_OF_EACH)
def test_a_broken_config_has_no_shape_or_a_sensible_one(kind: str) -> None:
    config = KINDS_AND_ONE_OF_EACH[kind] | {"num_hidden_layers": 2}
    for key in config:
        for value in (*WRONG, DEEP):
            found = read_shape(config | {key: value})
            told = f"{key} = {value!r}" if value is not DEEP else key
            if found is None:
                continue
            sizes = (
                found.hidden_size, found.width, found.num_heads, found.num_kv_heads, found.head_dim, found.vocab_size,
                found.num_layers, *(size for _, size in found.parameters()),
            )  # fmt: skip
            assert all(type(size) is int and 0 < size < 2**50 for size in sizes), told
            assert found.context is None or found.context > 0, told
            setup = build_setup(profile_of({}), found, find_card("rtx4090"))
            assert memory(setup).process > 0, told


SMALL = {
    "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 300, "pad_token_id": None, "bos_token_id": None, "eos_token_id": None,
}  # fmt: skip
TYPES: dict[str, Table] = {
    "llama": SMALL,
    "qwen2": SMALL,
    "phi": SMALL,
    "stablelm": SMALL,
    "gpt2": {"n_embd": 64, "n_inner": 160, "n_layer": 3, "n_head": 4, "n_positions": 128, "vocab_size": 300},
    "qwen3_moe": SMALL | {"num_experts": 4, "moe_intermediate_size": 32, "num_experts_per_tok": 2},
    "mixtral": SMALL | {"num_local_experts": 4, "num_experts_per_tok": 2},
    "qwen2_moe": SMALL | {
        "num_experts": 4, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 48, "num_experts_per_tok": 2,
    },
}  # fmt: skip
ADAPTERS: dict[str, Table] = {
    "all-linear": {},
    "q, v": {"target_modules": ("q_proj", "v_proj")},
    "dora": {"use_dora": True},
    "ends": {"modules_to_save": ("embed_tokens", "lm_head")},
    "head": {"modules_to_save": ("lm_head",)},
    "norms": {"modules_to_save": ("norm",)},
    "adapted ends": {"target_modules": ("q_proj", "embed_tokens", "lm_head")},
    "adapted embeddings": {"target_modules": ("q_proj", "embed_tokens")},
    "adapted head": {"target_modules": ("q_proj", "lm_head")},
    "some layers": {"layers_to_transform": (1, 2)},
    "pattern": {"target_modules": r".*\.(q|k|v)_proj", "rank_pattern": {"k_proj": 4}},
    "own biases": {"bias": "lora_only"},
    "biases": {"bias": "all"},
    "excluded": {"exclude_modules": ("o_proj", "down_proj")},
    "excluded by pattern": {"exclude_modules": r".*\.1\..*"},
    "last layers": {"method": "freeze", "trainable_layers": 2},
    "frozen but": {"method": "freeze", "trainable_modules": ("lm_head", "norm")},
    "full": {"method": "full"},
}


def profile_of(adapter: Table) -> Profile:
    return Profile.model_validate({
        "run": {"stage": "sft"}, "model": {"name_or_path": "/model"}, "data": {"train": "rows.jsonl"},
        "adapter": adapter,
    })  # fmt: skip


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
@pytest.mark.parametrize("kind", TYPES)
def test_what_is_trained_is_what_the_engine_trains(kind: str, tied: bool) -> None:
    config = {"model_type": kind} | TYPES[kind] | {"tie_word_embeddings": tied}
    if kind == "phi" and tied:
        pytest.skip("its head has a bias of its own")
    told = {}
    for name, adapter in ADAPTERS.items():
        profile, model = profile_of(adapter), model_of(config)
        try:
            trained = _trained(model, profile)
        except ModelError:  # the type has no such layers
            continue
        real = sum(weight.numel() for weight in trained.parameters() if weight.requires_grad)
        told[name] = num_trainable(build_setup(profile, shape(config), find_card("rtx4090"))), real
    assert {name: ours for name, (ours, _) in told.items()} == {name: real for name, (_, real) in told.items()}
    assert len(told) >= 8


def _trained(model: Any, profile: Profile) -> Any:
    match profile.adapter.method:
        case "freeze":
            return freeze(model, profile.adapter, frozen=torch.bfloat16)
        case "full":
            return model
    return new_adapter(model, profile.adapter, BaseReference("base"))
