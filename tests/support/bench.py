"""A tiny base model and rows on disk, and runs made of them."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import torch

from ftui.engine.data.sources import ResolvedSource
from ftui.engine.data.stores.tasks import texts_in
from ftui.engine.models.new_model import new_config, new_model
from ftui.engine.models.tokenizer import train_tokenizer
from ftui.launch.open_run import create
from ftui.profile.layers import resolve
from ftui.profile.sections.from_scratch import FromScratch
from ftui.runs import checkpoint_folders
from ftui.runs.events import AnyRecord, RunStarted
from ftui.runs.journal import Tail
from ftui.runs.run_folder import Run
from tests.support.tiny import judged_answers, preference_pairs, write_rows

PROFILE = """
[run]
stage = "sft"
[model]
name_or_path = "base"
[adapter]
method = "{method}"
{adapter}
[data]
train = "rows.jsonl"
eval = "held_out.jsonl"
max_length = 96
packing = {packing}
[train]
num_train_epochs = 3
per_device_train_batch_size = 2
gradient_accumulation_steps = 2
learning_rate = 2e-2
precision = "fp32"
[eval]
eval_strategy = "steps"
eval_steps = 5
sample_prompts = ["What is row 3?"]
sample_max_new_tokens = 8
[checkpoint]
save_steps = 4
[hardware]
num_threads = 1
"""
# 10 + 7 + 10 steps of a curriculum that sorts by the base model's loss.
STAGES = (
    "train.num_train_epochs=none",
    'curriculum=[{fraction = 0.5, num_train_epochs = 2}, {sort_by = "loss", order = "descending", fraction = 0.7, '
    'train_sampling_strategy = "sequential", learning_rate = 1e-2}, {learning_rate = 5e-3}]',
)
WORDS = (
    "the",
    "quick",
    "brown",
    "fox",
    "jumps",
    "over",
    "a",
    "lazy",
    "dog",
    "while",
    "seven",
    "wizards",
    "mix",
    "jugs",
)


@dataclass(frozen=True)
class Workbench:
    """A folder with base/, rows.jsonl, held_out.jsonl and profiles; `env` is that of the programs run on it."""

    folder: Path
    env: dict[str, str] = field(default_factory=dict)

    def profile(self, name: str, *, method: str = "lora", packing: bool = False) -> Path:
        adapter = "r = 4\nlora_alpha = 8\nlora_dropout = 0.2" if method != "full" else ""
        path = self.folder / f"{name}.toml"
        path.write_text(PROFILE.format(method=method, adapter=adapter, packing=str(packing).lower()))
        return path

    def run(self, name: str) -> Run:
        return Run(Path(self.env["FTUI_RUNS"]) / name)

    def ftui(self, *arguments: str, cwd: Path | None = None, **env: str) -> "subprocess.CompletedProcess[str]":
        """Run the program as a user does; returns when it ends."""
        command = [sys.executable, "-m", "ftui", *arguments]
        return subprocess.run(
            command, cwd=cwd or self.folder, env=self.env | env, capture_output=True, text=True, timeout=300
        )

    def murder(self, run: Run, place: str, number: int) -> int:
        """Run the engine until it kills itself at the n-th pass of a place; returns its return code (-9)."""
        command = [sys.executable, str(Path(__file__).parent / "murder.py"), str(run.folder), place, str(number)]
        with (run.folder / "engine.log").open("ab") as log:
            return subprocess.run(command, env=self.env, stdout=log, stderr=log, timeout=300).returncode


def make_bench(folder: Path) -> None:
    rows = []
    for number in range(46):
        length = 2 + number % 9
        answer = " ".join(WORDS[(number + i) % len(WORDS)] for i in range(length))
        rows.append({"instruction": f"What is row {number}?", "output": f"Row {number} is {answer}."})
    lines = [json.dumps(row) + "\n" for row in rows]
    (folder / "rows.jsonl").write_text("".join(lines[:40]))
    (folder / "held_out.jsonl").write_text("".join(lines[40:]))
    scratch = FromScratch(
        hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=128, vocab_size=400,
    )  # fmt: skip
    tokenizer = train_tokenizer(scratch, texts_in(ResolvedSource("rows", (folder / "rows.jsonl",), "auto")))
    torch.manual_seed(0)
    new_model(new_config(scratch, tokenizer), torch.float32, None).save_pretrained(folder / "base")
    tokenizer.save_pretrained(folder / "base")


def bench_at(source: Path, folder: Path) -> Workbench:
    """A copy of the bench with its own runs, cache and home."""
    shutil.copytree(source, folder)
    inherited = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    own = {
        "HOME": str(folder / "home"), "FTUI_RUNS": str(folder / "runs"), "FTUI_CACHE": str(folder / "cache"),
        "XDG_STATE_HOME": str(folder / "state"), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    return Workbench(folder, inherited | own)


def compare_answers(bench: Workbench, stage: str, number: int = 40, *, method: str = "lora") -> tuple[str, ...]:
    """Rows with answers to compare in the place of the bench's own; what a profile needs to be of that stage."""
    rows = judged_answers(number + 6) if stage == "kto" else preference_pairs(number + 6)
    write_rows(bench.folder / "rows.jsonl", rows[:number])
    write_rows(bench.folder / "held_out.jsonl", rows[number:])
    silent = ["eval.sample_prompts=[]"] if stage == "rm" else []  # it gives scores
    allowed = 'data.allow=["answers_cut_off"]'  # a token is about a letter
    whole = ["adapter.lora_dropout=0.0"] if method != "full" else []
    return f"run.stage={stage}", allowed, *whole, *silent


def opened(workbench: Workbench, profile: Path) -> Run:
    """A run's folder as `ftui --run` makes it, without an engine."""
    run = workbench.run(profile.stem)
    assert create(run, resolve(profile))
    return run


def records(run: Run) -> list[AnyRecord]:
    """The journal, every line of it readable."""
    tail = Tail(run.journal)
    found = tail.read()
    assert (tail.num_unknown, tail.num_damaged) == (0, 0)
    return found


def resumed_from(run: Run) -> str | None:
    return next(r for r in reversed(records(run)) if isinstance(r, RunStarted)).resumed_from


def newest(run: Run) -> str | None:
    """The newest checkpoint that is valid now, as `resumed_from` would name it."""
    found, _ = checkpoint_folders.newest_valid(run.checkpoints, run.read_facts().run_id)
    return None if found is None else f"checkpoints/{found.path.name}"
