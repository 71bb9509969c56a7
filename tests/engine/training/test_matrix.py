"""Every method with every family of optimizers, every precision, accumulation and packing, in whole tiny runs.

Each learns, goes on bit for bit after a kill, and leaves a final/ that plain libraries load to the same loss. Thirty in
which every two values meet run always, `--trials 1` runs all 360.
"""

import math
from collections import Counter
from itertools import combinations, product
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ftui.profile.schema import Profile
from ftui.runs.events import RunFinished, RunStarted, Step
from ftui.runs.run_folder import Run
from tests.support.attempts import attempt, killed_attempt, plain_loss, records
from tests.support.sameness import same_runs
from tests.support.tiny import chats, make_profile, write_rows

NUM_STEPS = 8
LORA = {"r": 4, "lora_alpha": 16}
METHODS: dict[str, dict[str, Any]] = {
    "full": {"method": "full"},
    "freeze": {"method": "freeze", "trainable_layers": 1, "trainable_modules": ["lm_head"]},
    "lora": {"method": "lora", **LORA},
    "dora": {"method": "lora", "use_dora": True, "use_rslora": True, "lora_dropout": 0.1, **LORA},
    "qlora": {"method": "qlora", **LORA},
    "8bit": {"method": "lora", "load_in_8bit": True, **LORA},
}
OPTIMIZERS = {"adamw_torch": 1e-2, "adafactor": 1e-2, "paged_adamw_8bit": 1e-2, "lion_32bit": 2e-3, "sgd": 0.5}
PRECISIONS = ("fp32", "bf16", "fp16")


class Cell(NamedTuple):
    method: str
    optim: str
    precision: str
    accumulation: int
    packing: bool

    def __str__(self) -> str:
        packing = "packed" if self.packing else "plain"
        return f"{self.method}-{self.optim}-{self.precision}-x{self.accumulation}-{packing}"


ALL = [Cell(*values) for values in product(METHODS, OPTIMIZERS, PRECISIONS, (1, 2), (False, True))]


def pairs(cell: Cell) -> set[tuple[tuple[int, object], ...]]:
    return set(combinations(enumerate(cell), 2))


def covering(cells: list[Cell]) -> list[Cell]:
    """A few in which every pair of values that occurs at all occurs: greedily the one with most pairs not yet seen, of
    those one whose values were seen the least."""
    missing, seen, chosen = set().union(*map(pairs, cells)), Counter[object](), list[Cell]()
    while missing:
        best = max(cells, key=lambda cell: (len(pairs(cell) & missing), -sum(seen[value] for value in cell)))
        missing -= pairs(best)
        seen.update(best)
        chosen.append(best)
    return chosen


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "cell" in metafunc.fixturenames:
        cells = ALL if metafunc.config.getoption("trials") else covering(ALL)
        metafunc.parametrize("cell", cells, ids=str)


def profile_of(cell: Cell, model: Path, rows: Path) -> Profile:
    return make_profile(
        model, rows, adapter=METHODS[cell.method],
        data={"eval_num_rows": 6, "packing": cell.packing, "max_length": 128},
        train={
            "max_steps": NUM_STEPS, "optim": cell.optim, "learning_rate": OPTIMIZERS[cell.optim],
            "precision": cell.precision, "gradient_accumulation_steps": cell.accumulation,
            "per_device_train_batch_size": 4 // cell.accumulation, "warmup_steps": 0,
        },
        eval={"eval_strategy": "steps", "eval_steps": 4},
        checkpoint={"save_steps": 3, "save_minutes": None},
    )  # fmt: skip


def test_a_whole_run(cell: Cell, model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    profile = profile_of(cell, model_folder, write_rows(tmp_path / "rows.jsonl", chats(40)))
    whole, cut = Run(tmp_path / "whole"), Run(tmp_path / "cut")
    assert attempt(whole, profile) == 0
    losses = [step.loss for step in records(whole, Step)]
    assert len(losses) == NUM_STEPS and all(math.isfinite(loss) for loss in losses)
    assert sum(losses[-3:]) < sum(losses[:3])

    killed_attempt(cut, profile, 5, monkeypatch)
    assert attempt(cut, profile, 2) == 0
    started = records(cut, RunStarted)[-1]
    assert (started.reproducibility, started.start_step in (3, 4)) == ("EXACT", True)
    same_runs(cut, whole)

    tolerance = 1e-4 if cell.precision == "fp32" else 0.02
    assert plain_loss(profile, whole) == pytest.approx(records(whole, RunFinished)[-1].loss_final, abs=tolerance)
