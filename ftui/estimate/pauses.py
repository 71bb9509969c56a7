"""How often a run stops training to evaluate and to save, as engine/training/triggers.py decides it."""

import math
from typing import Any


def num_evaluations(section: Any, num_steps: int, steps_per_epoch: int) -> int:
    """Evaluations of a run with rows to evaluate on. `section` is the profile's `[eval]`."""
    at = {num_steps} | ({0} if section.eval_on_start else set())
    if section.eval_strategy == "epoch":
        at |= {
            n for n in range(steps_per_epoch, num_steps, steps_per_epoch) if n / steps_per_epoch >= section.eval_delay
        }
    if section.eval_strategy == "steps":
        period = _in_steps(section.eval_steps, num_steps)
        at |= {n for n in range(period, num_steps, period) if n >= section.eval_delay}
    return len(at)


def num_checkpoints(section: Any, num_steps: int, steps_per_epoch: int) -> int:
    """Checkpoints by number of steps and the last one; those by time and of the best model come on top.

    `section` is the profile's `[checkpoint]`.
    """
    period = {"epoch": steps_per_epoch, "steps": section.save_steps and _in_steps(section.save_steps, num_steps)}
    every = period.get(section.save_strategy)
    return 1 + ((num_steps - 1) // every if every else 0)


def _in_steps(period: int | float, num_steps: int) -> int:
    return int(period) if period >= 1 else math.ceil(num_steps * period)
