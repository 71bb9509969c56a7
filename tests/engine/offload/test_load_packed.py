"""A base packed to 4 bits tensor by tensor is the one that is packed as a whole."""

from pathlib import Path
from typing import Any

import pytest
import torch

from ftui.engine.models.load_model import load_model
from ftui.engine.models.quantization import quantized_loading
from ftui.engine.offload.load_packed import load_packed
from ftui.profile.sections.adapter import AdapterSection
from ftui.profile.sections.model import ModelSection
from tests.engine.distributed.test_load_shards import CPU, GEMMA4, contents, save_model


@pytest.mark.parametrize(
    ("kind", "more"),
    [("llama", {"tie_word_embeddings": True}), ("gemma4_text", GEMMA4)],
)
def test_packed_tensors_and_numbers_are_those_of_the_model(kind: str, more: dict[str, Any], tmp_path: Path) -> None:
    folder = save_model(tmp_path, kind, **more)
    section = ModelSection(name_or_path=str(folder))
    options = quantized_loading(AdapterSection(method="qlora"), CPU)
    whole = contents(load_model(folder, section, torch.float32, hardware=CPU, **options))
    packed = contents(load_packed(folder, section, torch.float32, options["quantization"], hardware=CPU))
    assert packed.keys() == whole.keys()
    for name, tensor in whole.items():
        assert torch.equal(packed[name], tensor), name
