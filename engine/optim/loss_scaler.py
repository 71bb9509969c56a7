"""The loss scale of fp16: gradients are made large enough for half precision, and divided again before the update.

A scale that is too large shows as gradients that overflow: such a step is not applied and the scale is halved; after
`GROWTH_STEPS` steps without one it is doubled. Figures and rule are those of torch.amp.GradScaler.
"""

from ..system.train_state import TrainState

FIRST_SCALE = 65536.0
GROWTH_STEPS = 2000
SMALLEST_SCALE = 1.0  # here an overflow has no other reason than the numbers themselves


def begin(state: TrainState, precision: str) -> None:
    """Give a state that has none its first scale under fp16, and take it away under any other precision.

    A run may resume in another precision than it was saved in (another card, a fork).
    """
    if precision != "fp16":
        state.loss_scale, state.steps_since_overflow = None, 0
    elif state.loss_scale is None:
        state.loss_scale = FIRST_SCALE


def after_step(state: TrainState, precision: str, *, finite: bool) -> bool:
    """Move the scale after a step; whether the step overflowed because of it (and so is not a bad one)."""
    if precision != "fp16":
        return False
    assert state.loss_scale is not None, "begin() comes first"
    if not finite:
        overflowed = state.loss_scale > SMALLEST_SCALE
        state.loss_scale = max(SMALLEST_SCALE, state.loss_scale / 2)
        state.steps_since_overflow = 0
        state.num_overflows += overflowed
        return overflowed
    state.steps_since_overflow += 1
    if state.steps_since_overflow == GROWTH_STEPS:
        state.loss_scale, state.steps_since_overflow = state.loss_scale * 2, 0
    return False
