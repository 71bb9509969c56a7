"""How long a run takes and what it costs: operations and traffic over what a card really does, and Python's share.

Operations per token follow Narayanan et al. (arXiv 2104.04473, appendix): 2 for each weight that a token meets in the
forward pass, as many for the gradient of the inputs, as many again for the gradient of a weight that is trained.

Three constants were fitted, together, on all published rows that are specified in full (26 on A100s, 3 on RTX 3090s
and 4090s, 16 on T4s; tests/ftui/estimate/test_timing.py): none of them belongs to a source, a card or a model.
"""

import math
from typing import Any

from ftui.estimate.closed_form import memory
from ftui.estimate.disk import checkpoint_bytes
from ftui.estimate.peak import saved_bytes, stored_bytes
from ftui.estimate.placement.frozen_base import place_base
from ftui.estimate.result import Basis, Duration, usable
from ftui.estimate.setup import TrainingSetup
from ftui.estimate.states import gradient_bytes, moment_bytes, weight_bytes
from ftui.estimate.trained import TrainedWeights, find_trained

LAYER_SECONDS = 1.15e-3
"""Fitted: of Python and of launching kernels, for each layer in each pass over it."""
PRODUCTS = 1.27
"""Fitted: speed of matrix products alone over a card's `efficiency`, which published runs reach with all else in it."""
TRAFFIC = 2.3
"""Fitted: bytes moved for a byte that is kept for the backward pass, in each pass over the layers: written, read, and a
little that is not kept."""
SCORE_BYTES = 28
"""Moved for an attention score in a pass where they are written out: product, mask, softmax in float32, its result."""
DEQUANTISED_BYTES, INT8_BYTES = 9.0, 3.0
"""What a quantised weight costs in a pass besides computing, in bytes at the card's full bandwidth. Read in few bits,
written in 16 and read again are 4.5 for NF4, but dequantising reaches half the bandwidth: 10 pairs of runs that differ
in 4 bits only have a median of 9.2 (litgpt on an A10G and an A100; tests/ftui/estimate/test_timing.py). Those of 8 bits
are counted, not measured."""
UPDATE_BYTES = 4
"""Moved in an update for each byte of gradients, weights and moments: most are read and written."""
PASS_TOKENS, ROW_TOKENS = 22.0, 2.2
"""What a pass that adds a token to each of some answers costs on a CPU, in tokens of a forward pass: for reading the
weights, and for each answer. Measured on one thread with SmolLM2-135M's sizes, 1 to 16 answers at once
(tests/bench/answering.py). On a GPU it is reading the weights, and Python."""
CACHE_TRAFFIC = 3
"""Bytes moved in such a pass for a byte of kept keys and values: read and written as they grow by a token, and read by
the attention. Counted, not measured."""
LINK_SHARE = 0.625
"""Of what a link carries by its standard, what copies reach: 20e9 bytes a second of the 32e9 of PCIe 4.0 with 16 lanes.
Assumed, not measured by us."""
READING, WRITING, STARTING = 1e9, 5e8, 15.0
"""A rented pod's volume, bytes a second (assumed); seconds until an engine has its libraries (measured on 2 cores)."""
SPREAD, QUANTISED_SPREAD, MEASURED_SPREAD = 0.3, 0.45, 0.05
"""Of tokens a second; nine of ten published runs lie inside. Those in 4 bits are of other code than ftui's (float32
around the 4-bit layers, GPTQ), and nearly all slower than is told: the wider range takes them in."""
ELSEWHERE_SPREAD = 0.5
"""By the tokens a second of another setting: on a CPU 4 rows at once were 2 % slower than 16, one row 40 %."""


def duration(
    setup: TrainingSetup,
    *,
    num_steps: int | None,
    tokens_per_step: float | None,
    measured_step_seconds: float | None = None,
    is_elsewhere: bool = False,
    price_per_hour: float | None = None,
    evaluated_tokens: float = 0.0,
    num_evaluations: int = 0,
    num_checkpoints: int = 1,
    num_rollouts: int = 0,
    rollout_seconds: float | None = None,
) -> Duration:
    """Time and money of a run, with loading, evaluations and checkpoints, without its pauses.

    Args:
        tokens_per_step: of all processes together; padding is not known, and not counted.
        measured_step_seconds: of steps that this run has taken: then no step is guessed.
        is_elsewhere: whether they are told by steps of another setting.
        price_per_hour: US dollars for one card.
        evaluated_tokens: of all evaluations together.
        num_evaluations: those that answer rows, where the setup says which.
        num_rollouts: those of a run that samples its answers.
        rollout_seconds: of one of them, where that was measured: of the longest answers.
    """
    basis: Basis = "corrected here" if is_elsewhere else "measured here"
    spread = ELSEWHERE_SPREAD if is_elsewhere else MEASURED_SPREAD
    if measured_step_seconds is None:
        basis, spread = "closed form", QUANTISED_SPREAD if setup.is_quantised else SPREAD
    price = None if price_per_hour is None else price_per_hour * setup.num_processes / 3600
    seconds = measured_step_seconds
    if seconds is None and tokens_per_step is not None:
        seconds = step_seconds(setup, tokens_per_step)
    total = None
    if seconds is not None and num_steps is not None:
        evaluating = 0.0
        if tokens_per_step:
            evaluating = forward_seconds(setup, evaluated_tokens, tokens_per_step / seconds)
            evaluating += num_evaluations * answering_seconds(setup, tokens_per_step / seconds)
            evaluating += num_rollouts * (rollout_seconds or generating_seconds(setup, tokens_per_step / seconds))
        writing = num_checkpoints * checkpoint_bytes(setup) / WRITING
        total = seconds * num_steps + evaluating + writing + loading_seconds(setup)
    return Duration(
        num_steps=num_steps,
        tokens_per_second=None if not seconds or tokens_per_step is None else tokens_per_step / seconds,
        step_seconds=seconds, total_seconds=total,
        dollars=None if total is None or price is None else total * price,
        spread=spread, basis=basis,
    )  # fmt: skip


def forward_seconds(setup: TrainingSetup, num_tokens: float, tokens_per_second: float) -> float:
    """Of tokens that only go forward through the model; the speed is that of training on them."""
    return num_tokens / tokens_per_second / _passes(setup)


def answering_seconds(setup: TrainingSetup, tokens_per_second: float) -> float:
    """Of the answers of one evaluation, which one process gives, if all are as long as they may be."""
    rows = setup.answered
    if rows is None:
        return 0.0
    token = forward_seconds(setup, setup.num_processes, tokens_per_second)
    one_pass = _pass_seconds(setup, setup.answers_at_once, token)
    num_passes = math.ceil(rows.num_rows / setup.answers_at_once) * rows.new_tokens
    return rows.num_rows * rows.prompt_tokens * token + num_passes * one_pass


def generating_seconds(setup: TrainingSetup, tokens_per_second: float) -> float:
    """Of the answers of one rollout, if all are as long as they may be; each process gives its part of them, and
    computes a prompt once for its group. The others wait for the one that has the most."""
    rows, card, shape = setup.sampled, setup.card, setup.shape
    if rows is None:
        return 0.0
    token = forward_seconds(setup, setup.num_processes, tokens_per_second)
    one_pass = _pass_seconds(setup, rows.at_once, token)
    if card.bandwidth is not None:
        of_token = 2 * shape.num_kv_heads * shape.head_dim * setup.compute * shape.num_layers
        kept = rows.at_once * (rows.prompt_tokens + rows.new_tokens / 2) * of_token
        one_pass += CACHE_TRAFFIC * kept / (card.bandwidth * 1e9)
    num_passes = math.ceil(rows.part / rows.at_once) * rows.new_tokens
    num_prompts = rows.num_prompts * rows.part / rows.num_rows
    return num_prompts * rows.prompt_tokens * token + num_passes * one_pass


def _pass_seconds(setup: TrainingSetup, at_once: int, token: float) -> float:
    """Of a pass that adds a token to each of some answers; `token`: seconds of one that only goes forward."""
    if setup.card.bandwidth is None:
        return token * (PASS_TOKENS + ROW_TOKENS * at_once)
    weights = sum(weight_bytes(setup, find_trained(setup)))
    return setup.shape.num_layers * LAYER_SECONDS + (weights + _dequantised(setup)) / (setup.card.bandwidth * 1e9)


def loading_seconds(setup: TrainingSetup) -> float:
    """Until the first step: libraries, and the model's files, which hold 16 bits a weight as a rule."""
    return STARTING + 2 * setup.shape.num_parameters / READING


def step_seconds(setup: TrainingSetup, tokens_per_step: float) -> float | None:
    """Seconds of one step; `None` where the card's speed has to be measured: a CPU's, Apple's, any in float32."""
    card = setup.card
    if card.tflops is None or card.bandwidth is None or (card.kind == "cuda" and setup.precision == "fp32"):
        return None
    trained = find_trained(setup)
    tokens, bandwidth = tokens_per_step / setup.num_processes, card.bandwidth * 1e9
    products = card.tflops * 1e12 * card.efficiency[0 if setup.is_lora else 1] * PRODUCTS
    gradients, passes = gradient_bytes(setup, trained), _passes(setup)
    moments = moment_bytes(setup, trained)
    num_bytes = 2 * gradients + moments  # weights are as large as their gradients
    computing = (
        tokens * operations(setup, trained) / products
        + passes * tokens * (TRAFFIC * saved_bytes(setup, trained) + _scores(setup)) / bandwidth
        + passes * setup.accumulation * (setup.shape.num_layers * LAYER_SECONDS + _dequantised(setup) / bandwidth)
    )
    return (
        max(computing, _gathering_seconds(setup, trained))  # a layer's weights come while the one before it computes
        + UPDATE_BYTES / 2 * num_bytes / bandwidth
        + 2 * (_moved_out(setup, moments) + tokens * stored_bytes(setup, trained)) / _host_rate(setup)
        + _gradients_exchanged(setup, gradients) / _peer_rate(setup)
    )


def _gradients_exchanged(setup: TrainingSetup, gradients: int) -> float:
    """Bytes that a process sends in a step to sum gradients: twice all of them where each gets the whole sum. Of
    weights that are divided it gets its own part, in every micro-batch, and then sums that with other groups."""
    if setup.num_processes == 1:
        return 0.0
    if not setup.divides_trained:
        return 2.0 * gradients
    part = gradients / setup.num_sharing
    others = 2 * part if setup.num_sharing < setup.num_processes else 0.0
    return setup.accumulation * (gradients - part + others)


def _gathering_seconds(setup: TrainingSetup, trained: TrainedWeights) -> float:
    """Of weights that come from the host or from other processes: for each forward and each backward pass."""
    placement = place_base(setup, trained)
    if setup.divides_trained:
        return _weights_gathered(setup, trained) / _peer_rate(setup)
    rate = _host_rate(setup) if placement.way == "offloaded" else _peer_rate(setup)
    return 2 * setup.accumulation * placement.moved() / rate


def _weights_gathered(setup: TrainingSetup, trained: TrainedWeights) -> float:
    """Bytes that come in a step where all that is trained is divided: the others' parts of the weights, in the type
    that computes, once a micro-batch or (`all`) also for the backward pass."""
    weights = gradient_bytes(setup, trained) * setup.compute / setup.trained
    times = setup.accumulation * (2 if setup.shard == "all" else 1)
    return times * weights * (1 - 1 / setup.num_sharing)


def _host_rate(setup: TrainingSetup) -> float:
    """Bytes a second between a card and its host."""
    return LINK_SHARE * setup.card.pcie * 1e9


def _peer_rate(setup: TrainingSetup) -> float:
    """Bytes a second between cards."""
    return LINK_SHARE * (setup.card.nvlink or setup.card.pcie) * 1e9


def _moved_out(setup: TrainingSetup, moments: int) -> int:
    """Bytes of moments that come in for every update and go out after it: those on the host, and paged ones that find
    no room beside the rest."""
    if setup.moments_on_host:
        return moments
    if not setup.optim.startswith("paged") or setup.card.kind != "cuda":
        return 0
    return min(moments, max(0, memory(setup).process - usable(setup.card)))


def _passes(setup: TrainingSetup) -> float:
    """Over the layers: forward, backward, and again the forward of those that are forgotten."""
    return 2 + setup.share_forgotten


def operations(setup: TrainingSetup, trained: TrainedWeights | None = None) -> float:
    """Floating-point operations per token of a training step."""
    trained = find_trained(setup) if trained is None else trained
    shape = setup.shape
    head = 0 if shape.gives_scores else shape.vocab_size * shape.hidden_size  # a score is one product a sequence
    body = shape.num_active - shape.num_ends
    attention = 2.0 * shape.num_heads * shape.head_dim * setup.length * shape.num_layers  # causal: half of 4
    if setup.attention in ("eager", "math"):
        attention *= 2  # scores that the mask hides are computed too
    forward = 2 * (body + head + trained.num_adapter) + attention
    own = sum(size for name, size in trained.base.items() if name != f"{shape.embeddings}.weight")
    backward = 2 * (body + head + own + 2 * trained.num_adapter + trained.num_copied) + 2 * attention
    again = setup.share_forgotten * (2 * (body + trained.num_adapter) + attention)
    return forward + backward + again


def _scores(setup: TrainingSetup) -> float:
    """Bytes moved per token for attention scores that are written out, in one pass over the layers."""
    if setup.attention not in ("eager", "math"):
        return 0.0
    return SCORE_BYTES * setup.shape.num_heads * setup.length * setup.shape.num_layers


def _dequantised(setup: TrainingSetup) -> float:
    """Bytes moved for quantised weights, in one pass over the layers."""
    if not setup.is_quantised:
        return 0.0
    each = INT8_BYTES if setup.is_8bit else DEQUANTISED_BYTES
    return each * sum(layer.num_linear for layer in setup.shape.layers)


def num_evaluations(section: Any, num_steps: int, steps_per_epoch: int) -> int:
    """Evaluations of a run with rows to evaluate on. `section` is the profile's `[eval]`."""
    at = {num_steps} | ({0} if section.eval_on_start else set())
    if section.eval_strategy == "epoch":
        at |= {
            n for n in range(steps_per_epoch, num_steps, steps_per_epoch) if n / steps_per_epoch >= section.eval_delay
        }
    if section.eval_strategy == "steps":
        period = _to_steps(section.eval_steps, num_steps)
        at |= {n for n in range(period, num_steps, period) if n >= section.eval_delay}
    return len(at)


def num_checkpoints(section: Any, num_steps: int, steps_per_epoch: int) -> int:
    """Checkpoints by number of steps and the last one; those by time and of the best model come on top.

    `section` is the profile's `[checkpoint]`.
    """
    period = {"epoch": steps_per_epoch, "steps": section.save_steps and _to_steps(section.save_steps, num_steps)}
    every = period.get(section.save_strategy)
    return 1 + ((num_steps - 1) // every if every else 0)


def _to_steps(period: int | float, num_steps: int) -> int:
    return int(period) if period >= 1 else math.ceil(num_steps * period)
