"""Rounds: every contestant trains on the same rows, one after the other; the results are kept after each."""

import json
import os
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ftui.profile.schema import Profile
from ftui.profile.serialize import to_toml
from tests.bench.throughput import contestants as table
from tests.bench.throughput.contestants import Contestant
from tests.bench.throughput.materials import BLOCK, Model, count_tokens, write_rows
from tests.bench.throughput.measure import Ran, run_watched
from tests.support import real

WORKERS = {"trainer": "hugging_face", "trl": "hugging_face", "llamafactory": "llama_factory", "litgpt": "lit_gpt"}
Step = dict[str, Any]


@dataclass(frozen=True)
class Result:
    """One training: the rates are those of the steps after the warm-up.

    Attributes:
        log_probs: of dpo, whose first loss is ln 2 everywhere: the means over its first step of the summed
            log-probabilities of chosen and rejected answers.
    """

    cell: str
    round: int
    tokens_per_second: float
    target_tokens_per_second: float
    tokens_per_cpu_second: float
    peak_bytes: int
    first_step_seconds: float
    seconds: float
    share_of_others: float
    losses: list[float]
    num_target_tokens: list[int]
    log_probs: list[float] = field(default_factory=list)

    @property
    def mean_loss(self) -> float:
        """Over all target tokens of the rows; of dpo, over all pairs, of which each step has as many."""
        if self.log_probs:
            return statistics.fmean(self.losses)
        pairs = zip(self.losses, self.num_target_tokens, strict=True)
        return sum(loss * number for loss, number in pairs) / sum(self.num_target_tokens)


@dataclass
class Session:
    """Results and failures, kept in a file.

    Attributes:
        pythons: the interpreter of each tool that has an environment of its own.
        pairs: the file of pairs for dpo, if there is one.
        failures: by cell, why it could not be measured.
    """

    file: Path
    models: dict[str, Model]
    pythons: dict[str, str]
    pairs: Path | None
    num_steps: int
    warm_up: int
    results: list[Result] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)

    def load(self) -> None:
        """Take over what an earlier call has measured."""
        if self.file.exists():
            kept = json.loads(self.file.read_text())
            self.results = [Result(**values) for values in kept["results"]]
            self.failures = kept["failures"]

    def save(self) -> None:
        kept = {"results": [asdict(result) for result in self.results], "failures": self.failures}
        self.file.write_text(json.dumps(kept, indent=1))

    def _lacks(self, contestant: Contestant, number: int) -> bool:
        """Whether a round has to be measured: it is the contestant's turn, and no earlier call has done it."""
        is_turn = number % 2 == 0 or contestant.tool == "ftui" or contestant.kind != "default"
        done = (contestant.cell, number) in ((result.cell, result.round) for result in self.results)
        return is_turn and not done and contestant.cell not in self.failures

    def run(self, cells: Sequence[str], rounds: int, end: float, work: Path) -> None:
        """Add rounds until each cell has so many; none is begun after `end` (time.monotonic).

        A round of a method is all its contestants in turn; every second one goes backwards. Methods alternate. Peers as
        they come, the slowest ones, take part in every second round. What failed before is tried again once.
        """
        chosen = [table.ALL[cell] for cell in cells]
        self.failures = {cell: reason for cell, reason in self.failures.items() if cell not in set(cells)}
        for number in range(rounds):
            for method in table.METHODS:
                members = [c for c in chosen if c.method == method and self._lacks(c, number)]
                for contestant in members if number % 2 == 0 else members[::-1]:
                    if time.monotonic() > end:
                        return
                    self._measure(contestant, number, work / f"{number}-{method}")

    def _measure(self, contestant: Contestant, number: int, work: Path) -> None:
        model = self.models["new" if contestant.method == "pretrain" else "chat"]
        method, batch = contestant.method, table.batch(contestant.method)
        num_rows = (self.warm_up + self.num_steps) * batch
        rows = write_rows(work / "rows", model.stored, method, num_rows, batch, seed=number, pairs=self.pairs)
        folder = work / contestant.name
        folder.mkdir(parents=True)
        try:
            steps, ran = self._train(contestant, model, rows[contestant.order], num_rows, folder)
            if method == "dpo":
                steps = count_pairs(steps, rows[contestant.order], batch)
            result = self._result(contestant, number, steps, ran)
        except RuntimeError as error:
            self.failures[contestant.cell] = str(error)
            print(f"{contestant.cell}: failed: {error}", file=sys.stderr, flush=True)
        else:
            self.results.append(result)
            print(
                f"round {number + 1}: {contestant.cell:26} {result.tokens_per_second:8.1f} tokens/s,"
                f" {result.tokens_per_cpu_second:8.1f} per CPU second, {result.peak_bytes / 2**30:5.2f} GiB,"
                f" first step after {result.first_step_seconds:5.1f} s, {result.seconds:5.1f} s in all,"
                f" loss {result.mean_loss:.5f}, others {result.share_of_others:.0%}",
                file=sys.stderr, flush=True,
            )  # fmt: skip
        self.save()

    def _train(
        self, contestant: Contestant, model: Model, rows: Path, num_rows: int, folder: Path
    ) -> tuple[list[Step], Ran]:
        environment = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(folder / "hub"), "PYTHONPATH": str(real.ROOT)}
        environment["TOKENIZERS_PARALLELISM"] = "false"
        if contestant.tool == "ftui":
            profile = folder / "bench.toml"
            weights = model.float32 if contestant.model == "float32" else model.stored
            profile.write_text(_profile(contestant, weights, rows))
            environment |= {"FTUI_RUNS": str(folder / "runs"), "FTUI_CACHE": str(folder / "cache")}
            command = [sys.executable, "-m", "ftui", "run", str(profile)]
            steps_file = folder / "runs" / "bench" / "metrics.jsonl"
        else:
            spec = folder / "spec.json"
            steps_file = folder / "steps.jsonl"
            spec.write_text(json.dumps(_spec(contestant, model, rows, num_rows, folder, steps_file)))
            module = f"tests.bench.throughput.workers.{WORKERS[contestant.tool]}"
            command = [self.pythons.get(contestant.tool, sys.executable), "-m", module, str(spec)]
        ran = run_watched(command, folder, environment, timeout=600)
        lines = steps_file.read_text().splitlines() if steps_file.exists() else []
        if ran.returncode:
            raise RuntimeError(reason(ran.output) or f"ended with {ran.returncode}")
        return [json.loads(line) for line in lines], ran

    def _result(self, contestant: Contestant, number: int, steps: list[Step], ran: Ran) -> Result:
        warm_up = min(self.warm_up, len(steps) - 1)  # packed rows take fewer steps
        if warm_up < 1:
            raise RuntimeError(f"{len(steps)} steps are too few to measure")
        start, end = steps[warm_up - 1]["time"], steps[-1]["time"]
        tokens = sum(step["num_tokens"] for step in steps[warm_up:])
        return Result(
            contestant.cell, number, tokens / (end - start),
            sum(step["num_target_tokens"] for step in steps[warm_up:]) / (end - start),
            tokens / max(ran.watch.cpu_seconds(start, end), 1e-9), ran.watch.peak_bytes, steps[0]["time"] - ran.start,
            ran.seconds, ran.share_of_others, [step["loss"] for step in steps],
            [step["num_target_tokens"] for step in steps], steps[0].get("log_probs", []),
        )  # fmt: skip


def count_pairs(steps: list[Step], rows: Path, batch: int) -> list[Step]:
    """Steps of dpo with the same count of tokens for all: both sequences of a pair, whether or not they share a pass
    over the prompt. ftui's log-probabilities stand where the others have theirs.

    Raises:
        RuntimeError: there are more or fewer steps than those rows make.
    """
    counts = [count_tokens(json.loads(line)) for line in rows.with_suffix(".tokens").read_text().splitlines()]
    of_steps = (counts[at : at + batch] for at in range(0, len(counts), batch))
    sums = [[sum(column) for column in zip(*own, strict=True)] for own in of_steps]
    if len(sums) != len(steps):
        raise RuntimeError(f"{len(steps)} steps, not {len(sums)}")
    counted = []
    for step, (tokens, targets) in zip(steps, sums, strict=True):
        extras = step.get("extras", {})
        log_probs = step.get("log_probs") or [extras["logps/chosen"], extras["logps/rejected"]]
        counted.append(step | {"num_tokens": tokens, "num_target_tokens": targets, "log_probs": log_probs})
    return counted


def reason(output: str) -> str:
    """The line of a log that says why a process failed: the last one that names an error."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if "Error" in line.split(":")[0] or line.startswith("error:")]
    line = (errors or lines or [""])[-1]
    return line.replace(str(Path.home()), "~").replace(str(real.ROOT), ".").replace(os.sep * 2, os.sep)[:300]


def _profile(contestant: Contestant, model: Path, rows: Path) -> str:
    """The TOML of an ftui run."""
    method = contestant.method
    adapter: dict[str, Any] = {"method": "full"}
    if contestant.has_adapter:
        name = "qlora" if method == "qlora" else "lora"
        adapter = {"method": name, "r": table.RANK, "lora_alpha": table.ALPHA}
    sections: dict[str, dict[str, Any]] = {
        "run": {"stage": method if method in ("pretrain", "dpo") else "sft"},
        "model": {"name_or_path": str(model)},
        "adapter": adapter,
        "data": {"train": str(rows), "max_length": max_length(method), "allow": ["few_rows"]},
        "train": {
            "num_train_epochs": 1, "per_device_train_batch_size": table.batch(method), "warmup_steps": 0,
            "learning_rate": table.LEARNING_RATES[method], "lr_scheduler_type": "constant",
            "train_sampling_strategy": "sequential",
        },
    }  # fmt: skip
    for section, values in contestant.settings.items():
        sections[section] = sections.get(section, {}) | values
    return to_toml(Profile.model_validate_json(json.dumps(sections)))


def _spec(contestant: Contestant, model: Model, rows: Path, num_rows: int, folder: Path, steps: Path) -> dict[str, Any]:
    is_float32 = contestant.model == "float32"
    tokens = rows.with_suffix(".tokens")
    return {
        "tool": contestant.tool, "method": contestant.method, "settings": contestant.settings,
        "model": str(model.float32 if is_float32 else model.stored), "converted": str(model.lit_gpt),
        "rows": str(tokens if contestant.tool == "litgpt" else rows), "num_rows": num_rows, "folder": str(folder),
        "steps": str(steps), "batch": table.batch(contestant.method), "max_length": max_length(contestant.method),
        "learning_rate": table.LEARNING_RATES[contestant.method], "rank": table.RANK, "alpha": table.ALPHA,
    }  # fmt: skip


def max_length(method: str) -> int:
    return BLOCK if method == "pretrain" else table.MAX_LENGTH
