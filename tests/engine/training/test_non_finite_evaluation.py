"""No run ends well on an evaluation of NaN: it is refused before its first step, or ends without final/."""

import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from ftui.engine.training import evaluate
from ftui.errors import NonFiniteError
from ftui.runs.checkpoint_folders import checkpoints_in
from ftui.runs.events import CheckpointSaved, EvaluationDone, RunFinished, Step
from ftui.runs.run_folder import Run
from tests.support.attempts import attempt, records
from tests.support.tiny import chats, make_profile, write_rows

EVALUATES = {"eval_strategy": "steps", "eval_steps": 2}
SAVES = {"save_steps": 2, "save_minutes": None}

PRODUCTS = """
import sys, numpy, torch
from ftui.engine.models.quantization import keep_products_exact

keep_products_exact()
draw = numpy.random.default_rng(1)
for inner in (4, 64, 704):
    a, b = (draw.integers(-127, 128, (rows, inner), numpy.int8) for rows in (5, 9))
    exact = a.astype(numpy.int64) @ b.T.astype(numpy.int64)
    for dtype in (None, torch.bfloat16, torch.float16):
        with torch.autocast("cpu", dtype=dtype, enabled=dtype is not None):
            product = torch.ops.bitsandbytes.int8_linear_matmul(torch.from_numpy(a), torch.from_numpy(b))
        assert (product.numpy() == exact).all(), (inner, dtype, abs(product.numpy() - exact).max())
print(torch.backends.cpu.get_cpu_capability())
"""


@pytest.mark.skipif(sys.platform == "darwin", reason="bitsandbytes is not installed there")
@pytest.mark.parametrize(
    "capability", [""] + [pytest.param(name, marks=pytest.mark.slow) for name in ("default", "avx2")]
)
def test_products_of_integers_are_exact_whatever_the_processor_can_do(capability: str) -> None:
    """numpy's 64-bit integers are the oracle. bitsandbytes chooses its kernel by what torch says of the processor."""
    if not capability:  # what this process has, which `.ci/run` changes; every engine does the same
        exec(PRODUCTS, {})
        return
    environment = os.environ | {"ATEN_CPU_CAPABILITY": capability}
    command = [sys.executable, "-W", "ignore", "-c", PRODUCTS]
    made = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr


def spoil(patch: pytest.MonkeyPatch, is_spoilt: Callable[[int], bool], value: float = math.nan) -> None:
    """Make batches of evaluations give `value`, by their number from 0."""
    real, number = evaluate.batch_loss, iter(range(10**6))

    def batch_loss(*arguments: Any) -> tuple[dict[str, float], dict[str, float]] | None:
        result = real(*arguments)
        return ({"targets": value}, {}) if is_spoilt(next(number)) else result

    patch.setattr(evaluate, "batch_loss", batch_loss)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path / "run")


def begin(run: Run, model: Path, **sections: Any) -> int:
    rows = write_rows(run.folder.parent / "rows.jsonl", chats(40))
    defaults: dict[str, Any] = {
        "data": {"eval_num_rows": 4, "max_length": 128},
        "train": {"precision": "fp32", "seed": 5, "max_steps": 6},
        "eval": {**EVALUATES, "per_device_eval_batch_size": 4},
        "checkpoint": SAVES,
    }
    return attempt(run, make_profile(model, rows, **(defaults | sections)))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    ("sections", "what"),
    [
        ({}, "evaluation loss before the first step"),
        ({"eval": {**EVALUATES, "eval_on_start": False}}, "before this attempt's first step"),
        ({"eval": {"eval_strategy": "no", "eval_on_start": False}}, "before this attempt's first step"),
        ({"data": {"max_length": 128}, "eval": {"load_best_model_at_end": False}}, "before this attempt's first step"),
    ],
    ids=["evaluated at step 0", "evaluated later", "never evaluated", "no rows to evaluate on"],
)
def test_a_model_that_gives_nan_before_training_is_not_trained(
    sections: dict[str, Any], what: str, value: float, run: Run, model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil(monkeypatch, lambda number: True, value)
    with pytest.raises(NonFiniteError, match=what) as raised:
        begin(run, model_folder, **sections)
    assert raised.value.hint and not records(run, Step) and not run.final.exists()


@pytest.mark.parametrize(
    ("train", "adapter", "hint"),
    [
        ({"precision": "fp16"}, {"method": "full"}, 'train.precision = "fp32" or "bf16"'),
        ({"precision": "bf16"}, {"method": "lora"}, 'train.precision = "fp32".'),
        ({"precision": "fp32"}, {"method": "lora", "load_in_8bit": True}, "without load_in_8bit"),
        ({"precision": "fp16"}, {"method": "qlora"}, 'train.precision = "fp32" or "bf16"'),
        ({"precision": "fp32"}, {"method": "full"}, "check the weights"),
    ],
)
def test_the_way_out_follows_from_what_computes_it(
    train: Any, adapter: Any, hint: str, run: Run, model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil(monkeypatch, lambda number: True)
    with pytest.raises(NonFiniteError) as raised:
        begin(run, model_folder, train={"max_steps": 4, **train}, adapter=adapter)
    assert hint in raised.value.hint and train["precision"] in str(raised.value)
    assert ("quantised" in str(raised.value)) == (adapter != {"method": "full"} and adapter != {"method": "lora"})


def test_a_base_with_weights_of_nan_is_refused(run: Run, model_folder: Path, tmp_path: Path) -> None:
    """Nothing is injected here: the real model gives NaN."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(model_folder)
    with torch.no_grad():
        model.model.norm.weight[3] = math.nan
    model.save_pretrained(tmp_path / "spoilt")
    AutoTokenizer.from_pretrained(model_folder).save_pretrained(tmp_path / "spoilt")
    with pytest.raises(NonFiniteError, match="before the first step"):
        begin(run, tmp_path / "spoilt")


@pytest.mark.parametrize("loads_best", [True, False])
@pytest.mark.parametrize("spoilt_from", [1, 2, 3])
def test_final_never_holds_weights_whose_evaluation_is_nan(
    spoilt_from: int, loads_best: bool, run: Run, model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Evaluations 0 to 3 are those of steps 0, 2, 4 and 6. The best of those before is as good as ever."""
    spoil(monkeypatch, lambda number: number >= spoilt_from)
    sections = {"eval": {**EVALUATES, "per_device_eval_batch_size": 4, "load_best_model_at_end": loads_best}}
    if loads_best and spoilt_from > 1:
        assert begin(run, model_folder, **sections) == 0
        (finished,) = records(run, RunFinished)
        losses = {e.step: e.loss for e in records(run, EvaluationDone) if e.loss is not None and e.step}
        assert finished.loss_final == losses[finished.step_final] == min(losses.values())
        return
    with pytest.raises(NonFiniteError, match="final/ is not written: the evaluation loss at step 6"):
        begin(run, model_folder, **sections)
    assert not run.final.exists() and not records(run, RunFinished)
    assert [saved.step for saved in records(run, CheckpointSaved)][-1] == checkpoints_in(run.checkpoints)[0].step == 6


def test_resumed_at_its_end_it_knows_that_its_evaluation_was_nan(
    run: Run, model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    profile = make_profile(
        model_folder, write_rows(run.folder.parent / "rows.jsonl", chats(40)),
        data={"eval_num_rows": 4, "max_length": 128}, train={"max_steps": 4, "precision": "fp32", "seed": 5},
        eval={"eval_strategy": "no", "per_device_eval_batch_size": 4}, checkpoint=SAVES,
    )  # fmt: skip
    with monkeypatch.context() as patched:
        spoil(patched, lambda number: number >= 1)
        with pytest.raises(NonFiniteError, match="final/"):
            attempt(run, profile)
    with pytest.raises(NonFiniteError, match="final/"):
        attempt(run, profile, 2)
    assert not run.final.exists()


def test_an_evaluation_that_did_not_fit_into_memory_is_not_one_of_nan(
    run: Run, model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluate, "batch_loss", lambda *arguments: None)
    assert begin(run, model_folder) == 0
    assert records(run, RunFinished)[0].loss_final is None and run.final.exists()
