"""The engine, killed by SIGKILL at the n-th pass of one place: `murder.py RUN_DIR PLACE N`. Tests run it."""

import os
import signal
import sys
from typing import Any

from ftui.engine.__main__ import main


def kill_at(owner: Any, name: str, number: int, *, after: bool = False, static: bool = False) -> None:
    """Replace `owner.name` by itself, except that its n-th call kills the process (before its work, or after it)."""
    function = getattr(owner, name)
    calls = 0

    def deadly(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == number and not after:
            die()
        result = function(*arguments, **options)
        if calls == number:
            die()
        return result

    setattr(owner, name, staticmethod(deadly) if static else deadly)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def arm(place: str, number: int) -> None:
    import torch

    import ftui.checkpoints
    from ftui.engine import evaluate, heads, recipe

    if place == "forward":
        kill_at(heads.ChunkedCrossEntropy, "forward", number, static=True)
    elif place == "backward":  # inside the n-th backward pass, when the gradient reaches the hidden states
        kill_at(heads.ChunkedCrossEntropy, "backward", number, static=True, after=True)
    elif place == "optimizer":
        kill_at(torch.optim.AdamW, "step", number, after=True)
    elif place == "save":
        kill_at(ftui.checkpoints, "_seal", number)
    elif place == "evaluation":
        kill_at(evaluate, "collate", number)
    elif place == "loading":
        kill_at(recipe, "load_model", number, after=True)
    else:
        raise SystemExit(f"no such place: {place}")


if __name__ == "__main__":
    arm(sys.argv[2], int(sys.argv[3]))
    raise SystemExit(main([sys.argv[1]]))
