"""Rows read, tokenised and reported, beside `datasets.map`: rows per second, and the most memory of all processes.

    python -m tests.bench.data [--rows 1000000] [--processes N] [--rounds 1] [--only ftui datasets masks]
                                [--file ROWS.jsonl]

From the top of the repository, on a quiet machine. The rows are made of the shipped conversations: the sentences of an
answer in another order, a number in the question, so that no two are the same; or they are those of a file in the form
`messages`. The tokenizer is SmolLM2's. In every round all contestants work, one after the other, each in fresh
processes and with empty caches:

    ftui      read, template, tokens, the loss mask, facts about each row, the store, the report; and the same
              again as a second start
    datasets  load_dataset("json"), and map (batched, as many processes): apply_chat_template, then the tokenizer; which
              tokens are trained on is left out
    masks     the same and which tokens are trained on, by the marks of a template, a row at a time as TRL 1.16 does

`cpu s` are the seconds of all cores, imports included, with the least and the most of all rounds; of ftui they are
those of both starts together. Memory is the most that all processes of a contestant held at one moment, looked at five
times a second: `rss` counts what they share once for each, `pss` once in all. Mapped files count as long as their pages
are in memory.
"""

import argparse
import json
import random
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil

from ftui.hardware.cpu import usable_cores
from tests.support import real

LOOK_SECONDS = 0.2
MIB = 2**20
MARKED = (  # SmolLM2's template with the assistant's words marked
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' }}{% if m['role'] == 'assistant' %}"
    "{% generation %}{{ m['content'] + '<|im_end|>' }}{% endgeneration %}"
    "{% else %}{{ m['content'] + '<|im_end|>' }}{% endif %}{{ '\n' }}{% endfor %}"
)
_SENTENCE = re.compile(r"(?<=[.!?])\s+")


def make_rows(path: Path, num_rows: int, seed: int = 1) -> None:
    """`num_rows` conversations in the form `messages`."""
    chance, conversations = random.Random(seed), real.conversations(real.INSTRUCTIONS)
    with path.open("w") as file:
        for number in range(num_rows):
            messages = [dict(message) for message in chance.choice(conversations)]
            sentences = _SENTENCE.split(messages[-1]["content"])
            chance.shuffle(sentences)
            messages[-1]["content"] = " ".join(sentences)
            messages[0]["content"] += f" ({number})"
            file.write(json.dumps({"messages": messages}, ensure_ascii=False) + "\n")


def ftui(rows: Path, model: Path, folder: Path, processes: int) -> dict[str, float]:
    """Seconds of each part."""
    from ftui.engine.data.load_rows import load_data
    from ftui.engine.inspection.report import make_report
    from ftui.profile.schema import Profile

    sections: dict[str, dict[str, Any]] = {
        "run": {"stage": "sft"},
        "model": {"name_or_path": str(model)},
        "data": {"train": str(rows), "dataset_num_proc": processes, "eval_num_rows": 100},
    }
    profile = Profile.model_validate_json(json.dumps(sections))
    seconds: dict[str, float] = {}
    for again in ("", "again_"):
        begun = time.perf_counter()
        found = load_data(profile, folder, lambda detail: print(detail, file=sys.stderr), weights=False)
        seconds[f"{again}read"] = time.perf_counter() - begun
        begun = time.perf_counter()
        report = make_report(found, profile)
        seconds[f"{again}report"] = time.perf_counter() - begun
    return seconds | {"num_tokens": report.num_tokens, "num_rows": report.num_rows}


def datasets(rows: Path, model: Path, folder: Path, processes: int) -> dict[str, float]:
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(model)

    def encoded(batch: dict[str, Any]) -> Any:
        texts = [tokenizer.apply_chat_template(messages, tokenize=False) for messages in batch["messages"]]
        return {"input_ids": tokenizer(texts, add_special_tokens=False)["input_ids"]}

    return _mapped(rows, folder, encoded, batched=True, num_proc=processes)


def masks(rows: Path, model: Path, folder: Path, processes: int) -> dict[str, float]:
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(model)

    def encoded(row: dict[str, Any]) -> Any:
        made = tokenizer.apply_chat_template(
            row["messages"], chat_template=MARKED, return_dict=True, return_assistant_tokens_mask=True
        )
        return {name: made[name] for name in ("input_ids", "assistant_masks")}

    return _mapped(rows, folder, encoded, num_proc=processes)


def _mapped(rows: Path, folder: Path, encoded: Callable[[Any], Any], **how: Any) -> dict[str, float]:
    from datasets import load_dataset

    begun = time.perf_counter()
    loaded = load_dataset("json", data_files=str(rows), split="train", cache_dir=str(folder))
    mapped = loaded.map(encoded, remove_columns=loaded.column_names, **how)
    seconds = time.perf_counter() - begun
    num_tokens = sum(len(ids) for ids in mapped.select(range(100))["input_ids"])
    return {"read": seconds, "num_rows": len(mapped), "num_tokens_of_100": num_tokens}


CONTESTANTS: dict[str, Callable[[Path, Path, Path, int], dict[str, float]]] = {
    "ftui": ftui, "datasets": datasets, "masks": masks,
}  # fmt: skip


def measured(name: str, rows: Path, model: str, processes: int) -> dict[str, float]:
    """One contestant in a process of its own, watched."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory() as folder:
        worker = [sys.executable, "-m", "tests.bench.data", "--worker", name, str(rows), model, folder, str(processes)]
        with subprocess.Popen(worker, stdout=subprocess.PIPE, text=True) as process:
            peaks: dict[str, float] = {"rss": 0, "pss": 0}
            thread = threading.Thread(target=_watch, args=(psutil.Process(process.pid), peaks))
            thread.start()
            output, _ = process.communicate()
            thread.join()
        if process.returncode:
            raise SystemExit(f"{name} failed")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    told: dict[str, float] = json.loads(output.splitlines()[-1])
    return told | peaks | {"cpu": cpu}


def _watch(process: psutil.Process, peaks: dict[str, float]) -> None:
    while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
        each = list(_memory(process))
        peaks["rss"] = max(peaks["rss"], sum(rss for rss, _ in each))
        peaks["pss"] = max(peaks["pss"], sum(pss for _, pss in each))
        time.sleep(LOOK_SECONDS)


def _memory(process: psutil.Process) -> Iterator[tuple[int, int]]:
    """Bytes of each process of a tree, all pages and its share of them; those that end meanwhile count nothing."""
    try:
        tree = [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return
    for one in tree:
        try:
            memory = one.memory_full_info()
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
        yield memory.rss, memory.pss


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--processes", type=int, default=usable_cores())
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--file", type=Path)
    parser.add_argument("--only", nargs="+", choices=CONTESTANTS, default=list(CONTESTANTS))
    parser.add_argument("--worker", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        name, rows, model, folder, processes = options.worker
        print(json.dumps(CONTESTANTS[name](Path(rows), Path(model), Path(folder), int(processes))))
        return
    figures: dict[str, list[dict[str, float]]] = {name: [] for name in options.only}
    model = str(real.smollm2())
    with tempfile.TemporaryDirectory() as folder:
        rows = options.file or Path(folder) / "rows.jsonl"
        if options.file is None:
            make_rows(rows, options.rows)
        num_rows = sum(1 for _ in rows.open("rb"))
        print(f"{num_rows} rows, {rows.stat().st_size / MIB:.0f} MiB, {options.processes} processes", flush=True)
        for number in range(options.rounds):
            for name in options.only if number % 2 == 0 else options.only[::-1]:
                figures[name].append(measured(name, rows, model, options.processes))
                print(f"round {number + 1}: {name} {figures[name][-1]}", file=sys.stderr)
    print(table(figures, num_rows))


def table(figures: dict[str, list[dict[str, float]]], num_rows: int) -> str:
    """Medians over the rounds."""
    headings = ("rows/s", "seconds", "report", "again", "cpu s", "rss MiB", "pss MiB")
    lines = [" " * 10 + "".join(f"{heading:>10}" for heading in headings)]
    for name, found in figures.items():
        middle = {key: statistics.median(one[key] for one in found) for key in found[0]}
        report = middle.get("report", 0)
        whole, again = middle["read"] + report, middle.get("again_read", 0) + middle.get("again_report", 0)
        numbers = [num_rows / whole, whole, report, again, middle["cpu"], middle["rss"] / MIB, middle["pss"] / MIB]
        cpu = [one["cpu"] for one in found]
        spread = f"  cpu {min(cpu):.1f}-{max(cpu):.1f}"
        lines.append(f"{name:10}" + "".join(f"{number:10.{number < 100:d}f}" for number in numbers) + spread)
    return "\n".join(lines)


if __name__ == "__main__":
    main()
