"""Real training on this machine's CPU against the simulation: the most resident memory an engine's process had."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from transformers import LlamaConfig, LlamaForCausalLM

from ftui.engine.simulate.profile_memory import simulate
from ftui.hardware.devices import MiB, find_card
from ftui.profile.schema import Profile
from tests.support import real
from tests.support.tiny import TEXT, make_tokenizer, write_rows

SMALL: dict[str, Any] = {
    "vocab_size": 8192, "hidden_size": 384, "intermediate_size": 1024, "num_hidden_layers": 6,
    "num_attention_heads": 6, "num_key_value_heads": 2,
}  # fmt: skip
SMOLLM2: dict[str, Any] = {  # SmolLM2-135M
    "vocab_size": 49152, "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30,
    "num_attention_heads": 9, "num_key_value_heads": 3,
}  # fmt: skip
CHECKPOINTED = {"activation_checkpointing": True}
NEAR = 0.13  # as answer.ON_CPU has it; see there
TRIALS: dict[str, dict[str, Any]] = {
    "full": {"adapter": {"method": "full"}},
    "full, checkpointing": {"adapter": {"method": "full"}, "train": CHECKPOINTED},
    "full, 8-bit moments": {"adapter": {"method": "full"}, "train": {"optim": "adamw_8bit"}},
    "freeze": {"adapter": {"method": "freeze", "trainable_layers": 4}},
    "lora": {},
    "lora, bf16": {"train": {"precision": "bf16"}},
    "qlora, bf16": {"adapter": {"method": "qlora"}, "train": {"precision": "bf16"}},
    "8 bits": {"adapter": {"load_in_8bit": True}, "train": {"per_device_train_batch_size": 1}},
}


def folder_of(shape: dict[str, Any], folder: Path) -> Path:
    """A model of random weights, in 16 bits as they come from the hub."""
    tokenizer = make_tokenizer()
    chosen = LlamaConfig(
        **shape, max_position_embeddings=1024, tie_word_embeddings=True, pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id, bos_token_id=None,
    )  # fmt: skip
    LlamaForCausalLM(chosen).bfloat16().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def sections(model: Path, rows: Path, length: int, changes: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    write_rows(rows, [{"text": (TEXT + " ") * 150}] * 4)
    base: dict[str, dict[str, Any]] = {
        "run": {"stage": "pretrain"},
        "model": {"name_or_path": str(model)},
        "data": {"train": str(rows), "max_length": length},
        "train": {"precision": "fp32", "max_steps": 2, "per_device_train_batch_size": 2},
        "checkpoint": {"save_steps": None, "save_minutes": None},
        "hardware": {"device": "cpu", "num_threads": 1},
    }
    return base | {name: base.get(name, {}) | values for name, values in changes.items()}


def measured(folder: Path, chosen: dict[str, dict[str, Any]]) -> int:
    """Bytes: the peak of an engine's process while it trains; it is ended when the last step is done."""
    run = real.open_run(folder, chosen)
    command = [sys.executable, "-P", "-m", "ftui.engine", str(run.folder)]
    environment = os.environ | {"HF_HUB_OFFLINE": "1"}
    with (folder / "output").open("wb") as output:
        engine = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
    peak, status = 0, Path(f"/proc/{engine.pid}/status")
    while engine.poll() is None:
        peak = max(peak, _peak(status))
        if run.metrics.exists() and run.metrics.read_bytes().count(b"\n") >= 2:
            engine.kill()
        time.sleep(0.02)
    assert engine.returncode in (0, -9), (folder / "output").read_text()
    return peak


def _peak(status: Path) -> int:
    try:
        lines = [line for line in status.read_text().splitlines() if line.startswith("VmHWM:")]
    except ProcessLookupError:
        return 0
    return int(lines[0].split()[1]) * 1024 if lines else 0


def compare(name: str, model: Path, folder: Path, length: int, changes: dict[str, dict[str, Any]]) -> float:
    """Relative error of the prediction; printed with both numbers."""
    chosen = sections(model, folder / "rows.jsonl", length, changes)
    predicted = simulate(Profile.model_validate_json(json.dumps(chosen)), model, find_card("cpu")).process
    found = measured(folder / name.replace(" ", "-"), chosen)
    error = predicted / found - 1
    print(f"{name}: measured {found / MiB:.0f} MiB, predicted {predicted / MiB:.0f} MiB, {error:+.1%}")
    return error


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peaks are read from /proc")
def test_a_small_model(tmp_path: Path) -> None:
    model = folder_of(SMALL, tmp_path / "model")
    assert abs(compare("small", model, tmp_path, 512, {"adapter": {"method": "full"}})) <= NEAR


@pytest.mark.parametrize("name", TRIALS)
def test_a_real_size(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if not request.config.getoption("--trials"):
        pytest.skip("a minute each: --trials 1 -s")
    model = folder_of(SMOLLM2, tmp_path / "model")
    assert abs(compare(name, model, tmp_path, 512, TRIALS[name])) <= NEAR
