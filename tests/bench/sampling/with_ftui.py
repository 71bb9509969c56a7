"""`python -m tests.bench.sampling.with_ftui MODEL`: steps of ftui's stage grpo; prints a line of JSON."""

import json
import sys
import tempfile
import time
from pathlib import Path
from unittest.mock import patch

from ftui.engine.reinforcement.generating import AnswerGeneration
from ftui.engine.reinforcement.rollout_maker import RolloutMaker
from ftui.runs.events import Step
from ftui.runs.run_folder import Run
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
from tests.support.attempts import attempt, records
from tests.support.tiny import make_profile


def main(model: str) -> None:
    clock, generating = StepClock(), list[float]()
    prepare, generate = RolloutMaker.prepare, AnswerGeneration.generate

    def begin(maker: RolloutMaker, step: int) -> None:
        clock.begin()
        prepare(maker, step)

    def timed(*given: object, **named: object) -> object:
        start = time.process_time()
        rollout = generate(*given, **named)  # type: ignore[arg-type]
        generating.append(time.process_time() - start)
        return rollout

    with tempfile.TemporaryDirectory() as folder:
        profile = make_profile(
            Path(model), write_questions(Path(folder) / "rows.jsonl"), run={"stage": "grpo"},
            adapter={"method": "lora", "r": RANK, "lora_alpha": 2 * RANK, "target_modules": LINEAR},
            data={"max_length": 512},
            grpo={"num_generations": GROUP, "max_completion_length": NEW_TOKENS},
            rewards={"reward_funcs": ["number_answer"]},
            train={"max_steps": STEPS, "per_device_train_batch_size": GROUP, "learning_rate": LEARNING_RATE},
        )  # fmt: skip
        run = Run(Path(folder) / "run")
        with patch.object(RolloutMaker, "prepare", begin), patch.object(AnswerGeneration, "generate", timed):
            assert attempt(run, profile) == 0
        lengths = [step.extras["completions/mean_length"] or 0.0 for step in records(run, Step)]
    tokens = [GROUP * length for length in lengths[1:-1]]
    print(json.dumps({"seconds": clock.seconds, "tokens": tokens, "generating": generating[1:-1]}))


if __name__ == "__main__":
    main(sys.argv[1])
