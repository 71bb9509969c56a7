"""Our log-probabilities against those of all the model's logits in float64, and their gradients against autograd's."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakTensorKeyDictionary
from transformers import AutoModelForCausalLM, Gemma2Config, GPT2Config, LlamaConfig, MixtralConfig

from ftui.engine.data.tokens.encode import Sequence
from ftui.engine.objectives import chunked_head, make_objective
from ftui.engine.objectives.chunked_head import ChunkedLogProbs
from ftui.engine.objectives.log_probs import target_log_probs
from ftui.engine.objectives.loss import Batch
from ftui.engine.objectives.pair_losses import PAIR_LOSSES, LossSettings
from ftui.engine.objectives.pair_stages import make_pairs
from ftui.engine.training.collate import collate
from tests.support.losses import summed_loss
from tests.support.tiny import make_profile

VOCABULARY, LENGTHS = 90, (14, 9, 12)
SMALL: dict[str, Any] = {
    "vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1,
    "num_attention_heads": 4, "num_key_value_heads": 2, "initializer_range": 0.2,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
CONFIGS: dict[str, Any] = {
    "llama": lambda: LlamaConfig(**SMALL, tie_word_embeddings=False),
    "tied llama": lambda: LlamaConfig(**SMALL, tie_word_embeddings=True),
    "gpt2": lambda: GPT2Config(
        vocab_size=VOCABULARY, n_embd=32, n_layer=1, n_head=4, n_positions=64, initializer_range=0.2,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=1, eos_token_id=2,
    ),
    "gemma2": lambda: Gemma2Config(**SMALL, head_dim=8, final_logit_softcapping=2.0, sliding_window=6),
}  # fmt: skip


def make_model(kind: str) -> Any:
    torch.manual_seed(4)
    return AutoModelForCausalLM.from_config(CONFIGS[kind]())


def make_batch() -> Batch:
    """Three padded rows; about half of their tokens are targets."""
    chance = np.random.default_rng(8)
    rows = [Sequence(chance.integers(3, VOCABULARY, n).astype(np.int32), chance.random(n) < 0.6) for n in LENGTHS]
    return collate([[row] for row in rows], 0)


def own_log_probs(model: Any, batch: Batch) -> torch.Tensor:
    """(targets, vocabulary), as everybody computes them: all logits of padded rows, then log-softmax."""
    assert batch.lengths is not None
    mask = torch.arange(batch.input_ids.shape[1])[None] < batch.lengths[:, None]
    logits: torch.Tensor = model(input_ids=batch.input_ids, attention_mask=mask.long()).logits
    return logits.flatten(0, 1)[batch.predictors].float().log_softmax(-1)


def gradients(model: Any, log_probs: torch.Tensor) -> dict[str, torch.Tensor]:
    """Those of a sum in which every target has a factor of its own."""
    model.zero_grad()
    factors = torch.linspace(-1.0, 2.0, len(log_probs))
    (log_probs * factors).sum().backward()
    return {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}


def assert_same(model: Any, tolerance: float = 1e-5) -> None:
    batch = make_batch()
    values = target_log_probs(model, batch).values
    own = own_log_probs(model, batch).gather(1, batch.target_ids[:, None]).squeeze(1)
    assert values.dtype == torch.float32
    torch.testing.assert_close(values.detach(), own.detach(), rtol=2e-6, atol=2e-6)
    grads, expected = gradients(model, values), gradients(model, own)
    assert grads.keys() == expected.keys()
    largest = max(float(grad.abs().max()) for grad in expected.values())
    assert largest > 1e-2, "there are gradients to compare"
    for name, grad in grads.items():
        torch.testing.assert_close(grad, expected[name], rtol=tolerance, atol=tolerance * largest, msg=name)


def freeze_head(model: Any) -> None:
    model.get_output_embeddings().requires_grad_(False)


@pytest.mark.parametrize("frozen", [True, False], ids=["frozen head", "trained head"])
@pytest.mark.parametrize("kind", CONFIGS)
def test_values_and_gradients_are_those_of_all_logits(kind: str, frozen: bool) -> None:
    model = make_model(kind)
    if frozen:
        freeze_head(model)
    assert_same(model)


@pytest.mark.parametrize("trained", ["weight", "bias", "weight and bias", "none"])
def test_a_head_with_a_bias(trained: str) -> None:
    model = make_model("llama")
    model.lm_head = torch.nn.Linear(32, VOCABULARY)
    for name, parameter in model.lm_head.named_parameters():
        parameter.requires_grad_(name in trained)
    assert_same(model)


@pytest.mark.parametrize("target", ["all-linear", ["q_proj", "lm_head"]], ids=["body", "body and head"])
def test_the_same_with_an_adapter(target: Any) -> None:
    model = get_peft_model(make_model("llama"), LoraConfig(r=4, target_modules=target, task_type="CAUSAL_LM"))
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.1)  # zero at the start, and then the gradients of A would be too
    assert_same(model)


@pytest.mark.parametrize("num_rows", [1, 5, 1000])
@pytest.mark.parametrize("frozen", [True, False], ids=["frozen head", "trained head"])
@pytest.mark.parametrize("kind", ["llama", "tied llama"])
def test_chunks_change_nothing(kind: str, frozen: bool, num_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_model(kind)
    if frozen:
        freeze_head(model)
    assert len(make_batch().target_ids) % 5 != 0, "the last chunk is a short one"
    monkeypatch.setattr(chunked_head, "CHUNK_BYTES", num_rows * 4 * VOCABULARY)
    assert_same(model)


@pytest.mark.parametrize("kind", CONFIGS)
def test_entropies_and_squares_are_those_of_float64(kind: str) -> None:
    model, batch = make_model(kind), make_batch()
    facts = target_log_probs(model, batch, entropy=True, squares=True)
    logs = own_log_probs(model, batch).detach().double()
    probs = logs.exp()
    assert facts.entropy is not None and facts.squares is not None
    assert not facts.entropy.requires_grad and not facts.squares.requires_grad
    torch.testing.assert_close(facts.entropy.double(), -(probs * logs).sum(1), rtol=2e-6, atol=2e-6)
    torch.testing.assert_close(facts.squares.double(), (probs**2).sum(1).log(), rtol=2e-6, atol=2e-6)
    bare = target_log_probs(model, batch)
    assert bare.entropy is None and bare.squares is None
    assert torch.equal(bare.values, facts.values)
    grads, expected = gradients(model, facts.values), gradients(model, bare.values)
    assert all(torch.equal(grads[name], expected[name]) for name in expected)


@pytest.mark.parametrize(
    ("kind", "precision"),
    [*((kind, "fp32") for kind in CONFIGS), ("llama", "bf16"), ("tied llama", "fp16"), ("gemma2", "bf16")],
)
def test_a_new_adapter_has_the_bits_of_its_reference(kind: str, precision: str) -> None:
    """So rewards are exactly 0 at the first step."""
    config = LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM", fan_in_fan_out=kind == "gpt2")
    model, batch = get_peft_model(make_model(kind), config), make_batch()
    dtype = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}[precision]
    with torch.autocast("cpu", dtype=dtype, enabled=dtype is not None):
        policy = target_log_probs(model, batch).values
        with torch.no_grad(), model.disable_adapter():
            reference = target_log_probs(model, batch).values
    assert policy.requires_grad and not reference.requires_grad
    assert torch.equal(policy, reference)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("frozen", [True, False], ids=["frozen head", "trained head"])
@pytest.mark.parametrize("kind", ["llama", "gemma2"])
def test_under_autocast_no_further_from_float32_than_autograd(kind: str, frozen: bool, dtype: torch.dtype) -> None:
    model, batch = make_model(kind), make_batch()
    if frozen:
        freeze_head(model)

    def own() -> torch.Tensor:
        return own_log_probs(model, batch).gather(1, batch.target_ids[:, None]).squeeze(1)

    with torch.autocast("cpu", dtype=dtype):
        values, low = target_log_probs(model, batch).values, own()
    assert values.dtype == torch.float32
    exact = own()
    distance, least = (float((value - exact).detach().abs().max()) for value in (values, low))
    assert distance <= 1.2 * least + 1e-3
    found, theirs, true = gradients(model, values), gradients(model, low), gradients(model, exact)
    for name, grad in found.items():
        size = float(true[name].norm())
        error, its = float((grad - true[name]).norm()), float((theirs[name] - true[name]).norm())
        assert error <= 1.5 * its + 1e-2 * size, name


@pytest.mark.parametrize("trained", [False, True], ids=["frozen head", "trained head"])
@pytest.mark.parametrize("confidence", [1.0, 60.0, 120.0])
def test_small_gradients_survive_in_fp16_as_in_autograd(confidence: float, trained: bool) -> None:
    """Of targets that are nearly certain; a loss scale and each target's own factor come from above."""
    torch.manual_seed(0)
    weight, ids = torch.randn(500, 32) * 0.05, torch.randint(0, 500, (64,))
    hidden = F.normalize(weight[ids] - weight.mean(0), dim=1) * confidence
    factors = torch.linspace(0.1, 1.0, 64)

    def own(hidden: torch.Tensor, head: torch.Tensor) -> torch.Tensor:
        return F.linear(hidden, head).float().log_softmax(-1).gather(1, ids[:, None]).squeeze(1)

    def ours(hidden: torch.Tensor, head: torch.Tensor) -> Any:
        return ChunkedLogProbs.apply(hidden, head, None, ids, False, False)[0]  # type: ignore[no-untyped-call]

    def gradients(log_probs: Any, dtype: torch.dtype, scale: float) -> list[torch.Tensor]:
        leaves = [hidden.half().to(dtype).requires_grad_(), weight.half().to(dtype).requires_grad_(trained)]
        with torch.autocast("cpu", dtype=torch.float16, enabled=dtype == torch.float16):
            values = log_probs(*leaves)
        (values * factors * scale).sum().backward()
        return [leaf.grad.float() / scale for leaf in leaves if leaf.grad is not None]

    exact = gradients(own, torch.float32, 1.0)
    found, theirs = gradients(ours, torch.float16, 1024.0), gradients(own, torch.float16, 1024.0)
    for grad, low, true in zip(found, theirs, exact, strict=True):
        size = float(true.norm())
        error, its = float((grad - true).norm()) / size, float((low - true).norm()) / size
        assert error <= 1.1 * its + 5e-4, f"{error:.1e} against autograd's {its:.1e}"
        lost, its_lost = ((grad == 0) & (true != 0)).sum(), ((low == 0) & (true != 0)).sum()
        assert lost <= 1.05 * its_lost


class Sizes(TorchDispatchMode):
    """Remembers the elements of the largest tensor that an operation gave back, and of all that were alive at once."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.largest = self.together = 0
        self._alive: WeakTensorKeyDictionary = WeakTensorKeyDictionary()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **kwargs or {})
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor) and leaf.data_ptr() not in {one.data_ptr() for one in self._alive}:
                self._alive[leaf] = None
                self.largest = max(self.largest, leaf.numel())
        self.together = max(self.together, sum(one.numel() for one in self._alive))
        return result


@pytest.mark.parametrize("facts", [False, True], ids=["log-probabilities", "all"])
@pytest.mark.parametrize("kind", ["training, frozen head", "training, trained head", "evaluation"])
def test_no_more_than_a_chunk_of_logits_is_made(kind: str, facts: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    vocabulary, targets, width, chunk = 1000, 200, 8, 20
    monkeypatch.setattr(chunked_head, "CHUNK_BYTES", chunk * 4 * vocabulary)
    torch.manual_seed(0)
    head, hidden = torch.nn.Linear(width, vocabulary, bias=False), torch.randn(targets, width, requires_grad=True)
    head.requires_grad_("trained" in kind)
    ids, sizes, own = torch.randint(0, vocabulary, (targets,)), Sizes(), Sizes()
    with sizes, torch.set_grad_enabled(kind != "evaluation"):
        found = chunked_head.chunked_log_probs(head, hidden, ids, entropy=facts, squares=facts)
        if kind != "evaluation":
            found.log_probs.sum().backward()
    assert sizes.largest == chunk * vocabulary
    assert sizes.together < (5 if facts else 3) * chunk * vocabulary, "logits, their log-softmax; small ones"
    with own:
        torch.log_softmax(F.linear(hidden, head.weight), -1)
    assert own.largest == targets * vocabulary, "the measure would see it"


STAGES: dict[str, dict[str, Any]] = {
    "dpo": {"loss_type": ["sigmoid", "sft"], "use_weighting": True, "ld_alpha": 0.5},
    "orpo": {}, "simpo": {}, "cpo": {}, "kto": {},
}  # fmt: skip


@pytest.mark.parametrize("is_frozen", [True, False], ids=["frozen head", "trained head"])
@pytest.mark.parametrize("stage", STAGES)
def test_no_stage_makes_more_than_a_chunk_of_logits(
    stage: str, is_frozen: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The largest tensor, and all that is alive at once beside what the body keeps, in a step and its backward pass."""
    vocabulary, chunk = 3000, 40
    monkeypatch.setattr(chunked_head, "CHUNK_BYTES", chunk * 4 * vocabulary)
    torch.manual_seed(4)
    config = LlamaConfig(**SMALL | {"vocab_size": vocabulary, "hidden_size": 16}, tie_word_embeddings=False)
    model = AutoModelForCausalLM.from_config(config)
    model.requires_grad_(not is_frozen)
    model.model.layers.requires_grad_(True)
    chance = np.random.default_rng(8)
    rows = [Sequence(chance.integers(3, vocabulary, 90).astype(np.int32), np.arange(90) > 20) for _ in range(8)]
    rows = [replace(row, label=(1, -1)[number % 2]) for number, row in enumerate(rows)]
    batch = collate([[row] for row in rows], 0, 1 if stage == "kto" else 2)
    batch.reference = torch.full((len(batch.target_ids),), -8.0)
    objective = make_objective(make_profile(tmp_path, tmp_path, run={"stage": stage}, preference=STAGES[stage]))
    body, sizes = Sizes(), Sizes()
    with body:
        model.model(input_ids=batch.input_ids).last_hidden_state.sum().backward()
    model.zero_grad()
    with sizes:
        loss = objective.loss(model, batch)
        torch.stack([value / batch.amounts[name] for name, value in loss.sums.items()]).sum().backward()
    assert len(batch.target_ids) > 10 * chunk
    assert sizes.largest == chunk * vocabulary
    weights = 0 if is_frozen else 2 * vocabulary * 16  # the head's gradient, in float32 and in its own type
    assert sizes.together - body.together < 4 * chunk * vocabulary + weights


def test_sums_of_answers_are_beyond_float16() -> None:
    """trl#878, trl#2553: log-probabilities in half precision become infinite, and their differences NaN."""
    model = make_model("llama")
    with torch.no_grad():
        model.lm_head.weight *= 3000
    chance = np.random.default_rng(8)
    rows = [
        [Sequence(chance.integers(3, VOCABULARY, n).astype(np.int32), np.arange(n) > 2, label=label)]
        for n, label in ((60, 1), (90, -1))
    ]
    batch = collate(rows, 0, 2)
    with torch.autocast("cpu", dtype=torch.float16):
        log_probs = target_log_probs(model, batch).values
    pairs = make_pairs(log_probs, batch)
    assert float(pairs.rejected.detach()) < -torch.finfo(torch.float16).max
    batch.reference = log_probs.detach() + 0.5
    for name, loss in PAIR_LOSSES.items():
        own = make_pairs(log_probs, batch)
        values = loss(own, LossSettings(label_smoothing=0.1))
        assert values.isfinite().all(), name
        (grad,) = torch.autograd.grad(values.sum(), model.lm_head.weight, retain_graph=True)
        assert grad.isfinite().all(), name


def test_evaluation_never_makes_room_for_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*arguments: Any) -> None:
        raise AssertionError("gradients are computed while nothing is trained")

    monkeypatch.setattr(chunked_head, "_add_gradients", refused)
    with torch.no_grad():
        assert not target_log_probs(make_model("llama"), make_batch()).values.requires_grad


def test_no_targets_no_values() -> None:
    model, batch = make_model("llama"), make_batch()
    empty = torch.zeros(0, dtype=torch.long)
    values = target_log_probs(model, replace(batch, predictors=empty, target_ids=empty)).values
    assert values.shape == (0,)
    values.sum().backward()


def test_the_balance_of_experts_comes_with_them() -> None:
    torch.manual_seed(4)
    config = MixtralConfig(
        **SMALL, num_local_experts=4, num_experts_per_tok=2, output_router_logits=True, router_aux_loss_coef=0.3
    )
    model, batch = AutoModelForCausalLM.from_config(config), make_batch()
    facts, number = target_log_probs(model, batch), len(batch.target_ids)
    assert facts.balance is not None and facts.balance.requires_grad
    whole = float((number * facts.balance - facts.values.sum()).detach())
    assert whole == pytest.approx(float(summed_loss(model, batch).detach()), rel=1e-6)
    with torch.no_grad():
        assert target_log_probs(model, batch).balance is None
