"""The loss on held-out rows: mean over all their target tokens, the same whatever the batches are."""

import math
import time

import numpy as np
import torch

from ftui.engine.collate import collate
from ftui.engine.training import Training, TrainState
from ftui.events import EvaluationDone


def evaluate(training: Training) -> EvaluationDone:
    """Evaluate, and note in the state whether it is the best so far. Moves no random generator.

    Raises:
        Preempted: SIGTERM arrived between two batches.
    """
    begun = time.monotonic()
    training.logbook.phase("evaluating")
    loss, num_targets = _mean_loss(training)
    best = note(training.state, loss, training.profile.eval.early_stopping_threshold)
    state = training.state
    event = EvaluationDone(
        step=state.step,
        epoch=training.prepared.plan.epoch_of(state.step),
        loss=loss,
        num_target_tokens=num_targets,
        seconds=time.monotonic() - begun,
        best=best,
    )
    training.logbook.event(event)
    return event


def note(state: TrainState, loss: float, threshold: float) -> bool:
    """Note an evaluation; returns whether it is the best so far. Step 0 never is: the others are compared with it."""
    finite = math.isfinite(loss)
    state.evaluated_step = state.step
    state.last_loss = loss if finite else None
    if state.step == 0:
        state.loss_before = state.last_loss
        return False
    best = finite and (state.best_loss is None or loss < state.best_loss)
    better = finite and (state.best_loss is None or loss < state.best_loss - threshold)
    state.bad_evaluations = 0 if better else state.bad_evaluations + 1
    if best:
        state.best_loss, state.best_step = loss, state.step
    return best


def _mean_loss(training: Training) -> tuple[float, int]:
    rows = training.prepared.evaluation
    assert rows is not None, "callers ask only where there are rows"
    size = training.profile.eval.per_device_eval_batch_size
    by_length = rows.indices[np.argsort(-rows.sequences.lengths[rows.indices], kind="stable")]
    total, num_targets = 0.0, 0
    pad = int(training.prepared.tokenizer.pad_token_id or 0)
    training.model.eval()
    try:
        with torch.no_grad():
            for start in range(0, len(by_length), size):
                training.control.poll()
                chosen = by_length[start : start + size]
                batch = collate([[rows.sequences[int(i)]] for i in chosen], pad).to(training.hardware.device)
                loss, weight, _ = training.module(batch)
                total += float(loss)
                num_targets += weight
                training.logbook.progress()
    finally:
        training.model.train()
    return total / num_targets, num_targets
