"""A model in 4 bits read into host memory: each tensor is packed on the device as it is read, and leaves it packed.

So the device never holds more of the layers than one tensor, and packs them to the same bytes as without.
"""

from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import BitsAndBytesConfig, PreTrainedModel

from ftui.profile.sections.model import ModelSection

from ..distributed.load_shards import ShardReader, empty_model, make_score_head, store_in_4bit
from ..models.attention import attention_for
from ..models.files.blame import blame
from ..models.load_model import check_kind, read_config
from ..system.device import Hardware
from .base_layers import host_copy


def load_packed(
    folder: Path, section: ModelSection, dtype: torch.dtype | str, quantization: BitsAndBytesConfig, *,
    hardware: Hardware, scores: bool = False,
) -> PreTrainedModel:  # fmt: skip
    """The model in `folder` as `load_model` gives it, its layers in 4 bits and in host memory.

    Raises:
        ModelError: as `load_model`; or its tensors cannot be read one by one.
    """
    config = read_config(folder)
    check_kind(config, folder, scores=scores)
    model: Any = empty_model(
        config, dtype, attention_for(section.attn_implementation, config, hardware), folder, scores
    )
    store_in_4bit(model, quantization, hardware)
    model.requires_grad_(False)
    with blame(folder, "loaded"):
        reader = ShardReader(model, folder, None, hardware.device)
        reader.fill_buffers(model)
        for module in model.modules():
            for name, weight in module._parameters.items():
                if weight is None or not weight.is_meta or not reader.has(weight):
                    continue
                if hasattr(weight, "quant_type"):
                    packed = reader.packed(weight)
                    packed.data = host_copy(packed.data, hardware.device)
                    module._parameters[name] = packed
                else:
                    module._parameters[name] = nn.Parameter(reader.read(weight), requires_grad=False)
        model.tie_weights()
    if scores:
        make_score_head(model, folder, hardware)
    model.eval()
    assert isinstance(model, PreTrainedModel)
    return model
