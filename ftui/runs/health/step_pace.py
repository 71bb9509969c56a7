"""Statistical rules about the time of steps and the gradients that are clipped."""

from collections.abc import Sequence

from ftui.runs.events import Step
from ftui.runs.health.health_rules import HealthFinding
from ftui.runs.health.noise import median

RECENT = 20
COMPARED = 100
ALIKE = 0.25
"""Steps are compared with those of as many tokens, give or take such a share."""
FEWEST_ALIKE = 5
CLIPPED_STEPS = 100
CLIPPED_SHARE = 0.9
BRIEF_SECONDS = 0.02
"""Less time than that, a step, is not worth a word."""


def step_seconds(step: Step) -> float:
    """All of a step, with the wait for its rows."""
    return step.data_seconds + step.forward_backward_seconds + step.optimizer_seconds + step.rest_seconds


def data_starvation(steps: Sequence[Step], limit: float) -> HealthFinding | None:
    """More than a share `limit` of the newest 20 steps went into waiting for rows."""
    recent = steps[-RECENT:]
    waited, total = sum(step.data_seconds for step in recent), sum(map(step_seconds, recent))
    if len(recent) < RECENT or waited < BRIEF_SECONDS * len(recent) or waited <= limit * total:
        return None
    return HealthFinding(
        "data_starvation",
        f"{waited / total:.0%} of the newest {RECENT} steps were spent waiting for their rows "
        f"({waited / RECENT:.2g} s of {total / RECENT:.2g} s a step)",
        "Keep the tokenised rows on a local disk: set FTUI_CACHE to a folder there and resume.",
    )


def slow_steps(first: Sequence[Step], steps: Sequence[Step], limit: float) -> HealthFinding | None:
    """The newest 20 steps have a share `limit` fewer tokens a second than the `first` of about as many tokens."""
    recent, ratios, paces = steps[-RECENT:], [], []
    if len(first) < COMPARED or len(recent) < RECENT:
        return None
    for step in recent:
        alike = [
            one.tokens_per_second for one in first if abs(one.num_tokens - step.num_tokens) < ALIKE * step.num_tokens
        ]
        if len(alike) >= FEWEST_ALIKE:
            paces.append((median(alike), step.tokens_per_second))
            ratios.append(step.tokens_per_second / median(alike))
    if len(ratios) < RECENT // 2 or median(ratios) > 1 - limit:
        return None
    before, now = (median([pair[index] for pair in paces]) for index in (0, 1))
    return HealthFinding(
        "slow_steps",
        f"{now:.0f} tokens a second in the newest {RECENT} steps, {before:.0f} in earlier ones of as many tokens "
        f"({1 - median(ratios):.0%} less)",
        "See what else works on this machine: `ftui status {run}` shows the GPU and who holds its memory; if nothing "
        "does, `ftui park {run}` and resume on another one.",
    )


def clipping(steps: Sequence[Step], max_grad_norm: float | None, limit: float) -> HealthFinding | None:
    """More than 90 % of the newest 100 gradients were clipped, the usual one to less than 1 / `limit` of its length."""
    lengths = [step.grad_norm for step in steps[-CLIPPED_STEPS:] if step.grad_norm is not None]
    if max_grad_norm is None or len(lengths) < CLIPPED_STEPS:
        return None
    share = sum(length > max_grad_norm for length in lengths) / len(lengths)
    if share < CLIPPED_SHARE or median(lengths) < limit * max_grad_norm:
        return None
    return HealthFinding(
        "clipping",
        f"{share:.0%} of the newest {len(lengths)} gradients were clipped to {max_grad_norm:g}; the usual one is "
        f"{median(lengths):.3g} long",
        f"Set train.max_grad_norm = {float(f'{2 * median(lengths):.1g}'):g} in a fork, and watch the loss.",
    )
