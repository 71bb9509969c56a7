"""What both train on, and how: SmolLM2-135M-Instruct, an adapter, one group of answers to a question a step."""

import json
import subprocess
import sys
import time
from pathlib import Path

GROUP, NEW_TOKENS, STEPS = 8, 64, 4
"""Answers to a prompt, tokens of an answer; steps, the first and the last of which are not measured."""
RANK, LEARNING_RATE = 16, 1e-5
LINEAR = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
QUESTIONS = (
    "A farmer has 12 fields. In each of them he plants 24 rows of beans, and each row gives 3 baskets. He sells a third"
    " of them on Monday and half of what is left on Tuesday. How many baskets does he have left on Wednesday morning?",
    "A train leaves at nine and goes 80 miles an hour. Another one leaves the same station two hours later on the same "
    "track and goes 120 miles an hour. After how many hours, and how many miles away, does it reach the first one?",
    "Anna reads 14 pages of a book every morning and 22 every evening, but none on Sundays. The book has 540 pages. On"
    " which day of which week does she read the last page, if she begins on a Monday, and how many are left?",
    "A baker makes loaves of 750 grams and rolls of 60 grams from 30 kilograms of dough. He wants five times as many "
    "rolls as loaves, and to use as much of the dough as he can. How many of each does he make, and what is left over?",
)


def model_folder() -> str:
    """SmolLM2-135M-Instruct on this disk (tests/e2e/smollm2.py)."""
    made = subprocess.run([sys.executable, "tests/e2e/smollm2.py"], stdout=subprocess.PIPE, text=True, check=True)
    return made.stdout.strip()


def write_questions(path: Path) -> Path:
    rows = [{"prompt": [{"role": "user", "content": question}], "answer": "18"} for question in QUESTIONS]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


class StepClock:
    """CPU seconds of this process between the beginnings of steps."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def begin(self) -> None:
        self.times.append(time.process_time())

    @property
    def seconds(self) -> list[float]:
        """Of each step but the first, which pays for what is done once, and the last."""
        return [after - before for before, after in zip(self.times[1:], self.times[2:], strict=False)]
