"""The loss on held-out rows: mean over all their target tokens, the same whatever the batches are."""

import math
import time

import numpy as np
import torch

from ftui.runs.events import EvaluationDone

from ..data.tokens.encode import Sequence
from ..models.performance import uncompiled
from ..optim.plateau import look_at
from ..runtime.control_flags import Ready
from ..system.memory import give_back, is_out_of_memory
from .collate import collate
from .context import Training, TrainState


def evaluate(training: Training, *, requested: bool = False) -> EvaluationDone:
    """Evaluate, and note in the state whether it is the best so far. Moves no random generator.

    One that was `requested` by a letter moves nothing: neither the best nor the patience. One that does not fit into
    memory is given up with a warning: a run never ends for want of a number.

    Raises:
        Leave: between two batches.
    """
    begun = time.monotonic()
    with training.logbook.within("evaluating"):
        loss, num_targets = _mean_loss(training)
    state = training.state
    best = False
    if not requested:
        best = note(state, loss, training.profile.eval.early_stopping_threshold)
        look_at(state, training.profile.train, loss)
    event = EvaluationDone(
        step=state.step,
        epoch=training.prepared.plan.epoch_of(state.step),
        loss=loss,
        num_target_tokens=num_targets,
        seconds=time.monotonic() - begun,
        best=best,
        requested=requested,
    )
    training.logbook.event(event)
    return event


def note(state: TrainState, loss: float | None, threshold: float) -> bool:
    """Note an evaluation; returns whether it is the best so far. Step 0 never is: the others are compared with it.

    One that could not be measured (`None`) costs no patience: a loss of NaN does.
    """
    finite = loss is not None and math.isfinite(loss)
    state.evaluated_step = state.step
    state.last_loss = loss if finite else None
    if state.step == 0:
        state.loss_before = state.last_loss
        return False
    if loss is None:
        return False
    best = finite and (state.best_loss is None or loss < state.best_loss)
    better = best and (state.best_loss is None or state.best_loss - loss > threshold)
    state.bad_evaluations = 0 if better else state.bad_evaluations + 1
    if best:
        state.best_loss, state.best_step = loss, state.step
    return best


def _mean_loss(training: Training) -> tuple[float | None, int]:
    """Loss and number of target tokens; a batch that does not fit into memory is taken again in halves.

    Without a loss where not even one row fits.
    """
    rows = training.prepared.evaluation
    assert rows is not None, "callers ask only where there are rows"
    size = training.profile.eval.per_device_eval_batch_size
    by_length = rows.indices[np.argsort(-rows.sequences.lengths[rows.indices], kind="stable")]
    total, num_targets, start = 0.0, 0, 0
    training.model.eval()
    try:
        while start < len(by_length):
            training.control.poll(Ready.SAVE)
            found = batch_loss(training, [rows.sequences[int(i)] for i in by_length[start : start + size]])
            if found is None and size == 1:
                training.logbook.warn(f"the evaluation at step {training.state.step} does not fit into memory")
                return None, 0
            if found is None:
                size = (size + 1) // 2
                training.logbook.warn(f"evaluation goes on in batches of {size}: more did not fit into memory")
                continue
            total, num_targets, start = total + found[0], num_targets + found[1], start + size
            training.logbook.progress()
    finally:
        training.model.train()
    return total / num_targets, num_targets


def batch_loss(training: Training, sequences: list[Sequence]) -> tuple[float, int] | None:
    """Summed loss and its weight; `None` when memory ran out."""
    pad, device = int(training.prepared.tokenizer.pad_token_id or 0), training.hardware.device
    try:
        with torch.no_grad(), uncompiled(training.profile.train):
            loss, weight, _ = training.module(collate([[sequence] for sequence in sequences], pad).to(device))
            return float(loss), weight
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
    give_back(device)
    return None
