"""The benchmark with tiny models: every method is trained and measured, and the losses agree."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bench.throughput.agreement import compare
from tests.bench.throughput.session import Result
from tests.support.real import ROOT

CELLS = [
    "lora/ftui_best", "lora/trainer_best", "qlora/ftui_best", "qlora/trl_best", "full/ftui_default", "full/trl_default",
    "pretrain/ftui_best", "pretrain/trainer_best",
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


def result(cell: str, losses: list[float]) -> Result:
    return Result(cell, 0, 1.0, 1.0, 1.0, 1, 1.0, 1.0, 0.0, losses, [10] * len(losses))


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
