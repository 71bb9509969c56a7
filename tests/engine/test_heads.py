"""Our loss (target positions only, in chunks) against the model's own: all logits, cross-entropy, autograd."""

from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch.nn import functional as F
from transformers import (
    AutoModelForCausalLM,
    CohereConfig,
    Gemma2Config,
    GPT2Config,
    GraniteConfig,
    LlamaConfig,
    MistralConfig,
    Qwen2Config,
    Qwen3Config,
    SmolLM3Config,
)

from ftui.engine import heads
from ftui.engine.heads import PLAIN_HEADS, Batch, summed_loss
from ftui.engine.model import load_model
from ftui.profile.model import ModelSection

VOCABULARY, ROWS, LENGTH = 90, 3, 14
SMALL: dict[str, Any] = {
    "vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "initializer_range": 0.3,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
GPT2: dict[str, Any] = {
    "vocab_size": VOCABULARY, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "initializer_range": 0.3,
    "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
# Each in a size that a test can hold; the last three are not plain: they cap or scale their logits.
CONFIGS: dict[str, Any] = {
    "llama": lambda **more: LlamaConfig(**SMALL, **more),
    "mistral": lambda **more: MistralConfig(**SMALL, **more),
    "qwen2": lambda **more: Qwen2Config(**SMALL, **more),
    "qwen3": lambda **more: Qwen3Config(**SMALL, head_dim=8, **more),
    "smollm3": lambda **more: SmolLM3Config(**SMALL, **more),
    "gpt2": lambda **more: GPT2Config(**GPT2, **more),
    "gemma2": lambda **more: Gemma2Config(**SMALL, head_dim=8, final_logit_softcapping=2.0, **more),
    "cohere": lambda **more: CohereConfig(**SMALL, logit_scale=0.5, **more),
    "granite": lambda **more: GraniteConfig(**SMALL, logits_scaling=3.0, **more),
}


def make_model(kind: str, **more: Any) -> Any:
    torch.manual_seed(4)
    return AutoModelForCausalLM.from_config(CONFIGS[kind](**more))


def make_batch() -> tuple[Batch, torch.Tensor, torch.Tensor]:
    """Three padded rows of other lengths and a random half of their tokens as targets; labels and mask say the same."""
    generator = torch.Generator().manual_seed(8)
    ids = torch.randint(3, VOCABULARY, (ROWS, LENGTH), generator=generator)
    mask = torch.arange(LENGTH)[None] < torch.tensor([[LENGTH], [LENGTH - 5], [LENGTH - 2]])
    ids[~mask] = 0
    learned = (torch.rand(ROWS, LENGTH, generator=generator) < 0.5) & mask
    learned[:, 0] = False
    labels = torch.where(learned, ids, -100)
    targets = learned.flatten().nonzero().flatten()
    batch = Batch(ids, None, targets - 1, ids.flatten()[targets], int(mask.sum()))
    return batch, labels, mask


def own_loss(model: Any, batch: Batch, labels: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """As everybody computes it: with a mask for the padding, all logits, labels shifted by one."""
    logits = model(input_ids=batch.input_ids, attention_mask=mask.long()).logits.float()
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), reduction="sum")


def measured(model: Any, loss: torch.Tensor) -> tuple[float, dict[str, torch.Tensor]]:
    model.zero_grad()
    (loss / 7).backward()  # a factor, as the loop divides by the step's weight
    return float(loss.detach()), {n: w.grad.clone() for n, w in model.named_parameters() if w.grad is not None}


def assert_same(model: Any, tolerance: float = 1e-5) -> None:
    batch, labels, mask = make_batch()
    loss, grads = measured(model, summed_loss(model, batch))
    expected, expected_grads = measured(model, own_loss(model, batch, labels, mask))
    assert loss == pytest.approx(expected, rel=tolerance)
    assert grads.keys() == expected_grads.keys()
    largest = max(float(grad.abs().max()) for grad in expected_grads.values())
    assert largest > 1e-2, "there are gradients to compare"
    for name, grad in grads.items():
        torch.testing.assert_close(grad, expected_grads[name], rtol=tolerance, atol=tolerance * largest, msg=name)


def test_every_plain_head_is_tested() -> None:
    assert CONFIGS.keys() >= PLAIN_HEADS


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("kind", CONFIGS)
def test_loss_and_gradients_are_the_models_own(kind: str, tied: bool) -> None:
    assert_same(make_model(kind, tie_word_embeddings=tied))


@pytest.mark.parametrize("kind", ["llama", "gpt2", "gemma2"])
def test_the_same_with_an_adapter(kind: str) -> None:
    config = LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM", fan_in_fan_out=kind == "gpt2")
    model = get_peft_model(make_model(kind), config)
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.1)  # zero at the start, and then the gradients of A would be too
    assert_same(model)


def test_the_same_with_an_adapter_on_the_head() -> None:
    config = LoraConfig(r=4, target_modules=["q_proj", "lm_head"], task_type="CAUSAL_LM")
    model = get_peft_model(make_model("llama", tie_word_embeddings=False), config)
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.1)
    assert_same(model)


def test_a_soft_cap_changes_the_loss() -> None:
    """The control of the tests above: gemma2's cap matters at this size, so a head that forgot it would be found."""
    batch, labels, mask = make_batch()
    capped, free = make_model("gemma2"), make_model("gemma2")
    free.config.final_logit_softcapping = None
    with torch.no_grad():
        assert abs(float(own_loss(capped, batch, labels, mask) - own_loss(free, batch, labels, mask))) > 1e-2


@pytest.mark.parametrize("num_rows", [1, 4, 1000])
def test_chunks_change_nothing(num_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_model("llama", tie_word_embeddings=True)
    batch, _, _ = make_batch()
    assert len(batch.target_ids) % 4 != 0, "the last chunk is a short one"
    whole = measured(model, summed_loss(model, batch))
    monkeypatch.setattr(heads, "CHUNK_BYTES", num_rows * 4 * VOCABULARY)
    calls = 0
    linear = F.linear

    def counted(*arguments: Any) -> torch.Tensor:
        nonlocal calls
        calls += arguments[1].shape[0] == VOCABULARY
        return linear(*arguments)

    monkeypatch.setattr(F, "linear", counted)
    cut = measured(model, summed_loss(model, batch))
    assert calls == -(-len(batch.target_ids) // num_rows)
    assert cut[0] == pytest.approx(whole[0], rel=1e-6)
    for name, grad in cut[1].items():
        torch.testing.assert_close(grad, whole[1][name], rtol=1e-5, atol=1e-6)


def test_a_head_with_a_bias() -> None:
    """No plain head we know has one, but a linear layer may: its gradient is the sum over the positions."""
    model = make_model("llama", tie_word_embeddings=False)
    model.lm_head = torch.nn.Linear(32, VOCABULARY)
    assert_same(model)


@pytest.mark.parametrize("kind", ["llama", "gemma2"])
def test_under_bf16_autocast_the_same_to_one_percent(kind: str) -> None:
    batch, labels, mask = make_batch()
    model = make_model(kind)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss, grads = measured(model, summed_loss(model, batch))
        low, low_grads = measured(model, own_loss(model, batch, labels, mask))
    exact, exact_grads = measured(model, own_loss(model, batch, labels, mask))
    assert loss == pytest.approx(exact, rel=1e-2)
    assert loss == pytest.approx(low, rel=1e-2)
    for name, grad in grads.items():
        size = float(exact_grads[name].norm())
        error, its = float((grad - exact_grads[name]).norm()), float((low_grads[name] - exact_grads[name]).norm())
        assert error <= 1.5 * its + 1e-2 * size, f"{name}: further from fp32 than autocast itself is"


@pytest.mark.parametrize("kind", ["llama", "gemma2"])
def test_evaluation_is_the_same_number_and_makes_no_gradients(kind: str) -> None:
    batch, labels, mask = make_batch()
    model = make_model(kind)
    with torch.no_grad():
        loss = summed_loss(model, batch)
    assert not loss.requires_grad
    assert float(loss) == pytest.approx(float(own_loss(model, batch, labels, mask).detach()), rel=1e-5)


def test_evaluation_never_makes_room_for_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gradient of the head is as large as the head: evaluation must not need that memory, or that time."""

    def refused(*arguments: Any) -> None:
        raise AssertionError("gradients are computed while nothing is learned")

    monkeypatch.setattr(heads, "_add_gradients", refused)
    with torch.no_grad():
        summed_loss(make_model("llama"), make_batch()[0])


@pytest.mark.parametrize("kind", ["llama", "gemma2"])
def test_auto_attention_loads_every_model_type(kind: str, tmp_path: Path) -> None:
    make_model(kind).save_pretrained(tmp_path)
    model = load_model(tmp_path, ModelSection(name_or_path=str(tmp_path)), torch.float32)
    assert model.config.model_type == kind
