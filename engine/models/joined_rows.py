"""The sequences of a micro-batch end to end in one row: no padding, and no attention from one to another.

FlashAttention's package does so by itself, told by the positions. For sdpa on a CPU it is done here: each sequence goes
through torch's kernel by itself, so that it is kept apart exactly, and no place is computed that holds no token. So the
prompt of a pair, or of a group of answers, can be there once: each answer goes through the kernel by itself, with the
keys of the prompt.

The model itself has to show at the start that it keeps the sequences of a row apart, also where rows are packed.
"""

from itertools import groupby
from typing import Any

import torch
from torch import Tensor, nn
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from ftui.errors import ModelError
from ftui.models.joinable import JOINABLE
from ftui.profile.schema import Profile

from ..objectives.loss import Batch, RowLayout, model_and_inputs, under_adapter
from ..system.device import Hardware
from .load_model import gives_scores

TOLERANCE = 1e-3  # the same sequence after two different neighbours: equal but for the order of additions
ROUNDED = 3e-2  # the same in 16 bits, as a share of the largest logit
WINDOWS = ("sliding_window", "attention_chunk_size")  # keys of a config


def choose_layout(model: nn.Module, profile: Profile, hardware: Hardware) -> RowLayout:
    """The layout with the fewest places to compute in which `model`, as it is trained, has shown that it is exact.

    Raises:
        ModelError: `data.packing` is on, and the model keeps packed sequences apart in no way.
    """
    config = under_adapter(model).config
    kernel = str(config._attn_implementation)
    if can_join(profile, config, kernel, hardware.device.type):
        has_groups = profile.samples_answers and profile.sampled.num_generations > 1
        shares = (profile.per_example > 1 or has_groups) and kernel == "sdpa"
        for layout in (RowLayout.SHARED, RowLayout.JOINED) if shares else (RowLayout.JOINED,):
            if keeps_apart(model, hardware, layout):
                return layout
    if profile.data.packing:
        check_packing(model, hardware)
    return RowLayout.PADDED


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
    if not keeps_apart(model, hardware):
        raise ModelError(
            f"Packed sequences would see each other in this model ({model.config.model_type}).",
            hint="Set data.packing = false.",
        )


def keeps_apart(model: Any, hardware: Hardware | None = None, layout: RowLayout = RowLayout.PADDED) -> bool:
    """Whether a sequence gives the same logits after two different neighbours; `model` may carry an adapter.

    In layout `SHARED` it is there once by itself, and once as the second answer to a prompt.

    With `hardware` it is asked where and in the type in which the model will be trained, since other kernels work
    there; the model is moved for that.
    """
    device, dtype = next(model.parameters()).device, torch.float32
    if hardware is not None:
        device, dtype = hardware.device, hardware.compute_dtype
        if next(model.parameters()).device.type != device.type:
            model.to(device)
    base, inputs = model_and_inputs(model, _trial(layout, device))
    was_training = model.training
    model.eval()
    with torch.no_grad(), torch.autocast(device.type, dtype=dtype, enabled=dtype != torch.float32):
        logits = base.base_model(**inputs)[0] if gives_scores(base) else base(**inputs).logits
        logits = logits.flatten(0, -2)
    model.train(was_training)
    first, second = logits[5:8], logits[-3:]
    limit = TOLERANCE if logits.dtype == torch.float32 else ROUNDED * float(logits.abs().max())
    return float((first - second).abs().max()) <= limit


def _trial(layout: RowLayout, device: torch.device) -> Batch:
    """Its places 5 to 7 and its last three hold the same end of the same sequence (or the whole of it)."""
    prompt, answer = [5, 6, 7, 8, 9], [11, 12, 13]
    ids, positions, pieces = [*prompt, *answer, 15, 16, 17, 18, 19, *answer], [0, 1, 2, 3, 4, 0, 1, 2] * 2, (5, 3, 5, 3)
    if layout is RowLayout.SHARED:
        ids = [*prompt, *answer, *prompt, 15, 16, 17, *answer]
        positions, pieces = [*range(8), *range(8), 5, 6, 7], (8, 5, -3, -3)
    shape = (2, 8) if layout is RowLayout.PADDED else (1, -1)
    none = torch.empty(0, dtype=torch.int64, device=device)
    return Batch(
        torch.tensor(ids, device=device).view(shape), torch.tensor(positions, device=device).view(shape), none, none,
        {}, joined=None if layout is RowLayout.PADDED else pieces,
    )  # fmt: skip


def settle_joined_rows() -> None:
    """Let sdpa know joined rows, for the whole process."""
    ALL_ATTENTION_FUNCTIONS.register("sdpa", _attend)


def _attend(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **options: Any
) -> tuple[Tensor, None]:
    """transformers' own, unless the mask is what `model_and_inputs` puts there: the pieces of a row (`Batch.joined`).

    Those of one length that follow each other are one batch. (1, heads, tokens, size) -> (1, tokens, heads, size)
    """
    if attention_mask is None or attention_mask.dtype != torch.int64:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **options)
    runs = [(length, len(list(equal))) for length, equal in groupby(attention_mask.flatten().tolist())]
    sizes = [abs(length) * number for length, number in runs]
    outputs, prompt = [], (key, value)
    for (length, number), *parts in zip(runs, *(part.split(sizes, dim=2) for part in (query, key, value)), strict=True):
        q, k, v = (part[0].unflatten(1, (number, abs(length))).transpose(0, 1) for part in parts)
        mask = None
        if length > 0:
            prompt = k[-1:], v[-1:]
        else:
            k, v = (
                torch.cat([old.expand(number, -1, -1, -1), own], 2) for old, own in zip(prompt, (k, v), strict=True)
            )
            mask = q.new_ones(1, 1, q.shape[2], k.shape[2], dtype=torch.bool).tril(k.shape[2] - q.shape[2])
        outputs.append(sdpa_attention_forward(module, q, k, v, mask, **options)[0].flatten(0, 1))
    return (torch.cat(outputs) if len(outputs) > 1 else outputs[0]).unsqueeze(0), None
