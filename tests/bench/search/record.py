"""Trains the trials that the schedulers are compared on, each to the end, and keeps their evaluation losses.

    python -m tests.bench.search.record --seed 1 2 3

From the top of the repository; about 4 minutes a seed on one core. The trials are quickstart's model and rows with the
values that the sampler `random` draws for that seed; the seed is that of the training too.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from ftui.engine.system.environment import settle_environment
from ftui.sweep.promotion import Ladder
from ftui.sweep.samplers import AskedTrial, SearchQuestion, ask
from ftui.sweep.space import Dimension, ValueList, ValueRange

CURVES = Path(__file__).parent / "curves.json"
QUICKSTART = Path("profiles/quickstart").absolute()
NUM_TRIALS, STEPS, EVERY = 16, 81, 9
SPACE: tuple[Dimension, ...] = (
    ValueRange("train.learning_rate", 3e-4, 1e-1, log=True), ValueList("adapter.r", (4, 16, 64)),
    ValueRange("adapter.lora_dropout", 0.0, 0.3), ValueList("train.adam_beta2", (0.95, 0.999)),
)  # fmt: skip


def points(seed: int) -> list[dict[str, Any]]:
    """The values of each trial of a seed."""
    from ftui.sweep.promotion import TrialStand

    asked: list[AskedTrial] = []
    for number in range(NUM_TRIALS):
        point = ask("random", SearchQuestion(SPACE, seed, Ladder((STEPS,)), asked))
        assert point is not None
        asked.append(AskedTrial(point, TrialStand(number)))
    return [dict(trial.point) for trial in asked]


def sections(point: dict[str, Any], seed: int) -> dict[str, dict[str, Any]]:
    """The profile of a trial, beside what `tiny.make_profile` says."""
    of_point: dict[str, dict[str, Any]] = {"train": {}, "adapter": {}}
    for key, value in point.items():
        table, _, name = key.partition(".")
        of_point[table][name] = value
    return {
        "adapter": {"method": "lora", "target_modules": "all-linear", **of_point["adapter"]}
        | {"lora_alpha": 2 * point["adapter.r"]},
        "data": {"eval": str(QUICKSTART / "eval.jsonl"), "max_length": 160},
        "train": {"max_steps": STEPS, "per_device_train_batch_size": 8, "seed": seed, **of_point["train"]}
        | {"train_sampling_strategy": "group_by_length"},
        "eval": {"eval_strategy": "steps", "eval_steps": EVERY, "per_device_eval_batch_size": 32},
    }


def train_trial(folder: Path, point: dict[str, Any], seed: int) -> dict[str, Any]:
    """Its values, seconds, and evaluation loss by step; where it diverged there are fewer."""
    from ftui.errors import NonFiniteError
    from ftui.runs.events import EvaluationDone
    from ftui.runs.journal import Tail
    from tests.support import tiny

    profile = tiny.make_profile(QUICKSTART / "base", QUICKSTART / "instructions.jsonl", **sections(point, seed))
    start = time.monotonic()
    try:
        tiny.train_run(folder, profile)
    except NonFiniteError as error:
        print(f"{folder.name}: {error}")
    losses = {one.step: one.loss for one in Tail(folder / "journal.jsonl").read() if isinstance(one, EvaluationDone)}
    losses.pop(0, None)
    return {"values": point, "seconds": round(time.monotonic() - start, 1), "losses": losses}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, nargs="+", default=[1, 2, 3])
    settle_environment()
    for seed in parser.parse_args().seed:
        trials = []
        with tempfile.TemporaryDirectory() as folder:
            for number, point in enumerate(points(seed)):
                trials.append(train_trial(Path(folder) / f"trial-{number:02d}", point, seed))
                print(seed, number, trials[-1]["losses"].get(STEPS), trials[-1]["seconds"], flush=True)
        known = json.loads(CURVES.read_text()) if CURVES.exists() else {}
        known[str(seed)] = trials
        CURVES.write_text(json.dumps(known, indent=1) + "\n")


if __name__ == "__main__":
    main()
