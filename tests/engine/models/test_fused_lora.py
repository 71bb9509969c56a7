"""Fused LoRA layers give PEFT's outputs and gradients, for every type of model, and leave what they cannot do to it."""

import copy
import warnings
from typing import Any, Literal

import pytest
import torch
from peft import LoraConfig, get_peft_model
from peft.tuners.lora import LoraLayer
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, BitsAndBytesConfig

from ftui.engine.models.fused_lora import fuse_adapters
from ftui.engine.models.model_parts import autocast
from ftui.engine.models.quantization import keep_layout
from ftui.engine.system.device import Hardware

SIZES: dict[str, Any] = {
    "vocab_size": 64, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2, "initializer_range": 0.1,
}  # fmt: skip
TYPES = (
    "llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text", "phi", "phi3", "gpt_neox", "olmo2",
    "cohere", "granite", "starcoder2", "stablelm", "smollm3", "glm4", "mixtral", "qwen3_moe",
)  # fmt: skip
IDS = torch.arange(3, 51).reshape(3, 16)
Precision = Literal["bf16", "fp16", "fp32"]
Gradients = dict[str, Tensor]


def make_base(model_type: str, dtype: torch.dtype) -> Any:
    torch.manual_seed(1)
    sizes = {key: value for key, value in SIZES.items() if (model_type, key) != ("falcon", "head_dim")}
    return AutoModelForCausalLM.from_config(AutoConfig.for_model(model_type, **sizes), dtype=dtype)


def adapt(base: Any, **keys: Any) -> Any:
    """A base with an adapter in float32 whose both halves are drawn at random."""
    torch.manual_seed(2)
    options: dict[str, Any] = {"r": 4, "lora_alpha": 12, "target_modules": "all-linear"} | keys
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The following (rank|alpha)_pattern keys")  # PEFT's, for experts
        model = get_peft_model(base, LoraConfig(**options))
    for name, weight in model.named_parameters():
        if weight.requires_grad:
            weight.data = weight.data.float()
            if "lora_B" in name:
                nn.init.normal_(weight, std=0.1)
    return model.train()


def cpu(precision: Precision) -> Hardware:
    return Hardware(torch.device("cpu"), precision, 1, "a CPU", None)


def fused_copy(model: Any, precision: Precision = "fp32") -> tuple[Any, int]:
    """A copy of the model that is fused, and its number of fused layers."""
    fused = copy.deepcopy(model)
    return fused, fuse_adapters(fused, cpu(precision))


def forward(model: Any, precision: Precision = "fp32") -> Tensor:
    with autocast(cpu(precision), keeps_casts=True):
        logits: Tensor = model(input_ids=IDS, use_cache=False).logits
    return logits


def backward(model: Any, logits: Tensor) -> Gradients:
    """The gradient of everything trained."""
    nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1).float(), IDS[:, 1:].flatten()).backward()
    return {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}


def assert_close(actual: Tensor, expected: Tensor, tolerance: float, name: str = "") -> None:
    """Not further apart than this share of the largest number."""
    assert actual.dtype == expected.dtype and actual.isfinite().all(), name
    assert (actual - expected).abs().max() <= tolerance * expected.abs().max(), name


def assert_same(model: Any, fused: Any, tolerance: float, precision: Precision = "fp32") -> None:
    """The same logits and gradients."""
    expected, actual = forward(model, precision), forward(fused, precision)
    assert_close(actual.detach(), expected.detach(), tolerance, "logits")
    of_peft, own = backward(model, expected), backward(fused, actual)
    assert own.keys() == of_peft.keys() != set()
    for name in own:
        assert_close(own[name], of_peft[name], tolerance, name)


@pytest.mark.slow
@pytest.mark.parametrize("model_type", TYPES)
def test_every_type_of_model(model_type: str) -> None:
    model = adapt(make_base(model_type, torch.float32))
    fused, number = fused_copy(model)
    layers = [module for module in model.modules() if isinstance(module, LoraLayer)]
    assert number == sum(type(layer.get_base_layer()) is nn.Linear for layer in layers) > 0
    assert_same(model, fused, 1e-5)


@pytest.mark.parametrize("model_type", ["llama", "phi", "gemma2"])
@pytest.mark.parametrize(
    ("precision", "dtype"), [("bf16", torch.bfloat16), ("bf16", torch.float32), ("fp16", torch.float16)]
)
def test_every_precision_is_as_near_to_float32_as_peft(
    model_type: str, precision: Precision, dtype: torch.dtype
) -> None:
    exact = adapt(make_base(model_type, torch.float32))
    narrow = adapt(make_base(model_type, torch.float32).to(dtype))
    fused, number = fused_copy(narrow, precision)
    assert number > 0
    results = []
    for model, own in ((exact, "fp32"), (narrow, precision), (fused, precision)):
        logits = forward(model, own)  # type: ignore[arg-type]
        parts = backward(model, logits) | {"logits": logits.detach()}
        results.append(
            torch.cat([parts[name].float().flatten() / parts[name].float().norm() for name in sorted(parts)])
        )
    of_peft, ours = ((result - results[0]).norm() for result in results[1:])
    assert 0 < ours <= 1.1 * of_peft


@pytest.mark.parametrize("compute", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", ["nf4", "fp4"])
@pytest.mark.parametrize("twice", [True, False])
def test_a_base_in_4_bits(kind: str, twice: bool, compute: torch.dtype, tmp_path: Any) -> None:
    make_base("llama", compute).save_pretrained(tmp_path)
    packed = BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type=kind, bnb_4bit_use_double_quant=twice, bnb_4bit_compute_dtype=compute
    )
    base = AutoModelForCausalLM.from_pretrained(
        tmp_path, dtype=compute, quantization_config=packed, device_map={"": "cpu"}
    )
    keep_layout(base)
    precision: Precision = "fp32" if compute == torch.float32 else "bf16"
    model = adapt(base)
    fused, number = fused_copy(model, precision)
    assert number == 14
    assert_same(model, fused, 1e-5 if precision == "fp32" else 0.1, precision)  # bf16 rounds at other places


LEFT: dict[str, tuple[str, dict[str, Any]]] = {
    "dropout": ("llama", {"lora_dropout": 0.1}),
    "dora": ("llama", {"use_dora": True}),
    "trained biases": ("qwen2", {"bias": "all", "target_modules": ["q_proj"]}),
    "biases of the adapter": ("qwen2", {"lora_bias": True, "target_modules": ["q_proj"]}),
    "embeddings": ("llama", {"target_modules": ["embed_tokens"]}),
    "Conv1D": ("gpt2", {"fan_in_fan_out": True}),
    "a linear layer of a model's own": ("falcon", {}),
}


@pytest.mark.parametrize("name", LEFT)
def test_what_is_left_to_peft(name: str) -> None:
    model_type, keys = LEFT[name]
    _, number = fused_copy(adapt(make_base(model_type, torch.float32), **keys))
    assert number == 0


def test_an_adapter_that_is_off_or_merged() -> None:
    base = make_base("llama", torch.float32)
    plain = forward(base).detach()
    fused = adapt(base)
    assert fuse_adapters(fused, cpu("fp32")) == 14
    adapted = forward(fused).detach()
    with fused.disable_adapter():
        assert_close(forward(fused).detach(), plain, 0.0)
    assert not torch.equal(adapted, plain)
    fused.merge_adapter()
    assert_close(forward(fused).detach(), adapted, 1e-5)


def test_an_adapter_of_other_layers() -> None:
    """A second adapter may leave out what the first one has, and have what that one leaves out."""
    model = adapt(make_base("llama", torch.float32), target_modules=["q_proj", "v_proj"])
    torch.manual_seed(3)
    model.add_adapter("other", LoraConfig(r=2, target_modules=["q_proj", "up_proj"], init_lora_weights=False))
    fused, number = fused_copy(model)
    assert number == 4  # v and up of two layers
    for name in ("default", "other"):
        model.set_adapter(name)
        fused.set_adapter(name)
        assert_same(model, fused, 1e-5)


@pytest.mark.parametrize("shape", [(64,), (1, 64), (0, 64), (3, 0, 64), (2, 1, 3, 64)])
@pytest.mark.parametrize("turned", [False, True])
def test_inputs_of_any_shape_and_layout(shape: tuple[int, ...], turned: bool) -> None:
    model = adapt(make_base("llama", torch.float32))
    fused, _ = fused_copy(model)
    torch.manual_seed(4)
    values = torch.randn(shape[::-1]).permute(*reversed(range(len(shape)))) if turned else torch.randn(shape)
    results = []
    for one in (model, fused):
        x = values.clone().requires_grad_()
        layer = one.get_submodule("base_model.model.model.layers.0.self_attn.q_proj")
        output = layer(x)
        output.square().sum().backward()
        results.append([output.detach(), x.grad, *(w.grad for w in layer.parameters() if w.requires_grad)])
    for expected, actual in zip(*results, strict=True):
        torch.testing.assert_close(actual, expected)


def test_activation_checkpointing() -> None:
    model = adapt(make_base("llama", torch.float32))
    fused, _ = fused_copy(model)
    fused.activation_checkpointing_enable({"use_reentrant": False})
    assert_same(model, fused, 1e-5)


def test_layers_that_read_one_tensor_keep_it_once() -> None:
    """Under autocast, PEFT keeps a copy for each of q, k and v and each of gate and up, beside what the base keeps."""

    def kept_bytes(model: Any) -> int:
        storages = {}

        def keep(tensor: Tensor) -> Tensor:
            storages[tensor.untyped_storage().data_ptr()] = tensor  # alive, or its address would be given out again
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            forward(model, "bf16")
        return sum(tensor.untyped_storage().nbytes() for tensor in storages.values())

    model = adapt(make_base("llama", torch.bfloat16))
    fused, _ = fused_copy(model, "bf16")
    of_a_copy = IDS.numel() * SIZES["hidden_size"] * 2
    spared = kept_bytes(model) - kept_bytes(fused)
    assert spared >= 2 * (3 + 2 - 2) * of_a_copy  # two layers; five copies become the two tensors that are read
