"""What final/ says about itself."""

import numpy as np
import pytest

from ftui.engine.checkpoints.export import describe_weights
from ftui.engine.planning.plan import make_plan
from ftui.engine.system.train_state import TrainState


@pytest.mark.parametrize(("num_rows", "batch", "step", "last_step", "words"), [
    (8, 4, 50, 80, "step 50 of 80 (epoch 25.00)"),  # the best weights: their own epoch, not that of the last step
    (8, 4, 80, 80, "step 80 of 80 (epoch 40.00)"), (9, 4, 1, 6, "step 1 of 6 (epoch 0.33)"),
    (100, 8, 0, 13, "step 0 of 13 (epoch 0.00)"),
])  # fmt: skip
def test_weights_have_the_epoch_of_their_own_step(
    num_rows: int, batch: int, step: int, last_step: int, words: str
) -> None:
    plan = make_plan(
        np.full(num_rows, 5),
        effective_batch=batch,
        max_steps=last_step,
        num_train_epochs=None,
        strategy="random",
        seed=1,
    )
    assert describe_weights(step, TrainState(step=last_step), plan) == words
