"""Sample answers are as if nobody had asked: training with them is the same to the last bit."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from ftui.engine.generation import answer_prompts
from ftui.engine.generation.decode import decode
from ftui.runs.events import Sampled, Warned
from ftui.runs.journal import Tail
from ftui.runs.run_folder import Run
from tests.support.tiny import chats, column, make_profile, train_run, write_rows

PROMPTS = ["the shell", "a kernel page fault and then it ran away", "why"]
pytestmark = pytest.mark.slow


def make_run(folder: Path, base: Path, prompts: list[str]) -> tuple[Run, list[float]]:
    profile = make_profile(
        base, write_rows(folder.parent / "rows.jsonl", chats(16)),
        adapter={"method": "lora", "r": 4, "lora_dropout": 0.3}, train={"max_steps": 4, "learning_rate": 1e-2},
        eval={"sample_prompts": prompts, "sample_max_new_tokens": 8},
    )  # fmt: skip
    steps = train_run(folder, profile)
    return Run(folder), list(column(steps, "loss"))


def records(run: Run, kind: type[Any]) -> list[Any]:
    return [record for record in Tail(run.journal).read() if isinstance(record, kind)]


def test_a_run_with_samples_is_bit_identical_to_one_without(tmp_path: Path, model_folder: Path) -> None:
    run, losses = make_run(tmp_path / "with", model_folder, PROMPTS)
    without, expected = make_run(tmp_path / "without", model_folder, [])
    assert losses == expected
    weights, others = (load_file(one.final / "adapter_model.safetensors") for one in (run, without))
    assert all(torch.equal(weights[name], others[name]) for name in others)
    assert [one.prompt for one in records(run, Sampled)] == 2 * PROMPTS, "before and after, in the profile's order"


def test_a_sample_that_does_not_fit_is_left_out(
    tmp_path: Path, model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two rows do not fit into memory, nor does the longest prompt alone; and one is longer than the context."""

    def run_out(model: Any, prompts: Any, *arguments: Any, **options: Any) -> Any:
        if len(prompts) > 1 or len(prompts[0].ids) > 20:
            raise torch.OutOfMemoryError("out of memory (a test)")
        yield from decode(model, prompts, *arguments, **options)

    monkeypatch.setattr(answer_prompts, "decode", run_out)
    beyond = "why " * 2000
    run, losses = make_run(tmp_path / "short", model_folder, [*PROMPTS, beyond])
    assert [one.prompt for one in records(run, Sampled)] == 2 * ["the shell", "why"]
    missing = [one.message for one in records(run, Warned) if "into memory" in one.message]
    assert missing == 2 * [f"{PROMPTS[1]!r} is not answered: the answer does not fit into memory"]
    assert len([one for one in records(run, Warned) if "and the model sees" in one.message]) == 2
    assert len(losses) == 4
