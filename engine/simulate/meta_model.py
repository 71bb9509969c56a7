"""The model of a profile on the `meta` device, made by the engine's own modules: the one that a run would train."""

import copy
import warnings
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ftui.errors import ModelError
from ftui.hardware.cpu import usable_cores
from ftui.hardware.devices import Card
from ftui.models.config_reader import vocabulary_size
from ftui.profile.schema import Profile

from ..build import prepare_model
from ..models.attention import FLASH, attention_for
from ..models.files.blame import blame
from ..models.load_model import auto_class, check_kind, check_score_head, check_sizes, read_config
from ..models.methods import storage_dtype
from ..models.new_model import new_config, new_model
from ..models.quantization import keep_layout, quantization
from ..models.special_tokens import fit_embeddings
from ..models.starting_point import StartingPoint
from ..system.device import Hardware, best_precision
from .meta_ops import patch_functions
from .quantized_layers import pack_layers

META = torch.device("meta")


@dataclass(frozen=True)
class MetaModel:
    """A model ready to be trained, if it had weights.

    `config` is that of the base; `masks` says whether packed rows need a mask (flash attention keeps them apart alone).
    """

    model: Any
    base: PreTrainedModel
    config: Any
    hardware: Hardware
    masks: bool


class _Vocabulary:
    """As much of a tokenizer as decides the shape of a new model."""

    pad_token_id = eos_token_id = bos_token_id = None

    def __init__(self, size: int) -> None:
        self._size = size

    def __len__(self) -> int:
        return self._size


def card_hardware(profile: Profile, card: Card) -> Hardware:
    """What `find_hardware` would find on a machine with this card. The CPU is this machine's own.

    A GPU counts as one of this machine where torch has one of its kind.
    """
    precision = profile.train.precision
    if precision == "auto" and card.kind == "cuda":
        precision = "bf16" if card.has_bf16 else "fp16"
    elif precision == "auto":
        precision = best_precision(torch.device(card.kind))
    threads = profile.hardware.num_threads or max(1, usable_cores() // profile.hardware.num_processes)
    is_here = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}.get(card.kind, True)
    return Hardware(torch.device(card.kind), precision, threads, card.title, None, card.capability, is_here)


def make_meta_model(
    profile: Profile,
    folder_or_config: Any,
    hardware: Hardware,
    adapter: Path | None = None,
    vocabulary: tuple[PreTrainedTokenizerBase, tuple[int, ...]] | None = None,
) -> MetaModel:
    """The model of a profile as it would be trained, at full depth, without memory for its weights.

    Compiled layers and Liger's kernels stand for the plain ones.

    Args:
        folder_or_config: where its config.json lies, or transformers' config; for a model from scratch it is not
            looked at.
        adapter: the folder of the one to continue from.
        vocabulary: the tokenizer, and the ids of the entries that the profile has added to it; where it is not known,
            the model is taken to have room for them.

    Raises:
        ModelError: as loading it would; and for models that bring their own code, which is not run on `meta`.
    """
    dtype, section = storage_dtype(profile, hardware), profile.model
    config = _config(profile, folder_or_config)
    folder = folder_or_config if isinstance(folder_or_config, Path) else None
    attention = attention_for(section.attn_implementation, config, hardware)
    masks = attention != FLASH
    attention = attention if masks else "sdpa"  # which takes the same kernel, and has it on `meta`
    with warnings.catch_warnings(), META, _skip_weight_init():
        warnings.simplefilter("ignore")
        base = _base(profile, config, dtype, attention, hardware, folder)
        new_ids = _last_ids(base, len(section.extra_special_tokens)) if vocabulary is None else vocabulary[1]
        if vocabulary is not None:
            fit_embeddings(base, *vocabulary)
        start = StartingPoint(Path("base"), None, adapter, new_ids)
        others = {"torch_compile": False, "use_liger_kernel": False}
        if hardware.device.type == "cpu":  # which stores in host memory anyway
            others["activation_offload"] = False
        plain = profile.train.model_copy(update=others)
        model = prepare_model(base, profile.model_copy(update={"train": plain}), hardware, start)
    return MetaModel(model.train(), base, config, hardware, masks)


def _config(profile: Profile, folder_or_config: Any) -> Any:
    scratch = profile.model.from_scratch
    if scratch is not None:
        return new_config(scratch, _Vocabulary(vocabulary_size(scratch)))  # type: ignore[arg-type]
    if profile.model.trust_remote_code:
        raise ModelError(
            "A model that brings its own Python code is not simulated.", hint="Its code runs in a run only."
        )
    config = copy.deepcopy(folder_or_config)  # a simulation takes layers out of it
    if isinstance(folder_or_config, Path):
        config = read_config(folder_or_config)
    name = Path(str(profile.model.name_or_path))
    with blame(name / "config.json", "used"):
        check_kind(config, name, scores=profile.gives_scores)
    return config


def _base(
    profile: Profile,
    config: Any,
    dtype: torch.dtype | str,
    attention: str | None,
    hardware: Hardware,
    folder: Path | None,
) -> PreTrainedModel:
    if profile.model.from_scratch is not None:
        return new_model(config, dtype, attention)
    if dtype == "auto":  # as it lies in its files
        dtype = getattr(config, "dtype", None) or torch.float32
    with blame((folder or Path(str(profile.model.name_or_path))) / "config.json", "made into a model"):
        if profile.gives_scores:
            config.num_labels = 1
        make = auto_class(scores=profile.gives_scores).from_config
        made = make(config, dtype=dtype, attn_implementation=attention)
    assert isinstance(made, PreTrainedModel)
    if profile.gives_scores:
        check_score_head(made)
    if folder is not None:
        check_sizes(made, folder)
    if profile.adapter.is_quantised:
        pack_layers(made, quantization(profile.adapter, hardware))
        keep_layout(made)
    return made


def _skip_weight_init() -> AbstractContextManager[None]:
    """While it is open, no weights are drawn: on `meta` that costs torch 0.25 ms each, for nothing."""

    def leave(tensor: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
        return tensor

    names = ("uniform_", "normal_", "zeros_", "ones_", "kaiming_uniform_", "orthogonal_")
    return patch_functions([(nn.init, name, leave) for name in names])


def _last_ids(base: PreTrainedModel, number: int) -> tuple[int, ...]:
    embeddings: Any = base.get_input_embeddings()
    rows = int(embeddings.weight.shape[0])
    return tuple(range(rows - number, rows))
