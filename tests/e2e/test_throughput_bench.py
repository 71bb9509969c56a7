"""The benchmark with tiny models: every method is trained and measured, and the losses agree."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bench.throughput.agreement import compare
from tests.bench.throughput.session import Result, count_pairs
from tests.support.real import ROOT

CELLS = [
    "lora/ftui_best", "lora/trainer_best", "qlora/ftui_best", "qlora/trl_best", "full/ftui_default", "full/trl_default",
    "pretrain/ftui_best", "pretrain/trainer_best", "dpo/ftui_best", "dpo/trl_best",
]  # fmt: skip


@pytest.mark.slow
def test_the_benchmark_runs_with_tiny_models(tmp_path: Path) -> None:
    page, results = tmp_path / "benchmarks.md", tmp_path / "results.json"
    command = [sys.executable, "-m", "tests.bench.throughput", "--quick", "--rounds", "1", "--steps", "1"]
    command += ["--write", str(page), "--json", str(results), "--only", *CELLS]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-3000:]
    kept = json.loads(results.read_text())
    assert {result["cell"] for result in kept["results"]} == set(CELLS), kept["failures"]
    for result in kept["results"]:
        assert min(result["tokens_per_second"], result["peak_bytes"], result["first_step_seconds"]) > 0
    text = page.read_text()
    assert "quick run" in text and all(f"| {cell} |" in text for cell in CELLS)
    assert str(tmp_path) not in text and str(Path.home()) not in text


def result(cell: str, losses: list[float], log_probs: list[float] | None = None) -> Result:
    return Result(cell, 0, 1.0, 1.0, 1.0, 1, 1.0, 1.0, 0.0, losses, [10] * len(losses), log_probs or [])


@pytest.mark.parametrize(
    ("cell", "losses", "agrees"),
    [
        ("lora/trainer_best", [4.0, 2.0], True),
        ("lora/trainer_best", [4.0002, 2.0], False),  # another loss with the same weights
        ("lora/trainer_best", [4.0, 2.1], False),  # it learns something else
        ("lora/trainer_default", [4.02, 2.01], True),  # bfloat16
        ("lora/trainer_default", [4.5, 2.0], False),
        ("lora/trl_packed", [3.0, 3.01], True),  # other rows in its steps
        ("lora/trl_packed", [3.0, 3.2], False),
    ],
)
def test_losses_that_are_not_those_of_ftui_are_told(cell: str, losses: list[float], agrees: bool) -> None:
    own = [result("lora/ftui_default", [4.0, 2.0]), result("lora/ftui_best", [4.0, 2.0])]
    findings = {finding.text.split(":")[0]: finding for finding in compare([*own, result(cell, losses)])}
    assert findings[cell].agrees is agrees, findings[cell].text
    assert findings["lora/ftui_best"].agrees


@pytest.mark.parametrize(
    ("losses", "log_probs", "agrees"),
    [
        ([0.6931, 0.68901], [-80.0, -90.0], True),
        ([0.6931, 0.68901], [-80.0, -90.01], False),  # other tokens of the rejected answers
        ([0.6931, 0.68901], [-90.0, -80.0], False),  # it learns the opposite
        ([0.6931, 0.6931], [-80.0, -90.0], False),  # it learns nothing
    ],
)
def test_answers_are_compared_where_every_first_loss_is_the_same(
    losses: list[float], log_probs: list[float], agrees: bool
) -> None:
    other_rows = result("dpo/ftui_default", [0.6931, 0.695], [-70.0, -75.0])
    own = [other_rows, result("dpo/ftui_best", [0.6931, 0.689], [-80.0, -90.0])]
    findings = {found.text.split(":")[0]: found for found in compare([*own, result("dpo/trl_best", losses, log_probs)])}
    assert findings["dpo/trl_best"].agrees is agrees, findings["dpo/trl_best"].text
    assert findings["dpo/ftui_best"].agrees


def test_tokens_of_a_pair_are_those_of_both_sequences_whoever_counts(tmp_path: Path) -> None:
    side = {"input_ids": [1, 2, 3, 4], "labels": [-100, -100, 3, 4]}
    longer = {"input_ids": [1, 2, 5, 6, 7], "labels": [-100, -100, 5, 6, 7]}
    (tmp_path / "rows.tokens").write_text(3 * (json.dumps({"chosen": side, "rejected": longer}) + "\n"))
    own = {"num_tokens": 7, "extras": {"logps/chosen": -1.0, "logps/rejected": -2.0}}  # its prompt is computed once
    steps = count_pairs([own, {"num_tokens": 0, "log_probs": [-1.0, -2.0]}], tmp_path / "rows.jsonl", batch=2)
    assert [(step["num_tokens"], step["num_target_tokens"]) for step in steps] == [(18, 10), (9, 5)]
    assert [step["log_probs"] for step in steps] == [[-1.0, -2.0]] * 2
    with pytest.raises(RuntimeError, match="1 steps, not 2"):
        count_pairs([own], tmp_path / "rows.jsonl", batch=2)
