"""What answers is loaded from the folders that were named, each with its own weights."""

from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from ftui.engine.models.adapter_files import ADAPTER
from ftui.engine.services.chat import load_speakers, open_chat
from ftui.errors import ModelError
from ftui.profile.serialize import to_toml
from tests.support.tiny import make_profile


@pytest.fixture
def adapters(model_folder: Path, tmp_path: Path) -> list[Path]:
    """Two of three are in folders of one name, and that of the other has a dot."""
    folders = [tmp_path / "b" / "final-0.5", tmp_path / "b" / "final", tmp_path / "a" / "final"]
    for folder in folders:
        model: Any = AutoModelForCausalLM.from_pretrained(model_folder)
        config = LoraConfig(target_modules=["q_proj"], r=2, init_lora_weights=False, task_type="CAUSAL_LM")
        get_peft_model(model, config).save_pretrained(str(folder))
    return folders


@pytest.mark.parametrize("order", [[0, 1, 2], [1, 0], [2, 1, 0, None]])
def test_each_side_has_the_weights_of_its_folder(
    order: list[int | None], adapters: list[Path], model_folder: Path, tmp_path: Path
) -> None:
    profile = make_profile(model_folder, tmp_path, adapter={"method": "lora"})
    folders = [None if place is None else adapters[place] for place in order]
    speakers = load_speakers(profile, folders, "cpu", lambda detail: None, trained_on="")
    assert len(speakers) == len(folders)
    for folder, speaker in zip(folders, speakers, strict=True):
        if folder is None:
            assert speaker.adapter is None
            continue
        loaded = get_peft_model_state_dict(speaker.model.model, adapter_name=str(speaker.adapter))
        stored = load_file(folder / ADAPTER)
        assert loaded.keys() == stored.keys() and all(torch.equal(loaded[name], stored[name]) for name in stored)


def test_trained_biases_are_not_left_on_for_the_other_sides(
    adapters: list[Path], model_folder: Path, tmp_path: Path
) -> None:
    """They are in the layers of the base, and no adapter that is switched off takes them along."""
    profile = make_profile(model_folder, tmp_path, adapter={"method": "lora", "bias": "lora_only"})
    first, second, base = load_speakers(
        profile, [adapters[0], adapters[1], None], "cpu", lambda detail: None, trained_on=""
    )
    assert len({id(one.model.bare) for one in (first, second, base)}) == 3
    assert base.adapter is None and not hasattr(base.model.model, "peft_config")
    for folder, speaker in zip(adapters, (first, second), strict=False):
        loaded = get_peft_model_state_dict(speaker.model.model, adapter_name=str(speaker.adapter))
        assert all(torch.equal(loaded[name], weight) for name, weight in load_file(folder / ADAPTER).items())


def test_another_base_than_that_of_the_run_does_not_answer(
    adapters: list[Path], model_folder: Path, tmp_path: Path
) -> None:
    profile = to_toml(make_profile(model_folder, tmp_path, adapter={"method": "lora"}))
    for folder in (None, str(adapters[0])):
        chosen = {"folders": [folder], "trained_on": "0" * 64}
        with pytest.raises(ModelError, match="is not the one that was trained on"):
            open_chat(lambda detail: None, chosen, profile)
