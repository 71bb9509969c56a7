"""`python -m tests.bench.sampling.with_trl MODEL`: steps of TRL's GRPOTrainer; prints a line of JSON."""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import TrainerCallback
from trl.trainer.grpo_config import GRPOConfig
from trl.trainer.grpo_trainer import GRPOTrainer

from tests.bench.sampling.setting import (
    GROUP,
    LEARNING_RATE,
    LINEAR,
    NEW_TOKENS,
    RANK,
    STEPS,
    StepClock,
    write_questions,
)


class _Clock(TrainerCallback):
    def __init__(self) -> None:
        self.clock = StepClock()

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self.clock.begin()


def reward(completions: list[Any], **_: Any) -> list[float | None]:
    return [one[0]["content"].count("e") / (1 + len(one[0]["content"])) for one in completions]


def main(model: str) -> None:
    torch.set_num_threads(1)
    clock = _Clock()
    with tempfile.TemporaryDirectory() as folder:
        rows = load_dataset("json", data_files=str(write_questions(Path(folder) / "rows.jsonl")), split="train")
        arguments = GRPOConfig(
            output_dir=folder, per_device_train_batch_size=GROUP, num_generations=GROUP, max_steps=STEPS,
            max_completion_length=NEW_TOKENS, learning_rate=LEARNING_RATE, use_cpu=True, bf16=False, report_to=[],
            gradient_checkpointing=False, logging_steps=1, save_strategy="no", seed=1, disable_tqdm=True,
        )  # fmt: skip
        trainer = GRPOTrainer(
            model, reward, args=arguments, train_dataset=rows, callbacks=[clock],
            peft_config=LoraConfig(r=RANK, lora_alpha=2 * RANK, target_modules=LINEAR, task_type="CAUSAL_LM"),
        )  # fmt: skip
        trainer.train()
        lengths = [entry["completions/mean_length"] for entry in trainer.state.log_history if "reward" in entry]
    print(json.dumps({"seconds": clock.clock.seconds, "tokens": [GROUP * length for length in lengths[1:-1]]}))


if __name__ == "__main__":
    main(sys.argv[1])
