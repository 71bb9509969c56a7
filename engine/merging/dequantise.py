"""A base as a quantised run computes with it: each weight packed by bitsandbytes and made whole again."""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers import BitsAndBytesConfig, PreTrainedModel
from transformers.pytorch_utils import Conv1D
from transformers.quantizers.auto import AutoHfQuantizer

from ftui.errors import ModelError


def packed_layers(model: PreTrainedModel, config: BitsAndBytesConfig) -> dict[str, bool]:
    """The layers of a model on `meta` that transformers would quantise, by name, and whether each lies the other way
    round (Conv1D). The model is changed by it.
    """
    from bitsandbytes.nn.modules import Linear4bit, Linear8bitLt

    turned = {name for name, module in model.named_modules() if isinstance(module, Conv1D)}
    quantizer: Any = AutoHfQuantizer.from_config(config, pre_quantized=False)
    quantizer.preprocess_model(model=model, device_map={"": "meta"})
    layers = [name for name, module in model.named_modules() if isinstance(module, Linear4bit | Linear8bitLt)]
    return {name: name in turned for name in layers}


def dequantised(
    weight: Tensor, config: BitsAndBytesConfig, dtype: torch.dtype, device: torch.device, *, turned: bool
) -> Tensor:
    """A weight (outputs, inputs; `turned`: the other way round) as it is once it has been packed, in float32.

    `dtype` is that in which the run loads the base, `device` where it packs it.

    Raises:
        ModelError: its layers compute in another type than what the weight is made whole in.
    """
    from bitsandbytes import functional
    from bitsandbytes.nn.modules import Params4bit

    weight = (weight.T if turned else weight).to(dtype).contiguous()
    if config.load_in_8bit:
        numbers, scales, _ = functional.int8_vectorwise_quant(weight.to(device, torch.float16))
        whole = functional.int8_vectorwise_dequant(numbers, scales).float()
    else:
        unpacked: Any = Params4bit(
            weight, requires_grad=False, quant_type=config.bnb_4bit_quant_type,
            compress_statistics=config.bnb_4bit_use_double_quant, quant_storage=config.bnb_4bit_quant_storage,
        )  # fmt: skip
        packed = unpacked.to(device)
        whole = functional.dequantize_4bit(packed.data, packed.quant_state).float()
    if not torch.isfinite(whole).all():
        raise ModelError("A weight is NaN or infinite once it has been quantised.")
    result: Tensor = (whole.T if turned else whole).contiguous().cpu()
    return result


def compute_in_floats(model: nn.Module) -> None:
    """Let the packed layers of a model compute in float32 with their weights made whole.

    LLM.int8 rounds the inputs of a layer, too, where no gradient is needed: no weights of a merged model could show
    that.
    """
    from bitsandbytes import functional
    from bitsandbytes.nn.modules import Linear4bit, Linear8bitLt

    def whole(layer: Any, inputs: Tensor) -> Tensor:
        weight = functional.int8_vectorwise_dequant(layer.weight.data, layer.weight.SCB)
        return nn.functional.linear(inputs, weight.to(inputs.dtype), layer.bias)

    for layer in model.modules():
        if isinstance(layer, Linear4bit):
            layer.compute_dtype, layer.compute_type_is_set = torch.float32, True
        elif isinstance(layer, Linear8bitLt):
            layer.forward = partial(whole, layer)  # type: ignore[method-assign]
