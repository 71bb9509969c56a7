"""A real model of 135 million parameters through the real engine, and its adapter through plain PEFT."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer

from ftui.runs.events import Step
from ftui.runs.run_folder import Run
from tests.support import real

BATCH, STEPS = 4, 4


@pytest.fixture(scope="module")
def trained(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, list[Step]]:
    """Four steps over the same four rows: the loss can only fall."""
    folder = tmp_path_factory.mktemp("smollm2")
    rows = folder / "rows.jsonl"
    chosen = real.conversations(real.INSTRUCTIONS)[:BATCH]
    rows.write_text("".join(json.dumps({"messages": messages}) + "\n" for messages in chosen * STEPS))
    sections: dict[str, dict[str, Any]] = {
        "run": {"stage": "sft"},
        "model": {"name_or_path": smollm2},
        "adapter": {"method": "lora", "r": 16, "target_modules": "all-linear"},
        "data": {"train": rows},
        "train": {
            "per_device_train_batch_size": BATCH, "learning_rate": 1e-3, "lr_scheduler_type": "constant",
            "warmup_steps": 0, "train_sampling_strategy": "sequential", "precision": "fp32",
        },
        "hardware": {"device": "cpu"},
    }  # fmt: skip
    run = real.open_run(folder / "run", sections)
    return run, real.train(run)


@pytest.fixture(scope="module")
def batch(smollm2: Path) -> list[tuple[Tensor, Tensor]]:
    """Token ids and labels of the four rows, by the template and transformers alone."""
    tokenizer: Any = AutoTokenizer.from_pretrained(smollm2)
    found = []
    for messages in real.conversations(real.INSTRUCTIONS)[:BATCH]:
        prompt = tokenizer.apply_chat_template(messages[:-1], add_generation_prompt=True, tokenize=False)
        answer = f"{messages[-1]['content']}<|im_end|>"
        ids, first = (tokenizer(text, return_tensors="pt").input_ids for text in (prompt + answer, prompt))
        found.append((ids, ids.clone().index_fill(1, torch.arange(first.shape[1]), -100)))
    return found


def test_tokenizer_of_the_converted_model(smollm2: Path) -> None:
    tokenizer: Any = AutoTokenizer.from_pretrained(smollm2)
    assert (tokenizer.eos_token, tokenizer.pad_token) == ("<|im_end|>", "<|endoftext|>")
    assert tokenizer.tokenize("In  2024") == ["In", "ĠĠ", "2", "0", "2", "4"]
    question = [{"role": "user", "content": "Hi"}]
    text = tokenizer.apply_chat_template(question, add_generation_prompt=True, tokenize=False)
    assert text.endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")


def test_loss_falls_from_that_of_the_base(
    smollm2: Path, trained: tuple[Run, list[Step]], batch: list[tuple[Tensor, Tensor]]
) -> None:
    _, steps = trained
    losses = [step.loss for step in steps if step.loss is not None]
    assert len(losses) == STEPS and all(math.isfinite(loss) for loss in losses)
    assert losses == sorted(losses, reverse=True)
    assert losses[0] == pytest.approx(_loss(_base(smollm2), batch), abs=1e-4)


def test_adapter_loads_with_plain_peft(
    smollm2: Path, trained: tuple[Run, list[Step]], batch: list[tuple[Tensor, Tensor]]
) -> None:
    run, steps = trained
    final = PeftModel.from_pretrained(_base(smollm2), run.final).eval()
    checkpoint = PeftModel.from_pretrained(_base(smollm2), run.checkpoints / f"checkpoint-{STEPS}").eval()
    ids = batch[0][0]
    with torch.no_grad():
        assert torch.equal(final(ids).logits, checkpoint(ids).logits)
    last = steps[-1].loss
    assert last is not None
    assert _loss(final, batch) < last - 0.05  # the last step's update is in it


def _base(folder: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def _loss(model: Any, batch: list[tuple[Tensor, Tensor]]) -> float:
    """Mean over all target tokens of the batch."""
    with torch.no_grad():
        rows = [(float(model(ids, labels=labels).loss), int((labels != -100).sum())) for ids, labels in batch]
    return sum(loss * num for loss, num in rows) / sum(num for _, num in rows)
