"""Real tokens per second and peak memory of each method, ftui beside TRL; and of two ranks beside one.

    python -m tests.bench.methods [--steps 4] [--rounds 3] [--only ftui_lora trl_lora]

From the top of the repository, on a quiet machine; needs the extra `bench`. SmolLM2-135M-Instruct in float32, 8 rows a
step, rows of like length together, no packing, no activation checkpointing, the same rows; only answers are learned.
In every round all contestants train, one after the other and each in a process of its own. The rate is that of the
steps after the warm-up. The memory is the largest resident size the training process ever had (of both ranks together
where there are two).

    *_lora      r 16 on all linear layers          *_qlora     the same on a base in NF4, double quantised
    *_full      every weight                       ftui_freeze the last 6 of the 30 layers
    ftui_one    LoRA, one process with one thread  ftui_ranks  LoRA, two processes with one thread each
    ftui_two    LoRA, one process with two threads
"""

import argparse
import json
import resource
import statistics
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tests.bench.throughput import ALPHA, BATCH, MAX_LENGTH, RANK, _arguments, _lora, _measured
from tests.support import real

METHODS: dict[str, dict[str, Any]] = {
    "lora": {"r": RANK, "lora_alpha": ALPHA},
    "qlora": {"method": "qlora", "r": RANK, "lora_alpha": ALPHA},
    "full": {"method": "full"},
    "freeze": {"method": "freeze", "trainable_layers": 6},
}
Figures = tuple[float, int]  # tokens per second, bytes


def ftui(rows: Path, model: Path, warm_up: int, method: str = "lora", **hardware: int) -> Figures:
    ranks = hardware.get("num_processes", 1)
    sections: dict[str, dict[str, Any]] = {
        "run": {"stage": "sft"},
        "model": {"name_or_path": model},
        "adapter": METHODS[method],
        "data": {"train": rows, "max_length": MAX_LENGTH},
        "train": {
            "per_device_train_batch_size": BATCH // ranks, "train_sampling_strategy": "group_by_length",
            "precision": "fp32", "learning_rate": 2e-4 if method != "full" else 2e-5,
        },
        "checkpoint": {"save_steps": None, "save_minutes": None},
        "hardware": hardware,
    }  # fmt: skip
    steps = real.train(real.open_run(rows.parent / "run", sections))
    tokens = sum(step.num_tokens for step in steps[warm_up:])
    return tokens / (steps[-1].time - steps[warm_up - 1].time), real.peak_memory_of_children() * ranks


def trl(rows: Path, model: Path, warm_up: int, method: str) -> Figures:
    import torch
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig
    from trl.trainer.sft_config import SFTConfig
    from trl.trainer.sft_trainer import SFTTrainer

    quantization = BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.float32,
    )  # fmt: skip
    options = {"quantization_config": quantization} if method == "qlora" else {}
    base = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32, **options)
    pairs = [{"prompt": m[:-1], "completion": m[-1:]} for m in real.conversations(rows)]
    config = SFTConfig(
        **_arguments(rows, BATCH), max_length=MAX_LENGTH, bf16=False, gradient_checkpointing=False,
        train_sampling_strategy="group_by_length",
    )  # fmt: skip
    trainer = SFTTrainer(
        base, config, train_dataset=Dataset.from_list(pairs), peft_config=None if method == "full" else _lora()
    )
    rate, _ = _measured(trainer, warm_up)
    return rate, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


CONTESTANTS: dict[str, Callable[[Path, Path, int], Figures]] = {
    **{f"ftui_{method}": partial(ftui, method=method) for method in METHODS},
    **{f"trl_{method}": partial(trl, method=method) for method in ("lora", "qlora", "full")},
    "ftui_one": partial(ftui, num_threads=1),
    "ftui_two": partial(ftui, num_threads=2),
    "ftui_ranks": partial(ftui, num_threads=1, num_processes=2),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=4, help="steps measured")
    parser.add_argument("--warm-up", type=int, default=2, help="steps before them")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=CONTESTANTS, default=list(CONTESTANTS))
    parser.add_argument("--worker", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        name, rows, model = options.worker
        print(json.dumps(CONTESTANTS[name](Path(rows), Path(model), options.warm_up)))
        return
    figures: dict[str, list[Figures]] = {name: [] for name in options.only}
    model = str(real.smollm2())
    for number in range(options.rounds):
        order = options.only if number % 2 == 0 else options.only[::-1]
        for name in order:
            with tempfile.TemporaryDirectory() as folder:
                rows = Path(folder) / "rows.jsonl"
                num_rows = (options.warm_up + options.steps) * BATCH
                real.write_sample(real.INSTRUCTIONS, rows, num_rows=num_rows, seed=number)
                worker = ("--worker", name, str(rows), model, "--warm-up", str(options.warm_up))
                rate, memory = real.fresh_process("tests.bench.methods", *worker)
            figures[name].append((rate, memory))
            print(f"round {number + 1}: {name} {rate:.1f} tokens/s, {memory / 2**30:.2f} GiB", file=sys.stderr)
        print(f"after {number + 1} of {options.rounds} rounds\n{table(figures)}", flush=True)


def table(figures: dict[str, list[Figures]]) -> str:
    lines = [f"{'':12} {'tokens/s':>9} {'min':>8} {'max':>8} {'peak GiB':>9}"]
    for name, found in figures.items():
        if found:
            rates = [rate for rate, _ in found]
            peak = max(memory for _, memory in found) / 2**30
            middle = statistics.median(rates)
            lines.append(f"{name:12} {middle:9.1f} {min(rates):8.1f} {max(rates):8.1f} {peak:9.2f}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
