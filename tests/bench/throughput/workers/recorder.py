"""What a contestant's process notes of its steps. Imports nothing that only one contestant has."""

import json
import time
from pathlib import Path
from typing import Any


class Recorder:
    """Collects micro-batches and writes one line per optimizer step: its end, its tokens and its mean loss."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.steps: list[dict[str, Any]] = []
        self._nll, self._tokens, self._targets = 0.0, 0, 0
        self._log_probs: list[tuple[float, float]] = []

    def add(self, nll: float, num_tokens: int, num_targets: int) -> None:
        """A micro-batch: its negative log-likelihood (a sum), its tokens without padding, its target tokens."""
        self._nll += nll
        self._tokens += num_tokens
        self._targets += num_targets

    def add_pairs(self, loss: float, log_probs: tuple[float, float]) -> None:
        """A micro-batch of pairs: its part of the step's loss, means of the summed log-probabilities of both sides.

        It counts as one target, so that the mean of a step is the sum of these parts; tokens are counted elsewhere.
        """
        self._nll, self._targets = self._nll + loss, 1
        self._log_probs.append(log_probs)

    def end_step(self) -> None:
        step = {
            "time": time.time(), "loss": self._nll / self._targets, "num_tokens": self._tokens,
            "num_target_tokens": self._targets,
            "log_probs": [sum(side) / len(self._log_probs) for side in zip(*self._log_probs, strict=True)],
        }  # fmt: skip
        self.steps.append(step)
        with self.path.open("a") as file:
            file.write(json.dumps(step) + "\n")
        self._nll, self._tokens, self._targets = 0.0, 0, 0
        self._log_probs = []


def record_trainer(recorder: Recorder, *, is_pairs: bool = False) -> None:
    """Have transformers' Trainer, and all that is built on it, tell the recorder of its steps."""
    from transformers import Trainer
    from transformers.trainer_callback import CallbackHandler

    train, end = Trainer.training_step, CallbackHandler.on_step_end

    def training_step(self: Any, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Any:
        if is_pairs:
            loss = train(self, model, inputs, num_items_in_batch)  # divided by the number of micro-batches
            metrics = getattr(self, "_stored_metrics", None) or self._metrics  # LLaMA-Factory's, TRL's
            chosen, rejected = (float(metrics["train"][f"logps/{side}"][-1]) for side in ("chosen", "rejected"))
            recorder.add_pairs(float(loss), (chosen, rejected))
            return loss
        targets = int((inputs["labels"][:, 1:] != -100).sum())
        mask = inputs.get("attention_mask")  # a batch without one has no padding
        tokens = inputs["input_ids"].numel() if mask is None or mask.dim() != 2 else int((mask > 0).sum())
        loss = train(self, model, inputs, num_items_in_batch)
        divisor = targets if num_items_in_batch is None else float(num_items_in_batch)
        recorder.add(float(loss) * divisor, tokens, targets)
        return loss

    def on_step_end(self: Any, *arguments: Any, **options: Any) -> Any:
        recorder.end_step()
        return end(self, *arguments, **options)

    Trainer.training_step = training_step  # type: ignore[method-assign]
    CallbackHandler.on_step_end = on_step_end  # type: ignore[method-assign]
