"""The engine, killed by SIGKILL at the n-th pass of one place: `murder.py RUN_DIR PLACE N`. Tests run it."""

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from ftui.engine.__main__ import main


def deadly(function: Callable[..., Any], number: int, *, after: bool = False) -> Callable[..., Any]:
    """`function`, whose n-th call kills the process (before its work, or right after it)."""
    calls = 0

    def wrapped(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == number and not after:
            die()
        result = function(*arguments, **options)
        if calls == number:
            die()
        return result

    return wrapped


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def arm(place: str, number: int) -> None:
    import accelerate
    import torch

    import ftui.checkpoints
    from ftui.engine import evaluate, heads, recipe

    if place == "forward":
        heads.ChunkedCrossEntropy.forward = staticmethod(deadly(heads.ChunkedCrossEntropy.forward, number))  # type: ignore[method-assign]
    elif place == "backward":
        arm_backward(number)
    elif place == "optimizer":
        torch.optim.AdamW.step = deadly(torch.optim.AdamW.step, number, after=True)  # type: ignore[method-assign]
    elif place == "save":
        ftui.checkpoints._seal = deadly(ftui.checkpoints._seal, number)
    elif place == "evaluation":
        evaluate.collate = deadly(evaluate.collate, number)
    elif place == "loading":
        recipe.load_model = deadly(recipe.load_model, number, after=True)
    else:
        raise SystemExit(f"no such place: {place}")
    assert accelerate


def arm_backward(number: int) -> None:
    """Die inside the n-th backward pass, when the gradient reaches the output of the first chunk's hidden states."""
    from ftui.engine import heads

    plain = heads.ChunkedCrossEntropy.backward
    heads.ChunkedCrossEntropy.backward = staticmethod(deadly(plain, number, after=True))  # type: ignore[method-assign]


if __name__ == "__main__":
    arm(sys.argv[2], int(sys.argv[3]))
    raise SystemExit(main([sys.argv[1]]))
