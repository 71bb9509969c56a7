"""A run that has ended, made by hand, and a hub on the loopback."""

import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from huggingface_hub import constants

from ftui.profile.layers import resolve
from ftui.profile.serialize import to_toml
from ftui.runs import checkpoint_folders
from ftui.runs.events import EvaluationDone, RunStarted
from ftui.runs.journal import encode
from ftui.runs.manifest import Manifest
from ftui.runs.run_folder import Run, RunFacts
from tests.support.loopback_hub import TOKEN, LoopbackHub, loopback_hub

RUN_ID = "0011223344556677"
PROFILE = """
[run]
stage = "sft"
[model]
name_or_path = "someone/base"
[data]
train = "rows.jsonl"
[train]
max_steps = 8
"""
HEADER = b'{"w": {"dtype": "U8", "shape": [9000], "data_offsets": [0, 9000]}}'
WEIGHTS = len(HEADER).to_bytes(8, "little") + HEADER + b"w" * 9000
START = RunStarted(
    start_step=0, max_steps=8, steps_per_epoch=4, effective_batch=2, num_train_rows=40, num_train_tokens=4000,
    num_target_tokens=900, num_eval_rows=6, total_parameters=100, trainable_parameters=10, model="base", method="lora",
    precision="bf16",
)  # fmt: skip


def fill(folder: Path) -> None:
    (folder / "adapter_model.safetensors").write_bytes(WEIGHTS)
    (folder / "adapter_config.json").write_text('{"r": 4}')
    (folder / "extra").mkdir()
    (folder / "extra" / "note.txt").write_text("deep")


def fill_checkpoint(folder: Path) -> None:
    fill(folder)
    (folder / "resume").mkdir()
    (folder / "resume" / "state.json").write_text("{}")


MERGED = ["config.json", "model-00001-of-00001.safetensors"]


def fill_merged(folder: Path) -> None:
    (folder / MERGED[0]).write_text('{"model_type": "llama"}')
    (folder / MERGED[1]).write_bytes(WEIGHTS)


def fill_gguf(folder: Path) -> None:
    (folder / "m.gguf").write_bytes(b"GGUF")


def publish(target: Path, step: int = 8, fill: object = fill) -> None:
    manifest = Manifest(
        run_id=RUN_ID, attempt=1, token="t", step=step, versions={"torch": "2.9"}, fingerprints={"data": "da7a"},
        dtypes={}, finite=True, created=time.time(),
    )  # fmt: skip
    checkpoint_folders.publish(target, manifest, fill)  # type: ignore[arg-type]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    made = Run(tmp_path / "runs" / "mine")
    made.folder.mkdir(parents=True)
    (tmp_path / "rows.jsonl").write_text('{"prompt": "a", "completion": "b"}\n')
    (tmp_path / "mine.toml").write_text(PROFILE)
    made.profile.write_text(to_toml(resolve(tmp_path / "mine.toml").profile))
    made.facts.write_bytes(msgspec.json.encode(RunFacts(run_id=RUN_ID, name="mine", created=0.0, profile_name="mine")))
    evaluations = [
        EvaluationDone(step=step, epoch=0.0, loss=loss, num_target_tokens=9, seconds=1.0, best=True)
        for step, loss in ((0, 3.5), (8, 1.25))
    ]
    made.journal.write_bytes(b"".join(map(encode, [START, *evaluations])))
    publish(made.final)
    publish(made.checkpoints / "checkpoint-4", 4, fill_checkpoint)
    return made


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopbackHub]:
    with loopback_hub() as served:
        monkeypatch.setattr(constants, "ENDPOINT", served.endpoint)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        yield served
