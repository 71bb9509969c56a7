"""What a call of reward functions costs beside their own work: `python -m tests.bench.reward_calls [--calls 400]`.

Three functions that give a number at once, each in its process, are asked about 64 answers of 256 tokens, again and
again. The wall time of a call, and the CPU time of the engine's process: the machine may be at other work.
"""

import argparse
import os
import tempfile
import time
from pathlib import Path

import numpy as np

from ftui.engine.rewards.reward_specs import RewardSpec
from ftui.engine.rewards.score_answers import open_rewards

ANSWERS, TOKENS = 64, 256
CODE = "def {name}(completions, **_): return [1.0] * len(completions)\n"
NAMES = ("first", "second", "third")


def measure(calls: int) -> tuple[np.ndarray, np.ndarray]:
    """(calls,) milliseconds of wall time, and of CPU time, of each call."""
    specs = [RewardSpec(name, f"rewards.py:{name}", code=CODE.format(name=name)) for name in NAMES]
    prompts, answers = ["How many words are there? " * 8] * ANSWERS, ["an answer of some words " * 50] * ANSWERS
    ids, columns = [list(range(1000, 1000 + TOKENS))] * ANSWERS, {"answer": ["12"] * ANSWERS}
    wall, own = [], []
    with (
        tempfile.TemporaryDirectory() as folder,
        open_rewards(specs, log=Path(folder) / "rewards.log", warn=print) as rewards,
    ):
        for _ in range(calls + 10):
            begun, used = time.perf_counter(), time.process_time()
            rewards.score(prompts, answers, ids, columns)
            wall.append(1000 * (time.perf_counter() - begun))
            own.append(1000 * (time.process_time() - used))
    return np.array(wall[10:]), np.array(own[10:])


def main() -> None:
    """Print both."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--calls", type=int, default=400)
    wall, own = measure(parser.parse_args().calls)
    for name, values in (("wall", wall), ("CPU of the engine", own)):
        print(f"{name}: median {np.median(values):.2f} ms, 99th percentile {np.quantile(values, 0.99):.2f} ms")
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
