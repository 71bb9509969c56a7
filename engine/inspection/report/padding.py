"""The places in the micro-batches of an epoch that hold no token, counted on the plan of the run itself."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from transformers.utils.import_utils import is_flash_attn_2_available

from ftui.dataset.report import Padding
from ftui.profile.schema import Profile

from ...data.load_rows import LoadedData
from ...models.attention import FLASH
from ...models.joined_rows import can_join
from ...models.load_model import read_config
from ...models.new_model import new_config
from ...planning.plan import SourceShare, make_plan


def joins_here(profile: Profile, read: LoadedData) -> bool:
    """Whether a run on this machine would lay rows end to end, as far as that is known without the weights."""
    config: Any
    if read.folder is None:
        assert profile.model.from_scratch is not None, "a model that is not new has a folder"
        config = new_config(profile.model.from_scratch, read.tokenizer)
    else:
        config = read_config(read.folder, trusted=profile.model.trust_remote_code)
    device: str = profile.hardware.device
    kernel: str = profile.model.attn_implementation
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if kernel == "auto":
        kernel = FLASH if device == "cuda" and is_flash_attn_2_available() else "sdpa"
    return can_join(profile, config, kernel, device)


def padding_of(
    profile: Profile, lengths: np.ndarray, shares: Sequence[SourceShare], *, joined: bool = False
) -> Padding:
    """As the profile has it, and with data.packing off and on. `lengths` (int32): of the examples to train on.

    There is none where rows are `joined`.
    """
    if joined:
        return Padding(0.0, 0.0, 0.0)
    alone = _share(profile, lengths, shares, packing=False)
    packed = _share(profile, lengths, shares, packing=True)
    return Padding(packed if profile.data.packing else alone, alone, packed)


def _share(profile: Profile, lengths: np.ndarray, shares: Sequence[SourceShare], *, packing: bool) -> float:
    train = profile.train
    size = profile.micro_batch
    plan = make_plan(
        lengths,
        sources=shares,
        effective_batch=profile.effective_batch,
        max_steps=1,
        num_train_epochs=None,
        strategy=train.train_sampling_strategy,
        seed=train.rows_seed,
        packing_length=profile.per_example * profile.data.max_length if packing else None,
    )
    ordered = plan.lengths[plan.order(0)].astype(np.int64)
    places = _places(ordered, plan.effective_batch, size)
    return 1 - int(ordered.sum()) / places if places else 0.0


def _places(lengths: np.ndarray, effective_batch: int, size: int) -> int:
    """Places in all micro-batches of `size` rows, when the rows of each step are sorted as `Plan.step` does it."""
    full = len(lengths) // effective_batch * effective_batch
    steps = -np.sort(-lengths[:full].reshape(-1, effective_batch), axis=1)
    total = 0
    for part in (steps, -np.sort(-lengths[full:])[None, :]):
        for start in range(0, part.shape[1], size):
            there = min(size, part.shape[1] - start)
            total += int(part[:, start].sum()) * there  # the longest of each comes first
    return total
