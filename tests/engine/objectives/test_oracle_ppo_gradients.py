"""Gradients of PPO's losses: of every weight against transformers' own logits and hidden states with the formulas of
trl 1.12 on padded matrices, and of single tokens against derivatives worked out by hand."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers import AutoModelForCausalLM

from ftui.engine.data.tokens.encode import Sequence
from ftui.engine.objectives import make_objective
from ftui.engine.objectives.loss import Batch
from ftui.engine.objectives.ppo_losses import PpoSettings, SampledTokens, ppo_loss
from ftui.engine.reinforcement.token_advantages import compute_token_advantages, whiten
from ftui.engine.reinforcement.value_head import NAME, add_value_head
from ftui.engine.training.collate import collate
from tests.support.tiny import make_profile

PROMPT, LENGTHS, TEMPERATURE = 5, (7, 3, 1, 6), 0.7
CASES: dict[str, dict[str, float]] = {
    "defaults": {},
    "narrow": {"cliprange": 0.05, "cliprange_value": 0.03, "vf_coef": 1.0},
    "wide": {"cliprange": 0.9, "cliprange_value": 5.0, "vf_coef": 0.5},
    "no value": {"vf_coef": 0.0},
}


@pytest.fixture(scope="module")
def model(model_folder: Path) -> Any:
    made = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32)
    add_value_head(made)
    torch.manual_seed(2)
    torch.nn.init.normal_(getattr(made, NAME).weight, std=0.1)
    return made


class Answers:
    """Answers of unlike lengths to prompts of one, as padded matrices, with figures that a rollout could have."""

    def __init__(self) -> None:
        chance, shape = torch.Generator().manual_seed(3), (len(LENGTHS), max(LENGTHS))
        self.mask = torch.arange(shape[1])[None] < torch.tensor(LENGTHS)[:, None]
        self.prompts = torch.randint(5, 200, (shape[0], PROMPT), generator=chance)
        self.ids = torch.randint(5, 200, shape, generator=chance) * self.mask
        self.advantages, self.returns = torch.randn(shape, generator=chance), torch.randn(shape, generator=chance)
        self.moved, self.moved_values = (0.2 * torch.randn(shape, generator=chance) for _ in range(2))

    def batch(self, old: Tensor, old_values: Tensor) -> Batch:
        """The same as a stage gets it: nothing padded."""
        rows = []
        for prompt, answer, length in zip(self.prompts, self.ids, LENGTHS, strict=True):
            ids = torch.cat([prompt, answer[:length]]).numpy().astype(np.int32)
            rows.append([Sequence(ids, np.arange(len(ids)) >= PROMPT)])
        return replace(
            collate(rows, 0), old=old[self.mask], values=old_values[self.mask], returns=self.returns[self.mask],
            advantages=self.advantages[self.mask],
        )  # fmt: skip

    def said_by(self, model: Any) -> tuple[Tensor, Tensor]:
        """(answers, longest) log-probabilities of the tokens, and values before them, by plain transformers."""
        out = model(input_ids=torch.cat([self.prompts, self.ids], 1), output_hidden_states=True)
        before = slice(PROMPT - 1, -1)
        scaled = out.logits[:, before].float() / TEMPERATURE
        log_probs = torch.log_softmax(scaled, -1).gather(-1, self.ids[..., None])[..., 0]
        return log_probs, getattr(model, NAME)(out.hidden_states[-1][:, before].float())[..., 0]


def padded_loss(answers: Answers, model: Any, old: Tensor, old_values: Tensor, given: PpoSettings) -> Tensor:
    """As trl 1.12 writes it: both losses are means over what is no padding."""
    log_probs, values = answers.said_by(model)
    ratio, mask = torch.exp(log_probs - old), answers.mask
    near = torch.maximum(torch.minimum(values, old_values + given.cliprange_value), old_values - given.cliprange_value)
    errors = torch.maximum((values - answers.returns).square(), (near - answers.returns).square())
    bounded = torch.clamp(ratio, 1.0 - given.cliprange, 1.0 + given.cliprange)
    gains = torch.minimum(answers.advantages * ratio, answers.advantages * bounded)
    return -(gains * mask).sum() / mask.sum() + given.vf_coef * 0.5 * (errors * mask).sum() / mask.sum()


def gradients(model: Any, loss: Tensor) -> dict[str, Tensor]:
    model.zero_grad()
    loss.backward()
    return {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}


@pytest.mark.parametrize("case", CASES)
def test_gradients_of_all_weights_are_those_of_padded_matrices(
    case: str, model: Any, model_folder: Path, tmp_path: Path
) -> None:
    keys, answers = CASES[case], Answers()
    profile = make_profile(
        model_folder, tmp_path, run={"stage": "ppo"}, adapter={"method": "lora", "r": 4}, train={"max_steps": 1},
        ppo={"temperature": TEMPERATURE, "max_completion_length": 8, **keys},
        rewards={"reward_funcs": ["number_answer"]},
    )  # fmt: skip
    with torch.no_grad():
        now, values = answers.said_by(model)
    old, old_values = now + answers.moved, values + answers.moved_values
    batch = answers.batch(old, old_values)
    found = make_objective(profile).loss(model, batch).sums["targets"] / batch.amounts["targets"]
    own = gradients(model, found)
    theirs = padded_loss(answers, model, old, old_values, PpoSettings(**keys))
    expected = gradients(model, theirs)
    assert float(found.detach()) == pytest.approx(float(theirs.detach()), rel=1e-5, abs=1e-6)
    largest = max(float(grad.abs().max()) for grad in expected.values())
    assert largest > 1e-2 and own.keys() == expected.keys()
    for name, grad in own.items():
        torch.testing.assert_close(grad, expected[name], rtol=1e-5, atol=1e-5 * max(1.0, largest), msg=name)
    assert (float(own[f"{NAME}.weight"].abs().max()) > 0) is (case != "no value")


def token(advantage: float, ratio: float, value: float = 0.0, old_value: float = 0.0, target: float = 0.0) -> Any:
    """The derivatives of its loss by its log-probability and by its value."""
    log_prob = torch.tensor([float(np.log(ratio))], dtype=torch.float64, requires_grad=True)
    said = torch.tensor([value], dtype=torch.float64, requires_grad=True)
    others = (torch.tensor([one], dtype=torch.float64) for one in (0.0, old_value, target, advantage))
    ppo_loss(SampledTokens(log_prob, said, *others), PpoSettings(0.2, 1.0, 0.3)).backward()
    assert log_prob.grad is not None and said.grad is not None
    return float(log_prob.grad), float(said.grad)


@pytest.mark.parametrize(
    ("advantage", "ratio", "learns"),
    [(2, 1.1, True), (2, 1.3, False), (2, 0.7, True), (-2, 1.3, True), (-2, 0.7, False), (-2, 0.9, True)],
)
def test_a_token_counts_until_it_has_moved_far_enough_in_its_direction(
    advantage: float, ratio: float, learns: bool
) -> None:
    """A good one above 1 + cliprange and a bad one below 1 - cliprange; one that went the wrong way always counts."""
    assert token(advantage, ratio)[0] == pytest.approx(-advantage * ratio if learns else 0.0)


@pytest.mark.parametrize(
    ("value", "target", "learns"),
    [(0.2, 1.0, True), (0.5, 1.0, False), (0.5, -1.0, True), (-0.5, -1.0, False), (-0.5, 1.0, True), (0.5, 0.5, False)],
)
def test_a_value_counts_until_it_has_moved_far_enough(value: float, target: float, learns: bool) -> None:
    """From 0, within 0.3: farther on the way to its return it is what is left within that, which it does not move."""
    assert token(1.0, 1.0, value, 0.0, target)[1] == pytest.approx(value - target if learns else 0.0)


numbers = st.floats(-3, 3, width=32)


@settings(max_examples=25)
@given(st.lists(st.lists(st.tuples(numbers, numbers, numbers), min_size=1, max_size=6), min_size=2, max_size=4),
       st.floats(0.5, 1), st.floats(0, 1), st.lists(numbers, min_size=4, max_size=4))  # fmt: skip
def test_returns_and_advantages_are_the_sums_that_define_them(
    tokens: list[list[tuple[float, float, float]]], gamma: float, lam: float, scores: list[float]
) -> None:
    """Also of an answer that was cut off: nothing is expected behind its last token, which brings the score."""
    old, reference, values = ([np.array([one[n] for one in of], np.float32) for of in tokens] for n in range(3))
    given_scores = np.array(scores[: len(tokens)])
    found = compute_token_advantages(old, reference, values, given_scores, kl_coef=0.1, gamma=gamma, lam=lam)
    raw = []
    for a, b, said, score in zip(old, reference, values, given_scores, strict=True):
        rewards = [-0.1 * (float(x) - float(y)) for x, y in zip(a, b, strict=True)]
        rewards[-1] += score
        ahead = [*map(float, said[1:]), 0.0]
        surprises = [r + gamma * n - float(v) for r, n, v in zip(rewards, ahead, said, strict=True)]
        raw.append([
            sum((gamma * lam) ** (later - t) * surprises[later] for later in range(t, len(said)))
            for t in range(len(said))
        ])  # fmt: skip
    for returns, own, said in zip(found.returns, raw, values, strict=True):
        np.testing.assert_allclose(returns, np.array(own) + said, rtol=1e-5, atol=1e-5)
    flat = torch.tensor([one for own in raw for one in own], dtype=torch.float64)
    white = (flat - flat.mean()) * torch.rsqrt(flat.var() + 1e-8)
    np.testing.assert_allclose(np.concatenate(found.advantages), white, rtol=1e-4, atol=1e-4)


def test_whitening_keeps_the_mean_where_it_is_told_to() -> None:
    answers = [np.array([1.0, 5.0]), np.array([3.0])]
    kept = np.concatenate(whiten(answers, shift_mean=False))
    assert kept.mean() == pytest.approx(3.0) and kept.std(ddof=1) == pytest.approx(1.0)
    assert np.concatenate(whiten(answers)).mean() == pytest.approx(0.0, abs=1e-12)
