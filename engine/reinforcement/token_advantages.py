"""Rewards, returns and advantages of single tokens, as stage ppo learns from them. Formulas are TRL's (1.12).

An answer is a sequence of decisions: each token costs what it moves the model away from the reference, the last one
brings the score of the whole answer, and a value head says before each token what is still to come.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

SMALLEST = 1e-8
"""Added to a variance before its root divides."""

Ragged = Sequence[np.ndarray]
"""Of each answer, one value for each of its tokens (float32)."""


class TokenAdvantages(NamedTuple):
    """Of each answer, one value for each of its tokens; `advantages` are whitened over all tokens.

    Attributes:
        divergence: estimate of how far the model is from the reference, in nats (float64).
        returns: what the values should have been (float32).
        advantages: float32.
    """

    divergence: list[np.ndarray]
    returns: list[np.ndarray]
    advantages: list[np.ndarray]


def compute_token_advantages(
    old: Ragged,
    reference: Ragged,
    values: Ragged,
    scores: np.ndarray,
    *,
    kl_coef: float,
    gamma: float,
    lam: float,
    kl_estimator: str = "k1",
    whiten_rewards: bool = False,
) -> TokenAdvantages:
    """Of answers with scores (answers,), from log-probabilities of their tokens and values before these.

    `old` are those of the model that gave the answers. An answer has at least one token.
    """
    divergence = [estimate_divergence(a, b, kl_estimator) for a, b in zip(old, reference, strict=True)]
    rewards = [token_rewards(-kl_coef * one, score) for one, score in zip(divergence, scores, strict=True)]
    if whiten_rewards:
        rewards = whiten(rewards, shift_mean=False)
    raw = [generalised_advantages(r, v, gamma, lam) for r, v in zip(rewards, values, strict=True)]
    returns = [(a + v).astype(np.float32) for a, v in zip(raw, values, strict=True)]
    return TokenAdvantages(divergence, returns, [one.astype(np.float32) for one in whiten(raw)])


def estimate_divergence(log_probs: np.ndarray, reference: np.ndarray, estimator: str) -> np.ndarray:
    """(tokens,) float64: k1 is the log-ratio itself, k3 is never negative (Schulman 2020)."""
    ratio = reference.astype(np.float64) - log_probs
    return np.asarray(-ratio if estimator == "k1" else np.expm1(ratio) - ratio)


def token_rewards(penalties: np.ndarray, score: float) -> np.ndarray:
    """(tokens,) the penalty of each token, and the score of the answer at its last one."""
    rewards = penalties.copy()
    rewards[-1] += score
    return rewards


def generalised_advantages(rewards: np.ndarray, values: np.ndarray, gamma: float, lam: float) -> np.ndarray:
    """(tokens,) float64 (Schulman et al. 2016): after the last token nothing more is to come."""
    advantages, ahead, following = np.zeros(len(rewards)), 0.0, 0.0
    for place in range(len(rewards) - 1, -1, -1):
        surprise = rewards[place] + gamma * following - values[place]
        ahead = surprise + gamma * lam * ahead
        advantages[place], following = ahead, float(values[place])
    return advantages


def whiten(of_answers: Ragged, *, shift_mean: bool = True) -> list[np.ndarray]:
    """The same with variance 1 (n - 1) over all tokens, and mean 0 if `shift_mean`; a single token stays as it is."""
    flat = np.concatenate([np.zeros(0), *of_answers])
    if len(flat) < 2:
        return list(of_answers)
    mean, spread = flat.mean(), np.sqrt(flat.var(ddof=1) + SMALLEST)
    return [(one - mean) / spread + (0.0 if shift_mean else mean) for one in of_answers]


def explained_variance(values: Ragged, returns: Ragged) -> float | None:
    """What the values knew of the returns: 1 all, 0 no more than their mean, below 0 less; `None` where they are all
    the same."""
    said, right = np.concatenate([np.zeros(0), *values]), np.concatenate([np.zeros(0), *returns])
    spread = right.var() if len(right) else 0.0
    return float(1 - (right - said).var() / spread) if spread > 0 else None
