"""The model that a run has trained, from a checkpoint or final/, ready to answer."""

import contextlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

from ftui.errors import ModelError
from ftui.profile.schema import Profile

from ..data.load_rows import LoadedEncoder, load_encoder
from ..data.tokens.encode import Encoder
from ..models.attention import attention_here
from ..models.files.blame import blame
from ..models.files.trained_base import check_base, pin_base
from ..models.fused_lora import fuse_adapters
from ..models.load_model import load_model
from ..models.lora import BaseReference, stored_adapter
from ..models.methods import storage_dtype
from ..models.model_parts import autocast
from ..models.quantization import keep_layout, quantized_loading
from ..models.special_tokens import fit_embeddings
from ..models.weights import is_adapted
from ..system.device import Hardware, find_hardware


@dataclass(frozen=True)
class AnsweringModel:
    """A model in evaluation mode on its device, and what turns text into its tokens.

    `model` carries an adapter of PEFT where one was trained. `stop_ids` end an answer.
    """

    model: Any
    tokenizer: PreTrainedTokenizerBase
    stop_ids: tuple[int, ...]
    hardware: Hardware
    is_chat: bool

    @property
    def bare(self) -> Any:
        """Transformers' own model, in whose layers the adapter is."""
        return self.model.get_base_model() if is_adapted(self.model) else self.model

    @contextmanager
    def answering(self, adapter: str | None) -> Iterator[None]:
        """A block that computes as evaluations do, with this adapter or, where there are any, without."""
        off: Any = contextlib.nullcontext()
        if is_adapted(self.model):
            if adapter is None:
                off = self.model.disable_adapter()
            elif self.model.active_adapter != adapter:
                self.model.set_adapter(adapter)
        keeps_casts = not hasattr(self.bare, "sharded_base")
        with torch.no_grad(), autocast(self.hardware, keeps_casts=keeps_casts), off:
            yield


def load_trained(
    profile: Profile, folder: Path | None, cache: Path, report: Callable[[str], None], *, device: str | None = None,
    trained_on: str = "",
) -> AnsweringModel:  # fmt: skip
    """The model of a run's profile with the weights in `folder` (`None`: the base as the run began).

    `device` takes the place of the profile's. `trained_on` is the run's fingerprint of its base ("": unknown).
    Flash attention that cannot run there is done without, and said.

    Raises:
        ModelError, HardwareError: it cannot be loaded, or not here; it is a reward model; the base is another one.
    """
    if profile.gives_scores:
        raise ModelError("The run trained a reward model: it gives scores, and answers no prompts.")
    if folder is not None and not profile.adapter.is_lora:
        start = {"name_or_path": str(folder), "revision": None, "from_scratch": None}
        profile = profile.model_copy(update={"model": profile.model.model_copy(update=start)})
        trained_on = ""  # the base is in none of it
    profile, hardware = pin_base(profile, trained_on), find_hardware(profile, device)
    section = attention_here(profile.model, hardware)
    if section is not profile.model:
        profile = profile.model_copy(update={"model": section})
        hardware = replace(hardware, name=f"{hardware.name} (without flash attention)")  # wherever it is named
    report("loading the tokenizer")
    loaded = load_encoder(profile, [], cache, report, weights=True)
    assert loaded.folder is not None, "what is trained from scratch is loaded from a checkpoint"
    if trained_on:
        check_base(loaded.folder, loaded.commit, trained_on, cache, report)
    report("loading the model")
    model = _load(profile, loaded, loaded.folder, folder, hardware)
    return answering_model(profile, model, loaded.encoder, hardware)


def answering_model(profile: Profile, model: Any, encoder: Encoder, hardware: Hardware) -> AnsweringModel:
    """A model of the profile that is loaded, perhaps in training, with what it needs to answer."""
    is_chat = profile.run.stage != "pretrain" and bool(encoder.tokenizer.chat_template)
    return AnsweringModel(model, encoder.tokenizer, tuple(encoder.stop_ids), hardware, is_chat)


def _load(profile: Profile, loaded: LoadedEncoder, base: Path, folder: Path | None, hardware: Hardware) -> Any:
    quantised = quantized_loading(profile.adapter, hardware)
    model: Any = load_model(base, profile.model, storage_dtype(profile, hardware), hardware=hardware, **quantised)
    fit_embeddings(model, loaded.encoder.tokenizer, loaded.new_token_ids)
    if quantised:
        keep_layout(model)
    else:
        model = model.to(hardware.device)
    if folder is not None and profile.adapter.is_lora:
        model = stored_adapter(model, folder, BaseReference(str(profile.model.name_or_path), loaded.commit))
        if profile.adapter.use_fused_lora:
            fuse_adapters(model, hardware)
    return model.eval()


def add_adapter(trained: AnsweringModel, folder: Path, name: str) -> None:
    """Load another adapter onto the same base.

    Raises:
        ModelError: it does not fit.
    """
    with blame(folder, "used as an adapter"):
        trained.model.load_adapter(str(folder), adapter_name=name, is_trainable=False)
    trained.model.eval()
