"""An engine with something wrong in it: `python -P -m tests.bench.health.faulty_engine FAULT RUN_DIR`.

What cannot be wrong in rows or profile is put into the engine's own functions here: it is the same engine otherwise.
"""

import sys
import time
from importlib import import_module
from typing import Any

SLOW_SECONDS = 0.4
"""What a micro-batch takes to be read: about twice as long as its step."""


def freeze_b(skipped: str = "") -> None:
    """The second matrix of every adapter keeps its zeros: the adapter stays without effect."""
    recipe: Any = import_module("ftui.engine.recipe")
    assemble = recipe.assemble

    def assembled(*given: Any) -> Any:
        parts = assemble(*given)
        for name, weight in parts.model.named_parameters():
            if "lora_B" in name and (not skipped or skipped in name):
                weight.requires_grad_(False)
        return parts

    recipe.assemble = assembled


def slow_loader() -> None:
    """Every micro-batch is read from a disk that takes its time."""
    prefetch: Any = import_module("ftui.engine.training.prefetch")
    collate = prefetch.collate_examples

    def late(*given: Any) -> Any:
        time.sleep(SLOW_SECONDS)
        return collate(*given)

    prefetch.collate_examples = late


def overflow() -> None:
    """From step 30 on what is added up in half precision passes its greatest number (65,504)."""
    forward_backward: Any = import_module("ftui.engine.training.forward_backward")
    backpropagate, calls = forward_backward.backpropagate, [0]

    def overflowing(*given: Any) -> Any:
        calls[0] += 1
        loss = backpropagate(*given)
        if calls[0] > 30:
            import torch

            for weight in given[0].parameters():
                if weight.grad is not None:
                    weight.grad = (weight.grad * 1e6).to(torch.float16).float()
        return loss

    forward_backward.backpropagate = overflowing


FAULTS = {
    "frozen-b": freeze_b,
    "frozen-b-of-one": lambda: freeze_b("layers.0.mlp.down_proj"),
    "slow-loader": slow_loader,
    "fp16-overflow": overflow,
}


def main(arguments: list[str]) -> int:
    """The engine's exit code."""
    from ftui.engine.__main__ import main as engine

    FAULTS[arguments[0]]()
    return engine(arguments[1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
