"""Adapters of every kind: what is saved comes back bit for bit, and plain PEFT makes the same logits of it."""

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import AutoPeftModelForCausalLM, LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    PreTrainedModel,
)

from ftui.engine.models.adapter_files import ADAPTER, starting_adapter
from ftui.engine.models.load_model import load_model
from ftui.engine.models.lora import BaseReference, continued_adapter, new_adapter
from ftui.engine.models.quantization import check_share, keep_layout, num_parameters, quantized_loading
from ftui.engine.models.special_tokens import add_special_tokens, fit_embeddings
from ftui.engine.models.weights import adapter_tensors, fill_adapter, trainable, write_adapter
from ftui.engine.system.device import Hardware
from ftui.errors import ModelError, ProfileError
from ftui.profile.sections.adapter import AdapterSection
from ftui.profile.sections.model import ModelSection
from tests.support.tiny import make_tokenizer
from tests.support.written import put

CPU = Hardware(torch.device("cpu"), "fp32", 1, "a CPU", None)
IDS = torch.arange(3, 51).reshape(3, 16)

# Base, keys of [adapter].
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "one regular expression": ("biased", {"target_modules": r".*layers\.1\.mlp\.(up|down)_proj"}),
    "some layers": ("biased", {"layers_to_transform": [1], "exclude_modules": ["q_proj"]}),
    "named layers": ("biased", {"layers_to_transform": [0], "layers_pattern": "layers", "target_modules": ["k_proj"]}),
    "patterns": (
        "biased",
        {"init_lora_weights": "orthogonal", "rank_pattern": {"q_proj": 2}, "alpha_pattern": {r"layers\.1\..*_proj": 5}},
    ),
    "dora": ("biased", {"init_lora_weights": "gaussian", "use_dora": True}),
    "all biases": ("biased", {"use_rslora": True, "bias": "all"}),
    "its biases": ("biased", {"init_lora_weights": False, "bias": "lora_only", "target_modules": ["q_proj"]}),
    "embeddings": ("biased", {"target_modules": ["embed_tokens", "v_proj"]}),
    "whole modules": ("biased", {"modules_to_save": ["embed_tokens", "lm_head", "norm"]}),
    "tied embeddings": ("tied", {"modules_to_save": ["embed_tokens"]}),
    "tied head": ("tied", {"modules_to_save": ["lm_head"]}),
    "gpt2": ("gpt2", {}),
    "tied embeddings of another name": ("gpt2", {"modules_to_save": ["wte"]}),
    "head tied to another name": ("gpt2", {"modules_to_save": ["lm_head", "ln_f"]}),
    "nf4": ("biased", {"method": "qlora"}),
    "fp4": ("tied", {"method": "qlora", "bnb_4bit_quant_type": "fp4", "bnb_4bit_use_double_quant": False}),
    "nf4 dora": ("biased", {"method": "qlora", "use_dora": True, "modules_to_save": ["lm_head"]}),
    "nf4 gpt2": ("gpt2", {"method": "qlora"}),
    "8 bit": ("biased", {"load_in_8bit": True}),
}


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Llamas whose attention has biases, one with its head tied to the embeddings; a GPT-2, whose layers are Conv1D."""
    sizes: dict[str, Any] = {
        "vocab_size": 60, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "attention_bias": True,
        "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 32, "initializer_range": 0.15,
    }  # fmt: skip
    torch.manual_seed(1)
    models: dict[str, Any] = {
        "biased": LlamaForCausalLM(LlamaConfig(**sizes)),
        "tied": LlamaForCausalLM(LlamaConfig(**sizes, tie_word_embeddings=True)),
        "gpt2": GPT2LMHeadModel(
            GPT2Config(
                vocab_size=60,
                n_embd=64,
                n_layer=2,
                n_head=2,
                n_positions=32,
                resid_pdrop=0.0,
                embd_pdrop=0.0,
                attn_pdrop=0.0,
            )
        ),
    }
    folders = {}
    for name, model in models.items():
        folders[name] = tmp_path_factory.mktemp(name)
        model.save_pretrained(folders[name])
    return folders


def section(**keys: Any) -> AdapterSection:
    return AdapterSection.model_validate({"r": 4, **keys}, strict=False)


def loaded(folder: Path, keys: AdapterSection) -> PreTrainedModel:
    model = load_model(folder, ModelSection(name_or_path=str(folder)), torch.float32, **quantized_loading(keys, CPU))
    if keys.is_quantised:
        keep_layout(model)
    return model


def adapted(folder: Path, keys: AdapterSection, seed: int, new_token_ids: tuple[int, ...] = ()) -> Any:
    """An adapter on the base in `folder`, moved off its start by noise."""
    base = loaded(folder, keys)
    torch.manual_seed(seed)
    model = new_adapter(base, keys, BaseReference(str(folder)), new_token_ids)
    for weight in trainable(model).values():
        weight.data += 0.1 * torch.randn_like(weight)
    return model


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():  # in training mode, where bitsandbytes computes as in a step (there is no dropout here)
        result: torch.Tensor = model.train()(input_ids=IDS).logits
    return result


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_an_adapter_comes_back_and_loads_with_plain_peft(kind: str, bases: dict[str, Path], tmp_path: Path) -> None:
    name, given = KINDS[kind]
    keys = section(**given)
    model = adapted(bases[name], keys, seed=1)
    before = trainable(model)
    assert all(weight.dtype == torch.float32 for weight in before.values())
    put(tmp_path, write_adapter(model, tmp_path))

    other = adapted(bases[name], keys, seed=2)
    fill_adapter(other, tmp_path)
    after = trainable(other)
    assert before.keys() == after.keys()
    assert all(torch.equal(before[path], after[path]) for path in before)
    assert torch.equal(logits(other), logits(model))
    inner: Any = model.get_base_model()
    if inner.config.tie_word_embeddings:
        assert inner.get_input_embeddings().weight is inner.get_output_embeddings().weight

    plain = PeftModel.from_pretrained(loaded(bases[name], keys), tmp_path)
    assert torch.equal(logits(plain), logits(model))
    if keys.is_quantised:  # and on the base as it is, where it was made for one that is a little different
        with warnings.catch_warnings():  # of GPT-2's layers, which only a quantised base has the other way round
            warnings.filterwarnings("ignore", "fan_in_fan_out is set to False", UserWarning)
            whole = logits(PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(bases[name]), tmp_path))
        assert not torch.equal(whole, logits(model))
        assert torch.nn.functional.cosine_similarity(whole, logits(model), dim=-1).mean() > 0.8

    again = continued_adapter(loaded(bases[name], keys), section(method=keys.method, load_in_8bit=keys.load_in_8bit),
                              tmp_path, BaseReference(str(bases[name])))  # fmt: skip
    assert all(torch.equal(before[path], weight) for path, weight in trainable(again).items())
    tensors = adapter_tensors(again)
    assert adapter_tensors(model).keys() == tensors.keys()


@pytest.mark.parametrize("given", [{"method": "qlora"}, {"bias": "all"}, {"load_in_8bit": True}])
def test_what_is_trained_beside_a_narrow_base_is_trained_in_float32(
    given: dict[str, Any], bases: dict[str, Path]
) -> None:
    narrow = Hardware(torch.device("cpu"), "bf16", 1, "a CPU", None)
    keys = section(**given, modules_to_save=["norm"])
    base = load_model(
        bases["biased"], ModelSection(name_or_path="x"), torch.bfloat16, **quantized_loading(keys, narrow)
    )
    model = new_adapter(base, keys, BaseReference("base"), (5, 6))
    types: dict[bool, set[torch.dtype]] = {True: set(), False: set()}
    for weight in model.parameters():
        types[weight.requires_grad].add(weight.dtype)
    assert types[True] == {torch.float32}
    assert types[False] - {torch.uint8, torch.int8} == {torch.bfloat16}


@pytest.mark.parametrize(
    ("tied", "given", "trained"),
    [
        (True, {}, ["embed_tokens"]),
        (False, {}, ["embed_tokens", "lm_head"]),
        (True, {"modules_to_save": ["embed_tokens"]}, []),
        (False, {"modules_to_save": ["lm_head"]}, ["embed_tokens"]),
    ],
)
def test_embeddings_of_new_tokens_are_trained_and_found_by_plain_peft(
    tied: bool, given: dict[str, Any], trained: list[str], tmp_path: Path
) -> None:
    base, folder = tmp_path / "base", tmp_path / "adapter"
    tokenizer = make_tokenizer()
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        max_position_embeddings=32, tie_word_embeddings=tied,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(base)
    ids = add_special_tokens(tokenizer, ["<|think|>", "<|end of thought|>"])
    assert len(ids) == 2
    model = loaded(base, section())
    fit_embeddings(model, tokenizer, ids)
    torch.manual_seed(3)
    model = new_adapter(model, section(**given), BaseReference(str(base)), ids)
    rows = {name: tuple(weight.shape) for name, weight in trainable(model).items() if "token_adapter" in name}
    assert set(rows.values()) <= {(2, 32)} and len(rows) == len(trained)
    assert all(any(f".{name}." in path for path in rows) for name in trained)
    for weight in trainable(model).values():
        weight.data += 0.1 * torch.randn_like(weight)
    folder.mkdir()
    put(folder, write_adapter(model, folder))
    tokenizer.save_pretrained(folder)

    inputs = torch.tensor([[5, ids[0], 7, ids[1], 9]])
    plain = AutoPeftModelForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        assert torch.equal(plain.train()(input_ids=inputs).logits, model.train()(input_ids=inputs).logits)
    grown = loaded(base, section())
    fit_embeddings(grown, tokenizer, ids)  # to other random rows, which the adapter knows
    again = continued_adapter(grown, section(), folder, BaseReference(str(base)), ids)
    assert trainable(again).keys() == trainable(model).keys()
    with torch.no_grad():
        assert torch.equal(again.train()(input_ids=inputs).logits, model.train()(input_ids=inputs).logits)


@pytest.mark.parametrize(
    ("name", "config", "new", "fits"),
    [
        ("untied", {"trainable_token_indices": {"embed_tokens": [60, 61], "lm_head": [60, 61]}}, (60, 61), True),
        ("untied", {"trainable_token_indices": {"embed_tokens": [60], "lm_head": [60]}}, (60, 61), False),
        ("untied", {"trainable_token_indices": {"embed_tokens": [60, 61]}}, (60, 61), False),
        ("untied", {"trainable_token_indices": {"embed_tokens": [60]}, "modules_to_save": ["lm_head"]}, (60,), True),
        ("untied", {"modules_to_save": ["embed_tokens"]}, (60,), False),
        ("untied", {"modules_to_save": ["embed_tokens", "lm_head"]}, (60,), True),
        ("untied", {"modules_to_save": ["norm"]}, (60,), False),
        ("tied", {"trainable_token_indices": [60]}, (60,), True),
        ("tied", {"trainable_token_indices": [60]}, (60, 61), False),
        ("tied", {"modules_to_save": ["lm_head"], "ensure_weight_tying": True}, (60,), True),
        ("tied", {"modules_to_save": ["norm"]}, (60,), False),
        ("gpt2", {"trainable_token_indices": {"wte": [60]}}, (60,), True),
        ("gpt2", {"trainable_token_indices": {"wte": [60]}}, (61,), False),
    ],
)
def test_an_adapter_to_go_on_from_trains_every_new_row(
    name: str, config: dict[str, Any], new: tuple[int, ...], fits: bool, bases: dict[str, Path], tmp_path: Path
) -> None:
    base = bases["biased" if name == "untied" else name]
    targets = ["c_attn"] if name == "gpt2" else ["q_proj"]
    keys = LoraConfig(r=4, target_modules=targets, fan_in_fan_out=name == "gpt2", task_type="CAUSAL_LM", **config)

    def grown() -> PreTrainedModel:
        model = loaded(base, section())
        model.resize_token_embeddings(62)
        return model

    put(tmp_path, write_adapter(get_peft_model(grown(), keys), tmp_path))
    if not fits:
        with pytest.raises(ModelError, match="does not train them"):
            continued_adapter(grown(), section(), tmp_path, BaseReference(str(base)), new)
        return
    model = continued_adapter(grown(), section(), tmp_path, BaseReference(str(base)), new)
    model(input_ids=torch.tensor([[5, *new, 7]]), labels=torch.tensor([[5, *new, 7]])).loss.backward()
    grads = [
        weight.grad for path, weight in trainable(model).items() if "token_adapter" in path or "modules_to_save" in path
    ]
    assert grads and all(grad is not None and grad.any() for grad in grads)


def test_rows_that_cannot_be_trained_apart_are_refused(bases: dict[str, Path]) -> None:
    keys = section(target_modules=["embed_tokens", "q_proj"])
    with pytest.raises(ModelError, match="target_modules names embed_tokens, which has entries that are new"):
        new_adapter(loaded(bases["biased"], keys), keys, BaseReference("base"), (5,))
    model = loaded(bases["biased"], section())
    model.lm_head = torch.nn.Linear(64, 60)
    with pytest.raises(ModelError, match="head of this model has a bias"):
        new_adapter(model, section(), BaseReference("base"), (5,))


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no such target": ({"target_modules": ["q_proj", "c_attn"]}, "target_modules: 'c_attn' is no module"),
    "no such exclusion": ({"exclude_modules": ["c_attn"]}, "exclude_modules: 'c_attn' is no module"),
    "no such module": ({"modules_to_save": ["wte"]}, "modules_to_save: 'wte' is no module"),
    "an expression for nothing": ({"target_modules": "c_.*"}, "not found"),
    "no layer of a kind that can have one": ({"target_modules": ["mlp"]}, "not supported"),
    "no such layer": ({"layers_to_transform": [0, 2]}, "there is no layer 2"),
    "a pattern for nothing": ({"rank_pattern": {"c_attn": 2}}, "rank_pattern: 'c_attn' matches no layer"),
    "a pattern for a layer without": (
        {"alpha_pattern": {"k_proj": 2}, "target_modules": ["q_proj"]},
        "matches no layer",
    ),
    "a quantised module": ({"method": "qlora", "modules_to_save": ["up_proj"]}, "quantised and cannot be trained"),
}


@pytest.mark.parametrize("case", WRONG)
def test_names_that_are_not_there_are_refused_by_name(case: str, bases: dict[str, Path]) -> None:
    given, message = WRONG[case]
    keys = section(**given)
    with pytest.raises(ModelError, match=message) as caught:
        new_adapter(loaded(bases["biased"], keys), keys, BaseReference("base"))
    assert "leave" in caught.value.hint.lower() or "layer" in caught.value.hint or "q_proj" in caught.value.hint


def test_an_adapter_to_go_on_from_must_fit(bases: dict[str, Path], tmp_path: Path) -> None:
    base = bases["biased"]
    put(tmp_path, write_adapter(adapted(base, section(target_modules=["q_proj", "v_proj"]), seed=1), tmp_path))

    def go_on(model: PreTrainedModel, keys: AdapterSection, new_ids: tuple[int, ...] = ()) -> Any:
        return continued_adapter(model, keys, tmp_path, BaseReference(str(base)), new_ids)

    plain = section(r=16)  # the default: the adapter brings its own rank
    assert go_on(loaded(base, plain), plain).peft_config["default"].r == 4
    with pytest.raises(ProfileError, match=r"adapter\.r is 8, but the adapter in .* has 4"):
        go_on(loaded(base, plain), section(r=8))
    with pytest.raises(ProfileError, match=r"adapter\.target_modules is .*k_proj"):
        go_on(loaded(base, plain), section(r=16, target_modules=["k_proj"]))
    with pytest.raises(ModelError, match="does not train them"):
        go_on(loaded(base, plain), plain, (61,))
    with pytest.raises(ModelError, match="does not fit"):
        go_on(loaded(bases["gpt2"], plain), plain)
    with pytest.raises(ModelError, match=r"does not fit.*size mismatch"):
        config = LlamaConfig(vocab_size=60, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
                             num_attention_heads=2, num_key_value_heads=1)  # fmt: skip
        go_on(LlamaForCausalLM(config), plain)

    damaged = json.loads((tmp_path / "adapter_config.json").read_text())
    for change, message in (
        ({"init_lora_weights": "pissa_niter_4"}, "began as pissa, which rewrites the base"),
        ({"target_modules": ["q_proj"]}, "holds weights that are not trained here|does not fit"),
        ({"target_modules": ["q_proj", "v_proj", "k_proj"]}, "lacks"),
    ):
        (tmp_path / "adapter_config.json").write_text(json.dumps(damaged | change))
        with pytest.raises(ModelError, match=message):
            go_on(loaded(base, plain), plain)
    (tmp_path / "adapter_config.json").write_text(json.dumps(damaged))
    tensors = load_file(tmp_path / ADAPTER)
    tensors["base_model.model.model.embed_tokens.weight"] = torch.zeros(60, 64)  # as PEFT does where they have grown
    save_file(tensors, tmp_path / ADAPTER)
    with pytest.raises(ModelError, match=r"not trained here: base_model\.model\.model\.embed_tokens\.weight"):
        go_on(loaded(base, plain), plain)
    (tmp_path / "adapter_config.json").write_text('{"peft_type": "IA3", "task_type": "CAUSAL_LM"}')
    with pytest.raises(ModelError, match="only LoRA"):
        go_on(loaded(base, plain), plain)
    (tmp_path / "adapter_config.json").write_text("{")
    with pytest.raises(ModelError, match="cannot be used"):
        go_on(loaded(base, plain), plain)


def test_the_folder_of_an_adapter_is_looked_at_first(tmp_path: Path) -> None:
    assert starting_adapter(section(), print) is None
    with pytest.raises(ModelError, match="There is no adapter folder"):
        starting_adapter(section(name_or_path=str(tmp_path / "absent")), print)
    with pytest.raises(ModelError, match=r"it has no adapter_config\.json"):
        starting_adapter(section(name_or_path=str(tmp_path)), print)


@pytest.mark.parametrize("given", [{"method": "qlora"}, {"load_in_8bit": True}])
def test_a_quantised_base_has_the_same_bytes_at_every_start(given: dict[str, Any], bases: dict[str, Path]) -> None:
    """And counts its weights as they are, though two share a byte."""
    keys = section(**given)
    first, second = loaded(bases["biased"], keys), loaded(bases["biased"], keys)
    then, now = first.state_dict(), second.state_dict()
    assert then.keys() == now.keys() and all(torch.equal(then[name], now[name]) for name in then)
    assert {weight.dtype for weight in first.parameters()} & {torch.uint8, torch.int8}
    check_share(first)
    assert type(first.get_output_embeddings()) is torch.nn.Linear  # the head stays as it is: see heads.py
    whole = AutoModelForCausalLM.from_pretrained(bases["biased"])
    assert num_parameters(first) == num_parameters(whole) == sum(weight.numel() for weight in whole.parameters())


def test_an_evaluation_leaves_a_quantised_base_as_it_was(bases: dict[str, Path]) -> None:
    """On CPUs with AVX512-BF16 bitsandbytes packs the weights anew, and their gradient is lost from there on."""
    model = adapted(bases["biased"], section(method="qlora"), seed=1)

    def gradients() -> dict[str, torch.Tensor]:
        model.zero_grad()
        model.train()(input_ids=IDS, labels=IDS).loss.backward()
        return {name: weight.grad.clone() for name, weight in trainable(model).items() if weight.grad is not None}

    before, expected = gradients(), logits(model)
    with torch.no_grad():
        assert torch.equal(model.eval()(input_ids=IDS).logits, expected)
    after = gradients()
    assert before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)


def test_a_quantised_base_can_forget_its_activations(bases: dict[str, Path]) -> None:
    """Checkpointing without reentry needs no gradient at the inputs, which the frozen embeddings have not."""
    model = adapted(bases["biased"], section(method="qlora"), seed=1)

    def gradients() -> list[torch.Tensor]:
        model.zero_grad()
        model.train()(input_ids=IDS, labels=IDS).loss.backward()
        return [weight.grad for weight in trainable(model).values() if weight.grad is not None]

    kept = [grad.clone() for grad in gradients()]
    model.get_base_model().activation_checkpointing_enable({"use_reentrant": False})
    forgotten = gradients()
    assert len(kept) == len(forgotten) == len(trainable(model))
    assert all(torch.equal(one, other) for one, other in zip(kept, forgotten, strict=True))


def test_a_base_that_is_stored_quantised_is_refused(bases: dict[str, Path], tmp_path: Path) -> None:
    loaded(bases["biased"], section(method="qlora")).save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="stored quantised \\(bitsandbytes\\)"):
        loaded(tmp_path, section(method="qlora"))


def test_a_mixture_of_experts_is_not_said_to_be_quantised(tmp_path: Path) -> None:
    config = MixtralConfig(
        vocab_size=60, hidden_size=64, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, num_local_experts=8,
    )  # fmt: skip
    MixtralForCausalLM(config).save_pretrained(tmp_path)
    with pytest.raises(ModelError, match=r"Only 1\d% of the layers' weights"):
        check_share(loaded(tmp_path, section(method="qlora")))
