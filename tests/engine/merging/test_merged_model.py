"""Merged weights equal those of PEFT's `merge_and_unload`, bit for bit, tensor by tensor, in files like the base's."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
)

from ftui.engine.merging import adapter_merge
from ftui.engine.merging.adapter_merge import AdapterMerge
from ftui.engine.merging.merged_model import Base, MergedModel
from ftui.engine.models.adapter_files import ADAPTER
from ftui.engine.models.lora import BaseReference, new_adapter
from ftui.engine.models.weights import trainable, write_adapter
from ftui.engine.system.device import Hardware
from ftui.errors import ModelError
from ftui.profile.sections.adapter import AdapterSection
from ftui.runs.checkpoint_folders import FileEntry, StagedExport
from tests.support.written import put

CPU = Hardware(torch.device("cpu"), "fp32", 1, "a CPU", None)
NEW = (60, 61)  # ids of new tokens

# Base, keys of [adapter], ids of new tokens.
KINDS: dict[str, tuple[str, dict[str, Any], tuple[int, ...]]] = {
    "lora": ("llama", {}, ()),
    "rslora, patterns": (
        "llama",
        {"use_rslora": True, "rank_pattern": {"q_proj": 2}, "alpha_pattern": {r"layers\.1\..*_proj": 5}},
        (),
    ),
    "some layers": ("llama", {"layers_to_transform": [1], "exclude_modules": ["q_proj"]}, ()),
    "dora": ("llama", {"use_dora": True}, ()),
    "biases": ("llama", {"bias": "all"}, ()),
    "biases of its layers": ("llama", {"bias": "lora_only", "target_modules": ["q_proj"]}, ()),
    "whole modules": ("llama", {"modules_to_save": ["embed_tokens", "lm_head", "norm"]}, ()),
    "new tokens": ("llama", {}, NEW),
    "new tokens, head whole": ("llama", {"modules_to_save": ["lm_head"]}, NEW),
    "embeddings": ("llama", {"target_modules": ["embed_tokens", "v_proj"]}, ()),
    "tied": ("tied", {}, ()),
    "tied, dora": ("tied", {"use_dora": True}, ()),
    "tied, new tokens": ("tied", {}, NEW),
    "tied, embeddings whole": ("tied", {"modules_to_save": ["embed_tokens"]}, ()),
    "tied, embeddings whole, new tokens": ("tied", {"modules_to_save": ["embed_tokens"]}, NEW),
    "tied, head whole": ("tied", {"modules_to_save": ["lm_head"]}, ()),
    "tied, embeddings": ("tied", {"target_modules": ["embed_tokens", "v_proj"]}, ()),
    "gpt2": ("gpt2", {"use_dora": True}, ()),
    "gpt2, whole modules": ("gpt2", {"modules_to_save": ["wte", "ln_f"]}, ()),
    "experts": ("mixtral", {}, ()),
    "reward model": ("score", {}, ()),
}

FAST = {"dora", "experts"}
MERGED_TWICE = {"tied, embeddings"}
"""PEFT 0.21 adds what it adds to the embeddings to the head too, which is the same tensor."""


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    sizes: dict[str, Any] = {
        "vocab_size": 60, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 32, "initializer_range": 0.15,
    }  # fmt: skip
    torch.manual_seed(1)
    models: dict[str, Any] = {
        "llama": LlamaForCausalLM(LlamaConfig(**sizes, attention_bias=True)),
        "tied": LlamaForCausalLM(LlamaConfig(**sizes, tie_word_embeddings=True)),
        "gpt2": GPT2LMHeadModel(GPT2Config(vocab_size=60, n_embd=64, n_layer=2, n_head=2, n_positions=32)),
        "mixtral": MixtralForCausalLM(MixtralConfig(**sizes, num_local_experts=4, num_experts_per_tok=2)),
    }
    folders = {}
    for name, model in models.items():
        folders[name] = tmp_path_factory.mktemp(name)
        model.save_pretrained(folders[name], max_shard_size="80KB")
        assert len(list(folders[name].glob("model*.safetensors"))) > 1
    return folders | {"score": folders["llama"]}


def load(folder: Path, new_ids: tuple[int, ...], *, scores: bool = False, **options: Any) -> Any:
    kind: Any = AutoModelForSequenceClassification if scores else AutoModelForCausalLM
    torch.manual_seed(5)
    model = kind.from_pretrained(folder, **options, **({"num_labels": 1} if scores else {}))
    if new_ids:
        model.resize_token_embeddings(60 + len(new_ids), mean_resizing=False)
    return model


def make_adapter(base: Any, keys: AdapterSection, folder: Path, new_ids: tuple[int, ...]) -> Path:
    """Moved off its start by noise."""
    torch.manual_seed(2)
    model = new_adapter(base, keys, BaseReference("base"), new_ids)
    for weight in trainable(model).values():
        weight.data += 0.1 * torch.randn_like(weight)
    folder.mkdir()
    put(folder, write_adapter(model, folder))
    return folder


def on_meta(folder: Path, new_ids: tuple[int, ...], *, scores: bool = False) -> Any:
    kind: Any = AutoModelForSequenceClassification if scores else AutoModelForCausalLM
    config = AutoConfig.from_pretrained(folder, **({"num_labels": 1} if scores else {}))
    with torch.device("meta"):
        model = kind.from_config(config, dtype=torch.float32)
        if new_ids:
            model.resize_token_embeddings(60 + len(new_ids), mean_resizing=False)
    return model


def merge(
    folder: Path,
    adapter: Path,
    new_ids: tuple[int, ...] = (),
    *,
    dtype: torch.dtype = torch.float32,
    scores: bool = False,
    as_computed: Callable[[str, Tensor], Tensor] = lambda name, weight: weight,
) -> MergedModel:
    base = Base(folder, on_meta(folder, new_ids, scores=scores), as_computed)
    return MergedModel(base, AdapterMerge(on_meta(folder, new_ids, scores=scores), adapter), dtype)


def written(model: MergedModel, folder: Path) -> dict[str, Tensor]:
    """The tensors in the files that it writes."""
    folder.mkdir()
    staged, ticks = StagedExport(folder), list[None]()
    model.write(staged, lambda: ticks.append(None))
    assert len(ticks) == model.num_tensors
    for name, entry in staged.files.items():
        assert (folder / name).stat().st_size == entry.size and isinstance(entry, FileEntry)
    return {name: tensor for file in folder.glob("*.safetensors") for name, tensor in load_file(file).items()}


def peft_merge(folder: Path, adapter: Path, new_ids: tuple[int, ...], **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return PeftModel.from_pretrained(load(folder, new_ids, **options), adapter).merge_and_unload()


@pytest.mark.parametrize(
    "kind", [kind if kind in FAST else pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS]
)
def test_each_kind_equals_the_merge_of_peft(kind: str, bases: dict[str, Path], tmp_path: Path) -> None:
    name, keys, new_ids = KINDS[kind]
    section, scores = AdapterSection.model_validate({"r": 4, **keys}, strict=False), name == "score"
    adapter = make_adapter(load(bases[name], new_ids, scores=scores), section, tmp_path / "adapter", new_ids)
    model = merge(bases[name], adapter, new_ids, scores=scores)
    out = tmp_path / "merged"
    written(model, out)
    config = model.outline.config
    config.tie_word_embeddings = bool(config.tie_word_embeddings) and not model.is_untied
    config.architectures = [type(model.outline).__name__]
    config.save_pretrained(out)
    kind_of_model: Any = type(model.outline)
    result, problems = kind_of_model.from_pretrained(out, output_loading_info=True)
    assert not any(problems.values()), problems

    expected = peft_merge(bases[name], adapter, new_ids, scores=scores)
    weights = dict(expected.named_parameters(remove_duplicate=False))
    own = dict(result.named_parameters(remove_duplicate=False))
    assert own.keys() == weights.keys()
    if kind not in MERGED_TWICE:
        for path, weight in weights.items():
            assert torch.equal(own[path], weight), path
    ids = torch.arange(3, 51).reshape(3, 16)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        adapted: Any = PeftModel.from_pretrained(load(bases[name], new_ids, scores=scores), adapter).eval()
        if scores:
            adapted.config.pad_token_id = result.config.pad_token_id = 0
        torch.testing.assert_close(result.eval()(ids).logits, adapted(ids).logits, rtol=1e-5, atol=1e-4)
    base = load(bases[name], new_ids, scores=scores)
    assert any(not torch.equal(weight, own[path]) for path, weight in base.named_parameters())


@pytest.mark.parametrize("shape", [(24, 16), (7, 33), (16, 16)])
def test_norms_in_blocks_are_those_of_peft(shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """DoRA's merge takes two copies of a weight beside it, PEFT's four, and is the same bit for bit."""
    monkeypatch.setattr(adapter_merge, "BLOCK", 5 * shape[1])
    torch.manual_seed(0)
    config = LoraConfig(r=4, target_modules=["0"], use_dora=True, init_lora_weights=False)
    model: Any = torch.nn.Sequential(torch.nn.Linear(shape[1], shape[0]))
    adapted: Any = get_peft_model(model, config)
    layer = adapted.base_model.model[0]
    layer.lora_magnitude_vector["default"].weight.data.mul_(1.1)
    with torch.no_grad():
        own = adapter_merge._merge_dora(layer, layer.get_base_layer().weight.data.clone())
        layer.merge()
    assert torch.equal(own, layer.get_base_layer().weight)


@pytest.mark.parametrize("use_dora", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_in_16_bits_it_is_the_merge_of_peft_which_rounds_once(
    use_dora: bool, bases: dict[str, Path], tmp_path: Path
) -> None:
    base = tmp_path / "base"
    load(bases["tied"], ()).to(torch.bfloat16).save_pretrained(base)
    section = AdapterSection(r=4, use_dora=use_dora)
    adapter = make_adapter(load(base, (), dtype=torch.float32), section, tmp_path / "adapter", ())
    own = written(merge(base, adapter, dtype=torch.bfloat16), tmp_path / "merged")
    expected = peft_merge(base, adapter, (), dtype=torch.bfloat16).state_dict()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in own.items())
    assert {tensor.dtype for tensor in own.values()} == {torch.bfloat16}


def test_what_the_base_stores_wider_than_the_rest_stays_so(bases: dict[str, Path], tmp_path: Path) -> None:
    base = tmp_path / "base"
    model = load(bases["tied"], ())
    tensors = {name: weight.data.to(torch.bfloat16) for name, weight in model.named_parameters()}
    name = "model.norm.weight"
    base.mkdir()
    save_file(tensors | {name: tensors[name].float()}, base / "model.safetensors", {"format": "pt"})
    model.config.save_pretrained(base)
    adapter = make_adapter(model, AdapterSection(r=4), tmp_path / "adapter", ())
    for dtype, kept in ((torch.float16, torch.float32), (torch.float32, torch.float32)):
        own = written(merge(base, adapter, dtype=dtype), tmp_path / str(dtype))
        assert own[name].dtype == kept and {own[other].dtype for other in own.keys() - {name}} == {dtype}


def test_a_number_too_large_for_its_type_is_refused(bases: dict[str, Path], tmp_path: Path) -> None:
    adapter = make_adapter(load(bases["tied"], ()), AdapterSection(r=4), tmp_path / "adapter", ())
    tensors = load_file(adapter / ADAPTER)
    save_file({name: tensor * 1e4 for name, tensor in tensors.items()}, adapter / ADAPTER)
    written(merge(bases["tied"], adapter, dtype=torch.bfloat16), tmp_path / "bf16")
    with pytest.raises(ModelError, match=r"too large for torch\.float16") as caught:
        written(merge(bases["tied"], adapter, dtype=torch.float16), tmp_path / "fp16")
    assert "--dtype bf16" in caught.value.hint


@pytest.mark.slow
@pytest.mark.parametrize("keys", [{"modules_to_save": ["lm_head"]}, {"target_modules": ["embed_tokens", "v_proj"]}])
def test_embeddings_and_head_become_two_where_an_adapter_changes_one_of_them(
    keys: dict[str, Any], bases: dict[str, Path], tmp_path: Path
) -> None:
    """Adapters that plain PEFT has made, to continue from."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        own_keys: dict[str, Any] = {"r": 4, "target_modules": ["v_proj"], "init_lora_weights": False}
        config = LoraConfig(**(own_keys | keys))
        model = get_peft_model(load(bases["tied"], ()), config)
        for name, weight in model.named_parameters():
            if "modules_to_save" in name:
                weight.data = weight.data + 0.1 * torch.randn_like(weight)
        model.save_pretrained(str(tmp_path / "adapter"), save_embedding_layers=False)
        adapted: Any = PeftModel.from_pretrained(load(bases["tied"], ()), tmp_path / "adapter").eval()
    merged = merge(bases["tied"], tmp_path / "adapter")
    assert merged.is_untied
    own = written(merged, tmp_path / "merged")
    assert not torch.equal(own["lm_head.weight"], own["model.embed_tokens.weight"])
    merged.outline.config.tie_word_embeddings = False
    merged.outline.config.save_pretrained(tmp_path / "merged")
    result = AutoModelForCausalLM.from_pretrained(tmp_path / "merged").eval()
    ids = torch.arange(3, 51).reshape(3, 16)
    with torch.no_grad():
        torch.testing.assert_close(result(ids).logits, adapted(ids).logits, rtol=1e-5, atol=1e-4)
