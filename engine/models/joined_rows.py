"""The sequences of a micro-batch end to end in one row: no padding, and no attention from one to another.

FlashAttention's package does so by itself, told by the positions. For sdpa on a CPU it is done here: each sequence goes
through torch's kernel by itself, so that it is kept apart exactly, and no place is computed that holds no token.

The model itself has to show at the start that it keeps the sequences of a row apart, also where rows are packed.
"""

from itertools import groupby
from typing import Any

import torch
from torch import Tensor, nn
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from ftui.errors import ModelError
from ftui.profile.schema import Profile

from ..objectives.loss import Batch, model_and_inputs, under_adapter
from ..system.device import Hardware
from .load_model import gives_scores

TOLERANCE = 1e-3  # the same sequence after two different neighbours: equal but for the order of additions
ROUNDED = 3e-2  # the same in 16 bits, as a share of the largest logit
WINDOWS = ("sliding_window", "attention_chunk_size")  # keys of a config
JOINABLE = frozenset({
    "llama", "mistral", "qwen2", "qwen3", "smollm3", "gpt2", "gpt_neox", "phi", "phi3", "gemma", "gemma3_text", "olmo2",
    "olmo3", "cohere", "cohere2", "granite", "granitemoe", "starcoder2", "glm4", "nemotron", "ernie4_5", "exaone4",
    "hunyuan_v1_dense", "mixtral", "qwen2_moe", "qwen3_moe", "olmoe",
})  # fmt: skip
"""Model types of transformers whose layers mix tokens in sdpa only, and hand it the mask that the model was given."""


def joins_rows(model: nn.Module, profile: Profile, hardware: Hardware) -> bool:
    """Whether the rows of a micro-batch are joined; `model`, as it is trained, has shown that it keeps them apart.

    Raises:
        ModelError: `data.packing` is on, and the model keeps packed sequences apart in no way.
    """
    config = under_adapter(model).config
    is_allowed = can_join(profile, config, str(config._attn_implementation), hardware.device.type)
    if is_allowed and keeps_apart(model, hardware, joined=True):
        return True
    if profile.data.packing:
        check_packing(model, hardware)
    return False


def can_join(profile: Profile, config: Any, kernel: str, device_type: str) -> bool:
    """Whether profile, type of model and attention kernel allow it.

    The noise of NEFTune depends on a row's length, the balance of experts on all places of a micro-batch, and compiled
    layers on the number of sequences. sdpa on a GPU would need a launch for each sequence.
    """
    train, text = profile.train, config.get_text_config()
    balances_experts = getattr(config, "output_router_logits", False)
    if not profile.data.padding_free or train.torch_compile or train.neftune_noise_alpha or balances_experts:
        return False
    if kernel.startswith("flash"):
        return device_type == "cuda"
    windows = [getattr(text, key, None) for key in WINDOWS]
    is_known = type(config).__module__.startswith("transformers.") and text.model_type in JOINABLE
    is_cut = any(isinstance(window, int) and window < profile.data.max_length for window in windows)
    return kernel == "sdpa" and device_type == "cpu" and is_known and not is_cut


def check_packing(model: Any, hardware: Hardware | None = None) -> None:
    """Refuse to pack rows where sequences would see each other: see `keeps_apart`.

    Raises:
        ModelError: they do (an attention kernel or model type that ignores position_ids).
    """
    if not keeps_apart(model, hardware, joined=False):
        raise ModelError(
            f"Packed sequences would see each other in this model ({model.config.model_type}).",
            hint="Set data.packing = false.",
        )


def keeps_apart(model: Any, hardware: Hardware | None = None, *, joined: bool) -> bool:
    """Whether a sequence gives the same logits after two different neighbours; `model` may carry an adapter.

    With `hardware` it is asked where and in the type in which the model will be trained, since other kernels work
    there; the model is moved for that.
    """
    device, dtype = next(model.parameters()).device, torch.float32
    if hardware is not None:
        device, dtype = hardware.device, hardware.compute_dtype
        if next(model.parameters()).device.type != device.type:
            model.to(device)
    shape = (1, 16) if joined else (2, 8)
    ids = torch.tensor([5, 6, 7, 8, 9, 11, 12, 13, 15, 16, 17, 18, 19, 11, 12, 13], device=device).view(shape)
    positions = torch.tensor([0, 1, 2, 3, 4, 0, 1, 2] * 2, device=device).view(shape)
    none = torch.empty(0, dtype=torch.int64, device=device)
    batch = Batch(ids, positions, none, none, {}, joined=(5, 3, 5, 3) if joined else None)
    base, inputs = model_and_inputs(model, batch)
    was_training = model.training
    model.eval()
    with torch.no_grad(), torch.autocast(device.type, dtype=dtype, enabled=dtype != torch.float32):
        logits = base.base_model(**inputs)[0] if gives_scores(base) else base(**inputs).logits
        logits = logits.reshape(16, -1)
    model.train(was_training)
    first, second = logits[5:8], logits[13:16]
    limit = TOLERANCE if logits.dtype == torch.float32 else ROUNDED * float(logits.abs().max())
    return float((first - second).abs().max()) <= limit


def settle_joined_rows() -> None:
    """Let sdpa know joined rows, for the whole process."""
    ALL_ATTENTION_FUNCTIONS.register("sdpa", _attend)


def _attend(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **options: Any
) -> tuple[Tensor, None]:
    """transformers' own, unless the mask is what `model_and_inputs` puts there: the lengths of joined sequences.

    Those of one length that follow each other are one batch. (1, heads, tokens, size) -> (1, tokens, heads, size)
    """
    if attention_mask is None or attention_mask.dtype != torch.int64:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **options)
    runs = [(length, len(list(equal))) for length, equal in groupby(attention_mask.flatten().tolist())]
    sizes = [length * number for length, number in runs]
    outputs = []
    for (length, number), *parts in zip(runs, *(part.split(sizes, dim=2) for part in (query, key, value)), strict=True):
        q, k, v = (part[0].unflatten(1, (number, length)).transpose(0, 1) for part in parts)
        outputs.append(sdpa_attention_forward(module, q, k, v, None, **options)[0].flatten(0, 1))
    return (torch.cat(outputs) if len(outputs) > 1 else outputs[0]).unsqueeze(0), None
