"""What a run is told to write, against the files of a real one."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from ftui.estimate import disk
from ftui.estimate.setup import TrainingSetup, build_setup
from ftui.hardware.devices import find_card
from ftui.models.config_reader import read_shape
from ftui.profile.schema import Profile
from ftui.runs.checkpoint_folders import checkpoints_in, total_size
from ftui.runs.run_folder import Run
from tests.support.tiny import completions, make_profile, make_tokenizer, train_run, write_rows

NEAR = 0.05
METHODS: dict[str, dict[str, dict[str, Any]]] = {
    "full": {},
    "full, 8-bit moments": {"train": {"optim": "adamw_8bit"}},
    "full, adafactor": {"train": {"optim": "adafactor"}},
    "lora": {"adapter": {"method": "lora", "r": 128}},
    "lora and ends": {"adapter": {"method": "lora", "r": 128, "modules_to_save": ["lm_head"]}},
    "last layer": {"adapter": {"method": "freeze", "trainable_layers": 1}},
}


@pytest.fixture(scope="module")
def wide_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama so wide that its weights are more than the small files beside them: 1.9 million parameters."""
    folder = tmp_path_factory.mktemp("wide")
    tokenizer = make_tokenizer()
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=256, intermediate_size=768, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=4, max_position_embeddings=256, tie_word_embeddings=False,
        pad_token_id=tokenizer.pad_token_id, eos_token_id=tokenizer.eos_token_id, bos_token_id=None,
    )  # fmt: skip
    torch.manual_seed(1)
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def setup_for(profile: Profile, folder: Path) -> TrainingSetup:
    shape = read_shape(json.loads((folder / "config.json").read_bytes()))
    assert shape is not None
    return build_setup(profile, shape, find_card("cpu"))


@pytest.mark.parametrize("method", METHODS)
def test_checkpoints_are_as_large_as_told(method: str, wide_folder: Path, tmp_path: Path) -> None:
    profile, folder = _trained(METHODS[method], wide_folder, tmp_path, {"save_steps": 1})
    setup = setup_for(profile, wide_folder)
    real = total_size(checkpoints_in(Run(folder).checkpoints)[0].path)
    told = disk.checkpoint_bytes(setup)
    print(f"{method}: {told / 1e6:.2f} MB, real {real / 1e6:.2f}")
    assert told == pytest.approx(real, rel=NEAR)
    whole = disk.run_bytes(setup, profile.checkpoint.save_total_limit)
    assert whole >= total_size(Run(folder).checkpoints) + total_size(Run(folder).final)


def _trained(
    sections: dict[str, dict[str, Any]], model: Path, tmp_path: Path, checkpoint: dict[str, Any]
) -> tuple[Profile, Path]:
    rows = write_rows(tmp_path / "rows.jsonl", completions(8))
    train = {"max_steps": 2, "per_device_train_batch_size": 2} | sections.get("train", {})
    others = {name: values for name, values in sections.items() if name != "train"}
    profile = make_profile(model, rows, train=train, checkpoint=checkpoint, **others)
    folder = tmp_path / "runs" / "run"
    train_run(folder, profile)
    return profile, folder
