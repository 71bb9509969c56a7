"""Losses of sampled answers and their gradients against TRL's GRPO trainer: the same tokens, the same weights."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from accelerate.state import AcceleratorState, GradientState
from datasets import Dataset
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from ftui.engine.data.tokens.encode import Sequence
from ftui.engine.objectives.log_probs import target_log_probs
from ftui.engine.objectives.loss import Batch
from ftui.engine.objectives.policy_losses import PolicySettings, SampledAnswers, policy_loss, policy_metrics
from ftui.engine.training.collate import collate
from tests.support.tiny import make_tokenizer

pytestmark = pytest.mark.slow

PROMPT, LENGTHS, LONGEST, TEMPERATURE = 5, (7, 3, 1, 6), 8, 0.7
KINDS = [(loss, level) for loss in ("grpo", "dapo", "dr_grpo", "bnpo") for level in ("token", "sequence")]
NUMBERS: list[dict[str, Any]] = [
    {},
    {"beta": 0.2, "epsilon": 0.02, "epsilon_high": 0.05},
    {"epsilon": 0.5, "delta": 1.02},
    {"beta": 0.2, "use_bias_correction_kl": False},
]


@pytest.fixture(scope="module", autouse=True)
def fresh_accelerate() -> Iterator[None]:
    """In place of the one for each test: this trainer lives as long as its module."""
    yield
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()


def no_reward(completions: list[str], **columns: Any) -> list[float | None]:
    return [0.0] * len(completions)


@pytest.fixture(scope="module")
def trainer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    from trl.trainer.grpo_config import GRPOConfig
    from trl.trainer.grpo_trainer import GRPOTrainer

    folder, tokenizer = tmp_path_factory.mktemp("model"), make_tokenizer()
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64, initializer_range=0.2, tie_word_embeddings=False,
        pad_token_id=tokenizer.pad_token_id, eos_token_id=tokenizer.eos_token_id, bos_token_id=None,
    )  # fmt: skip
    torch.manual_seed(1)
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    options = GRPOConfig(
        output_dir=str(folder / "out"), use_cpu=True, bf16=False, activation_checkpointing=False, report_to="none",
        per_device_train_batch_size=4, num_generations=4, max_completion_length=LONGEST,
        temperature=TEMPERATURE,
    )  # fmt: skip
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa")
    made = GRPOTrainer(
        model=model, args=options, reward_funcs=no_reward,
        train_dataset=Dataset.from_list([{"prompt": "a run "}]), processing_class=make_tokenizer(),
    )  # fmt: skip
    made.current_gradient_accumulation_steps = 1
    return made


@pytest.fixture(scope="module")
def inputs() -> dict[str, torch.Tensor]:
    """Four answers of unlike lengths, with log-probabilities of before that are a little off those of now."""
    chance = torch.Generator().manual_seed(3)
    longest = max(LENGTHS)
    mask = (torch.arange(longest)[None] < torch.tensor(LENGTHS)[:, None]).long()
    return {
        "prompt_ids": torch.randint(5, 20, (4, PROMPT), generator=chance),
        "prompt_mask": torch.ones(4, PROMPT, dtype=torch.long),
        "completion_ids": torch.randint(5, 20, (4, longest), generator=chance) * mask,
        "completion_mask": mask,
        "advantages": torch.tensor([1.2, -0.7, 0.4, -0.9]),
        "num_items_in_batch": mask.sum(),
        "moved": 0.1 * torch.randn(4, longest, generator=chance),
        "referred": 0.3 * torch.randn(4, longest, generator=chance),
    }


def our_batch(inputs: dict[str, torch.Tensor]) -> Batch:
    rows = []
    for prompt, answer, length in zip(inputs["prompt_ids"], inputs["completion_ids"], LENGTHS, strict=True):
        ids = torch.cat([prompt, answer[:length]]).numpy().astype(np.int32)
        rows.append([Sequence(ids, np.arange(len(ids)) >= PROMPT)])
    return collate(rows, 0)


def gradients(model: Any, loss: torch.Tensor) -> dict[str, torch.Tensor]:
    model.zero_grad()
    loss.backward()
    return {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}


@pytest.mark.parametrize("numbers", NUMBERS, ids=["plain", "beta", "delta", "uncorrected"])
@pytest.mark.parametrize(("loss_type", "level"), KINDS)
def test_loss_and_gradients_are_trls(
    trainer: Any, inputs: dict[str, torch.Tensor], loss_type: str, level: Any, numbers: dict[str, Any]
) -> None:
    settings = PolicySettings(loss_type, level, max_completion_length=LONGEST, **numbers)
    trainer.loss_type, trainer.importance_sampling_level, trainer.beta = loss_type, level, settings.beta
    trainer.epsilon_low, trainer.epsilon_high = settings.epsilon, settings.bounds[1] - 1
    trainer.args.delta, trainer.args.use_bias_correction_kl = settings.delta, settings.use_bias_correction_kl
    batch, model, mask = our_batch(inputs), trainer.model.train(), inputs["completion_mask"].bool()
    sequence_of = torch.repeat_interleave(torch.arange(4), torch.tensor(LENGTHS))
    with torch.no_grad():
        now = target_log_probs(model, batch, temperature=TEMPERATURE).values
    table = torch.zeros(mask.shape)
    table[mask] = now
    old, reference = table + inputs["moved"], table + inputs["referred"]

    found = target_log_probs(model, batch, temperature=TEMPERATURE, entropy=True)
    answers = SampledAnswers(
        found.values, old[mask], reference[mask] if settings.beta else None, inputs["advantages"], sequence_of
    )
    amount, total = policy_loss(answers, settings)
    ours = total / batch.amounts[amount]
    own = gradients(model, ours)
    trainer._metrics["train"].clear()
    theirs = trainer._compute_loss(model, inputs | {"old_per_token_logps": old, "ref_per_token_logps": reference})
    expected = gradients(model, theirs)

    assert float(ours.detach()) == pytest.approx(float(theirs.detach()), rel=1e-5, abs=2e-6)
    largest = max(float(grad.abs().max()) for grad in expected.values())
    assert largest > 1e-3, "there are gradients to compare"
    for name, grad in own.items():
        torch.testing.assert_close(grad, expected[name], rtol=1e-5, atol=1e-5 * max(1.0, largest), msg=name)

    reported = trainer._metrics["train"]
    assert found.entropy is not None
    assert float(found.entropy.mean()) == pytest.approx(reported["entropy"][-1], rel=1e-5)
    sums = policy_metrics(answers, settings)
    if settings.beta:
        assert float(sums["kl"]) / sum(LENGTHS) == pytest.approx(reported["kl"][-1], rel=1e-4)
    if level == "token":  # by answer, TRL's mean is one over answers
        for name in ("low_mean", "high_mean", "region_mean"):
            share = float(sums[f"clip_ratio/{name}"]) / sum(LENGTHS)
            assert share == pytest.approx(reported[f"clip_ratio/{name}"][-1])
