"""All that the models package uses of transformers' private interface, in one place.

Tried with transformers 5.24 (pyproject.toml allows 5.24 to 5.x).
tests/engine/models/test_transformers_internals.py says what to do when another version has changed one of
these.
"""

import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    conversion_mapping,
    core_model_loading,
    masking_utils,
    modeling_utils,
)
from transformers.integrations import sdpa_attention
from transformers.utils.import_utils import is_tracing

_original_use_gqa = sdpa_attention.use_gqa_in_sdpa
_find_sequences = masking_utils.find_packed_sequence_indices


def knows_gguf_split(name: str | None) -> bool:
    """Whether transformers splits text as a GGUF file's `tokenizer.ggml.pre` of this name says."""
    from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS

    return name in GGUF_PRE_TOKENIZER_SPLITS


def supports_flash(config: Any) -> bool:
    """Whether the model type of a config has flash attention; unknown for code that comes with a model, so `False`."""
    mapping = AutoModelForCausalLM._model_mapping
    return type(config) in mapping and bool(getattr(mapping[type(config)], "_supports_flash_attn", False))


def can_give_scores(config: Any) -> bool:
    """Whether the model type of a config has a class for sequence classification; code that comes with a model may."""
    is_known = type(config).__module__.startswith("transformers.")
    return not is_known or type(config) in AutoModelForSequenceClassification._model_mapping


def let_sdpa_share_keys(share: bool) -> None:
    """Whether sdpa gets the keys and values that heads share as they are, or repeated for each head."""
    setattr(sdpa_attention, "use_gqa_in_sdpa", _original_use_gqa if share else _never)  # noqa: B010


@contextmanager
def redirect_weight_files(take: Callable[..., None]) -> Iterator[None]:
    """While it is open, `save_pretrained` calls `take(tensors, path, metadata=...)` for each file of weights.

    Only it knows which tensors go by which names into which file. The file is not written.
    """
    original = getattr(modeling_utils, "safe_save_file")  # noqa: B009
    setattr(modeling_utils, "safe_save_file", take)  # noqa: B010
    try:
        yield
    finally:
        setattr(modeling_utils, "safe_save_file", original)  # noqa: B010


@contextmanager
def packing_is(packed: bool) -> Iterator[None]:
    """A block in which a model's forward need not look whether rows are packed: that waits for the device each time."""

    def find_sequences(position_ids: Tensor) -> Tensor | None:
        if is_tracing(position_ids):
            return _find_sequences(position_ids)
        return (torch.diff(position_ids, prepend=position_ids[:, :1] - 1) != 1).cumsum(-1) if packed else None

    setattr(masking_utils, "find_packed_sequence_indices", find_sequences)  # noqa: B010
    try:
        yield
    finally:
        setattr(masking_utils, "find_packed_sequence_indices", _find_sequences)  # noqa: B010


@dataclass(frozen=True)
class StoredPart:
    """What a tensor in a file is of a weight in the model: all of it, or of one expert the n-th of some equal parts,
    one below the other."""

    name: str
    expert: int | None = None
    part: int = 0
    num_parts: int = 1


def parts_of_model(model: Any, stored: Iterable[str]) -> dict[str, StoredPart]:
    """What the tensors in a model's files are of its weights, by their names there.

    Those are left out that transformers makes something else of than one weight, or a stack of experts.
    """
    weights = model.state_dict()
    transforms = conversion_mapping.get_model_conversion_mapping(model)
    renamings = [one for one in transforms if isinstance(one, core_model_loading.WeightRenaming)]
    converters = [one for one in transforms if isinstance(one, core_model_loading.WeightConverter)]
    parts = {}
    for name in stored:
        renamed = core_model_loading.rename_source_key(name, renamings, [], model.base_model_prefix, weights)[0]
        if renamed in weights:
            parts[name] = StoredPart(renamed)
            continue
        for converter in converters:
            target, pattern = converter.rename_source_key(renamed)
            if pattern is None:
                continue
            kinds = [type(operation).__name__ for operation in converter.operations]
            if kinds in (["MergeModulelist"], ["MergeModulelist", "Concatenate"]) and target in weights:
                patterns = converter.source_patterns
                expert = int(re.findall(r"\.(\d+)(?=\.)", renamed)[-1])
                parts[name] = StoredPart(target, expert, patterns.index(pattern), len(patterns))
            break
    return parts


def _never(attention_mask: Tensor | None, key: Tensor, value: Tensor) -> bool:
    return False


def experts_balance(base: Any, router_logits: Any, mask: Tensor | None) -> Tensor:
    """The balance loss of a mixture of experts by the function in its own modeling file; `mask` leaves padding out."""
    balance = sys.modules[type(base).__module__].load_balancing_loss_func
    loss: Tensor = balance(router_logits, base.num_experts, base.num_experts_per_tok, mask)
    return loss
