"""Real tokens per second (padding not counted): ftui beside transformers' Trainer and TRL.

    python -m tests.bench.throughput [--steps 6] [--rounds 3] [--data FILE] [--only ftui trl_packed]

From the top of the repository, on a quiet machine; needs the extra `bench`. SmolLM2-135M-Instruct, LoRA r 16 on all
linear layers, 8 rows a step. In every round all contestants train, one after the other and each in a process of its
own, once over the same rows; only the answers are learned. The rate is that of the steps after the warm-up: real tokens
over wall time from the end of the last warm-up step to the end of the last step.

    ftui           as its profile defaults it, rows of like length together
    ftui_packed    the same with data.packing, as many tokens a step
    trainer        transformers.Trainer as it comes (no autocast; the model in bfloat16, as it is stored)
    trl            SFTTrainer as it comes (bf16 autocast, gradient checkpointing)
    trl_packed     SFTTrainer with bf16, packing, no gradient checkpointing, as many tokens a step
    trl_fp32       the same without bf16, the model in float32 (faster on a CPU without AMX)
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support import real

BATCH, MAX_LENGTH, RANK, ALPHA = 8, 1024, 16, 32
Rate = tuple[float, int]  # real tokens per second, steps it was measured over


def ftui(rows: Path, model: Path, warm_up: int, *, packing: bool = False) -> Rate:
    sections: dict[str, dict[str, Any]] = {
        "run": {"stage": "sft"},
        "model": {"name_or_path": model},
        "adapter": {"r": RANK, "lora_alpha": ALPHA},
        "data": {"train": rows, "max_length": MAX_LENGTH, "packing": packing},
        "train": {
            "per_device_train_batch_size": _packed_batch(rows, model) if packing else BATCH,
            "train_sampling_strategy": "random" if packing else "group_by_length",
        },
    }  # fmt: skip
    steps = real.train(real.open_run(rows.parent / f"ftui-{packing}", sections))
    ends = [step.time for step in steps]
    tokens = sum(step.num_tokens for step in steps[warm_up:])
    return tokens / (ends[-1] - ends[warm_up - 1]), len(steps) - warm_up


def ftui_packed(rows: Path, model: Path, warm_up: int) -> Rate:
    return ftui(rows, model, warm_up, packing=True)


def trainer(rows: Path, model: Path, warm_up: int) -> Rate:
    from peft import get_peft_model
    from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq, Trainer, TrainingArguments

    tokenizer: Any = AutoTokenizer.from_pretrained(model)
    adapted = get_peft_model(AutoModelForCausalLM.from_pretrained(model), _lora())
    examples: Any = [_labelled(tokenizer, messages) for messages in real.conversations(rows)]
    arguments = TrainingArguments(**_arguments(rows, BATCH))
    return _measured(
        Trainer(adapted, arguments, train_dataset=examples, data_collator=DataCollatorForSeq2Seq(tokenizer)), warm_up
    )


def _labelled(tokenizer: Any, messages: list[dict[str, Any]]) -> dict[str, list[int]]:
    """Token ids and labels; the prompt is not learned."""
    prompt = tokenizer.apply_chat_template(messages[:-1], add_generation_prompt=True, tokenize=False)
    text = tokenizer.apply_chat_template(messages, tokenize=False)
    ids, start = tokenizer(text).input_ids[:MAX_LENGTH], len(tokenizer(prompt).input_ids)
    return {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": [-100] * start + ids[start:]}


def trl(rows: Path, model: Path, warm_up: int) -> Rate:
    return _sft_trainer(rows, model, warm_up, BATCH)


def trl_packed(rows: Path, model: Path, warm_up: int, **options: Any) -> Rate:
    options = {"bf16": True, "packing": True, "gradient_checkpointing": False} | options
    return _sft_trainer(rows, model, warm_up, _packed_batch(rows, model), **options)


def trl_fp32(rows: Path, model: Path, warm_up: int) -> Rate:
    return trl_packed(rows, model, warm_up, bf16=False, model_init_kwargs={"dtype": "float32"})


def _sft_trainer(rows: Path, model: Path, warm_up: int, batch: int, **options: Any) -> Rate:
    from datasets import Dataset
    from trl.trainer.sft_config import SFTConfig
    from trl.trainer.sft_trainer import SFTTrainer

    pairs = [{"prompt": m[:-1], "completion": m[-1:]} for m in real.conversations(rows)]
    config = SFTConfig(**_arguments(rows, batch), max_length=MAX_LENGTH, **options)
    return _measured(
        SFTTrainer(str(model), config, train_dataset=Dataset.from_list(pairs), peft_config=_lora()), warm_up
    )


def _packed_batch(rows: Path, model: Path) -> int:
    """Packed rows that hold about as many tokens as BATCH plain ones."""
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(model)
    lengths = [len(_labelled(tokenizer, messages)["input_ids"]) for messages in real.conversations(rows)]
    return max(1, round(statistics.mean(lengths) * BATCH / MAX_LENGTH))


def _lora() -> Any:
    from peft import LoraConfig

    return LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules="all-linear", task_type="CAUSAL_LM")


def _arguments(rows: Path, batch: int) -> dict[str, Any]:
    import torch

    return {
        "output_dir": str(rows.parent / "output"), "per_device_train_batch_size": batch, "num_train_epochs": 1,
        "learning_rate": 2e-4, "save_strategy": "no", "report_to": "none", "disable_tqdm": True,
        "use_cpu": not torch.cuda.is_available(),  # TRL's bf16 insists on being told
    }  # fmt: skip


def _measured(subject: Any, warm_up: int) -> Rate:
    """Train; count the real tokens of every batch and note when every step ended."""
    from transformers import TrainerCallback

    tokens: list[int] = []
    ends: list[float] = []
    collate = subject.data_collator

    class Clock(TrainerCallback):
        def on_step_end(self, *arguments: Any, **options: Any) -> None:
            ends.append(time.perf_counter())

    def counted(examples: list[Any]) -> Any:
        batch = collate(examples)  # a batch without a mask has no padding
        tokens.append(int(batch["attention_mask"].sum()) if "attention_mask" in batch else batch["input_ids"].numel())
        return batch

    subject.data_collator = counted
    subject.add_callback(Clock)
    subject.train()
    return sum(tokens[warm_up : len(ends)]) / (ends[-1] - ends[warm_up - 1]), len(ends) - warm_up


CONTESTANTS: dict[str, Callable[[Path, Path, int], Rate]] = {
    "ftui": ftui, "ftui_packed": ftui_packed, "trainer": trainer,
    "trl": trl, "trl_packed": trl_packed, "trl_fp32": trl_fp32,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=6, help="steps measured")
    parser.add_argument("--warm-up", type=int, default=2, help="steps before them")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--data", type=Path, default=real.INSTRUCTIONS)
    parser.add_argument("--only", nargs="+", choices=CONTESTANTS, default=list(CONTESTANTS))
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        name, rows = options.worker
        print(json.dumps(CONTESTANTS[name](Path(rows), real.smollm2(), options.warm_up)))
        return
    rates: dict[str, list[float]] = {name: [] for name in options.only}
    for number in range(options.rounds):
        order = options.only if number % 2 == 0 else options.only[::-1]
        for name in order:
            with tempfile.TemporaryDirectory() as folder:
                rows = Path(folder) / "rows.jsonl"
                real.write_sample(options.data, rows, num_rows=(options.warm_up + options.steps) * BATCH, seed=number)
                worker = ("--worker", name, str(rows), "--warm-up", str(options.warm_up))
                rate, steps = real.fresh_process("tests.bench.throughput", *worker)
            rates[name].append(rate)
            print(f"round {number + 1}: {name} {rate:.1f} tokens/s over {steps} steps", file=sys.stderr, flush=True)
        print(f"after {number + 1} of {options.rounds} rounds\n{table(rates)}", flush=True)


def table(rates: dict[str, list[float]]) -> str:
    """Median, range, and the ratio of the medians to the first contestant's."""
    first = statistics.median(next(iter(rates.values())))
    lines = [f"{'':12} {'tokens/s':>9} {'min':>8} {'max':>8} {'ratio':>7}"]
    for name, values in rates.items():
        middle = statistics.median(values)
        lines.append(f"{name:12} {middle:9.1f} {min(values):8.1f} {max(values):8.1f} {middle / first:7.2f}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
