"""Our loss (target positions only, in chunks) against the model's own: all logits, cross-entropy, autograd."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch.nn import functional as F
from transformers import (
    AutoModelForCausalLM,
    CohereConfig,
    Gemma2Config,
    Gemma3TextConfig,
    GemmaConfig,
    GPT2Config,
    GptOssConfig,
    GraniteConfig,
    GraniteMoeConfig,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MixtralConfig,
    Olmo2Config,
    OlmoeConfig,
    Phi3Config,
    PhiConfig,
    Qwen2Config,
    Qwen2MoeConfig,
    Qwen3Config,
    Qwen3MoeConfig,
    SmolLM3Config,
    StableLmConfig,
    Starcoder2Config,
)
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.trainer_pt_utils import LabelSmoother

from ftui.engine.data.tokens.encode import Sequence
from ftui.engine.models.joined_rows import check_packing
from ftui.engine.models.load_model import load_model
from ftui.engine.objectives import chunked_head as heads
from ftui.engine.objectives import make_objective
from ftui.engine.objectives.chunked_head import ChunkedCrossEntropy
from ftui.engine.objectives.loss import BALANCED, Batch, cross_entropy
from ftui.engine.training.collate import collate
from ftui.errors import ModelError
from ftui.models.logits import PLAIN_HEADS
from ftui.profile.sections.model import ModelSection
from ftui.runs.events import EvaluationDone
from ftui.runs.journal import Tail
from tests.support.losses import summed_loss
from tests.support.tiny import chats, make_profile, train_run, write_rows

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
EXPERTS: dict[str, Any] = {"num_experts_per_tok": 2, "output_router_logits": True, "router_aux_loss_coef": 0.3}
# Each in a size that a test can hold. The experts ask for their balance loss.
PLAIN: dict[str, Any] = {
    "llama": lambda **more: LlamaConfig(**SMALL, **more),
    "mistral": lambda **more: MistralConfig(**SMALL, sliding_window=6, **more),
    "qwen2": lambda **more: Qwen2Config(**SMALL, **more),
    "qwen3": lambda **more: Qwen3Config(**SMALL, head_dim=8, **more),
    "smollm3": lambda **more: SmolLM3Config(**SMALL, **more),
    "gpt2": lambda **more: GPT2Config(**GPT2, **more),
    "phi": lambda **more: PhiConfig(**SMALL, **more),
    "phi3": lambda **more: Phi3Config(**SMALL, **more),
    "gemma": lambda **more: GemmaConfig(**SMALL, head_dim=8, **more),
    "olmo2": lambda **more: Olmo2Config(**SMALL, **more),
    "starcoder2": lambda **more: Starcoder2Config(**SMALL, embedding_dropout=0.0, residual_dropout=0.0, **more),
    "stablelm": lambda **more: StableLmConfig(**SMALL, **more),
    "mixtral": lambda **more: MixtralConfig(**SMALL, num_local_experts=4, **EXPERTS | more),
    "qwen2_moe": lambda **more: Qwen2MoeConfig(
        **SMALL, num_experts=4, moe_intermediate_size=24, shared_expert_intermediate_size=24, **EXPERTS | more
    ),
    "qwen3_moe": lambda **more: Qwen3MoeConfig(
        **SMALL, num_experts=4, moe_intermediate_size=24, **EXPERTS | more
    ),
    "olmoe": lambda **more: OlmoeConfig(**SMALL, num_experts=4, **EXPERTS | more),
}  # fmt: skip
# They cap or scale their logits, may do so, or are here to prove the way for all others.
OWN_FORWARD: dict[str, Any] = {
    "gemma2": lambda **more: Gemma2Config(**SMALL, head_dim=8, final_logit_softcapping=2.0, sliding_window=6, **more),
    "gemma3_text": lambda **more: Gemma3TextConfig(**SMALL, head_dim=8, sliding_window=6, **more),
    "cohere": lambda **more: CohereConfig(**SMALL, logit_scale=0.5, **more),
    "granite": lambda **more: GraniteConfig(**SMALL, logits_scaling=3.0, **more),
    "gpt_oss": lambda **more: GptOssConfig(
        **SMALL, num_local_experts=4, head_dim=8, sliding_window=6, **EXPERTS | more
    ),
    "granitemoe": lambda **more: GraniteMoeConfig(**SMALL, logits_scaling=3.0, num_local_experts=4, **EXPERTS | more),
}  # fmt: skip
CONFIGS = PLAIN | OWN_FORWARD
ROUTED = ["mixtral", "qwen2_moe", "qwen3_moe", "olmoe", "gpt_oss", "granitemoe"]


def make_model(kind: str, **more: Any) -> Any:
    torch.manual_seed(4)
    return AutoModelForCausalLM.from_config(CONFIGS[kind](**more))


def make_batch() -> tuple[Batch, torch.Tensor, torch.Tensor]:
    """Three padded rows of other lengths and a random half of their tokens as targets; labels and mask say the same."""
    generator = torch.Generator().manual_seed(8)
    ids = torch.randint(3, VOCABULARY, (ROWS, LENGTH), generator=generator)
    mask = torch.arange(LENGTH)[None] < torch.tensor([[LENGTH], [LENGTH - 5], [LENGTH - 2]])
    ids[~mask] = 0
    trained = (torch.rand(ROWS, LENGTH, generator=generator) < 0.5) & mask
    trained[:, 0] = False
    labels = torch.where(trained, ids, -100)
    targets = trained.flatten().nonzero().flatten()
    batch = Batch(ids, None, targets - 1, ids.flatten()[targets], {"tokens": int(mask.sum())}, mask.sum(dim=1))
    return batch, labels, mask


def own_loss(
    model: Any, batch: Batch, labels: torch.Tensor, mask: torch.Tensor, label_smoothing: float = 0.0
) -> torch.Tensor:
    """As everybody computes it: with a mask for the padding, all logits, labels shifted by one."""
    logits = model(input_ids=batch.input_ids, attention_mask=mask.long()).logits.float()
    shifted = logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten()
    return F.cross_entropy(*shifted, reduction="sum", label_smoothing=label_smoothing)


def called_with_labels(model: Any, batch: Batch, labels: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The loss the model itself gives: a mean over the targets, the balance of its experts in it."""
    loss: torch.Tensor = model(input_ids=batch.input_ids, attention_mask=mask.long(), labels=labels).loss
    return loss * len(batch.target_ids)


def measured(model: Any, loss: torch.Tensor) -> tuple[float, dict[str, torch.Tensor]]:
    model.zero_grad()
    (loss / 7).backward()  # a factor, as the loop divides by the step's weight
    return float(loss.detach()), {n: w.grad.clone() for n, w in model.named_parameters() if w.grad is not None}


def assert_same(model: Any, tolerance: float = 1e-5) -> None:
    batch, labels, mask = make_batch()
    assert_equal(
        model, measured(model, summed_loss(model, batch)),
        measured(model, called_with_labels(model, batch, labels, mask)), tolerance,
    )  # fmt: skip


def assert_equal(model: Any, found: Any, expected: Any, tolerance: float = 1e-5) -> None:
    (loss, grads), (own, own_grads) = found, expected
    assert loss == pytest.approx(own, rel=tolerance)
    assert grads.keys() == own_grads.keys()
    assert len(grads) == sum(weight.requires_grad for weight in model.parameters()), "every parameter is compared"
    largest = max(float(grad.abs().max()) for grad in own_grads.values())
    assert largest > 1e-2, "there are gradients to compare"
    for name, grad in grads.items():
        torch.testing.assert_close(grad, own_grads[name], rtol=tolerance, atol=tolerance * largest, msg=name)


def test_every_plain_head_is_tested() -> None:
    assert PLAIN.keys() == PLAIN_HEADS
    assert set(ROUTED) >= BALANCED


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("kind", CONFIGS)
def test_loss_and_gradients_are_the_models_own(kind: str, tied: bool) -> None:
    assert_same(make_model(kind, tie_word_embeddings=tied))


def alone(packed: Batch, lengths: list[int]) -> list[Batch]:
    """The sequences of the one row of a packed batch, each a batch of its own."""
    batches, start = [], 0
    for length in lengths:
        inside = (packed.predictors >= start) & (packed.predictors < start + length)
        batches.append(
            Batch(
                packed.input_ids[:, start : start + length], None, packed.predictors[inside] - start,
                packed.target_ids[inside], {"tokens": length},
            )
        )  # fmt: skip
        start += length
    return batches


@pytest.mark.parametrize("kind", [kind for kind in CONFIGS if kind != "gpt_oss"])
def test_a_packed_row_is_its_sequences(kind: str) -> None:
    """The balance of experts is one of a whole micro-batch, so here it is left out."""
    chance, lengths = np.random.default_rng(5), [9, 4, 7]
    row = [Sequence(chance.integers(3, VOCABULARY, n).astype(np.int32), chance.random(n) < 0.7) for n in lengths]
    model = make_model(kind, **({"output_router_logits": False} if kind in ROUTED else {}))
    check_packing(model)
    packed = collate([row], 0)
    apart = torch.stack([summed_loss(model, batch) for batch in alone(packed, lengths)]).sum()
    assert_equal(model, measured(model, summed_loss(model, packed)), measured(model, apart))


def test_a_type_that_mixes_packed_rows_is_refused() -> None:
    """transformers 5.24 makes gpt_oss's masks without its positions."""
    with pytest.raises(ModelError, match="see each other"):
        check_packing(make_model("gpt_oss"))


@pytest.mark.parametrize("kind", ROUTED)
def test_the_balance_of_experts_is_trained_and_not_evaluated(kind: str) -> None:
    model, (batch, labels, mask) = make_model(kind), make_batch()
    plain = float(own_loss(model, batch, labels, mask).detach())
    assert abs(float(summed_loss(model, batch).detach()) - plain) > 1e-2 * plain
    with torch.no_grad():
        assert float(summed_loss(model, batch)) == pytest.approx(plain, rel=1e-5)
    model.config.output_router_logits = False
    assert float(summed_loss(model, batch).detach()) == pytest.approx(plain, rel=1e-5)


@pytest.mark.parametrize("kind", ROUTED)
def test_the_balance_has_the_weight_of_the_targets(kind: str) -> None:
    """Twice the same rows: twice the loss, as for the cross-entropy. So a step is the mean of its micro-batches."""
    model, (batch, _, _) = make_model(kind), make_batch()
    assert batch.lengths is not None
    twice = Batch(
        batch.input_ids.repeat(2, 1), None, torch.cat([batch.predictors, batch.predictors + batch.input_ids.numel()]),
        batch.target_ids.repeat(2), {"tokens": 2 * batch.num_tokens}, batch.lengths.repeat(2),
    )  # fmt: skip
    once = float(summed_loss(model, batch).detach())
    assert float(summed_loss(model, twice).detach()) == pytest.approx(2 * once, rel=1e-5)


@pytest.mark.parametrize("kind", ["llama", "cohere"])
def test_flash_attention_gets_packed_rows_as_one(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several rows it would not look at the positions. Here another kernel plays its part, in that too."""
    shapes: list[int] = []

    def kernel(module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, _: Any, **options: Any) -> Any:
        rows, _, length, _ = query.shape
        shapes.append(rows)
        mask = torch.ones(length, length, dtype=torch.bool).tril()
        if rows == 1:
            sequence = (options["position_ids"][0] == 0).cumsum(0)
            mask &= sequence[:, None] == sequence
        return ALL_ATTENTION_FUNCTIONS["sdpa"](module, query, key, value, mask[None, None], **options)

    monkeypatch.setitem(ALL_ATTENTION_FUNCTIONS._local_mapping, "flash_played", kernel)
    monkeypatch.setitem(ALL_MASK_ATTENTION_FUNCTIONS._local_mapping, "flash_played", lambda *_, **__: None)
    chance = np.random.default_rng(5)
    rows = [
        [Sequence(chance.integers(3, VOCABULARY, n).astype(np.int32), chance.random(n) < 0.7) for n in lengths]
        for lengths in ([5, 4], [3, 9], [6])
    ]
    model, batch = make_model(kind), collate(rows, 0)
    model.set_attn_implementation("sdpa")
    expected = measured(model, summed_loss(model, batch))
    model.config._attn_implementation = "flash_played"
    assert_equal(model, measured(model, summed_loss(model, batch)), expected)
    assert set(shapes) == {1}


@pytest.mark.parametrize("kind", ["llama", "gpt2", "phi", "gemma2", "mixtral"])
def test_smoothed_labels_are_those_of_torch(kind: str) -> None:
    model = make_model(kind, **({"output_router_logits": False} if kind in ROUTED else {}))
    batch, labels, mask = make_batch()
    found = measured(model, summed_loss(model, batch, 0.2))
    assert_equal(model, found, measured(model, own_loss(model, batch, labels, mask, 0.2)))
    plain = float(own_loss(model, batch, labels, mask).detach())
    assert abs(found[0] - plain) > 1e-3 * plain
    with torch.no_grad():
        assert float(summed_loss(model, batch, 0.2)) == pytest.approx(plain, rel=1e-5), "an evaluation smooths nothing"


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("kind", ["llama", "gpt2", "gemma2"])
def test_right_targets_are_counted(kind: str, smoothing: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """As argmax over whole logits has them, in chunks of a few positions; smoothing is not in `nats`."""
    monkeypatch.setattr("ftui.engine.objectives.chunked_head.CHUNK_BYTES", 4 * VOCABULARY * 5)
    model, (batch, _, mask) = make_model(kind), make_batch()
    with torch.no_grad():
        logits = model(input_ids=batch.input_ids, attention_mask=mask.long()).logits.flatten(0, 1)[batch.predictors]
    batch.target_ids[::3] = logits.argmax(-1)[::3]  # a third of them at least is right
    found = cross_entropy(model, batch, smoothing)
    num_right = int((logits.argmax(-1) == batch.target_ids).sum())
    assert 0 < num_right < len(batch.target_ids)
    assert float(found.num_right) == num_right
    nats = F.cross_entropy(logits.float(), batch.target_ids, reduction="sum")
    assert float(found.nats) == pytest.approx(float(nats), rel=1e-5)
    assert not found.nats.requires_grad and not found.num_right.requires_grad


def test_smoothed_labels_are_those_of_transformers() -> None:
    model, (batch, labels, mask) = make_model("llama"), make_batch()
    outputs = model(input_ids=batch.input_ids, attention_mask=mask.long())
    theirs = LabelSmoother(epsilon=0.3)(outputs, labels, shift_labels=True) * len(batch.target_ids)
    assert float(summed_loss(model, batch, 0.3).detach()) == pytest.approx(float(theirs.detach()), rel=1e-5)


def test_a_stage_smooths_as_the_profile_says() -> None:
    model, (batch, _, _) = make_model("llama"), make_batch()
    for name in ("sft", "pretrain"):
        profile = make_profile(Path("model"), Path("rows"), run={"stage": name}, train={"label_smoothing_factor": 0.2})
        objective = make_objective(profile)
        (loss,) = objective.loss(model, batch).sums.values()
        assert float(loss.detach()) == float(summed_loss(model, batch, 0.2).detach())
        assert (objective.name, objective.per) == (name, "targets")


def test_a_run_smooths_its_training_and_not_its_evaluation(model_folder: Path, tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", chats(24))
    losses, evaluations = [], []
    for factor in (0.0, 0.3):
        profile = make_profile(
            model_folder, rows, data={"eval_num_rows": 4}, eval={"eval_strategy": "steps", "eval_steps": 1},
            train={"max_steps": 1, "per_device_train_batch_size": 20, "label_smoothing_factor": factor},
        )  # fmt: skip
        run = tmp_path / str(factor)
        losses.append(train_run(run, profile)[0].loss)
        evaluations.append(next(e.loss for e in Tail(run / "journal.jsonl").read() if isinstance(e, EvaluationDone)))
    assert losses[0] != pytest.approx(losses[1], rel=1e-5)
    assert evaluations[0] == evaluations[1], "before the first step both are the same model"


def test_a_foreign_head_of_a_known_type_is_not_trusted() -> None:
    """Code from a repository may call itself llama and scale its logits all the same."""

    class Scaled(LlamaForCausalLM):
        def forward(self, *arguments: Any, **options: Any) -> Any:
            outputs = super().forward(*arguments, **options)
            outputs.logits = outputs.logits * 3
            return outputs

    batch, labels, mask = make_batch()
    model = Scaled(PLAIN["llama"]())
    assert_equal(
        model, measured(model, summed_loss(model, batch)), measured(model, own_loss(model, batch, labels, mask))
    )


def test_a_model_that_makes_all_logits_anyway() -> None:
    class Deaf(LlamaForCausalLM):
        def forward(self, *arguments: Any, logits_to_keep: Any = 0, **options: Any) -> Any:
            return super().forward(*arguments, **options)

    model = Deaf(PLAIN["llama"]())
    batch, labels, mask = make_batch()
    few = Batch(batch.input_ids, None, batch.predictors[:2], batch.target_ids[:2], batch.amounts)
    kept = torch.full_like(labels, -100).flatten()
    kept[few.predictors + 1] = few.target_ids
    assert_equal(
        model, measured(model, summed_loss(model, few)),
        measured(model, own_loss(model, few, kept.reshape(labels.shape), mask)),
    )  # fmt: skip


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


def operands(confidence: float, weight_size: float = 0.05) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Hidden states (64, 32) that tell their target the surer the larger `confidence`, a head (500, 32), targets."""
    torch.manual_seed(0)
    weight = torch.randn(500, 32) * weight_size
    ids = torch.randint(0, 500, (64,))
    return (F.normalize(weight[ids] - weight.mean(0), dim=1) * confidence).half(), weight.half(), ids


def gradients(loss: Any, hidden: torch.Tensor, weight: torch.Tensor, dtype: torch.dtype, scale: float) -> Any:
    """Of `loss(hidden, weight)` times `scale` under autocast, divided by `scale`: what a step of the run is made of."""
    leaves = [hidden.clone().requires_grad_(), weight.clone().requires_grad_()]
    with torch.autocast("cpu", dtype=dtype, enabled=dtype != torch.float32):
        summed = loss(*leaves)
    (summed * scale).backward()
    return [leaf.grad.float() / scale for leaf in leaves if leaf.grad is not None]


@pytest.mark.parametrize("confidence", [1.0, 60.0, 90.0, 120.0])
@pytest.mark.parametrize("stored", [torch.float16, torch.float32], ids=["stored in 16", "stored in 32"])
def test_small_gradients_survive_in_fp16_as_in_autograd(confidence: float, stored: torch.dtype) -> None:
    hidden, weight, ids = operands(confidence)
    hidden, weight, scale = hidden.to(stored), weight.to(stored), 65536.0 / 64

    def ours(hidden: torch.Tensor, weight: torch.Tensor) -> Any:
        return ChunkedCrossEntropy.apply(hidden, weight, None, ids, 0.0)[0]  # type: ignore[no-untyped-call]

    def own(hidden: torch.Tensor, weight: torch.Tensor) -> Any:
        return F.cross_entropy(F.linear(hidden, weight).float(), ids, reduction="sum")

    exact = gradients(own, hidden.float(), weight.float(), torch.float32, 1.0)
    theirs = gradients(own, hidden, weight, torch.float16, scale)
    for found, low, true in zip(gradients(ours, hidden, weight, torch.float16, scale), theirs, exact, strict=True):
        size = float(true.norm())
        assert size > 0
        error, its = float((found - true).norm()) / size, float((low - true).norm()) / size
        assert error <= 1.1 * its + 5e-4, f"{error:.1e} against autograd's {its:.1e}"
        lost, its_lost = ((found == 0) & (true != 0)).sum(), ((low == 0) & (true != 0)).sum()
        assert lost <= its_lost


@pytest.mark.parametrize("weight_size", [1e-3, 1.0, 20.0])
@pytest.mark.parametrize("hidden_size", [1e-2, 1.0, 300.0])
def test_gradients_in_fp16_do_not_overflow_before_they_are_scaled(weight_size: float, hidden_size: float) -> None:
    """Many rows that all push the same way, a head and hidden states of any size; compared with float32."""
    torch.manual_seed(0)
    logits, ids = torch.randn(2000, 50), torch.zeros(2000, dtype=torch.long)
    hidden, weight = torch.full((2000, 8), hidden_size).half(), torch.full((50, 8), weight_size).half()
    grad = heads._output_gradient(logits.softmax(-1), ids)
    pair: Any = [[torch.zeros(2000, 8), torch.zeros(50, 8), torch.zeros(50)] for _ in range(2)]
    found, exact = pair
    heads._add_gradients(found, slice(0, 2000), hidden, weight, grad, torch.float16)
    heads._add_gradients(exact, slice(0, 2000), hidden, weight, grad, torch.float32)
    bounds = (grad.abs() @ weight.float().abs(), grad.abs().T @ hidden.float().abs())
    for one, other, bound in zip(found, exact, bounds, strict=False):
        assert float(((one - other).abs() / bound).max()) < 2**-10


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_other_types_are_narrowed_as_autograd_does(dtype: torch.dtype) -> None:
    hidden, weight, ids = (tensor.to(dtype) if tensor.is_floating_point() else tensor for tensor in operands(8.0))
    narrow = heads._output_gradient(F.linear(hidden, weight).float().log_softmax(-1).exp(), ids).to(dtype)
    expected = [(narrow @ weight).float().to(dtype).mul_(0.25), (narrow.T @ hidden).float().to(dtype).mul_(0.25)]
    leaves = [hidden.clone().requires_grad_(), weight.clone().requires_grad_()]
    loss: Any = ChunkedCrossEntropy.apply(*leaves, None, ids, 0.0)[0]  # type: ignore[no-untyped-call]
    (loss * 0.25).backward()
    assert all(
        leaf.grad is not None and torch.equal(leaf.grad, own) for leaf, own in zip(leaves, expected, strict=True)
    )


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
        raise AssertionError("gradients are computed while nothing is trained")

    monkeypatch.setattr(heads, "_add_gradients", refused)
    with torch.no_grad():
        summed_loss(make_model("llama"), make_batch()[0])


@pytest.mark.parametrize("kind", ["llama", "gemma2"])
def test_auto_attention_loads_every_model_type(kind: str, tmp_path: Path) -> None:
    make_model(kind).save_pretrained(tmp_path)
    model = load_model(tmp_path, ModelSection(name_or_path=str(tmp_path)), torch.float32)
    assert model.config.model_type == kind
