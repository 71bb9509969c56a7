"""Records real runs, sound ones and runs with a real fault, as small files for the rules of a run's health.

    python -m tests.bench.health.record WORKSPACE [NAME ...]

From the top of the repository. Each trains the model of the quickstart on rows of the quickstart, with the real engine,
for a minute or two on a CPU. What is kept of it (tests/fixtures/health/NAME.json): the figures of its steps by column,
its evaluations, and how it ended.
"""

import json
import os
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ftui.runs.events import EvaluationDone, RunFailed, RunStarted, Step
from ftui.runs.journal import Tail
from ftui.runs.run_folder import Run
from ftui.supervisor.engine_process import start_engine
from tests.support import real

QUICKSTART = real.ROOT / "profiles" / "quickstart"
TARGET = real.ROOT / "tests" / "fixtures" / "health"
COLUMNS = (
    "step", "epoch", "loss", "learning_rate", "grad_norm", "num_tokens", "num_target_tokens", "tokens_per_second",
    "data_seconds", "forward_backward_seconds", "optimizer_seconds", "rest_seconds", "applied",
)  # fmt: skip
Rows = list[dict[str, Any]]
Sections = dict[str, dict[str, Any]]


def instructions(limit: int | None = None) -> Rows:
    """Rows of the quickstart: a question and its answer."""
    lines = (QUICKSTART / "instructions.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines[:limit]]


def shuffle_answers(rows: Rows) -> Rows:
    """Each question with the answer to another one."""
    answers = [row["messages"][1] for row in rows]
    random.Random(1).shuffle(answers)
    return [{"messages": [row["messages"][0], answer]} for row, answer in zip(rows, answers, strict=True)]


def corrupt(rows: Rows, number: int = 40) -> Rows:
    """One row holds what a broken export leaves: letters without order."""
    letters = random.Random(2).choices("qxzjvkwQXZJVKW#@$%^&*~|<>{}0123456789", k=1500)
    broken = {"messages": [rows[number]["messages"][0], {"role": "assistant", "content": "".join(letters)}]}
    return [*rows[:number], broken, *rows[number + 1 :]]


def run_sections(folder: Path, rows: Rows, stage: str, **changed: Any) -> Sections:
    """The profile of a run on these rows; `changed` are keys of [train], or of [adapter] and [eval] where they stand
    there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    evaluated = instructions_or_corpus(stage)
    (folder / "eval.jsonl").write_text("".join(json.dumps(row) + "\n" for row in evaluated))
    train = {
        "max_steps": 220, "per_device_train_batch_size": 8, "learning_rate": 4e-3, "precision": "fp32",
        "lr_scheduler_type": "cosine", "warmup_steps": 0.03, "train_sampling_strategy": "group_by_length",
    }  # fmt: skip
    adapter = {"method": "lora", "r": 16, "lora_alpha": 32, "target_modules": "all-linear"}
    for key in ("method", "r"):
        if key in changed:
            adapter[key] = changed.pop(key)
    if adapter["method"] == "full":
        adapter = {"method": "full"}
    return {
        "run": {"stage": stage, "name": folder.name},
        "model": {"name_or_path": str(QUICKSTART / "base")},
        "adapter": adapter,
        "data": {"train": str(folder / "rows.jsonl"), "eval": str(folder / "eval.jsonl"), "max_length": 192},
        "train": train | changed,
        "eval": {"eval_strategy": "steps", "eval_steps": 20, "per_device_eval_batch_size": 20},
        "checkpoint": {"save_steps": 10_000, "save_minutes": None},
    }


def instructions_or_corpus(stage: str) -> Rows:
    """40 rows that no run trains on."""
    if stage == "sft":
        return [json.loads(line) for line in (QUICKSTART / "eval.jsonl").read_text().splitlines()[:40]]
    return [json.loads(line) for line in (QUICKSTART / "corpus.jsonl").read_text().splitlines()[-40:]]


def corpus() -> Rows:
    """Plain text of the quickstart, but for what is evaluated on."""
    return [json.loads(line) for line in (QUICKSTART / "corpus.jsonl").read_text().splitlines()[:-40]]


def sound(**changed: Any) -> Callable[[Path], Sections]:
    """A run on rows as they are."""
    return lambda folder: run_sections(folder, instructions(), "sft", **changed)


def faulty(alter: Callable[[Rows], Rows], **changed: Any) -> Callable[[Path], Sections]:
    """A run on altered rows."""
    return lambda folder: run_sections(folder, alter(instructions()), "sft", **changed)


def pretrained(**changed: Any) -> Callable[[Path], Sections]:
    """A run on plain text."""
    return lambda folder: run_sections(folder, corpus(), "pretrain", **changed)


HEALTHY: dict[str, Callable[[Path], Sections]] = {
    "healthy-lora-1": sound(),
    "healthy-lora-2": sound(seed=2, learning_rate=2e-3),
    "healthy-lora-3": sound(seed=3, per_device_train_batch_size=4),
    "healthy-lora-4": sound(seed=4, r=4, learning_rate=1e-3),
    "healthy-random-order": sound(seed=5, train_sampling_strategy="random"),
    "healthy-linear": sound(seed=6, lr_scheduler_type="linear"),
    "healthy-constant": sound(seed=7, lr_scheduler_type="constant", learning_rate=1e-3),
    "healthy-full-1": sound(seed=8, method="full", learning_rate=5e-4),
    "healthy-full-2": sound(seed=9, method="full", learning_rate=1e-3, per_device_train_batch_size=4),
    "healthy-pretrain-1": pretrained(seed=10),
    "healthy-pretrain-2": pretrained(seed=11, method="full", learning_rate=5e-4),
    "healthy-small-steps": sound(seed=12, per_device_train_batch_size=2, max_steps=400),
}  # fmt: skip
FAULTY: dict[str, Callable[[Path], Sections]] = {
    "rate-x30-1": sound(learning_rate=0.12),
    "rate-x30-2": sound(seed=2, method="full", learning_rate=0.015),
    "rate-x30-3": pretrained(seed=3, learning_rate=0.12),
    "shuffled-1": faulty(shuffle_answers),
    "shuffled-2": faulty(shuffle_answers, seed=2, method="full", learning_rate=5e-4),
    "corrupt-row-1": faulty(lambda rows: corrupt(rows[:600])),
    "corrupt-row-2": faulty(lambda rows: corrupt(rows[:600]), seed=2, learning_rate=2e-3),
    "corrupt-row-3": faulty(lambda rows: corrupt(rows[:600]), seed=3, method="full", learning_rate=5e-4),
    "duplicated-1": faulty(lambda rows: rows[:24] * 60, method="full", learning_rate=1e-3),
    "duplicated-2": faulty(lambda rows: rows[100:116] * 60, seed=2),
    "frozen-b-1": sound(),
    "frozen-b-2": sound(seed=2, r=4),
    "frozen-b-of-one-1": sound(seed=3),
    "slow-loader-1": sound(max_steps=80),
    "slow-loader-2": pretrained(seed=2, max_steps=80),
    "fp16-overflow-1": sound(max_steps=80),
    "rate-too-low-1": sound(learning_rate=1e-7, max_steps=300, lr_scheduler_type="constant"),
    "rate-too-low-2": pretrained(learning_rate=1e-8, max_steps=300, lr_scheduler_type="constant"),
}  # fmt: skip
IN_ENGINE = ("frozen-b-of-one", "frozen-b", "slow-loader", "fp16-overflow")
"""Faults of tests/bench/health/faulty_engine.py, as the names of runs begin."""


def train(run: Run, name: str) -> None:
    """Train with the real engine, or with one that has the fault of this name."""
    environment = os.environ | {"FTUI_CACHE": str(run.folder / "cache"), "HF_HUB_OFFLINE": "1"}
    fault = next((fault for fault in IN_ENGINE if name.startswith(fault)), None)
    module = ["ftui.engine"] if fault is None else ["tests.bench.health.faulty_engine", fault]
    engine = start_engine(run, [sys.executable, "-P", "-m", *module, str(run.folder)], environment)
    while not engine.has_ended():
        time.sleep(0.2)


def rounded(value: Any) -> Any:
    """Five digits tell all that a rule asks."""
    return float(f"{value:.5g}") if isinstance(value, float) else value


def recorded(run: Run) -> dict[str, Any]:
    """What is kept of a run."""
    steps = [record for record in Tail(run.metrics).read() if isinstance(record, Step)]
    journal = Tail(run.journal).read()
    (start,) = [record for record in journal if isinstance(record, RunStarted)]
    evaluations = [record for record in journal if isinstance(record, EvaluationDone)]
    failures = [record.error for record in journal if isinstance(record, RunFailed)]
    return {
        "max_steps": start.max_steps,
        "steps_per_epoch": start.steps_per_epoch,
        "num_train_rows": start.num_train_rows,
        "num_eval_rows": start.num_eval_rows,
        "steps": {name: [rounded(getattr(step, name)) for step in steps] for name in COLUMNS},
        "times": [round(step.time - steps[0].time, 2) for step in steps],
        "evaluations": [[one.step, rounded(one.loss)] for one in evaluations],
        "error": failures[0].replace(f"{run.folder}/", "") if failures else "",
    }


def main(arguments: list[str]) -> None:
    """Record each run of these names, all without any, that is not recorded yet."""
    workspace, *names = arguments
    every = HEALTHY | FAULTY
    TARGET.mkdir(parents=True, exist_ok=True)
    for name in names or every:
        target = TARGET / f"{name}.json"
        if target.exists():
            continue
        folder = Path(workspace) / name
        run = real.open_run(folder / "run", every[name](folder))
        train(run, name)
        target.write_text(json.dumps(recorded(run), separators=(",", ":")) + "\n")
        print(name, "recorded", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
