"""Whether PPO improves a reward model's score at a bounded distance: `python -m tests.bench.ppo_learning WORKSPACE`.

From the top of the repository. A model of width 32 says a few words and ends. A reward model is made of it by stage rm,
from pairs of answers of which the better one names more of some words. Stage ppo then trains an adapter on its scores,
once for each seed. A line for each: the score of the first and of the last rollouts, how far the answers are from the
model at the start, and the share of the wanted words, which the reward model only stands for. Some 40 s a seed on one
core.
"""

import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from ftui.runs.events import EvaluationDone, Step
from ftui.runs.run_folder import Run
from tests.bench.health.record_rollouts import make_base, prompt_of
from tests.support.attempts import attempt, records
from tests.support.tiny import TEXT, make_profile, write_rows

WANTED = ("kernel", "shell", "daemon", "cache")
SEEDS = (1, 2, 3)
WINDOW = 10
"""Steps that the first and the last figures are means over."""


@dataclass(frozen=True)
class Learned:
    """What a run came to: means of the first and of the last `WINDOW` steps.

    `spread` is the standard deviation of the scores of the first step, `kl` nats an answer.
    """

    first_score: float
    last_score: float
    spread: float
    kl: float
    first_wanted: float
    last_wanted: float

    @property
    def gain(self) -> float:
        """The rise of the score in standard deviations of what the model answers at the start."""
        return (self.last_score - self.first_score) / self.spread


def wanted_share(text: str) -> float:
    """Of its words."""
    words = text.split()
    return sum(word in WANTED for word in words) / max(1, len(words))


def make_reward_model(folder: Path, base: Path, num_steps: int = 120) -> Path:
    """The result of a run of stage rm, of `num_steps` steps; only once in a folder."""
    run = Run(folder / "rm")
    if run.final.exists():
        return run.final
    chance, words = random.Random(5), TEXT.split()

    def pair() -> dict[str, Any]:
        while True:
            said = [" ".join(chance.choices(words, k=chance.randint(2, 6))) for _ in range(2)]
            worse, better = sorted(said, key=wanted_share)
            if wanted_share(better) > wanted_share(worse):
                return {"prompt": prompt_of(chance.randrange(40)), "chosen": better, "rejected": worse}

    pairs = [pair() for _ in range(600)]
    profile = make_profile(
        base, write_rows(folder / "pairs.jsonl", pairs[:500]), run={"stage": "rm"}, adapter={"method": "full"},
        data={"max_length": 64, "eval": str(write_rows(folder / "held_out.jsonl", pairs[500:]))},
        train={"max_steps": num_steps, "per_device_train_batch_size": 16, "learning_rate": 3e-3, "precision": "fp32",
               "warmup_steps": 0},
        checkpoint={"save_steps": 10_000, "save_minutes": None},
    )  # fmt: skip
    assert attempt(run, profile) == 0
    return run.final


def learn(folder: Path, base: Path, reward_model: Path, seed: int, num_steps: int = 120) -> Learned:
    """One run of stage ppo, of `num_steps` steps."""
    rows = write_rows(folder / "prompts.jsonl", [{"prompt": prompt_of(n)} for n in range(40)])
    run = Run(folder / f"ppo-{seed}")
    profile = make_profile(
        base, rows, run={"stage": "ppo"}, adapter={"method": "lora", "r": 8, "target_modules": "all-linear"},
        data={"max_length": 64},
        ppo={"max_completion_length": 24, "num_ppo_epochs": 2, "temperature": 1.0, "kl_coef": 0.05, "target": 4.0,
             "horizon": 1000, "use_score_norm": True},
        rewards={"reward_funcs": ["reward_model"], "reward_model_name_or_path": str(reward_model)},
        train={"max_steps": num_steps, "per_device_train_batch_size": 32, "learning_rate": 3e-3, "precision": "fp32",
               "warmup_steps": 0, "seed": seed},
        checkpoint={"save_steps": 10_000, "save_minutes": None}, log={"rollout_total_limit": 1000},
    )  # fmt: skip
    assert attempt(run, profile) == 0
    steps = records(run, Step)
    return Learned(
        first_score=mean_of(steps[:WINDOW], "rewards/reward_model/mean"),
        last_score=mean_of(steps[-WINDOW:], "rewards/reward_model/mean"),
        spread=mean_of(steps[:1], "rewards/reward_model/std"),
        kl=mean_of(steps[-WINDOW:], "objective/kl"),
        first_wanted=wanted_in(run, range(WINDOW // 2)),
        last_wanted=wanted_in(run, range((num_steps - WINDOW) // 2, num_steps // 2)),
    )


def mean_of(steps: Sequence[Step], name: str) -> float:
    """Of a figure of steps."""
    return fmean(float(step.extras[name] or 0) for step in steps)


def wanted_in(run: Run, numbers: Sequence[int]) -> float:
    """The share of wanted words in the answers of rollouts of these numbers."""
    from ftui.engine.rollouts.rollout_files import read_rollout
    from ftui.runs.records.rollout_records import RolloutMade

    hashes = {record.number: record.hash for record in records(run, RolloutMade)}
    texts = [text for number in numbers for text in read_rollout(run.rollouts, number, hashes[number]).completions]
    return fmean(map(wanted_share, texts))


def main(arguments: list[str]) -> None:
    """Print what each seed came to."""
    folder = Path(arguments[0])
    base = make_base(folder / "base")
    reward_model = make_reward_model(folder, base)
    judged = records(Run(folder / "rm"), EvaluationDone)[-1]
    print(f"reward model: accuracy {judged.extras['rewards/accuracies']:.2f} on pairs that it has not seen")
    for seed in SEEDS:
        found = learn(folder, base, reward_model, seed)
        print(
            f"seed {seed}: score {found.first_score:.2f} -> {found.last_score:.2f} (+{found.gain:.1f} sd), "
            f"{found.kl:.1f} nats an answer, wanted words {found.first_wanted:.0%} -> {found.last_wanted:.0%}",
            flush=True,
        )


if __name__ == "__main__":
    main(sys.argv[1:])
