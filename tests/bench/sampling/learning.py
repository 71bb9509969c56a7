"""Reward curves of ftui's stage grpo beside TRL's GRPOTrainer: `python -m tests.bench.sampling.learning [SEED ...]`.

A Llama of two layers with random weights learns to answer with one letter. Both get the same model, prompts,
hyperparameters and number of answers of at most so many tokens; what they draw differs, so a few seeds tell nothing.
It prints a table in Markdown: rewards as means of five steps, at the start, and up to each quarter.
"""

import os
import sys
import tempfile
from contextlib import redirect_stdout
from pathlib import Path
from statistics import mean
from typing import Any

import torch

from ftui.profile.consent import keep_consents
from ftui.runs.events import Step
from ftui.runs.run_folder import Run
from tests.support.attempts import RUN_ID, attempt, records
from tests.support.tiny import make_model, make_profile, write_rows

STEPS, ANSWERS, GROUP, NEW_TOKENS, LEARNING_RATE = 60, 64, 8, 12, 3e-3
REWARD = '''
def letter(completions, **columns):
    """The share of an answer's characters that are the letter e."""
    return [text.count("e") / max(1, len(text)) for text in completions]
'''
SHOWN = 5


def make_rows(path: Path) -> Path:
    return write_rows(path, [{"prompt": f"{n} times the letter e :"} for n in range(64)])


def with_ftui(folder: Path, model: Path, rows: Path, seed: int, **keys: Any) -> list[float]:
    """The mean reward of each step."""
    (folder / "rewards.py").write_text(REWARD)
    profile = make_profile(
        model, rows, run={"stage": "grpo"}, data={"max_length": 64},
        grpo={"num_generations": GROUP, "max_completion_length": NEW_TOKENS, **keys},
        rewards={"reward_funcs": [f"{folder / 'rewards'}.py:letter"]},
        train={"max_steps": STEPS, "per_device_train_batch_size": ANSWERS, "learning_rate": LEARNING_RATE,
               "lr_scheduler_type": "constant", "warmup_steps": 0, "seed": seed},
    )  # fmt: skip
    keep_consents(profile, RUN_ID)
    run = Run(folder / "run")
    assert attempt(run, profile) == 0
    return [float(step.extras["reward"] or 0.0) for step in records(run, Step)]


def with_trl(folder: Path, model: Path, rows: Path, seed: int) -> list[float]:
    """The same with TRL's trainer."""
    from datasets import load_dataset
    from trl.trainer.grpo_config import GRPOConfig
    from trl.trainer.grpo_trainer import GRPOTrainer

    names: dict[str, Any] = {}
    exec(REWARD, names)
    arguments = GRPOConfig(
        output_dir=str(folder), per_device_train_batch_size=ANSWERS, num_generations=GROUP, max_steps=STEPS,
        max_completion_length=NEW_TOKENS, learning_rate=LEARNING_RATE, lr_scheduler_type="constant", warmup_steps=0,
        use_cpu=True, bf16=False, report_to=[], gradient_checkpointing=False, logging_steps=1, save_strategy="no",
        seed=seed, disable_tqdm=True,
    )  # fmt: skip
    data = load_dataset("json", data_files=str(rows), split="train", cache_dir=str(folder / "cache"))
    trainer = GRPOTrainer(str(model), names["letter"], args=arguments, train_dataset=data)
    trainer.train()
    return [float(entry["reward"]) for entry in trainer.state.log_history if "reward" in entry]


def describe(name: str, seed: int, rewards: list[float]) -> str:
    """A line of the table."""
    assert len(rewards) == STEPS
    ends = [SHOWN, *(STEPS * part // 4 for part in (1, 2, 3, 4))]
    return f"| {name} | {seed} | " + " | ".join(f"{mean(rewards[end - SHOWN : end]):.3f}" for end in ends) + " |"


def main(seeds: list[int]) -> None:
    torch.set_num_threads(1)
    quarters = " | ".join(f"step {STEPS * part // 4}" for part in (1, 2, 3, 4))
    print(f"| | seed | start | {quarters} |\n|---|---|---|---|---|---|---|", flush=True)
    for seed in seeds:
        for name, learn in (("ftui", with_ftui), ("TRL", with_trl)):
            with tempfile.TemporaryDirectory() as place:
                folder = Path(place)
                os.environ["XDG_STATE_HOME"] = str(folder / "state")
                with redirect_stdout(sys.stderr):
                    rewards = learn(folder, make_model(folder / "model"), make_rows(folder / "rows.jsonl"), seed)
            print(describe(name, seed, rewards), flush=True)


if __name__ == "__main__":
    main([int(text) for text in sys.argv[1:]] or [*range(1, 13)])
